//! The counters of `inet:getstat/2`.

/// Packets and bytes in one direction, counted like the inet driver.
#[derive(Clone, Copy, Default)]
pub struct Traffic {
    pub bytes: u64,
    pub packets: u64,
    pub largest: u64,
    average: f64,
    deviation: f64,
}

impl Traffic {
    /// Counts a packet.
    pub fn count(&mut self, size: usize) {
        self.packets += 1;
        self.bytes += size as u64;
        self.largest = self.largest.max(size as u64);
        let packets = self.packets as f64;
        self.average += (size as f64 - self.average) / packets;
        self.deviation += (size as f64 - self.average - self.deviation) / packets;
    }

    /// Running average of packet sizes, rounded down.
    pub fn average(&self) -> u64 {
        self.average as u64
    }

    /// Average signed difference of packet sizes from the running average, without its sign,
    /// rounded down.
    pub fn deviation(&self) -> u64 {
        self.deviation.abs() as u64
    }
}

/// The traffic of a socket in both directions.
#[derive(Clone, Copy, Default)]
pub struct Statistics {
    pub received: Traffic,
    pub sent: Traffic,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_and_extremes() {
        let mut traffic = Traffic::default();
        assert_eq!(traffic.average(), 0);
        for size in [10, 20, 30] {
            traffic.count(size);
        }
        assert_eq!((traffic.bytes, traffic.packets, traffic.largest, traffic.average()), (60, 3, 30, 20));
        assert_eq!(traffic.deviation(), 5);
    }
}

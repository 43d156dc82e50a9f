//! The counters of `inet:getstat/2`.

/// Packets and bytes of one direction, counted as the inet driver does.
#[derive(Clone, Copy, Default)]
pub struct Traffic {
    pub bytes: u64,
    pub packets: u64,
    pub largest: u64,
    /// Running deviation of the packet size from its average.
    pub deviation: f64,
}

impl Traffic {
    /// Counts a packet.
    pub fn count(&mut self, size: usize) {
        let size = size as u64;
        self.packets += 1;
        self.bytes += size;
        self.largest = self.largest.max(size);
        let distance = (size as f64 - self.average() as f64).abs();
        self.deviation += (distance - self.deviation) / self.packets as f64;
    }

    /// The average size of a packet, rounded down.
    pub fn average(&self) -> u64 {
        self.bytes.checked_div(self.packets).unwrap_or(0)
    }
}

/// Both directions of a socket.
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
    }
}

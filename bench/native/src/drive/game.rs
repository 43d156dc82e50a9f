//! Players that answer the ticks of a server.

use super::measurement::{Fault, Measurement};
use super::protocol::{Connection, Protocol};
use super::transport::{Turn, read};
use crate::poller::Readiness;
use crate::reference::game::{ANSWER_BYTES, TICK_BYTES};
use crate::socket::{scratch, send};

static ANSWER: [u8; ANSWER_BYTES] = [b'!'; ANSWER_BYTES];

/// The players' side of the game.
#[derive(Debug)]
pub struct Game {
    scratch: Box<[u8]>,
}

impl Game {
    /// The protocol, with its scratch buffer.
    pub fn new() -> Self {
        Self { scratch: scratch() }
    }
}

impl Default for Game {
    fn default() -> Self {
        Self::new()
    }
}

impl Protocol for Game {
    /// Received bytes of the current tick.
    type State = usize;

    fn open(&mut self, _index: u32) -> usize {
        0
    }

    fn start(&mut self, _: &mut Connection<usize>, _: &mut Measurement) -> Result<(), Fault> {
        Ok(())
    }

    fn ready(
        &mut self,
        connection: &mut Connection<usize>,
        readiness: Readiness,
        measurement: &mut Measurement,
    ) -> Result<Turn, Fault> {
        if !readiness.readable() {
            return Ok(Turn::Done);
        }
        let Connection { socket, state, .. } = connection;
        read(socket, readiness, &mut self.scratch, |bytes| {
            measurement.transferred(bytes.len());
            let total = *state + bytes.len();
            let ticks = total / TICK_BYTES;
            *state = total % TICK_BYTES;
            measurement.completed(ticks as u64);
            for _ in 0..ticks {
                // If the server does not read, unsent answers are dropped, as on a bad line.
                send(&*socket, &ANSWER)?;
            }
            Ok(())
        })
    }
}

//! Many players that get the state of their world twice a second.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use rustix::io::Result;

use super::server::{Next, Service};
use crate::clock::{self, MILLISECOND};
use crate::connections::Connections;
use crate::poller::{Event, Interest, Poller, Token};
use crate::socket::{Drained, drain, scratch, send};

/// Bytes of a tick.
pub const TICK_BYTES: usize = 512;

/// Bytes that a player answers a tick with.
pub const ANSWER_BYTES: usize = 16;

const PERIOD: u64 = 500 * MILLISECOND;

static TICK: [u8; TICK_BYTES] = [b'.'; TICK_BYTES];

/// The game service.
#[derive(Debug)]
pub struct Game {
    scratch: Box<[u8]>,
    /// The next tick of each player. The period is the same for all, so a queue is in order of time by itself, and the
    /// ticks are spread over the period as the players came.
    ticks: VecDeque<(u64, Token)>,
}

/// A player.
#[derive(Debug)]
pub struct Player {
    socket: OwnedFd,
    /// Bytes of the last tick that the kernel did not take.
    owed: usize,
}

impl Game {
    /// The service, without players.
    pub fn new() -> Self {
        Self {
            scratch: scratch(),
            ticks: VecDeque::new(),
        }
    }
}

impl Default for Game {
    fn default() -> Self {
        Self::new()
    }
}

impl Player {
    /// Sends a tick. Who has not taken the last one is skipped: a state of the world that is late is worth nothing, but
    /// a tick that has begun is completed first.
    fn tick(&mut self) -> Result<()> {
        if self.owed > 0 {
            self.owed -= send(&self.socket, &TICK[TICK_BYTES - self.owed..])?;
        }
        if self.owed == 0 {
            let sent = send(&self.socket, &TICK)?;
            if sent > 0 {
                self.owed = TICK_BYTES - sent;
            }
        }
        Ok(())
    }
}

impl Service for Game {
    type Connection = Player;

    fn accepted(
        &mut self,
        socket: OwnedFd,
        token: Token,
        poller: &Poller,
    ) -> Result<Option<Player>> {
        poller.add(&socket, token, Interest::Read)?;
        self.ticks.push_back((clock::now() + PERIOD, token));
        Ok(Some(Player { socket, owed: 0 }))
    }

    fn ready(&mut self, player: &mut Player, _event: Event, _poller: &Poller) -> Result<Next> {
        Ok(match drain(&player.socket, &mut self.scratch) {
            Drained::Open => Next::Keep,
            Drained::Closed => Next::Close,
        })
    }

    fn deadline(&self) -> Option<u64> {
        self.ticks.front().map(|&(at, _)| at)
    }

    fn tick(&mut self, players: &mut Connections<Player>, now: u64) {
        while let Some(&(at, token)) = self.ticks.front()
            && at <= now
        {
            self.ticks.pop_front();
            // A player who has left is in the queue until the next tick would be due.
            if let Some(player) = players.get_mut(token) {
                match player.tick() {
                    // Late by more than a period, the ticks that were missed are not made up for.
                    Ok(()) => self.ticks.push_back(((at + PERIOD).max(now), token)),
                    Err(_) => drop(players.remove(token)),
                }
            }
        }
    }
}

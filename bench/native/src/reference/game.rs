//! Players that get the state of the game twice a second.

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

/// Bytes of an answer to a tick.
pub const ANSWER_BYTES: usize = 16;

const PERIOD: u64 = 500 * MILLISECOND;

static TICK: [u8; TICK_BYTES] = [b'.'; TICK_BYTES];

/// The game service.
#[derive(Debug)]
pub struct Game {
    scratch: Box<[u8]>,
    /// The next tick of each player. All have the same period, so the queue is in order of time,
    /// and the ticks are spread over the period by the times of connecting.
    ticks: VecDeque<(u64, Token)>,
}

/// A player.
#[derive(Debug)]
pub struct Player {
    socket: OwnedFd,
    /// Unsent bytes of the last tick.
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
    /// Sends a tick. A player that has not read the last one is skipped, because a late state is
    /// worthless; but a tick that was partly sent is completed first.
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
            // A player that has left stays in the queue until its next tick.
            if let Some(player) = players.get_mut(token) {
                match player.tick() {
                    // If it is late by more than a period, missed ticks are not repeated.
                    Ok(()) => self.ticks.push_back(((at + PERIOD).max(now), token)),
                    Err(_) => drop(players.remove(token)),
                }
            }
        }
    }
}

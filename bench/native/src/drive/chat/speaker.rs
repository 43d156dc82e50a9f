//! A speaker in a room, alone or beside others. It sends one HTTP request at a time, when a
//! message is due and the previous request is answered.

use std::collections::VecDeque;

use super::super::load::{Chat, Load};
use super::super::measurement::Fault;
use super::super::response::{Progress, ResponseReader};
use super::super::target::Target;
use super::message;
use crate::poller::Token;

/// A speaker of a room.
#[derive(Debug)]
pub struct Speaker {
    head: String,
    size: usize,
    /// Due times of unsent messages.
    due: VecDeque<u64>,
    /// The number of the last message.
    number: u64,
    token: Option<Token>,
    is_waiting: bool,
    reader: ResponseReader,
    request: Vec<u8>,
}

/// The speakers of all rooms: first one for each room.
pub fn of_rooms(load: &Load, chat: &Chat) -> Vec<Speaker> {
    (0..chat.rooms * chat.speakers)
        .map(|index| {
            let (room, speaker) = (index % chat.rooms, index / chat.rooms);
            Speaker::new(&load.target, room, speaker, chat.size)
        })
        .collect()
}

impl Speaker {
    /// A speaker with this number in a room, whose messages have `size` bytes.
    pub fn new(target: &Target, room: u32, speaker: u32, size: usize) -> Self {
        let size = size.max(message::STAMP_BYTES);
        Self {
            head: format!(
                "POST /pub/room-{room} HTTP/1.1\r\nHost: {target}\r\nContent-Length: {size}\r\n\r\n"
            ),
            size,
            due: VecDeque::new(),
            number: message::first(speaker),
            token: None,
            is_waiting: false,
            reader: ResponseReader::default(),
            request: Vec::new(),
        }
    }

    /// Queues a message that was due at this time. Returns the speaker's connection.
    pub fn enqueue(&mut self, due: u64) -> Option<Token> {
        self.due.push_back(due);
        self.token
    }

    /// A connection is open.
    pub fn came(&mut self, token: Token) {
        self.token = Some(token);
        self.is_waiting = false;
        self.reader = ResponseReader::default();
    }

    /// The connection has ended. A request in flight is not repeated.
    pub fn left(&mut self) {
        self.token = None;
        self.is_waiting = false;
    }

    /// The next request, if a message is due and no request is in flight.
    pub fn next_request(&mut self) -> Option<&[u8]> {
        if self.is_waiting {
            return None;
        }
        let due = self.due.pop_front()?;
        self.number += 1;
        self.is_waiting = true;
        self.request.clear();
        self.request.extend_from_slice(self.head.as_bytes());
        message::write(&mut self.request, due, self.number, self.size);
        Some(&self.request)
    }

    /// Takes received bytes, and returns whether the answer is complete.
    pub fn hear(&mut self, bytes: &[u8]) -> Result<bool, Fault> {
        if !self.is_waiting {
            return Err(Fault::BadResponse);
        }
        match self.reader.read(bytes)? {
            Progress::Incomplete => Ok(false),
            Progress::Complete {
                status: 200..300,
                rest: 0,
            } => {
                self.is_waiting = false;
                Ok(true)
            }
            Progress::Complete { rest: 0, .. } => Err(Fault::Status),
            Progress::Complete { .. } => Err(Fault::BadResponse),
        }
    }
}

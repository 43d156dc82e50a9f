//! Who speaks in a room, maybe beside others: one request of HTTP after the other, each as soon as it is due and the one before is answered.

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
    /// When what is to be said was due.
    due: VecDeque<u64>,
    /// The number of the last message, its own among those of the room.
    number: u64,
    token: Option<Token>,
    is_waiting: bool,
    reader: ResponseReader,
    request: Vec<u8>,
}

/// Those of all rooms: first one of each.
pub fn of_rooms(load: &Load, chat: &Chat) -> Vec<Speaker> {
    (0..chat.rooms * chat.speakers)
        .map(|index| {
            let (room, speaker) = (index % chat.rooms, index / chat.rooms);
            Speaker::new(&load.target, room, speaker, chat.size)
        })
        .collect()
}

impl Speaker {
    /// Who says messages of `size` bytes in a room, as its speaker of that number.
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

    /// Something is to be said that was due then. Returns its connection.
    pub fn enqueue(&mut self, due: u64) -> Option<Token> {
        self.due.push_back(due);
        self.token
    }

    /// It has a connection.
    pub fn came(&mut self, token: Token) {
        self.token = Some(token);
        self.is_waiting = false;
        self.reader = ResponseReader::default();
    }

    /// It has none any more. What was on its way is not said again.
    pub fn left(&mut self) {
        self.token = None;
        self.is_waiting = false;
    }

    /// The next request, if one is due and none is on its way.
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

    /// Takes the next bytes of an answer, and returns whether it is whole.
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

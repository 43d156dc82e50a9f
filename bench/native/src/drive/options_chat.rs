//! Combines the options of a chat.

use super::Given;
use crate::command_line::Failure;
use crate::drive::load::{Broadcast, Chat, Listening, Said};

impl Given {
    pub(super) fn chat(&self) -> Result<Chat, Failure> {
        Ok(Chat {
            rooms: self.rooms.unwrap_or(20) as u32,
            speakers: self.speakers.unwrap_or(1) as u32,
            carrier: self.listening()?,
            slow: self.slow()?,
            said: self.said()?,
            churn: self.churn.unwrap_or(0),
            size: self.size.unwrap_or(128) as usize,
        })
    }

    fn said(&self) -> Result<Said, Failure> {
        match (self.at_a_time, self.rate) {
            (None, rate) => Ok(Said::Rate(rate.unwrap_or(300))),
            (Some(_), Some(_)) => Err(wrong("--at-a-time does not go with --rate")),
            (Some(_), None) if self.rooms != Some(1) => Err(wrong("--at-a-time needs --rooms 1")),
            (Some(_), None) if self.speakers.is_some() => {
                Err(wrong("--at-a-time does not go with --speakers"))
            }
            (Some(count), None) => Ok(Said::AtATime(count as u32)),
        }
    }

    fn listening(&self) -> Result<Listening, Failure> {
        match (self.broadcast()?, self.several) {
            (Broadcast::Bytes, false) => Ok(Listening::Poll),
            (Broadcast::Bytes, true) => Ok(Listening::Several),
            (_, true) => Err(wrong("--several does not go with --events or --websocket")),
            (Broadcast::WebSocket, false) => Ok(Listening::WebSocket),
            (Broadcast::Events, false) => Ok(Listening::Events),
        }
    }

    /// Slow clients exclude options that wait for all clients or reconnect.
    fn slow(&self) -> Result<u32, Failure> {
        match self.slow.unwrap_or(0) {
            0 => Ok(0),
            _ if self.at_a_time.is_some() || self.churn.is_some() => {
                Err(wrong("--slow does not go with --at-a-time or --churn"))
            }
            slow => Ok(slow as u32),
        }
    }
}

fn wrong(what: &str) -> Failure {
    Failure::Usage(what.into())
}

//! A listener in a room, and its position, which it keeps when it reconnects.

use super::super::load::{Chat, Listening, Load};
use super::super::measurement::Fault;
use super::super::target::Target;
use super::answer::{Answer, find};
use super::message::{self, Message};
use crate::clock;

/// Most bytes of an incomplete answer, event or frame.
const MOST_BYTES: usize = 256 * 1024;

/// A listener.
#[derive(Debug)]
pub struct Listener {
    carrier: Listening,
    /// The request without its position and the empty line.
    head: String,
    request: Vec<u8>,
    /// Received bytes that are not yet complete.
    bytes: Vec<u8>,
    /// The head of an event stream or of a WebSocket has arrived.
    is_streaming: bool,
    position: Option<Position>,
    /// The number of the last message of each speaker, 0 before the first, and the time of the
    /// subscription.
    last: Vec<u64>,
    since: u64,
}

/// The position of a listener, in the server's terms.
#[derive(Debug)]
enum Position {
    Poll { modified: Vec<u8>, tag: Vec<u8> },
    Event(Vec<u8>),
}

/// The listeners of all rooms, distributed among the rooms.
pub fn of_rooms(load: &Load, chat: &Chat) -> Vec<Listener> {
    (0..load.connections)
        .map(|index| {
            Listener::new(
                &load.target,
                chat.carrier,
                index % chat.rooms,
                chat.speakers,
            )
        })
        .collect()
}

impl Listener {
    /// A listener in a room with this many speakers.
    pub fn new(target: &Target, carrier: Listening, room: u32, speakers: u32) -> Self {
        let accept = match carrier {
            Listening::Poll | Listening::Several => "",
            Listening::Events => "Accept: text/event-stream\r\n",
            Listening::WebSocket => {
                "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                 Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            }
        };
        // Nchan uses its configuration for this and ignores the query.
        let query = match carrier {
            Listening::Several => "?poll_answer=multipart",
            _ => "",
        };
        Self {
            carrier,
            head: format!("GET /sub/room-{room}{query} HTTP/1.1\r\nHost: {target}\r\n{accept}"),
            request: Vec::new(),
            bytes: Vec::new(),
            is_streaming: false,
            position: None,
            last: vec![0; speakers as usize],
            since: clock::now(),
        }
    }

    /// The connection has ended.
    pub fn left(&mut self) {
        self.bytes.clear();
        self.is_streaming = false;
    }

    /// Whether the server has confirmed the subscription. A long poll gets no confirmation before
    /// a message.
    pub fn listens(&self) -> bool {
        self.is_streaming || matches!(self.carrier, Listening::Poll | Listening::Several)
    }

    /// The request to subscribe or to poll.
    pub fn request(&mut self) -> &[u8] {
        let request = &mut self.request;
        request.clear();
        request.extend_from_slice(self.head.as_bytes());
        match &self.position {
            None => {}
            Some(Position::Poll { modified, tag }) => {
                field(request, b"If-Modified-Since: ", modified);
                field(request, b"If-None-Match: ", tag);
            }
            Some(Position::Event(id)) => field(request, b"Last-Event-ID: ", id),
        }
        request.extend_from_slice(b"\r\n");
        request
    }

    /// Takes received bytes, calls `take` with each complete message, and returns whether another
    /// request is due.
    pub fn hear(&mut self, bytes: &[u8], mut take: impl FnMut(Message)) -> Result<bool, Fault> {
        if self.bytes.len() + bytes.len() > MOST_BYTES {
            return Err(Fault::BadResponse);
        }
        self.bytes.extend_from_slice(bytes);
        match self.carrier {
            Listening::Poll | Listening::Several => self.hear_answer(take),
            Listening::Events => {
                self.hear_events(&mut take)?;
                Ok(false)
            }
            Listening::WebSocket => {
                self.hear_frames(&mut take)?;
                Ok(false)
            }
        }
    }

    fn hear_answer(&mut self, mut take: impl FnMut(Message)) -> Result<bool, Fault> {
        let Some(answer) = Answer::read(&self.bytes)? else {
            return Ok(false);
        };
        // One request gets one answer.
        if answer.length != self.bytes.len() {
            return Err(Fault::BadResponse);
        }
        match answer.status {
            200 => {
                let stamps: Option<Vec<_>> = answer
                    .messages(&self.bytes)?
                    .into_iter()
                    .map(message::read)
                    .collect();
                for stamp in stamps.ok_or(Fault::Mismatch)? {
                    self.got(stamp, &mut take)?;
                }
                self.position = answer
                    .position
                    .map(|(modified, tag)| Position::Poll { modified, tag });
            }
            // The long poll timed out without a message.
            408 | 304 => {}
            _ => return Err(Fault::Status),
        }
        self.bytes.clear();
        Ok(true)
    }

    fn hear_events(&mut self, take: &mut impl FnMut(Message)) -> Result<(), Fault> {
        if !self.begins(b"200")? {
            return Ok(());
        }
        let mut done = 0;
        while let Some(length) = self.bytes[done..].iter().position(|&byte| byte == b'\n') {
            let line = &self.bytes[done..done + length];
            done += length + 1;
            // Lines with chunk lengths, comments and event names are ignored.
            if let Some(id) = line.strip_prefix(b"id: ") {
                self.position = Some(Position::Event(id.trim_ascii().to_vec()));
            } else if let Some(data) = line.strip_prefix(b"data: ") {
                // A gap event has other data. Missing messages are counted by their numbers.
                if let Some(stamp) = message::read(data) {
                    self.got(stamp, take)?;
                }
            }
        }
        self.bytes.drain(..done);
        Ok(())
    }

    fn hear_frames(&mut self, take: &mut impl FnMut(Message)) -> Result<(), Fault> {
        if !self.begins(b"101")? {
            return Ok(());
        }
        let mut done = 0;
        while let Some((kind, payload)) = frame(&self.bytes[done..]) {
            let payload = done + payload.start..done + payload.end;
            done = payload.end;
            match kind {
                // Complete messages, text or binary.
                0x81 | 0x82 => {
                    let stamp = message::read(&self.bytes[payload]).ok_or(Fault::Mismatch)?;
                    self.got(stamp, take)?;
                }
                0x88 => return Err(Fault::Closed),
                _ => return Err(Fault::BadResponse),
            }
        }
        self.bytes.drain(..done);
        Ok(())
    }

    /// Whether the head of the stream has arrived, with this status.
    fn begins(&mut self, status: &[u8]) -> Result<bool, Fault> {
        if !self.is_streaming
            && let Some(end) = find(&self.bytes, b"\r\n\r\n")
        {
            if self.bytes.get(9..12) != Some(status) {
                return Err(Fault::Status);
            }
            self.bytes.drain(..end + 4);
            self.is_streaming = true;
        }
        Ok(self.is_streaming)
    }

    fn got(
        &mut self,
        (due, number): (u64, u64),
        take: &mut impl FnMut(Message),
    ) -> Result<(), Fault> {
        // From an earlier run or from before the subscription: neither its delay nor its number
        // counts.
        if due < self.since {
            return Ok(());
        }
        let speaker = message::speaker(number);
        let last = self.last.get_mut(speaker).ok_or(Fault::Mismatch)?;
        let missed = match *last {
            last if number <= last => return Err(Fault::Mismatch),
            0 => 0,
            last => number - last - 1,
        };
        *last = number;
        take(Message {
            due,
            number,
            missed,
        });
        Ok(())
    }
}

fn field(request: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    request.extend_from_slice(name);
    request.extend_from_slice(value);
    request.extend_from_slice(b"\r\n");
}

/// The first byte of a complete WebSocket frame, and the range of its payload. No frame is as long
/// as 64 KiB.
fn frame(bytes: &[u8]) -> Option<(u8, std::ops::Range<usize>)> {
    let (start, length) = match *bytes.get(1)? {
        126 => (
            4,
            usize::from(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?])),
        ),
        length => (2, usize::from(length)),
    };
    (bytes.len() >= start + length).then(|| (bytes[0], start..start + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        Target::new(([127, 0, 0, 1], 80).into(), 1)
    }

    fn message(number: u64) -> String {
        let mut message = Vec::new();
        message::write(&mut message, u64::MAX, number, 40);
        String::from_utf8(message).unwrap()
    }

    /// The missed counts of the messages in a stream, for each size of pieces.
    fn heard(carrier: Listening, stream: &[u8]) -> Vec<Vec<u64>> {
        (1..=stream.len())
            .map(|piece| {
                let mut listener = Listener::new(&target(), carrier, 3, 2);
                let mut missed = Vec::new();
                for bytes in stream.chunks(piece) {
                    listener
                        .hear(bytes, |message| missed.push(message.missed))
                        .unwrap();
                }
                missed
            })
            .collect()
    }

    #[test]
    fn a_poll_goes_on_where_the_answer_says() {
        let mut listener = Listener::new(&target(), Listening::Poll, 3, 2);
        assert_eq!(
            listener.request(),
            b"GET /sub/room-3 HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n"
        );
        let answer = format!(
            "HTTP/1.1 200 OK\r\nLast-Modified: then\r\nEtag: 7\r\nContent-Length: 40\r\n\r\n{}",
            message(1)
        );
        let mut count = 0;
        assert_eq!(listener.hear(answer.as_bytes(), |_| count += 1), Ok(true));
        assert_eq!(count, 1);
        let request = String::from_utf8(listener.request().to_vec()).unwrap();
        assert!(request.ends_with("If-Modified-Since: then\r\nIf-None-Match: 7\r\n\r\n"));
        // The same answer again is a repetition.
        assert_eq!(
            listener.hear(answer.as_bytes(), |_| ()),
            Err(Fault::Mismatch)
        );
        assert_eq!(
            Listener::new(&target(), Listening::Poll, 3, 2)
                .hear(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", |_| ()),
            Err(Fault::Status)
        );
    }

    #[test]
    fn a_poll_is_heard_however_it_is_cut() {
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n{}",
            message(5)
        );
        assert!(
            heard(Listening::Poll, answer.as_bytes())
                .iter()
                .all(|missed| missed == &[0])
        );
    }

    #[test]
    fn parts_are_heard_however_they_are_cut_and_each_speaker_counts_for_itself() {
        let body = format!(
            "--B\r\n\r\n{}\r\n--B\r\n\r\n{}\r\n--B\r\nContent-Type: x/y\r\n\r\n{}\r\n--B--\r\n",
            message(5),
            message(message::first(1) + 9),
            message(8)
        );
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: multipart/mixed; boundary=B\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        assert!(
            heard(Listening::Several, answer.as_bytes())
                .iter()
                .all(|missed| missed == &[0, 0, 2])
        );
    }

    #[test]
    fn frames_are_heard_however_they_are_cut() {
        let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n";
        let mut longer = Vec::new();
        message::write(&mut longer, u64::MAX, 3, 300);
        let stream = [
            head.as_bytes(),
            &[0x81, 40],
            message(1).as_bytes(),
            &[0x82, 126, 1, 44],
            &longer,
        ]
        .concat();
        assert!(
            heard(Listening::WebSocket, &stream)
                .iter()
                .all(|missed| missed == &[0, 1])
        );
        let mut listener = Listener::new(&target(), Listening::WebSocket, 3, 2);
        let bytes = [head.as_bytes(), &[0x88, 0]].concat();
        assert_eq!(listener.hear(&bytes, |_| ()), Err(Fault::Closed));
    }

    #[test]
    fn events_are_heard_however_they_are_cut_and_what_is_missing_is_counted() {
        let stream = format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
             4\r\n: hi\n\r\nff\r\nid: 1:1\ndata: {}\n\n\r\nid: 1:4\r\ndata: {}\r\n\r\n",
            message(1),
            message(4)
        );
        assert!(
            heard(Listening::Events, stream.as_bytes())
                .iter()
                .all(|missed| missed == &[0, 2])
        );
    }
}

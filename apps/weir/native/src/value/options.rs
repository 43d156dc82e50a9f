//! The options of a socket.

use super::active::Active;
use super::packet::{Limits, Packet};

/// SO_LINGER: what close does with unsent data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linger {
    /// The kernel sends it in the background after close.
    Off,
    /// `{linger, {true, Seconds}}`: close waits until it is sent.
    Wait,
    /// `{linger, {true, 0}}`: close discards it and resets the connection.
    Reset,
}

/// Options that the user sets, and that accepted sockets inherit from the listening socket.
#[derive(Clone, Copy)]
pub struct Options {
    pub active: Active,
    /// Deliver data as a list of bytes instead of a binary.
    pub list: bool,
    pub exit_on_close: bool,
    pub show_econnreset: bool,
    pub send_timeout_close: bool,
    pub linger: Linger,
    /// In milliseconds; `None` is infinity.
    pub send_timeout: Option<u32>,
    pub packet: Packet,
    /// Maximum size of a packet's body in bytes; zero for no limit.
    pub packet_size: u32,
    /// The last byte of a line.
    pub line_delimiter: u8,
    /// Deliver data as `{Socket, {data, List}}`, like ports.
    pub deliver_port: bool,
    /// This many leading bytes are delivered as a list, followed by the rest as a binary.
    pub header: u32,
    /// Maximum bytes of one message, or of one `recv(S, 0)`. Grows with `recbuf` unless it was
    /// set.
    pub buffer: u32,
    pub buffer_set: bool,
    pub high_watermark: u32,
    pub low_watermark: u32,
    /// Watermarks of a port's message queue. There is no such queue; they are kept for getopts.
    pub high_msgq_watermark: u32,
    pub low_msgq_watermark: u32,
    /// Data is sent at the next poll, together with other data until then.
    pub delay_send: bool,
    /// It is a unix socket. Users do not set this.
    pub local: bool,
    /// Kept for getopts; there is no debug output.
    pub debug: bool,
    /// Kept for getopts. Data that is read ahead is never lost.
    pub read_ahead: bool,
}

/// Default of `buffer`: large enough for busy connections. Idle ones have no buffer.
const DEFAULT_BUFFER: u32 = 64 * 1024;

/// Watermarks of the inet driver, for the send queue and for a port's message queue.
const DEFAULT_HIGH_WATERMARK: u32 = 8 * 1024;

const DEFAULT_LOW_WATERMARK: u32 = 4 * 1024;

impl Default for Options {
    fn default() -> Options {
        Options {
            active: Active::Always,
            list: true,
            exit_on_close: true,
            show_econnreset: false,
            send_timeout_close: false,
            linger: Linger::Off,
            send_timeout: None,
            packet: Packet::Raw,
            packet_size: 0,
            line_delimiter: b'\n',
            deliver_port: false,
            header: 0,
            buffer: DEFAULT_BUFFER,
            buffer_set: false,
            high_watermark: DEFAULT_HIGH_WATERMARK,
            low_watermark: DEFAULT_LOW_WATERMARK,
            high_msgq_watermark: DEFAULT_HIGH_WATERMARK,
            low_msgq_watermark: DEFAULT_LOW_WATERMARK,
            delay_send: false,
            local: false,
            debug: false,
            read_ahead: true,
        }
    }
}

impl Options {
    /// The limits of a packet.
    pub fn limits(&self) -> Limits {
        Limits { packet_size: self.packet_size as usize, buffer: self.buffer as usize, delimiter: self.line_delimiter }
    }
}

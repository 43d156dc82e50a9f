//! What a socket was told to be like.

use super::active::Active;
use super::packet::{Limits, Packet};

/// SO_LINGER: what a close does with data that was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linger {
    /// The kernel sends it in the background.
    Off,
    /// `{linger, {true, Seconds}}`: close waits for it.
    Wait,
    /// `{linger, {true, 0}}`: it is thrown away, and the connection is reset.
    Reset,
}

/// What the user sets, and what an accepted socket inherits from its listener.
#[derive(Clone, Copy)]
pub struct Options {
    pub active: Active,
    /// Data is delivered as a list of bytes instead of a binary.
    pub list: bool,
    pub exit_on_close: bool,
    pub show_econnreset: bool,
    pub send_timeout_close: bool,
    pub linger: Linger,
    /// Milliseconds; none is infinity.
    pub send_timeout: Option<u32>,
    pub packet: Packet,
    /// The most bytes of a packet's body; zero is no limit.
    pub packet_size: u32,
    /// The last byte of a line.
    pub line_delimiter: u8,
    /// Data is delivered as `{Socket, {data, List}}`, as ports do.
    pub deliver_port: bool,
    /// So many bytes of a binary are delivered as a list in front of the rest.
    pub header: u32,
    /// The most bytes of one message or one `recv(S, 0)`. It grows with `recbuf` unless it was set.
    pub buffer: u32,
    pub buffer_set: bool,
    pub high_watermark: u32,
    pub low_watermark: u32,
    /// Limits of a port's message queue: kept for getopts alone, as there is no such queue.
    pub high_msgq_watermark: u32,
    pub low_msgq_watermark: u32,
    /// What is sent is left to the next poll, and goes out together with what comes until then.
    pub delay_send: bool,
    /// The family is that of unix sockets. Nobody sets it.
    pub local: bool,
    /// Kept for getopts; there is no debug output.
    pub debug: bool,
    /// Kept for getopts: what is read ahead of a packet is never lost.
    pub read_ahead: bool,
}

/// `buffer` where nobody sets it: large reads for busy connections; an idle one holds no buffer at all.
const DEFAULT_BUFFER: u32 = 64 * 1024;

/// The watermarks of the inet driver, for the send queue and for the message queue of a port.
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
    /// What bounds a packet.
    pub fn limits(&self) -> Limits {
        Limits { packet_size: self.packet_size as usize, buffer: self.buffer as usize, delimiter: self.line_delimiter }
    }
}

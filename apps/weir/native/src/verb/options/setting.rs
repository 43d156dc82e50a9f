//! Decoding of options for setopts.

use libc::c_int;
use rustler::{Atom, Binary, Error, NifResult, Term};

use crate::term::atoms;
use crate::value::active::Active;
use crate::value::packet::Packet;
use crate::verb::kernel_options::{self, KernelOption};

/// An option with its value, decoded.
pub enum Setting<'a> {
    Active(Active),
    Count(i16),
    List(bool),
    Raw(c_int, c_int, Binary<'a>),
    Kernel(KernelOption, c_int),
    ReceiveBuffer(c_int),
    BindToDevice(Binary<'a>),
    Netns(Binary<'a>),
    Linger(libc::linger),
    Buffer(u32),
    HighWatermark(u32),
    LowWatermark(u32),
    SendTimeout(Option<u32>),
    SendTimeoutClose(bool),
    HighMsgqWatermark(u32),
    LowMsgqWatermark(u32),
    DelaySend(bool),
    ExitOnClose(bool),
    ShowEconnreset(bool),
    Debug(bool),
    ReadAhead(bool),
    /// `{exclusiveaddruse, _}`, a Windows option, which has no effect.
    Exclusive,
    Packet(Packet),
    PacketSize(u32),
    LineDelimiter(u8),
    Header(u32),
    DeliverPort(bool),
}

impl<'a> Setting<'a> {
    /// Decodes `{Name, Value}` or `{raw, Level, Option, Value}`. Badarg for an unknown option or a
    /// value of the wrong type.
    pub fn decode(term: Term<'a>) -> NifResult<Setting<'a>> {
        if let Some(raw) = kernel_options::decode_raw(term) {
            let (level, option, value) = raw?;
            return Ok(Setting::Raw(level, option, value.decode()?));
        }
        let (name, value): (Atom, Term) = term.decode()?;
        if name == atoms::active() {
            return active(value);
        }
        if let Some(option) = kernel_options::find(name) {
            return Ok(match option.boolean {
                true => Setting::Kernel(option, value.decode::<bool>()?.into()),
                false if name == atoms::recbuf() => Setting::ReceiveBuffer(value.decode()?),
                false => Setting::Kernel(option, value.decode()?),
            });
        }
        if name == atoms::mode() {
            return one_of(value, &[(atoms::list(), true), (atoms::binary(), false)]).map(Setting::List);
        }
        if name == atoms::packet() {
            return packet(value).map(Setting::Packet);
        }
        if name == atoms::packet_size() {
            return Ok(Setting::PacketSize(value.decode()?));
        }
        if name == atoms::line_delimiter() {
            // The inet driver keeps the low byte of any number.
            return Ok(Setting::LineDelimiter(value.decode::<i32>()? as u8));
        }
        if name == atoms::header() {
            return Ok(Setting::Header(value.decode()?));
        }
        if name == atoms::deliver() {
            return one_of(value, &[(atoms::port(), true), (atoms::term(), false)]).map(Setting::DeliverPort);
        }
        if name == atoms::send_timeout() {
            return match value.decode::<u32>() {
                Ok(milliseconds) => Ok(Setting::SendTimeout(Some(milliseconds))),
                Err(_) => one_of(value, &[(atoms::infinity(), None)]).map(Setting::SendTimeout),
            };
        }
        if name == atoms::linger() {
            let (on, seconds): (bool, c_int) = value.decode()?;
            return Ok(Setting::Linger(libc::linger { l_onoff: on.into(), l_linger: seconds }));
        }
        decode_plain(name, value)
    }
}

/// Decodes the options whose value is a number, a flag or a name.
fn decode_plain(name: Atom, value: Term) -> NifResult<Setting> {
    if name == atoms::buffer() {
        Ok(Setting::Buffer(natural(value)?))
    } else if name == atoms::high_watermark() {
        Ok(Setting::HighWatermark(natural(value)?))
    } else if name == atoms::low_watermark() {
        Ok(Setting::LowWatermark(natural(value)?))
    } else if name == atoms::high_msgq_watermark() {
        Ok(Setting::HighMsgqWatermark(msgq_watermark(value)?))
    } else if name == atoms::low_msgq_watermark() {
        Ok(Setting::LowMsgqWatermark(msgq_watermark(value)?))
    } else if name == atoms::delay_send() {
        Ok(Setting::DelaySend(value.decode()?))
    } else if name == atoms::send_timeout_close() {
        Ok(Setting::SendTimeoutClose(value.decode()?))
    } else if name == atoms::exit_on_close() {
        Ok(Setting::ExitOnClose(value.decode()?))
    } else if name == atoms::show_econnreset() {
        Ok(Setting::ShowEconnreset(value.decode()?))
    } else if name == atoms::bind_to_device() {
        Ok(Setting::BindToDevice(value.decode()?))
    } else if name == atoms::netns() {
        Ok(Setting::Netns(value.decode()?))
    } else if name == atoms::debug() {
        Ok(Setting::Debug(value.decode()?))
    } else if name == atoms::read_ahead() {
        Ok(Setting::ReadAhead(value.decode()?))
    } else if name == atoms::exclusiveaddruse() {
        value.decode::<bool>().map(|_| Setting::Exclusive)
    } else {
        Err(Error::BadArg)
    }
}

fn active(value: Term) -> NifResult<Setting> {
    if let Ok(n) = value.decode::<i16>() {
        return Ok(Setting::Count(n));
    }
    let modes = [(atoms::r#true(), Active::Always), (atoms::r#false(), Active::Passive), (atoms::once(), Active::Once)];
    one_of(value, &modes).map(Setting::Active)
}

/// Packet types by name. Types with a length in front are numbers instead.
pub fn packet_names() -> [(Atom, Packet); 11] {
    [
        (atoms::raw(), Packet::Raw),
        (atoms::asn1(), Packet::Asn1),
        (atoms::sunrm(), Packet::Sunrm),
        (atoms::cdr(), Packet::Cdr),
        (atoms::fcgi(), Packet::Fcgi),
        (atoms::tpkt(), Packet::Tpkt),
        (atoms::line(), Packet::Line),
        (atoms::http(), Packet::Http),
        (atoms::httph(), Packet::Httph),
        (atoms::http_bin(), Packet::HttpBin),
        (atoms::httph_bin(), Packet::HttphBin),
    ]
}

fn packet(value: Term) -> NifResult<Packet> {
    match value.decode::<u32>() {
        Ok(0) => Ok(Packet::Raw),
        Ok(1) => Ok(Packet::One),
        Ok(2) => Ok(Packet::Two),
        Ok(4) => Ok(Packet::Four),
        Ok(_) => Err(Error::BadArg),
        Err(_) => one_of(value, &packet_names()),
    }
}

/// Decodes a number of bytes. Negative numbers become 0, as in the inet driver.
fn natural(value: Term) -> NifResult<u32> {
    value.decode::<i32>().map(|n| n.max(0) as u32)
}

/// Decodes a watermark of a port's message queue; 0 if it is refused. The inet driver compares it
/// as an unsigned 64-bit number: values below -1 are larger than any other.
fn msgq_watermark(value: Term) -> NifResult<u32> {
    Ok(match value.decode::<i32>()? {
        -1 => 0,
        n if n < 0 => i32::MAX as u32,
        n => n as u32,
    })
}

fn one_of<T: Copy>(value: Term, choices: &[(Atom, T)]) -> NifResult<T> {
    let atom: Atom = value.decode()?;
    choices.iter().find(|(name, _)| *name == atom).map(|&(_, choice)| choice).ok_or(Error::BadArg)
}

//! setopts and getopts.
//!
//! `setting` decodes options; this module applies and returns them. [`News`] says what the caller
//! has to do with waiting data.

mod setting;

use std::os::fd::{AsFd, BorrowedFd};

use libc::c_int;
use rustix::io::Errno;
use rustler::{Atom, Encoder, Env, Error, NifResult, Term};

pub use self::setting::Setting;
use self::setting::packet_names;
use crate::kernel::sockopt;
use crate::socket::{Socket, State};
use crate::term::atoms;
use crate::value::active::{Active, Counted};
use crate::value::options::{Linger, Options};
use crate::value::packet::Packet;
use crate::verb::kernel_options::{self, KernelOption};

/// What the caller has to do after a change of options.
pub enum News {
    Nothing,
    /// Tell the owner that the socket is passive.
    Passive,
    /// Deliver data. `changed`: the active mode is of another kind than before.
    Active {
        changed: bool,
    },
}

/// Applies settings in order, up to the first that fails (EINVAL, or the error of setsockopt(2)).
pub fn set(socket: &mut Socket, settings: &[Setting]) -> rustix::io::Result<News> {
    let (active, packet) = (socket.options.active, socket.options.packet);
    for setting in settings {
        match *setting {
            Setting::Active(mode) => socket.options.active = mode,
            Setting::Count(n) => match socket.options.active.add(n) {
                Counted::Mode(mode) => socket.options.active = mode,
                Counted::OutOfRange => return Err(Errno::INVAL),
                Counted::Exhausted => {
                    socket.options.active = Active::Passive;
                    socket.passive_untold = true;
                }
            },
            _ => apply(socket, setting)?,
        }
    }
    let changed = !socket.options.active.is_same_kind(active);
    let news = match socket.state {
        // A closed socket reports its end each time it is activated.
        State::Closed => settings.iter().any(|setting| matches!(setting, Setting::Active(_) | Setting::Count(_))),
        // Waiting data may be a complete packet of the new type.
        _ => changed || socket.options.packet != packet,
    };
    Ok(match news && socket.is_active() {
        true => News::Active { changed },
        false if socket.passive_untold => News::Passive,
        false => News::Nothing,
    })
}

fn apply(socket: &mut Socket, setting: &Setting) -> rustix::io::Result<()> {
    let Socket { fd, options, netns, .. } = socket;
    // A socket with a closed descriptor accepts options, like a port without one.
    let fd = fd.as_ref().map(|fd| fd.as_fd());
    match setting {
        Setting::Active(_) | Setting::Count(_) | Setting::Exclusive => {}
        Setting::Packet(packet) => options.packet = *packet,
        Setting::PacketSize(size) => options.packet_size = *size,
        Setting::LineDelimiter(delimiter) => options.line_delimiter = *delimiter,
        Setting::Header(size) => options.header = *size,
        Setting::DeliverPort(port) => options.deliver_port = *port,
        Setting::List(list) => options.list = *list,
        Setting::Buffer(size) => {
            options.buffer = (*size).max(1);
            options.buffer_set = true;
        }
        Setting::SendTimeout(timeout) => options.send_timeout = *timeout,
        Setting::SendTimeoutClose(close) => options.send_timeout_close = *close,
        Setting::ExitOnClose(exit) => options.exit_on_close = *exit,
        Setting::ShowEconnreset(show) => options.show_econnreset = *show,
        Setting::Debug(debug) => options.debug = *debug,
        Setting::ReadAhead(read_ahead) => options.read_ahead = *read_ahead,
        Setting::Netns(path) => *netns = Some(path.as_slice().into()),
        Setting::BindToDevice(name) => {
            let bound = fd.is_some_and(|fd| kernel_options::bind_to_device(fd, name).is_ok());
            return if bound { Ok(()) } else { Err(Errno::INVAL) };
        }
        Setting::HighWatermark(high) => {
            options.high_watermark = *high;
            options.low_watermark = options.low_watermark.min(*high);
        }
        Setting::LowWatermark(low) => {
            options.low_watermark = *low;
            options.high_watermark = options.high_watermark.max(*low);
        }
        Setting::HighMsgqWatermark(0) | Setting::LowMsgqWatermark(0) => return Err(Errno::INVAL),
        Setting::HighMsgqWatermark(high) => {
            options.high_msgq_watermark = *high;
            options.low_msgq_watermark = options.low_msgq_watermark.min(*high);
        }
        Setting::LowMsgqWatermark(low) => {
            options.low_msgq_watermark = *low;
            options.high_msgq_watermark = options.high_msgq_watermark.max(*low);
        }
        Setting::DelaySend(delay) => options.delay_send = *delay,
        Setting::Linger(_) | Setting::ReceiveBuffer(_) | Setting::Kernel(..) | Setting::Raw(..) => {
            return apply_in_kernel(socket, setting);
        }
    }
    Ok(())
}

/// Applies the settings that the kernel has as well.
fn apply_in_kernel(socket: &mut Socket, setting: &Setting) -> rustix::io::Result<()> {
    let Socket { fd, options, state, listening, .. } = socket;
    let fd = fd.as_ref().map(|fd| fd.as_fd());
    match setting {
        Setting::Linger(linger) => {
            options.linger = Linger::from(*linger);
            set_kernel(fd, |fd| sockopt::set(fd, libc::SOL_SOCKET, libc::SO_LINGER, linger));
        }
        Setting::ReceiveBuffer(size) => {
            if !options.buffer_set {
                options.buffer = options.buffer.max((*size).max(0) as u32);
            }
            set_kernel(fd, |fd| sockopt::set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, *size));
        }
        Setting::Kernel(KernelOption { level, name, told, .. }, value) => {
            let set = fd.is_some_and(|fd| kernel_options::set_int(fd, *level, *name, *value).is_ok());
            if !set && *told {
                return Err(Errno::INVAL);
            }
            if *state == State::Listening {
                listening.get_or_insert_default().set_late(*level, *name, *value);
            }
        }
        Setting::Raw(level, name, value) => {
            set_kernel(fd, |fd| kernel_options::set_bytes(fd, *level, *name, value));
            // close needs the linger option, however it was set.
            if (*level, *name) == (libc::SOL_SOCKET, libc::SO_LINGER)
                && let Some(Ok(linger)) =
                    fd.map(|fd| sockopt::get::<libc::linger>(fd, libc::SOL_SOCKET, libc::SO_LINGER))
            {
                options.linger = Linger::from(linger);
            }
        }
        _ => {}
    }
    Ok(())
}

/// Sets a kernel option. Ignores refusals by the kernel, like the inet driver.
fn set_kernel(fd: Option<BorrowedFd>, set: impl FnOnce(BorrowedFd) -> rustix::io::Result<()>) {
    if let Some(fd) = fd {
        let _ = set(fd);
    }
}

/// Returns an option as `{Name, Value}` or `{raw, Level, Option, Value}`. `None` if the kernel
/// returns none, as in gen_tcp; badarg for an unknown name.
pub fn get<'a>(env: Env<'a>, socket: &Socket, name: Term<'a>) -> NifResult<Option<Term<'a>>> {
    let fd = socket.fd.as_ref().map(|fd| fd.as_fd());
    if let Some(raw) = kernel_options::decode_raw(name) {
        let (level, option, space) = raw?;
        return kernel_options::get_raw(env, fd, level, option, space);
    }
    let option: Atom = name.decode()?;
    if let Some(kernel) = kernel_options::find(option) {
        let value = fd.and_then(|fd| sockopt::get::<c_int>(fd, kernel.level, kernel.name).ok());
        return Ok(value.map(|value| match kernel.boolean {
            true => (option, value != 0).encode(env),
            false => (option, value).encode(env),
        }));
    }
    if option == atoms::linger() {
        let value = fd.and_then(|fd| sockopt::get::<libc::linger>(fd, libc::SOL_SOCKET, libc::SO_LINGER).ok());
        return Ok(value.map(|value| (option, (value.l_onoff != 0, value.l_linger)).encode(env)));
    }
    if option == atoms::pktoptions() {
        return fd.map_or(Ok(None), |fd| kernel_options::packet_options(env, fd));
    }
    if option == atoms::bind_to_device() {
        let name = fd.and_then(|fd| kernel_options::bound_device(env, fd));
        return Ok(name.map(|name| (option, name).encode(env)));
    }
    if option == atoms::netns() {
        return Ok(socket.netns.as_ref().map(|path| (option, kernel_options::binary(env, path)).encode(env)));
    }
    let value = value(env, &socket.options, option)?;
    Ok(Some((option, value).encode(env)))
}

/// Returns the value of an option that the kernel does not have.
fn value<'a>(env: Env<'a>, options: &Options, option: Atom) -> NifResult<Term<'a>> {
    Ok(if option == atoms::active() {
        match options.active {
            Active::Passive => false.encode(env),
            Active::Always => true.encode(env),
            Active::Once => atoms::once().encode(env),
            Active::Count(n) => n.encode(env),
        }
    } else if option == atoms::mode() {
        if options.list { atoms::list() } else { atoms::binary() }.encode(env)
    } else if option == atoms::packet() {
        match options.packet {
            Packet::Raw => 0.encode(env),
            Packet::One | Packet::Two | Packet::Four => options.packet.header_size().encode(env),
            packet => packet_names().iter().find(|(_, named)| *named == packet).map(|(name, _)| name).encode(env),
        }
    } else if option == atoms::packet_size() {
        options.packet_size.encode(env)
    } else if option == atoms::header() {
        options.header.encode(env)
    } else if option == atoms::deliver() {
        if options.deliver_port { atoms::port() } else { atoms::term() }.encode(env)
    } else if option == atoms::buffer() {
        options.buffer.encode(env)
    } else if option == atoms::high_watermark() {
        options.high_watermark.encode(env)
    } else if option == atoms::low_watermark() {
        options.low_watermark.encode(env)
    } else if option == atoms::high_msgq_watermark() {
        options.high_msgq_watermark.encode(env)
    } else if option == atoms::low_msgq_watermark() {
        options.low_msgq_watermark.encode(env)
    } else if option == atoms::delay_send() {
        options.delay_send.encode(env)
    } else if option == atoms::send_timeout() {
        match options.send_timeout {
            Some(milliseconds) => milliseconds.encode(env),
            None => atoms::infinity().encode(env),
        }
    } else if option == atoms::send_timeout_close() {
        options.send_timeout_close.encode(env)
    } else if option == atoms::exit_on_close() {
        options.exit_on_close.encode(env)
    } else if option == atoms::show_econnreset() {
        options.show_econnreset.encode(env)
    } else if option == atoms::debug() {
        options.debug.encode(env)
    } else if option == atoms::read_ahead() {
        options.read_ahead.encode(env)
    } else if option == atoms::exclusiveaddruse() {
        false.encode(env)
    } else {
        return Err(Error::BadArg);
    })
}

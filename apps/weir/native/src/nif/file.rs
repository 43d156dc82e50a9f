//! Files that reactors send.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustler::{Atom, Binary, Encoder, Env, Error, NifResult, OwnedBinary, Term};

use super::{failed, posix, proper_list};
use crate::kernel::file::{File, NotOpen};
use crate::socket::file::FileReference;
use crate::socket::table;
use crate::term::atoms;
use crate::term::resource::ResourceArc;
use crate::value::handle::Handle;
use crate::verb::output::queued_file;

/// Maximum bytes per read.
const READ_MAX: usize = 16 * 1024 * 1024;

#[rustler::nif(schedule = "DirtyIo")]
fn file_open<'a>(env: Env<'a>, path: Binary<'a>) -> Term<'a> {
    opened(env, File::open(name(&path)))
}

#[rustler::nif(schedule = "DirtyIo")]
fn file_open_below<'a>(env: Env<'a>, directory: Binary<'a>, names: Term<'a>) -> NifResult<Term<'a>> {
    let names = proper_list(names)?.into_iter().map(Binary::from_term).collect::<NifResult<Vec<Binary>>>()?;
    let names: Vec<&[u8]> = names.iter().map(|name| name.as_slice()).collect();
    Ok(opened(env, File::open_below(name(&directory), &names)))
}

fn name<'a>(path: &'a Binary) -> &'a Path {
    Path::new(OsStr::from_bytes(path.as_slice()))
}

fn opened(env: Env, opened: Result<File, NotOpen>) -> Term {
    match opened {
        Ok(file) => {
            let (size, modified) = (file.size, file.modified);
            (atoms::ok(), ResourceArc::new(FileReference(Arc::new(file))), size, modified).encode(env)
        }
        Err(NotOpen::Directory) => failed(env, atoms::directory()),
        Err(NotOpen::NotRegular) => failed(env, atoms::not_regular()),
        Err(NotOpen::Failed(errno)) => posix(env, errno),
    }
}

#[rustler::nif(schedule = "DirtyIo")]
fn file_read<'a>(env: Env<'a>, file: ResourceArc<FileReference>, offset: u64, length: usize) -> NifResult<Term<'a>> {
    if offset > i64::MAX as u64 - READ_MAX as u64 || length > READ_MAX {
        return Err(Error::BadArg);
    }
    let mut bytes = OwnedBinary::new(length);
    let size = match file.0.read(bytes.as_mut_slice(), offset) {
        Ok(size) => size,
        Err(errno) => return Ok(posix(env, errno)),
    };
    let bytes = bytes.release(env);
    Ok((atoms::ok(), bytes.make_subbinary(0, size)?).encode(env))
}

/// Reads the part that the queue waits for into the page cache. Does not enqueue the socket: that
/// may send a message to a poller, which a dirty scheduler must not do. The caller then calls
/// `file_resume` on an ordinary scheduler.
#[rustler::nif(schedule = "DirtyIo")]
fn file_fetch(handle: Handle) -> Atom {
    // The socket is not locked during the read, however slow the disk is.
    let wanted = table::find(handle).and_then(|socket| queued_file::wanted(&socket));
    if let Some((file, offset, length)) = wanted {
        queued_file::read(&file, offset, length);
        if let Some(mut socket) = table::find(handle) {
            queued_file::note(&mut socket, &file, offset, length);
        }
    }
    atoms::ok()
}

#[rustler::nif]
fn file_resume(env: Env, handle: Handle) -> Atom {
    if let Some(mut socket) = table::find(handle) {
        socket.enqueue(env);
    }
    atoms::ok()
}

#[rustler::nif]
fn file_waiting<'a>(env: Env<'a>, piece: usize) -> Term<'a> {
    match table::select(piece, |socket| queued_file::wanted(socket).map(|_| socket.handle().raw())) {
        Some(handles) => (atoms::ok(), handles).encode(env),
        None => atoms::done().encode(env),
    }
}

//! A reference to bytes that outlives the call it came in.

use rustler::{Binary, OwnedEnv};

use crate::term::message::Rest;

/// Bytes that wait to be sent and belong to somebody else.
pub enum Held {
    Binary(HeldBinary),
    Message(Rest),
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        match self {
            Held::Binary(binary) => binary.as_ref(),
            Held::Message(rest) => rest.as_ref(),
        }
    }
}

/// A binary of the VM, kept alive by an environment of its own. Nothing is copied if it is larger than 64 bytes, which
/// is where the VM's own binaries begin to be shared.
pub struct HeldBinary {
    /// Keeps the bytes alive, and is not used otherwise.
    _environment: OwnedEnv,
    start: *const u8,
    length: usize,
}

// SAFETY: the bytes are immutable and belong to the environment, which moves with the value and is not used by others.
unsafe impl Send for HeldBinary {}

// SAFETY: through a reference the immutable bytes are only read; the environment is touched by nobody.
unsafe impl Sync for HeldBinary {}

impl HeldBinary {
    /// Takes a reference.
    pub fn new(binary: &Binary) -> HeldBinary {
        let environment = OwnedEnv::new();
        let (start, length) = environment.run(|env| {
            match Binary::from_term(binary.to_term(env)) {
                Ok(held) => (held.as_slice().as_ptr(), held.len()),
                // The copy of a binary is a binary.
                Err(_) => (std::ptr::NonNull::<u8>::dangling().as_ptr().cast_const(), 0),
            }
        });
        HeldBinary { _environment: environment, start, length }
    }
}

impl AsRef<[u8]> for HeldBinary {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the environment holds the binary, binaries neither move nor change, and the pointer is not null.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

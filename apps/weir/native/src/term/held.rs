//! References to bytes that outlive a call.

use rustler::{Binary, OwnedEnv};

use crate::term::message::Rest;

/// Bytes to send, owned elsewhere.
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

/// A binary of the VM, kept alive by an environment of its own. Above 64 bytes it is shared, not
/// copied, since the VM counts references to such binaries.
pub struct HeldBinary {
    /// Keeps the bytes alive.
    _environment: OwnedEnv,
    start: *const u8,
    length: usize,
}

// SAFETY: the bytes are immutable and belong to the environment, which moves with the value and is not used by others.
unsafe impl Send for HeldBinary {}

// SAFETY: a reference gives only read access to the immutable bytes, and none to the environment.
unsafe impl Sync for HeldBinary {}

impl HeldBinary {
    /// Takes a reference.
    pub fn new(binary: &Binary) -> HeldBinary {
        let environment = OwnedEnv::new();
        let (start, length) = environment.run(|env| {
            match Binary::from_term(binary.to_term(env)) {
                Ok(held) => (held.as_slice().as_ptr(), held.len()),
                // Unreachable: the copy of a binary is a binary.
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

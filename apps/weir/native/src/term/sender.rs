//! Who sends a message, as the VM sees it.
//!
//! It keeps the messages of one sender to one receiver in order, and those without a sender as well: they are in one buffer
//! (`enif_send` takes `undefined` for the sender, which `erts_proc_sig_queue_try_enqueue_to_buffer` chooses the buffer by).

use std::mem::MaybeUninit;
use std::ptr::null_mut;

use rustler::sys::{enif_self, enif_send};
use rustler::{Encoder, Env, LocalPid};

/// The process whose call this is. None in a callback of the VM, and off its threads.
pub fn caller(env: Env) -> Option<LocalPid> {
    let mut pid = MaybeUninit::uninit();
    // SAFETY: the environment is alive, and the VM fills in the process unless it returns null.
    unsafe {
        let found = enif_self(env.as_c_arg(), pid.as_mut_ptr());
        (!found.is_null()).then(|| LocalPid::from_c_arg(pid.assume_init()))
    }
}

/// Sends a message without a sender: it is copied, and in order with all others that are sent so. A caller's environment
/// costs less where the receiver has its messages on its heap, as they are built there.
pub fn send_anonymously(env: Env, receiver: &LocalPid, message: impl Encoder) {
    let message = message.encode(env);
    // SAFETY: the term is of a living environment. Without an environment of a caller the VM does what it does for one of a
    // callback, on its own threads as on others.
    let _ = unsafe { enif_send(null_mut(), receiver.as_c_arg(), null_mut(), message.as_c_arg()) };
}

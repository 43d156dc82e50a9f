//! The sender of a message, as the VM sees it.
//!
//! The VM keeps messages of one sender to one receiver in order. Messages without a sender are in
//! order, too, because they all go through one buffer: `enif_send` then uses `undefined` as the
//! sender, by which `erts_proc_sig_queue_try_enqueue_to_buffer` chooses the buffer.

use std::mem::MaybeUninit;
use std::ptr::null_mut;

use rustler::sys::{enif_self, enif_send};
use rustler::{Encoder, Env, LocalPid};

/// The calling process. `None` in a callback of the VM, and on other threads.
pub fn caller(env: Env) -> Option<LocalPid> {
    let mut pid = MaybeUninit::uninit();
    // SAFETY: the environment is alive, and the VM fills in the process unless it returns null.
    unsafe {
        let found = enif_self(env.as_c_arg(), pid.as_mut_ptr());
        (!found.is_null()).then(|| LocalPid::from_c_arg(pid.assume_init()))
    }
}

/// Sends a message without a sender. It is copied, and in order with all other messages sent so.
/// If the receiver's queue is on its heap, sending from the caller's environment is cheaper, as
/// the message is built there.
pub fn send_anonymously(env: Env, receiver: &LocalPid, message: impl Encoder) {
    let message = message.encode(env);
    // SAFETY: the term's environment is alive. Without a caller's environment, the VM sends as it
    // does for callbacks, on its own threads and on others.
    let _ = unsafe { enif_send(null_mut(), receiver.as_c_arg(), null_mut(), message.as_c_arg()) };
}

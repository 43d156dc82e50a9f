//! The calling thread.

use std::ffi::CStr;

/// The name of the calling thread, of 15 bytes at most (prctl(2)).
pub fn name() -> Option<String> {
    let mut name = [0u8; 16];
    // SAFETY: the kernel writes 16 bytes at most.
    let result = unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let name = (result == 0).then(|| CStr::from_bytes_until_nul(&name).ok()).flatten()?;
    name.to_str().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_thread_has_its_name() {
        let named = std::thread::Builder::new().name("1_scheduler".into()).spawn(super::name).expect("a thread");
        assert_eq!(named.join().expect("it ends").as_deref(), Some("1_scheduler"));
    }
}

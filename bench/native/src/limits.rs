//! The process's limit of open descriptors.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of descriptors to the hard one and returns the limit now in force. A refusal leaves the limit
/// as it was: who needs more descriptors than that will say so with the figure returned here.
pub fn raise_descriptors() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    let soft = limit.current;
    limit.current = limit.maximum;
    match setrlimit(Resource::Nofile, limit) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        Err(_) => soft.unwrap_or(u64::MAX),
    }
}

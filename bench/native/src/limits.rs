//! The process's limit of open descriptors.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of descriptors to the hard limit and returns the resulting limit. If that
/// is refused, the limit stays: callers that need more report the returned number.
pub fn raise_descriptors() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    let soft = limit.current;
    limit.current = limit.maximum;
    match setrlimit(Resource::Nofile, limit) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        Err(_) => soft.unwrap_or(u64::MAX),
    }
}

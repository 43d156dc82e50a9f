//! The Erlang reference to files that sockets send.

use std::ffi::CStr;
use std::sync::Arc;

use crate::kernel::file::File;
use crate::term::resource::{Kind, Resource};
use crate::value::shared::Shared;

/// A reference to an open file. The file is closed when the last reference is gone from terms and
/// send queues.
pub struct FileReference(pub Arc<File>);

pub static FILE: Shared<Kind> = Shared::new(Kind::new());

impl Resource for FileReference {
    const NAME: &'static CStr = c"file";

    fn kind() -> &'static Shared<Kind> {
        &FILE
    }
}

//! Files that sockets send: what Erlang holds of them.

use std::ffi::CStr;
use std::sync::Arc;

use crate::kernel::file::File;
use crate::term::resource::{Kind, Resource};
use crate::value::shared::Shared;

/// A reference to an open file. The file is closed when it is gone from all terms and from all send queues.
pub struct FileReference(pub Arc<File>);

pub static FILE: Shared<Kind> = Shared::new(Kind::new());

impl Resource for FileReference {
    const NAME: &'static CStr = c"file";

    fn kind() -> &'static Shared<Kind> {
        &FILE
    }
}

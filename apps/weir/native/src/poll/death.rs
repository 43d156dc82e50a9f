//! What follows from the death of a watched process.

use std::ffi::CStr;

use rustler::{Env, Monitor};

use crate::relay;
use crate::socket::owner::DeathWatch;
use crate::socket::table;
use crate::term::resource::{Kind, Resource};
use crate::value::handle::Target;
use crate::value::shared::Shared;
use crate::verb::group;

pub static WATCH: Shared<Kind> = Shared::new(Kind::new());

impl Resource for DeathWatch {
    const NAME: &'static CStr = c"watch";
    const WATCHES: bool = true;

    fn kind() -> &'static Shared<Kind> {
        &WATCH
    }

    fn down(&self, env: Env, monitor: Monitor) {
        match self.target {
            Target::Socket(handle) => {
                if let Some(mut socket) = table::find(handle) {
                    socket.process_died(env, monitor);
                }
            }
            Target::Relay(handle, _) => relay::owner_died(env, handle),
            Target::Group(handle) => group::delete(env, handle),
            // Pollsets are watched by their `Holder`.
            Target::Pollset(_) => {}
        }
    }
}

//! What the death of a watched process is for.

use rustler::{Env, LocalPid, Monitor, Resource};

use crate::relay;
use crate::socket::owner::Watch;
use crate::socket::table;
use crate::value::handle::Target;
use crate::verb::group;

#[cfg_attr(not(test), rustler::resource_impl)]
impl Resource for Watch {
    const IMPLEMENTS_DOWN: bool = true;

    fn down<'a>(&'a self, env: Env<'a>, _pid: LocalPid, monitor: Monitor) {
        match self.target {
            Target::Socket(handle) => {
                if let Some(mut socket) = table::find(handle) {
                    socket.process_died(env, monitor);
                }
            }
            Target::Relay(handle, _) => relay::owner_died(env, handle),
            Target::Group(handle) => group::delete(env, handle),
        }
    }
}

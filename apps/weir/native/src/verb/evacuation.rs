//! Moves sockets away from the pollsets of offline schedulers, whose pollers would otherwise stay
//! busy.

use rustler::Env;

use crate::pollset;
use crate::socket::Socket;
use crate::socket::table;

/// Maximum sockets moved per call, at some microseconds each.
const MOVED: usize = 64;

/// Moves the sockets in chunk `piece` of the table to pollsets of online schedulers. Returns
/// whether the chunk is finished; `None` past the last chunk.
pub fn evacuate(env: Env, piece: usize) -> Option<bool> {
    let mut budget = MOVED;
    for handle in table::handles(piece)? {
        let Some(mut socket) = table::find(handle) else { continue };
        let (from, to) = (socket.pollset, pollset::online::pollset(socket.pollset));
        if from == to || stays(&socket) {
            continue;
        }
        if budget == 0 {
            return Some(false);
        }
        budget -= 1;
        // The kernel may lack memory to register it there, and then here again.
        if socket.move_to(env, to).is_err() && socket.move_to(env, from).is_err() {
            socket.give_up(env);
        }
    }
    Some(true)
}

/// Whether a socket stays on its pollset: the user placed it there, or its process is bound to the
/// scheduler. A listener's process moves its own listening sockets.
fn stays(socket: &Socket) -> bool {
    let is_bound = socket.permit.as_ref().is_some_and(|permit| permit.bound);
    let is_listeners = socket.listening.as_ref().is_some_and(|listening| listening.listener.is_some());
    socket.following.is_placed_by_user() || is_bound || is_listeners
}

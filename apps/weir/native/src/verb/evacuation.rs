//! Sockets leave the pollsets of schedulers that have gone offline: there they would keep pollers busy for nothing.

use rustler::Env;

use crate::pollset;
use crate::socket::Socket;
use crate::socket::table;

/// Sockets that move in one call, at some microseconds each.
const MOVED: usize = 64;

/// Moves sockets in the piece of the table with number `piece` to pollsets of schedulers that are online. Returns whether that
/// piece is done; nothing behind the last.
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
        // The kernel may have no memory for it where it goes, nor where it was.
        if socket.move_to(env, to).is_err() && socket.move_to(env, from).is_err() {
            socket.give_up(env);
        }
    }
    Some(true)
}

/// Whether a socket belongs to its scheduler: somebody has put it there, or its process is bound to it. The listening sockets of
/// a listener are moved by the process of that.
fn stays(socket: &Socket) -> bool {
    let is_bound = socket.permit.as_ref().is_some_and(|permit| permit.bound);
    let is_listeners = socket.listening.as_ref().is_some_and(|listening| listening.listener.is_some());
    socket.following.is_placed_by_user() || is_bound || is_listeners
}

//! A socket follows its owner to the pollset of the scheduler that the owner runs on.
//!
//! A message to a process on another scheduler wakes that scheduler, and one pollset for all
//! owners is limited to what one scheduler can read. So a socket joins the pollset of its owner's
//! scheduler when the owner first waits for something. Later it follows when the owner has waited
//! several times in a row on the same other scheduler. It does not follow at once, because the VM
//! often moves processes back and forth.

use rustler::Env;

use crate::kernel::scheduler;
use crate::pollset;
use crate::socket::telling::Teller;
use crate::socket::{Socket, State};
use crate::term::sender;
use crate::value::active::Active;
use crate::value::counters::add;

/// Signs in a row of an owner on another scheduler, after which its socket follows.
const ENOUGH: u8 = 12;

/// Signs that an owner gives when it asks for data, and when it sends. An owner in active mode
/// only sends.
const ASKS: u8 = 4;
const SENDS: u8 = 1;

/// Whether a socket still has to follow its owner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Follows {
    /// No: it stays, or has followed already.
    No,
    /// When the owner has taken its messages from the current sender.
    WhenTold,
}

/// What determines the pollset of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub enum Placed {
    /// Nothing: it follows its owner.
    #[default]
    Nowhere,
    /// Its listener, which distributes its connections over the online schedulers.
    ByListener,
    /// The user: it stays there.
    ByUser,
}

/// What is known about the scheduler of the owner.
#[derive(Clone, Copy, Default)]
pub struct Following {
    placed: Placed,
    /// The owner has waited for something before.
    joined: bool,
    /// Signs in a row of the owner on the scheduler `at`, which is not that of the socket.
    signs: u8,
    at: u16,
}

impl Following {
    /// Starts again for a new owner.
    pub fn begin(&mut self) {
        (self.joined, self.signs) = (false, 0);
    }

    /// Stops the socket from following its owner.
    pub fn place(&mut self, by: Placed) {
        self.placed = by;
    }

    /// Whether the user has chosen the pollset.
    pub fn is_placed_by_user(&self) -> bool {
        self.placed == Placed::ByUser
    }

    /// Counts signs of the owner on another scheduler. Returns whether they are enough.
    fn count(&mut self, at: u16, signs: u8) -> bool {
        if self.at != at {
            (self.at, self.signs) = (at, 0);
        }
        self.signs = self.signs.saturating_add(signs).min(ENOUGH);
        self.signs == ENOUGH
    }
}

impl Socket {
    /// The owner asks for messages. The socket follows at once if that cannot change the order of
    /// messages.
    pub fn owner_asks(&mut self, env: Env) -> Follows {
        if self.owner != sender::caller(env) {
            return Follows::No;
        }
        let Some(here) = self.elsewhere() else { return Follows::No };
        add(&pollset::counters(here).asked_away, 1);
        if !self.is_due(here, ASKS) {
            return Follows::No;
        }
        match self.teller {
            Teller::Process(_) => Follows::WhenTold,
            Teller::Nobody | Teller::Anybody => {
                self.go_after(env, here);
                Follows::No
            }
        }
    }

    /// The owner has taken all its messages, and asks again.
    pub fn follow_owner(&mut self, env: Env) {
        if self.following.signs == ENOUGH
            && !matches!(self.teller, Teller::Process(_))
            && self.is_free()
            && let Some(here) = self.elsewhere()
        {
            self.go_after(env, here);
        }
    }

    /// A process waits in `recv`. The order of answers does not matter, so the socket may follow
    /// at once.
    pub fn follow_receiver(&mut self, env: Env) {
        if let Some(here) = self.elsewhere() {
            add(&pollset::counters(here).asked_away, 1);
            if self.is_due(here, ASKS) {
                self.go_after(env, here);
            }
        }
    }

    /// A process has sent. An owner in active mode shows only by sending where it runs. Its next
    /// message waits until it has taken the earlier ones.
    pub fn owner_sent(&mut self, env: Env) {
        if matches!(self.options.active, Active::Always | Active::Count(_))
            && self.owner == sender::caller(env)
            && let Some(here) = self.elsewhere()
            && self.is_due(here, SENDS)
        {
            self.go_after(env, here);
        }
    }

    /// The pollset of the calling scheduler, unless the socket is already on it.
    fn elsewhere(&mut self) -> Option<u16> {
        // A scheduler that is about to go offline is not joined.
        let here = scheduler::current().map(pollset::online::pollset);
        let here = here.filter(|&here| here != self.pollset && pollset::exists(here));
        if here.is_none() {
            (self.following.joined, self.following.signs) = (true, 0);
        }
        here
    }

    /// Counts signs of the owner on the scheduler `here`. Returns whether the socket should
    /// follow.
    ///
    /// A few busy pollers read more at a time than many. So a socket does not move while both its
    /// poller and the other one sleep: the other would have to wake up for it.
    fn is_due(&mut self, here: u16, signs: u8) -> bool {
        if !self.is_free() {
            return false;
        }
        if !std::mem::replace(&mut self.following.joined, true) {
            return self.following.count(here, ENOUGH);
        }
        if pollset::rests(self.pollset) && pollset::rests(here) {
            self.following.signs = 0;
            return false;
        }
        self.following.count(here, signs)
    }

    /// Whether nothing is pending that keeps the socket where it is.
    fn is_free(&self) -> bool {
        self.following.placed == Placed::Nowhere
            && !self.reactor
            && !self.lingering
            && !self.unsettled
            && !self.has_untold()
            && self.state == State::Connected
            && self.output.is_none()
            && self.writability.is_none()
            && self.groups.is_empty()
    }

    fn go_after(&mut self, env: Env, here: u16) {
        self.following.signs = 0;
        if self.go(env, here).is_err() {
            // The next visit registers the socket, or tells the owner why that fails. Without it,
            // nothing would report its data.
            self.enqueue(env);
        }
    }
}

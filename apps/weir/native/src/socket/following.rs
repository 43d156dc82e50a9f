//! A socket follows its owner: it is on the pollset of the scheduler that its owner runs on.
//!
//! A message to a process on another scheduler wakes that scheduler, and one pollset for all owners ends at what one scheduler
//! can read. So a socket joins the pollset of its owner's scheduler when the owner first waits for something, and goes after
//! the owner when that has done so several times in a row on one other scheduler. The VM moves processes to and fro: a socket
//! that followed at once would be on its way all the time.

use rustler::Env;

use crate::kernel::scheduler;
use crate::pollset;
use crate::socket::telling::Teller;
use crate::socket::{Socket, State};
use crate::term::sender;
use crate::value::active::Active;
use crate::value::counters::add;

/// Signs in a row of an owner on one other scheduler, after which its socket follows.
const ENOUGH: u8 = 12;

/// What an owner does that shows where it runs, and how many signs that is. One that is told of all data only sends.
const ASKS: u8 = 4;
const SENDS: u8 = 1;

/// Whether a socket goes to the pollset of the scheduler that its owner runs on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Follows {
    /// It stays, or has gone already.
    No,
    /// When the owner has taken what it was sent from where the socket is.
    WhenTold,
}

/// Whether somebody has said where a socket is to be.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub enum Placed {
    /// Nobody: it follows its owner.
    #[default]
    Nowhere,
    /// Its listener, which distributes its connections over the schedulers that are online.
    ByListener,
    /// The user: it stays there whatever happens.
    ByUser,
}

/// What is known of where the owner runs.
#[derive(Clone, Copy, Default)]
pub struct Following {
    placed: Placed,
    /// The owner has waited for something before.
    joined: bool,
    /// Signs in a row of the owner on the scheduler `at`, which is not the socket's.
    signs: u8,
    at: u16,
}

impl Following {
    /// The socket has another owner.
    pub fn begin(&mut self) {
        (self.joined, self.signs) = (false, 0);
    }

    /// The socket does not follow its owner any more.
    pub fn place(&mut self, by: Placed) {
        self.placed = by;
    }

    /// Whether the user has said where it is to be.
    pub fn is_placed_by_user(&self) -> bool {
        self.placed == Placed::ByUser
    }

    /// Counts signs of the owner on another scheduler. Whether they are enough.
    fn count(&mut self, at: u16, signs: u8) -> bool {
        if self.at != at {
            (self.at, self.signs) = (at, 0);
        }
        self.signs = self.signs.saturating_add(signs).min(ENOUGH);
        self.signs == ENOUGH
    }
}

impl Socket {
    /// The owner, or somebody for it, asks for messages. Follows the owner at once where nobody's messages could come out of
    /// order by that.
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

    /// The owner has taken all that it was sent, and asks again.
    pub fn follow_owner(&mut self, env: Env) {
        if self.following.signs == ENOUGH
            && !matches!(self.teller, Teller::Process(_))
            && self.is_free()
            && let Some(here) = self.elsewhere()
        {
            self.go_after(env, here);
        }
    }

    /// A process waits in `recv`. Answers need no order.
    pub fn follow_receiver(&mut self, env: Env) {
        if let Some(here) = self.elsewhere() {
            add(&pollset::counters(here).asked_away, 1);
            if self.is_due(here, ASKS) {
                self.go_after(env, here);
            }
        }
    }

    /// Somebody has sent. An owner that is told of all data shows by nothing else where it runs. Its next message waits until
    /// it has taken those before.
    pub fn owner_sent(&mut self, env: Env) {
        if matches!(self.options.active, Active::Always | Active::Count(_))
            && self.owner == sender::caller(env)
            && let Some(here) = self.elsewhere()
            && self.is_due(here, SENDS)
        {
            self.go_after(env, here);
        }
    }

    /// The pollset of the calling scheduler, if it is not the socket's.
    fn elsewhere(&mut self) -> Option<u16> {
        // A scheduler that is online for a moment only is not joined.
        let here = scheduler::current().map(pollset::online::pollset);
        let here = here.filter(|&here| here != self.pollset && pollset::exists(here));
        if here.is_none() {
            (self.following.joined, self.following.signs) = (true, 0);
        }
        here
    }

    /// Notes signs of the owner on the scheduler `here`. Whether the socket is to follow.
    ///
    /// Few pollers with much to do read more at a time than many. So a socket does not go where another poller would have to
    /// wake up for it, while the one that it has finds time to sleep.
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

    /// Whether nothing is on its way for which the socket should stay.
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
            // The visit registers the socket, or tells the owner why that fails: nobody would hear of its data.
            self.enqueue(env);
        }
    }
}

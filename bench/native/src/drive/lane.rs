//! The lanes of the driver's tokens, and the tokens of sources that are not connections.

use crate::poller::{Lane, Token};

/// The lane of sources that are not connections.
const CONTROL: Lane = 0;

/// The lane of the connections to the server under test.
pub(crate) const CONNECTIONS: Lane = 1;

/// The lane of the connections that a proxy under test makes to the driver's own backend.
pub(crate) const BACKEND: Lane = 2;

/// The token of the signal that ends the run.
pub(crate) const STOP: Token = Token::new(CONTROL, 0, 0);

/// The token of the timer that checks the progress of the run.
pub(crate) const TICKER: Token = Token::new(CONTROL, 1, 0);

/// The token of the backend's listener.
pub(crate) const BACKEND_LISTENER: Token = Token::new(CONTROL, 2, 0);

/// The token of a protocol's alarm.
pub(crate) const ALARM: Token = Token::new(CONTROL, 3, 0);

//! The reasons for which a request is refused. Each has one status.

/// Why a request is refused. Its connection is closed, since the start of the next request is
/// unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A line that does not follow the grammar, or a forbidden byte.
    Syntax,
    /// A line that ends in a bare LF. Servers disagree about it, and so about where a head ends.
    BareLineFeed,
    /// A method for proxies (CONNECT), one that echoes the request (TRACE), or one that does not
    /// look like a method.
    Method,
    /// A target in none of the four forms of RFC 9112, 3.2, or with a character that must be
    /// encoded.
    Target,
    /// Not HTTP/1.0 or HTTP/1.1.
    Version,
    /// Host is missing, repeated, empty, not an authority, or differs from the authority in the
    /// target.
    Host,
    /// A Content-Length that is not one number.
    ContentLength,
    /// A Transfer-Encoding that is not exactly `chunked`, or together with Content-Length or
    /// HTTP/1.0.
    TransferEncoding,
    /// A Transfer-Encoding that is not implemented.
    Coding,
    /// An Expect that is not `100-continue`.
    Expectation,
    /// The request line is longer than its limit.
    LineTooLong,
    /// More fields, or more bytes of them, than the limits allow.
    FieldsTooLarge,
    /// A chunk with a malformed beginning or end.
    Chunk,
    /// A body that is longer than its limit.
    BodyTooLarge,
}

impl Refusal {
    /// Returns the status of the response.
    pub fn status(self) -> u16 {
        match self {
            Refusal::Method | Refusal::Coding => 501,
            Refusal::Version => 505,
            Refusal::Expectation => 417,
            Refusal::LineTooLong => 414,
            Refusal::FieldsTooLarge => 431,
            Refusal::BodyTooLarge => 413,
            _ => 400,
        }
    }
}

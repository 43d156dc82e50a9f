//! Why a request is refused: each reason has one status.

/// What is wrong with a request. Its connection is closed, since nobody knows where the next request would begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A line that no rule of the grammar allows, or a byte that may not be there.
    Syntax,
    /// A line that ends in LF alone. Servers that take it disagree with those that do not about where a head ends.
    BareLineFeed,
    /// A method that is for proxies (CONNECT), gives away what it was sent (TRACE), or looks like none.
    Method,
    /// A target that is none of the four forms of RFC 9112, 3.2, or has a character that must be encoded.
    Target,
    /// Not HTTP/1.0 or HTTP/1.1.
    Version,
    /// No Host, more than one, an empty one or one that is no authority; or another than the target names.
    Host,
    /// A Content-Length that is not one number.
    ContentLength,
    /// A Transfer-Encoding that is not exactly `chunked`, or that stands beside a Content-Length or in HTTP/1.0.
    TransferEncoding,
    /// A Transfer-Encoding that we do not know.
    Coding,
    /// An Expect that is not `100-continue`.
    Expectation,
    /// The request line is longer than its limit.
    LineTooLong,
    /// More fields, or more bytes of them, than the limits allow.
    FieldsTooLarge,
    /// A chunk that does not begin or end as a chunk does.
    Chunk,
    /// A body that is longer than its limit.
    BodyTooLarge,
}

impl Refusal {
    /// The status of the response.
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

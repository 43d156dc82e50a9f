//! Bytes that were read from the kernel and not delivered yet.

/// Minimum room in bytes when much data is expected.
const FILL: usize = 256 * 1024;

/// A buffer that is filled at its end and emptied from its front; `unrecv` puts bytes back in
/// front.
#[derive(Default)]
pub struct InputBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl InputBuffer {
    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Takes the first `n` bytes, at most [`len`](Self::len), without copying them. Returns a
    /// vector, the number of leading bytes in it to skip, and a buffer with a copy of the
    /// remaining bytes.
    pub fn split(mut self, n: usize) -> (Vec<u8>, usize, InputBuffer) {
        let rest = self.bytes.split_off(self.start + n);
        (self.bytes, self.start, InputBuffer { bytes: rest, start: 0 })
    }

    /// Calls `fill` to append to the vector, which has room for about `n` bytes.
    pub fn fill<T>(&mut self, n: usize, fill: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        // At most doubles the size, so that memory follows received data, not what a peer
        // announces.
        self.bytes.reserve_exact(n.min(self.bytes.len().max(FILL)));
        fill(&mut self.bytes)
    }

    /// Adds bytes at the end.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Puts bytes in front of the others.
    pub fn unread(&mut self, bytes: &[u8]) {
        self.bytes.splice(..self.start, bytes.iter().copied());
        self.start = 0;
    }

    /// Removes `n` bytes, at most [`len`](Self::len), from the front. An empty buffer frees its
    /// memory.
    pub fn advance(&mut self, n: usize) {
        debug_assert!(n <= self.len());
        self.start += n;
        if self.start == self.bytes.len() {
            *self = InputBuffer::default();
        } else if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_order_and_unread_ones_first() {
        let mut buffer = InputBuffer::default();
        buffer.push(b"cdef");
        buffer.unread(b"ab");
        assert_eq!(buffer.as_slice(), b"abcdef");
        buffer.advance(4);
        buffer.unread(b"X");
        buffer.push(b"g");
        assert_eq!(buffer.as_slice(), b"Xefg");
        buffer.advance(1);
        assert_eq!((buffer.len(), buffer.as_slice()), (3, &b"efg"[..]));
    }

    #[test]
    fn the_front_as_a_vector() {
        let mut buffer = InputBuffer::default();
        buffer.push(b"abcde");
        buffer.advance(1);
        let (bytes, skip, rest) = buffer.split(3);
        assert_eq!((&bytes[skip..], rest.as_slice()), (&b"bcd"[..], &b"e"[..]));
    }

    #[test]
    fn room_follows_what_has_come() {
        let mut buffer = InputBuffer::default();
        buffer.push(b"a");
        buffer.fill(usize::MAX, |bytes| {
            assert!(bytes.capacity() <= FILL + 1);
            bytes.extend_from_slice(b"bc");
        });
        assert_eq!(buffer.as_slice(), b"abc");
    }

    #[test]
    fn an_emptied_buffer_owns_no_memory() {
        let mut buffer = InputBuffer::default();
        buffer.push(&[0; 5000]);
        buffer.advance(5000);
        assert_eq!(buffer.bytes.capacity(), 0);
    }
}

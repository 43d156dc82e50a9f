//! Bytes that were read from the kernel and not taken by anybody yet.

/// A buffer that is filled at the end and taken from the front; `unrecv` puts bytes back in front.
#[derive(Default)]
pub struct InputBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl InputBuffer {
    /// Bytes that wait.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// The bytes that wait.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The bytes that wait, as a vector.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.drain(..self.start);
        self.bytes
    }

    /// Adds bytes at the end.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Puts bytes in front of all others.
    pub fn unread(&mut self, bytes: &[u8]) {
        self.bytes.splice(..self.start, bytes.iter().copied());
        self.start = 0;
    }

    /// Takes `n` bytes, at most [`len`](Self::len), off the front. An emptied buffer gives its memory back.
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
    fn the_rest_as_a_vector() {
        let mut buffer = InputBuffer::default();
        buffer.push(b"abc");
        buffer.advance(1);
        assert_eq!(buffer.into_bytes(), b"bc");
    }

    #[test]
    fn an_emptied_buffer_owns_no_memory() {
        let mut buffer = InputBuffer::default();
        buffer.push(&[0; 5000]);
        buffer.advance(5000);
        assert_eq!(buffer.bytes.capacity(), 0);
    }
}

//! The send queue: bytes that the kernel has not taken yet.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::io::IoSlice;

/// Smaller pieces are copied together instead of being held by reference, so that a thousand
/// one-byte sends do not cost a thousand references.
const COALESCE: usize = 1024;

/// Maximum size of a chunk of copied pieces.
const CHUNK: usize = 16 * 1024;

/// A piece of the queue: copied bytes, a reference to bytes, or bytes that are elsewhere.
enum Piece<B, S> {
    Copied(Vec<u8>),
    Held(B),
    /// A reference that can be removed by its tag while none of it has been sent.
    Droppable(B, u64),
    Elsewhere(S, usize),
}

impl<B: AsRef<[u8]>, S> Piece<B, S> {
    /// The bytes, if they are in memory.
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Copied(bytes) => bytes,
            Piece::Held(held) | Piece::Droppable(held, _) => held.as_ref(),
            Piece::Elsewhere(..) => &[],
        }
    }

    fn size(&self) -> usize {
        match self {
            Piece::Elsewhere(_, size) => *size,
            _ => self.bytes().len(),
        }
    }
}

/// A queue of bytes. Large pieces are held by reference; any amount can be taken from the front.
///
/// `B` is a reference to immutable bytes: a binary of the VM in the engine, a vector in tests. `S`
/// is a source from which the bytes must be fetched, such as a file.
pub struct SendQueue<B, S = Infallible> {
    pieces: VecDeque<Piece<B, S>>,
    /// Bytes of the first piece that have been taken.
    taken: usize,
    length: usize,
    /// Bytes in other sources.
    elsewhere: usize,
    /// For each tag, the number of pieces and their bytes.
    tagged: BTreeMap<u64, (usize, usize)>,
}

impl<B: AsRef<[u8]>, S> SendQueue<B, S> {
    /// An empty queue, which owns no memory.
    pub fn new() -> SendQueue<B, S> {
        SendQueue { pieces: VecDeque::new(), taken: 0, length: 0, elsewhere: 0, tagged: BTreeMap::new() }
    }

    /// Number of waiting bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Number of them that are in memory.
    pub fn in_memory(&self) -> usize {
        self.length - self.elsewhere
    }

    /// Converts to a queue without other sources; `None` if some bytes are elsewhere.
    pub fn into_memory(self) -> Option<SendQueue<B>> {
        let memory = |piece| match piece {
            Piece::Copied(bytes) => Some(Piece::Copied(bytes)),
            Piece::Held(held) => Some(Piece::Held(held)),
            Piece::Droppable(held, tag) => Some(Piece::Droppable(held, tag)),
            Piece::Elsewhere(..) => None,
        };
        let pieces = self.pieces.into_iter().map(memory).collect::<Option<_>>()?;
        Some(SendQueue { pieces, taken: self.taken, length: self.length, elsewhere: 0, tagged: self.tagged })
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Appends `bytes`. `hold` is called for large ones only; it returns a reference to the same
    /// bytes, or `None` if they must be copied.
    pub fn push(&mut self, bytes: &[u8], hold: impl FnOnce() -> Option<B>) {
        if bytes.is_empty() {
            return;
        }
        self.length += bytes.len();
        match if bytes.len() >= COALESCE { hold() } else { None } {
            Some(held) => self.pieces.push_back(Piece::Held(held)),
            None => self.copy(bytes),
        }
    }

    /// Appends a copy of `bytes`.
    pub fn push_copy(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.length += bytes.len();
            self.copy(bytes);
        }
    }

    /// Appends bytes that are elsewhere. The total is capped below the largest number, because a
    /// sum that wraps around would look like an empty queue.
    pub fn push_elsewhere(&mut self, source: S, size: usize) {
        let size = size.min((usize::MAX / 2).saturating_sub(self.length));
        if size > 0 {
            self.length += size;
            self.elsewhere += size;
            self.pieces.push_back(Piece::Elsewhere(source, size));
        }
    }

    /// If the first bytes are elsewhere: their source, how many of them are taken, and how many
    /// are left.
    pub fn source(&self) -> Option<(&S, usize, usize)> {
        match self.pieces.front() {
            Some(Piece::Elsewhere(source, size)) => Some((source, self.taken, size - self.taken)),
            _ => None,
        }
    }

    /// Whether the bytes in front are followed by some that are elsewhere.
    pub fn leads_elsewhere(&self) -> bool {
        self.elsewhere > 0 && matches!(self.pieces.get(1), Some(Piece::Elsewhere(..)))
    }

    /// Appends a reference.
    pub fn push_held(&mut self, held: B) {
        self.length += held.as_ref().len();
        self.pieces.push_back(Piece::Held(held));
    }

    /// Appends a reference that can be removed by its tag.
    pub fn push_droppable(&mut self, held: B, tag: u64) {
        self.length += held.as_ref().len();
        let (count, bytes) = self.tagged.entry(tag).or_default();
        *count += 1;
        *bytes += held.as_ref().len();
        self.pieces.push_back(Piece::Droppable(held, tag));
    }

    /// The number of pieces that can be removed by a tag, and their bytes.
    pub fn droppable(&self, tag: u64) -> (usize, usize) {
        let (count, bytes) = self.tagged.get(&tag).copied().unwrap_or_default();
        match self.pieces.front() {
            Some(Piece::Droppable(begun, of)) if *of == tag && self.taken > 0 => {
                (count - 1, bytes - begun.as_ref().len())
            }
            _ => (count, bytes),
        }
    }

    /// Removes the oldest piece with a tag. False if there is none.
    pub fn drop_oldest(&mut self, tag: u64) -> bool {
        if self.droppable(tag).0 == 0 {
            return false;
        }
        let begun = usize::from(self.taken > 0);
        let is_tagged = |piece: &Piece<B, S>| matches!(piece, Piece::Droppable(_, of) if *of == tag);
        let oldest = self.pieces.iter().skip(begun).position(is_tagged);
        if let Some(piece) = oldest.and_then(|at| self.pieces.remove(begun + at)) {
            self.length -= piece.bytes().len();
            self.count_out(&piece);
        }
        oldest.is_some()
    }

    /// Updates the counts for a removed piece.
    fn count_out(&mut self, piece: &Piece<B, S>) {
        if let Piece::Droppable(held, tag) = piece
            && let Some((count, bytes)) = self.tagged.get_mut(tag)
        {
            *count -= 1;
            *bytes -= held.as_ref().len();
            if *count == 0 {
                self.tagged.remove(tag);
            }
        }
    }

    fn copy(&mut self, bytes: &[u8]) {
        if let Some(Piece::Copied(chunk)) = self.pieces.back_mut()
            && chunk.len() + bytes.len() <= CHUNK
        {
            chunk.extend_from_slice(bytes);
            return;
        }
        self.pieces.push_back(Piece::Copied(bytes.to_vec()));
    }

    /// Fills `slices` from the front of the queue, up to `limit` bytes but at least one. Returns
    /// the number of slices and bytes. Stops at bytes that are elsewhere.
    pub fn front<'a>(&'a self, slices: &mut [IoSlice<'a>], limit: usize) -> (usize, usize) {
        let (mut count, mut total, mut skip) = (0, 0, self.taken);
        for piece in &self.pieces {
            if count == slices.len() || total >= limit || matches!(piece, Piece::Elsewhere(..)) {
                break;
            }
            let bytes = &piece.bytes()[skip..];
            let bytes = &bytes[..bytes.len().min(limit - total)];
            skip = 0;
            slices[count] = IoSlice::new(bytes);
            count += 1;
            total += bytes.len();
        }
        (count, total)
    }

    /// Removes `n` bytes from the front, of those that [`front`](Self::front) or
    /// [`source`](Self::source) returned.
    pub fn advance(&mut self, n: usize) {
        debug_assert!(n <= self.length);
        if self.source().is_some() {
            self.elsewhere -= n;
        }
        self.length -= n;
        self.taken += n;
        while let Some(first) = self.pieces.front() {
            let size = first.size();
            if self.taken < size {
                return;
            }
            self.taken -= size;
            if let Some(piece) = self.pieces.pop_front() {
                self.count_out(&piece);
            }
        }
        // Empty: an idle connection keeps no memory.
        self.pieces = VecDeque::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(queue: &SendQueue<Vec<u8>>, limit: usize) -> Vec<u8> {
        let mut slices = [IoSlice::new(&[]); 4];
        let (count, total) = queue.front(&mut slices, limit);
        let bytes: Vec<u8> = slices[..count].iter().flat_map(|s| s.to_vec()).collect();
        assert_eq!(bytes.len(), total);
        bytes
    }

    fn push(queue: &mut SendQueue<Vec<u8>>, bytes: &[u8]) {
        queue.push(bytes, || Some(bytes.to_vec()));
    }

    #[test]
    fn gives_back_what_was_pushed_in_any_amounts() {
        // A deterministic generator, so that a failure can be repeated.
        let mut seed = 1u64;
        let mut random = move |below: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % below
        };
        let mut queue = SendQueue::new();
        let (mut model, mut next) = (VecDeque::new(), 0u8);
        for _ in 0..20_000 {
            if random(2) == 0 {
                let size = [random(8), random(2000), random(40_000)][random(3)];
                let bytes: Vec<u8> = (0..size)
                    .map(|_| {
                        next = next.wrapping_add(1);
                        next
                    })
                    .collect();
                push(&mut queue, &bytes);
                model.extend(bytes);
            } else {
                let front = contents(&queue, 1 + random(70_000));
                assert!(model.iter().copied().take(front.len()).eq(front.iter().copied()));
                assert!(!front.is_empty() || model.is_empty());
                let n = random(front.len() + 1);
                queue.advance(n);
                model.drain(..n);
            }
            assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
        }
    }

    #[test]
    fn small_pieces_share_a_chunk_and_large_ones_are_held() {
        let mut queue = SendQueue::new();
        for _ in 0..1000 {
            push(&mut queue, b"x");
        }
        assert_eq!(queue.pieces.len(), 1);
        push(&mut queue, &[7; COALESCE]);
        assert!(matches!(queue.pieces.back(), Some(Piece::Held(_))));
    }

    #[test]
    fn an_emptied_queue_owns_no_memory() {
        let mut queue = SendQueue::new();
        push(&mut queue, b"gone");
        queue.advance(4);
        assert_eq!(queue.pieces.capacity(), 0);
    }

    #[test]
    fn what_has_begun_or_is_others_is_not_taken_back() {
        let mut queue = SendQueue::new();
        for (piece, tag) in [(b"aa", 1), (b"bb", 2), (b"cc", 1), (b"dd", 1)] {
            queue.push_droppable(piece.to_vec(), tag);
        }
        push(&mut queue, b"own");
        assert_eq!(queue.droppable(1), (3, 6));
        queue.advance(1);
        assert_eq!(queue.droppable(1), (2, 4));
        assert!(queue.drop_oldest(1));
        assert_eq!(contents(&queue, 100), b"abbddown");
        assert!(queue.drop_oldest(1) && !queue.drop_oldest(1));
        assert_eq!((contents(&queue, 100), queue.len()), (b"abbown".to_vec(), 6));
    }

    #[test]
    fn what_is_elsewhere_has_its_turn() {
        let mut queue: SendQueue<Vec<u8>, char> = SendQueue::new();
        let front = |queue: &SendQueue<Vec<u8>, char>| queue.front(&mut [IoSlice::new(&[]); 4], 100);
        queue.push_copy(b"head");
        queue.push_elsewhere('f', 1000);
        queue.push_elsewhere('g', 0);
        queue.push_copy(b"tail");
        assert_eq!((queue.len(), queue.in_memory(), queue.leads_elsewhere()), (1008, 8, true));
        assert_eq!((front(&queue), queue.source()), ((1, 4), None));
        queue.advance(4);
        assert_eq!((front(&queue), queue.source()), ((0, 0), Some((&'f', 0, 1000))));
        queue.advance(400);
        assert_eq!((queue.len(), queue.in_memory(), queue.source()), (604, 4, Some((&'f', 400, 600))));
        queue.advance(600);
        assert_eq!((front(&queue), queue.source(), queue.leads_elsewhere()), ((1, 4), None, false));
        assert_eq!(queue.into_memory().map(|queue| queue.len()), Some(4));
    }

    #[test]
    fn lengths_do_not_wrap_around() {
        let mut queue: SendQueue<Vec<u8>, char> = SendQueue::new();
        for _ in 0..4 {
            queue.push_elsewhere('f', 1 << 62);
        }
        assert!(!queue.is_empty());
        queue.push_copy(b"tail");
        assert_eq!(queue.in_memory(), 4);
    }

    #[test]
    fn what_is_elsewhere_cannot_be_had_in_memory() {
        let mut queue: SendQueue<Vec<u8>, char> = SendQueue::new();
        queue.push_elsewhere('f', 1);
        assert!(queue.into_memory().is_none());
    }

    #[test]
    fn a_limit_cuts_within_a_piece() {
        let mut queue = SendQueue::new();
        push(&mut queue, &[1; 5000]);
        assert_eq!(contents(&queue, 10).len(), 10);
        queue.advance(4999);
        assert_eq!(contents(&queue, 10), [1]);
    }
}

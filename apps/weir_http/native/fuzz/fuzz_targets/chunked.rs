//! Chunked bodies from any bytes: splitting them in two does not change the result, and the body
//! stays within its limit.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../src/chunked.rs"]
mod chunked;
#[path = "../../src/fields.rs"]
mod fields;
#[path = "../../src/refusal.rs"]
mod refusal;

use chunked::{Decoder, Phase};
use refusal::Refusal;

const MOST: u64 = 4096;

/// Returns the body and the number of bytes taken, or the refusal.
fn decode(pieces: &[&[u8]]) -> Result<(Vec<u8>, usize, Phase), Refusal> {
    let mut decoder = Decoder::default();
    let mut body = Vec::new();
    let mut taken = 0;
    for piece in pieces {
        let here = decoder.decode(piece, MOST, |data| body.extend_from_slice(data))?;
        assert!(here == piece.len() || decoder.phase == Phase::Last);
        taken += here;
        assert!(body.len() as u64 <= MOST);
        assert_eq!(Phase::from_number(decoder.phase as u8), Some(decoder.phase));
    }
    Ok((body, taken, decoder.phase))
}

fuzz_target!(|input: &[u8]| {
    let Some((&cut, bytes)) = input.split_first() else { return };
    let at = usize::from(cut).min(bytes.len());
    assert_eq!(decode(&[bytes]), decode(&[&bytes[..at], &bytes[at..]]));
});

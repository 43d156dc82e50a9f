//! Unmasking (RFC 6455, 5.3).

/// Writes the unmasked bytes of `masked` to `plain`, which has the same length. `mask` is that of the first byte.
pub fn unmask(masked: &[u8], plain: &mut [u8], mask: [u8; 4]) {
    // Sixteen bytes at a time, which the compiler vectorizes.
    let wide = u128::from(u32::from_ne_bytes(mask)) * 0x0000_0001_0000_0001_0000_0001_0000_0001;
    let (source, source_rest) = masked.as_chunks::<16>();
    let (target, target_rest) = plain.as_chunks_mut::<16>();
    for (from, to) in source.iter().zip(target) {
        *to = (u128::from_ne_bytes(*from) ^ wide).to_ne_bytes();
    }
    for (at, (from, to)) in source_rest.iter().zip(target_rest).enumerate() {
        *to = from ^ mask[at % 4];
    }
}

/// Rotates a mask for the payload after that many bytes.
pub fn advance(mask: [u8; 4], bytes: usize) -> [u8; 4] {
    let mut mask = mask;
    mask.rotate_left(bytes % 4);
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks() {
        let mask = [0x12, 0x34, 0x56, 0x78];
        let text: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for length in 0..200 {
            let plain: Vec<u8> = text[..length].iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]).collect();
            for cut in [0, 1, 5, 16, 33, 99].into_iter().filter(|cut| *cut <= length) {
                let mut out = vec![0; length];
                unmask(&text[..cut], &mut out[..cut], mask);
                unmask(&text[cut..length], &mut out[cut..], advance(mask, cut));
                assert_eq!(out, plain, "{length} bytes, cut at {cut}");
            }
        }
    }
}

//! Signed variable-length integers as Go's `binary.PutVarint` writes them: zig-zag, then base 128 groups,
//! least significant first, at most ten bytes.

use super::FrameError;

/// The longest encoding of a 64 bit value.
pub const MAX_LEN: usize = 10;

/// Appends `value` to `out` at `at` and returns the position behind it.
///
/// `out` must hold [`MAX_LEN`] bytes behind `at`.
pub(super) fn put(out: &mut [u8], mut at: usize, value: i64) -> usize {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out[at] = (rest as u8) | 0x80;
        rest >>= 7;
        at += 1;
    }
    out[at] = rest as u8;
    at + 1
}

/// Reads one integer from the front of `input`; returns it with the number of bytes it took.
pub fn get(input: &[u8]) -> Result<(i64, usize), FrameError> {
    let mut value = 0u64;
    for (at, &byte) in input.iter().take(MAX_LEN).enumerate() {
        // The tenth group holds the one remaining bit; anything above does not fit 64 bits.
        if at == MAX_LEN - 1 && byte > 1 {
            return Err(FrameError::Overflow);
        }
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            return Ok((((value >> 1) as i64) ^ -((value & 1) as i64), at + 1));
        }
    }
    Err(if input.len() >= MAX_LEN { FrameError::Overflow } else { FrameError::Truncated })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(value: i64) -> Vec<u8> {
        let mut out = [0; MAX_LEN];
        let end = put(&mut out, 0, value);
        out[..end].to_vec()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn every_integer_survives_the_wire(value: i64) {
            let bytes = encoded(value);
            prop_assert_eq!(get(&bytes).unwrap(), (value, bytes.len()));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..16)) {
            if let Ok((_, used)) = get(&bytes) {
                prop_assert!(used <= bytes.len() && used <= MAX_LEN);
            }
        }
    }

    #[test]
    fn an_unfinished_integer_is_truncated() {
        assert!(matches!(get(&[]), Err(FrameError::Truncated)));
        assert!(matches!(get(&[0x80; 9]), Err(FrameError::Truncated)));
    }

    #[test]
    fn more_than_sixty_four_bits_overflow() {
        assert!(matches!(get(&[0x80; 10]), Err(FrameError::Overflow)));
        assert!(matches!(
            get(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]),
            Err(FrameError::Overflow)
        ));
    }

    #[test]
    fn the_extremes_take_ten_bytes() {
        assert_eq!(encoded(i64::MIN).len(), MAX_LEN);
        assert_eq!(encoded(i64::MAX).len(), MAX_LEN);
    }
}

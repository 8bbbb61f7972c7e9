//! The masking of what clients send.

/// Masks or unmasks in place; doing it twice changes nothing.
///
/// In blocks of the width that compilers make vector instructions of: this touches every byte of a tunnel.
pub(super) fn apply(data: &mut [u8], key: [u8; 4]) {
    let mut wide = [0; 32];
    wide.as_chunks_mut::<4>().0.fill(key);
    let (blocks, rest) = data.as_chunks_mut::<32>();
    for block in blocks {
        block.iter_mut().zip(&wide).for_each(|(byte, key)| *byte ^= key);
    }
    rest.iter_mut().zip(&wide).for_each(|(byte, key)| *byte ^= key);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_byte_meets_its_byte_of_the_key(data: Vec<u8>, key: [u8; 4]) {
            let mut masked = data.clone();
            super::apply(&mut masked, key);
            let expected: Vec<u8> = data.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
            prop_assert_eq!(masked, expected);
        }
    }
}

//! Executables are read before anything about them is known.

use std::io::Cursor;

use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed},
};
use remuda_names::fuzz;

use crate::executable::{self, tests::program};

fn config() -> Config {
    let told = |name: &str| std::env::var_os(name)?.to_str()?.parse::<u32>().ok();
    let seed = RngSeed::Fixed(told(fuzz::SEED).unwrap_or(1).into());
    Config { cases: told(fuzz::CASES).unwrap_or(512), rng_seed: seed, ..Config::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_file_breaks_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = executable::read(&mut Cursor::new(bytes));
    }

    /// Beyond the magic numbers, where random bytes do not come by themselves.
    #[test]
    fn no_header_breaks_the_reader(
        rest in proptest::collection::vec(any::<u8>(), 0..400),
        changes in proptest::collection::vec((20_usize..64, any::<u8>()), 0..12),
    ) {
        let mut bytes = program(62);
        bytes.extend(rest);
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        // A table right behind the head, so that some of them are read.
        bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
        bytes[54..58].copy_from_slice(&[56, 0, 4, 0]);
        let _ = executable::read(&mut Cursor::new(bytes));
    }
}

//! How much random input the properties about hostile input are given.

/// Environment variable with the number of cases of each property, in place of its own. `cargo xtask security` sets it.
pub const CASES: &str = "REMUDA_FUZZ_CASES";
/// Environment variable with the seed of the generators, which is 1 without it. The same seed gives the same input.
pub const SEED: &str = "REMUDA_FUZZ_SEED";

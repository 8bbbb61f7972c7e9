//! Codes at random.

use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed},
};
use remuda_names::fuzz;

use super::{stored::Factor, stored::normal, totp};

fn config() -> Config {
    let told = |name: &str| std::env::var_os(name)?.to_str()?.parse::<u32>().ok();
    let seed = RngSeed::Fixed(told(fuzz::SEED).unwrap_or(1).into());
    Config { cases: told(fuzz::CASES).unwrap_or(512), rng_seed: seed, ..Config::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_text_is_a_code_but_six_digits_of_now(
        code in "[0-9]{5,7}|[０-９]{6}|[ 0-9+-]{6}|\\PC{0,12}",
        now in any::<i64>(),
        last in any::<u64>(),
    ) {
        let factor =
            Factor { secret: vec![7; 20], confirmed: true, last_step: last, recovery: vec![String::new(), code.clone()] };
        let step = totp::matching_step(&factor.secret, &code, now, last);
        if let Some(step) = step {
            prop_assert!(totp::is_code(&code) && step > last);
            prop_assert!(now.div_euclid(30).abs_diff(i64::try_from(step).unwrap()) <= 1);
        }
        // What is stored of recovery codes are hashes: neither nothing nor the text itself is a key to them.
        if let Some(used) = factor.with_code_used(&code, now) {
            prop_assert!(step.is_some() && used.last_step > last, "{code:?}");
        }
        prop_assert_eq!(normal(&normal(&code)), normal(&code));
        prop_assert!(normal(&code).len() <= 64);
    }
}

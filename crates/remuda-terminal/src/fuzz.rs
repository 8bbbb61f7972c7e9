//! What commands write and pages say, at random.

use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed},
};
use remuda_names::fuzz;

use crate::{
    exec::Frame,
    keys::{self, Modes},
    message::Said,
    screen::Screen,
};

fn config() -> Config {
    let told = |name: &str| std::env::var_os(name)?.to_str()?.parse::<u32>().ok();
    let seed = RngSeed::Fixed(told(fuzz::SEED).unwrap_or(1).into());
    Config { cases: told(fuzz::CASES).unwrap_or(256), rng_seed: seed, ..Config::default() }
}

proptest! {
    #![proptest_config(config())]

    /// Told row by row, a page has what the screen has, whatever was written to it.
    #[test]
    fn a_page_that_is_told_of_changes_has_the_screen(
        output in proptest::collection::vec(
            prop_oneof![
                "\\PC{0,12}".prop_map(String::into_bytes),
                "\\x1b\\[[0-9;?]{0,8}[A-Za-z]".prop_map(String::into_bytes),
                "(\r\n|\n|\t|\x08){1,4}".prop_map(String::into_bytes),
                proptest::collection::vec(any::<u8>(), 0..16),
            ],
            0..16,
        ),
        sizes in proptest::collection::vec((any::<u16>(), any::<u16>(), 0_usize..2000), 0..4),
    ) {
        let mut screen = Screen::new(40, 6);
        let mut page: Vec<serde_json::Value> = Vec::new();
        let mut sizes = sizes.into_iter();
        for piece in output {
            screen.write(&piece);
            if let Some((columns, rows, back)) = sizes.next() {
                screen.resize(columns % 60, rows % 12);
                screen.look_back(back);
            }
            let told = serde_json::to_value(screen.changes()).unwrap();
            if let Some(size) = told["size"].as_array() {
                page = vec![serde_json::json!([]); size[1].as_u64().unwrap() as usize];
            }
            for row in told["rows"].as_array().into_iter().flatten() {
                page[row[0].as_u64().unwrap() as usize] = row[1].clone();
            }
        }
        // Another page that begins now is told the same.
        let told = serde_json::to_value(screen.again()).unwrap();
        let mut whole = vec![serde_json::json!([]); page.len()];
        for row in told["rows"].as_array().into_iter().flatten() {
            whole[row[0].as_u64().unwrap() as usize] = row[1].clone();
        }
        prop_assert!(page.is_empty() || page == whole);
    }

    #[test]
    fn messages_and_frames_are_understood_or_ignored(
        text in "\\PC{0,40}|\\{\"(key|size|back|paste|control)\":\\PC{0,12}\\}", frame in proptest::collection::vec(any::<u8>(), 0..32),
    ) {
        Frame::parse(&frame);
        if let Some(said) = Said::parse(&text) {
            keys::bytes(&said.key, said.held(), Modes::default());
            keys::pasted(&said.paste, Modes { bracketed_paste: true, ..Modes::default() });
        }
    }
}

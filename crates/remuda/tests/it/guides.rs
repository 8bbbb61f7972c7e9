//! README and guides are tests: what they tell people to do is done, in its order, and what they show is compared.
//!
//! A block that cannot be done here says why in a comment before it, see [`markdown`].

mod markdown;
mod reader;
mod shape;

use std::{fs, path::PathBuf, process::Command};

use markdown::Kind;
use reader::Reader;

use crate::{
    harness::{remuda, skipped},
    lab,
};

/// Languages of blocks that are not commands.
const DATA: [&str; 4] = ["yaml", "json", "ini", "text"];
/// What a command begins with.
const PROGRAMS: [&str; 7] = ["$ ", "remuda ", "kubectl ", "clusterctl ", "cargo ", "sudo ", "curl "];

/// Guides that start their own servers.
const ALONE: [&str; 4] =
    ["README.md", "docs/guides/cluster-api.md", "docs/guides/datastores.md", "docs/guides/server.md"];

/// Come before the others, which have a cluster already and have switched drivers on.
const FIRST: [&str; 2] = ["docs/guides/local-clusters.md", "docs/guides/machines.md"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All of them, by their paths in the repository.
fn guides() -> Vec<String> {
    let mut found = vec!["README.md".to_owned()];
    let mut names: Vec<String> = fs::read_dir(root().join("docs/guides"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".md"))
        .collect();
    names.sort();
    found.extend(names.iter().map(|name| format!("docs/guides/{name}")));
    found
}

fn read(guide: &str) -> Vec<markdown::Block> {
    let text = fs::read_to_string(root().join(guide)).unwrap();
    markdown::blocks(&text).unwrap_or_else(|error| panic!("{guide}, {error}"))
}

#[track_caller]
fn follow(reader: &mut Reader, guide: &str) {
    reader.begin();
    for block in read(guide).iter().filter(|block| block.marks.not_run.is_none()) {
        if let Err(error) = reader.follow(block) {
            panic!("{guide}, line {}:\n{error}", block.line);
        }
    }
}

/// Whether the host has what the guides need, and the turn of those who make machines.
fn possible() -> Option<lab::Turn> {
    let turn = lab::turn();
    if Command::new("kubectl").args(["version", "--client"]).output().is_err() {
        skipped("there is no kubectl in PATH (Debian: kubernetes-client): following the guides");
        return None;
    }
    let output = remuda().args(["sandbox", "probe", "/tmp"]).output().unwrap();
    if !output.status.success() {
        skipped(&format!("no machines on this host: {}", String::from_utf8_lossy(&output.stderr)));
        return None;
    }
    Some(turn)
}

#[test]
fn every_block_is_run_or_says_why_not() {
    for guide in guides() {
        for block in read(&guide) {
            let Kind::Text(language) = &block.kind else { continue };
            assert!(DATA.contains(&language.as_str()), "{guide}, line {}: what is {language}?", block.line);
            for line in block.text.lines().filter(|_| language == "text") {
                let is_command = PROGRAMS.iter().any(|program| line.trim_start().starts_with(program));
                assert!(!is_command, "{guide}, line {}: a command in a block of text", block.line);
            }
        }
    }
}

#[test]
fn guides_with_servers_of_their_own() {
    let Some(_turn) = possible() else { return };
    for guide in ALONE {
        let mut reader = Reader::new();
        follow(&mut reader, guide);
        reader.stop().unwrap_or_else(|error| panic!("{guide}: {error}"));
    }
}

/// The others are for people who have a server.
#[test]
fn guides_for_a_server_that_runs() {
    let Some(_turn) = possible() else { return };
    let mut reader = Reader::new();
    reader.given("remuda server");
    let all = guides();
    let others =
        all.iter().map(String::as_str).filter(|guide| !ALONE.contains(guide) && !FIRST.contains(guide));
    for guide in FIRST.into_iter().chain(others) {
        follow(&mut reader, guide);
    }
    reader.stop().unwrap();
}

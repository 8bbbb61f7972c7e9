//! Backups a server makes of itself: what is left when it is killed at any moment.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::{
    client::{client, create_secret, secret_value},
    harness::{Place, Server, remuda, success},
};

/// What is taken for a backup.
fn named(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut named: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "backup")).collect();
    named.sort();
    named
}

#[tokio::test]
async fn whenever_a_server_is_killed_what_has_the_name_of_a_backup_is_one() {
    let place = Place::new();
    let to = place.join("backups");
    let arguments =
        ["--backup-schedule", "@every 1s", "--backup-to", to.to_str().unwrap(), "--backup-retention", "4"];
    let server = Server::start(&place.data(), &arguments);
    create_secret(&client(&server).await, "kept", "open-sesame").await;
    let begun = Instant::now();
    let several = |count: usize| named(&to).len() >= count;
    while !several(2) {
        assert!(begun.elapsed() < Duration::from_secs(60), "there are no backups: {:?}", named(&to));
        thread::sleep(Duration::from_millis(20));
    }
    server.kill();
    for milliseconds in [0, 30, 110, 350] {
        let server = Server::start(&place.data(), &arguments);
        thread::sleep(Duration::from_millis(milliseconds));
        server.kill();
    }
    let backups = named(&to);
    assert!(backups.len() >= 2, "{backups:?}");
    for (number, backup) in backups.iter().enumerate() {
        let restored = place.join(&format!("restored-{number}"));
        success(remuda().arg("restore").arg(backup).arg("--data-dir").arg(&restored));
    }
    let server = Server::start(&place.join(&format!("restored-{}", backups.len() - 1)), &[]);
    assert_eq!(secret_value(&client(&server).await, "kept").await.as_deref(), Some("open-sesame"));
    server.stop();
    // The next one takes away what those that were killed have left, and keeps as many as it should.
    let server = Server::start(&place.data(), &arguments);
    let begun = Instant::now();
    let settled = || {
        let all = fs::read_dir(&to).unwrap().count();
        named(&to).len() == 4 && all <= 5
    };
    while !settled() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{:?}",
            fs::read_dir(&to).unwrap().collect::<Vec<_>>()
        );
        thread::sleep(Duration::from_millis(20));
    }
    server.stop();
}

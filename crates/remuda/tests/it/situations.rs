//! One table: what happens to clusters and machines, and what `why` answers first.
//!
//! Each line is a situation that was made with real processes, most of them on machines of this host. The cause is a
//! word for scripts, and who is told what is wrong is told what to do next.

mod living;
mod table;
mod written;

use std::time::Duration;

pub(crate) use self::table::Table;
use crate::{
    failures,
    lab::{Lab, NEW},
};

/// Faults that are injected at least.
const ENOUGH: usize = 30;

#[test]
fn why_has_an_answer_and_a_next_step_for_what_happens_every_day() {
    let Some(lab) = Lab::open(None) else { return };
    let mut table = Table { lab: &lab, lines: Vec::new() };
    failures::of_machines(&mut table);
    lab.run(&format!("cluster create demo --version {NEW} --servers 1 --workers 2"));
    written::of_clusters(&mut table);
    written::of_registration(&mut table);
    lab.until("the cluster is ready", Duration::from_secs(180), || lab.say("why demo").0 == 0);
    living::of_services(&mut table);
    living::of_machines(&mut table);
    living::of_removals(&mut table);

    for line in &table.lines {
        eprintln!("{line}");
    }
    // Every one of them was waited for and is right.
    assert!(table.lines.len() >= ENOUGH, "{}", table.lines.len());
    lab.run("cluster delete --yes demo --wait --timeout 120s");
    lab.check_nothing_left();
}

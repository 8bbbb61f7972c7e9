//! Results, as a Markdown table.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use crate::process;

/// What a measurement did.
#[derive(Default)]
pub(crate) struct Outcome {
    /// One per operation or delivery.
    pub(crate) latencies: Vec<Duration>,
}

pub(crate) struct Table {
    pid: u32,
    rows: Vec<String>,
    notes: Vec<String>,
}

impl Table {
    pub(crate) fn new(pid: u32) -> Table {
        Table { pid, rows: Vec::new(), notes: Vec::new() }
    }

    pub(crate) fn memory(&self) -> String {
        format!("{} MiB resident", process::resident(self.pid) >> 20)
    }

    pub(crate) fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }

    pub(crate) async fn measure(
        &mut self,
        name: &str,
        work: impl Future<Output = anyhow::Result<Outcome>>,
    ) -> anyhow::Result<()> {
        let (cpu, started) = (process::cpu(self.pid), Instant::now());
        let mut latencies = work.await?.latencies;
        let (took, cpu) = (started.elapsed(), process::cpu(self.pid).saturating_sub(cpu));
        latencies.sort_unstable();
        let count = latencies.len().max(1);
        let at = |part: usize| latencies.get(count * part / 100).copied().unwrap_or_default();
        let row = format!(
            "| {name} | {count} | {:.0} | {:.2} | {:.2} | {:.0} |",
            count as f64 / took.as_secs_f64(),
            at(50).as_secs_f64() * 1e3,
            at(99).as_secs_f64() * 1e3,
            cpu.as_secs_f64() * 1e6 / count as f64,
        );
        self.rows.push(row);
        Ok(())
    }

    #[allow(clippy::print_stdout, reason = "the output is the purpose")]
    pub(crate) fn print(&self) {
        println!("| measurement | operations | per s | p50 ms | p99 ms | server CPU µs each |");
        println!("|---|---|---|---|---|---|");
        for row in &self.rows {
            println!("{row}");
        }
        println!();
        for note in &self.notes {
            println!("* {note}");
        }
    }
}

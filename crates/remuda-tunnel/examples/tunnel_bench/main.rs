//! Figures of the tunnel alone on this machine: `cargo run --release -p remuda-tunnel --example tunnel_bench`.
//!
//! The two ends are two processes over loopback TLS. The accepting end is in this process, the dialling one in
//! another that runs on one thread, as the agent of a cluster does. What a dial leads to is inside the dialling
//! process too, so that nothing but the tunnel is measured; only for latencies it is a socket, since those are
//! compared with the way there without a tunnel.

mod accepting;
mod dialling;
mod reference;

use std::time::Duration;

use clap::Parser;

use self::{accepting::Accepting, dialling::Dialling, reference::Reference};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Parser)]
struct Arguments {
    /// Megabytes through one stream, and through all of many
    #[arg(long, default_value_t = 4_000)]
    megabytes: u64,
    /// Streams at once in the second measurement
    #[arg(long, default_value_t = 64)]
    streams: usize,
    /// Exchanges per second in the measurement of latencies
    #[arg(long, default_value_t = 1_000)]
    rate: u32,
    /// Seconds it takes
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Idle tunnels; none leaves them out
    #[arg(long, default_value_t = 5_000)]
    idle: usize,
    #[command(subcommand)]
    end: Option<End>,
}

#[derive(clap::Subcommand)]
enum End {
    /// The dialling end, for the measurement in another process
    #[command(hide = true)]
    Dial(dialling::Arguments),
}

/// As the program has it: here are the accepting ends of tunnels, whose memory is measured.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Figures of one pair, in the units they are told in.
#[derive(Debug, Clone, Copy, Default)]
struct Figures {
    /// Megabytes per second, from the dialling end and to it.
    one: [f64; 2],
    many: [f64; 2],
    /// What the tunnel adds to an exchange, in microseconds.
    p50: f64,
    p99: f64,
}

fn main() -> Outcome {
    let arguments = Arguments::parse();
    if let Some(End::Dial(arguments)) = &arguments.end {
        return dialling::run(arguments);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(&arguments))
}

#[allow(clippy::print_stdout, reason = "the output is the purpose")]
fn say(text: &str) {
    println!("{text}");
}

async fn run(arguments: &Arguments) -> Outcome {
    let reference = Reference::from_env();
    if arguments.idle > 0 {
        idle(arguments).await?;
    }
    let ours = pair(arguments).await?;
    let streams = arguments.streams;
    let theirs = reference.map(|reference| reference.measure(arguments)).transpose()?;
    let beside = |pick: fn(&Figures) -> f64, more_is_better: bool| {
        let Some(theirs) = &theirs else { return String::new() };
        let (ours, theirs) = (pick(&ours), pick(theirs));
        // Less than a microsecond is nothing.
        let times = if more_is_better { ours / theirs } else { theirs.max(1.0) / ours.max(1.0) };
        format!("; reference {theirs:.0}, {times:.1} times as good")
    };
    say(&format!("* one stream: {:.0} MB/s from the agent{}", ours.one[0], beside(|of| of.one[0], true)));
    say(&format!("* one stream: {:.0} MB/s to the agent{}", ours.one[1], beside(|of| of.one[1], true)));
    say("  (wanted: at least 400 MB/s)");
    say(&format!(
        "* {streams} streams: {:.0} MB/s from the agent{}",
        ours.many[0],
        beside(|of| of.many[0], true)
    ));
    say(&format!(
        "* {streams} streams: {:.0} MB/s to the agent{}",
        ours.many[1],
        beside(|of| of.many[1], true)
    ));
    say("  (wanted: at least 600 MB/s)");
    say(&format!(
        "* added to an exchange at {}/s: p50 {:.0} µs{}, p99 {:.0} µs{}",
        arguments.rate,
        ours.p50,
        beside(|of| of.p50, false),
        ours.p99,
        beside(|of| of.p99, false)
    ));
    say("  (wanted: at most 150 µs and 1,000 µs)");
    Ok(())
}

/// Throughput and latency of our own pair.
async fn pair(arguments: &Arguments) -> Outcome<Figures> {
    let accepting = Accepting::start().await?;
    let dialling = Dialling::start(&accepting, 1)?;
    accepting.wait_for(1).await?;
    let bytes = arguments.megabytes * 1_000_000;
    let mut figures = Figures::default();
    // Once for nothing: memory and windows grow to what they need.
    accepting.throughput(1, bytes / 10, false).await?;
    for (at, to_agent) in [false, true].into_iter().enumerate() {
        figures.one[at] = accepting.throughput(1, bytes, to_agent).await?;
        figures.many[at] = accepting.throughput(arguments.streams, bytes, to_agent).await?;
    }
    let (through, direct) = accepting.latencies(&dialling, arguments.rate, arguments.seconds).await?;
    let micros = |times: &[Duration], part| at(times, part).as_secs_f64() * 1e6;
    let added = |part| (micros(&through, part) - micros(&direct, part)).max(0.0);
    (figures.p50, figures.p99) = (added(50), added(99));
    say(&format!(
        "* exchanges at {}/s: direct p50 {:.0} µs, p99 {:.0}; through the tunnel p50 {:.0} µs, p99 {:.0}",
        arguments.rate,
        micros(&direct, 50),
        micros(&direct, 99),
        micros(&through, 50),
        micros(&through, 99)
    ));
    accepting.stop().await;
    Ok(figures)
}

/// The value below which a part of all is.
fn at(sorted: &[Duration], percent: usize) -> Duration {
    sorted.get(sorted.len() * percent / 100).copied().unwrap_or_default()
}

/// What tunnels cost that nobody uses.
async fn idle(arguments: &Arguments) -> Outcome {
    let accepting = Accepting::start().await?;
    let own = std::process::id();
    // The first one pays for what is made once.
    let first = Dialling::start(&accepting, 1)?;
    accepting.wait_for(1).await?;
    let before = resident(own)?;
    let dialling = Dialling::start(&accepting, arguments.idle)?;
    let before_dialling = resident(dialling.pid())?;
    accepting.wait_for(arguments.idle + 1).await?;
    // Each has been heard of twice by then: pings touch what a session keeps.
    tokio::time::sleep(Duration::from_secs(12)).await;
    let each = |after: u64, before: u64| after.saturating_sub(before) as f64 / 1024.0 / arguments.idle as f64;
    say(&format!(
        "* {} idle tunnels: {:.1} KiB each in the server (wanted: at most 40), {:.1} in agents",
        arguments.idle,
        each(resident(own)?, before),
        each(resident(dialling.pid())?, before_dialling)
    ));
    drop((first, dialling));
    accepting.stop().await;
    Ok(())
}

/// Bytes of memory a process has.
fn resident(pid: u32) -> Outcome<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
    let kib: u64 = line.split_whitespace().nth(1).ok_or("no number")?.parse()?;
    Ok(kib << 10)
}

//! What a cold build costs, unit by unit: `cargo xtask build-time`.
//!
//! Cargo is told to start rustc through this program, which then writes down what each unit took. So the figures come
//! from one ordinary build, with a stable toolchain and nothing installed.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs::{self, OpenOptions},
    io::Write,
    path::Path,
    process::{Command, ExitCode},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail};

use crate::{ci, graph, print};

/// Names the file of records; its presence makes this program a wrapper of rustc.
const RECORDS: &str = "REMUDA_BUILD_TIME_RECORDS";
/// Ticks of a second in `/proc/self/stat`, on every Linux there is.
const TICKS: f64 = 100.0;
/// Rows of the table of crates.
const MOST: usize = 15;

/// What to build.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The profile that is built
    #[arg(long, default_value = "release")]
    profile: String,
    /// The package that is built, with everything below it
    #[arg(long, default_value = "remuda")]
    package: String,
    /// Keep the directory of the last measurement: what is left to compile after a change
    #[arg(long)]
    warm: bool,
}

/// A unit as the wrapper saw it.
#[derive(Debug, Clone, PartialEq)]
struct Unit {
    /// Name and hash, as in the names of its files.
    id: String,
    name: String,
    /// Seconds since the epoch.
    began: f64,
    wall: f64,
    cpu: f64,
    /// Whether it is of this workspace.
    ours: bool,
    /// Ids of the units it links or expands.
    needs: Vec<String>,
}

impl Unit {
    fn to_line(&self) -> String {
        let Unit { id, name, began, wall, cpu, ours, needs } = self;
        format!("{id}\t{name}\t{began:.3}\t{wall:.3}\t{cpu:.2}\t{ours}\t{}\n", needs.join(","))
    }

    fn parse(line: &str) -> Option<Unit> {
        let mut words = line.split('\t');
        let mut word = || words.next();
        Some(Unit {
            id: word()?.to_owned(),
            name: word()?.to_owned(),
            began: word()?.parse().ok()?,
            wall: word()?.parse().ok()?,
            cpu: word()?.parse().ok()?,
            ours: word()?.parse().ok()?,
            needs: word()?.split(',').filter(|id| !id.is_empty()).map(str::to_owned).collect(),
        })
    }
}

/// Runs rustc for cargo and records it, if that is what this process was started for.
pub(crate) fn wrapped() -> Option<ExitCode> {
    let records = env::var_os(RECORDS)?;
    let mut arguments = env::args_os().skip(1);
    let rustc = arguments.next()?;
    let arguments: Vec<OsString> = arguments.collect();
    let (clock, began) = (SystemTime::now(), Instant::now());
    let status = Command::new(rustc).args(&arguments).status().ok()?;
    let (wall, cpu) = (began.elapsed().as_secs_f64(), cpu_of_children().unwrap_or_default());
    if let Some(mut unit) = described(&arguments) {
        unit.began = clock.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        (unit.wall, unit.cpu) = (wall, cpu);
        // A record is one small write, which appends as a whole.
        if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(records) {
            let _ = file.write_all(unit.to_line().as_bytes());
        }
    }
    Some(u8::try_from(status.code().unwrap_or(101)).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// The unit a command line of rustc compiles; nothing if it only asks rustc for something.
fn described(arguments: &[OsString]) -> Option<Unit> {
    let texts: Vec<&str> = arguments.iter().filter_map(|argument| argument.to_str()).collect();
    let after = |flag: &str| {
        let place = texts.iter().position(|text| *text == flag)?;
        texts.get(place + 1).copied()
    };
    let name = after("--crate-name").filter(|name| *name != "___")?;
    let hash = texts.iter().find_map(|text| text.strip_prefix("extra-filename=")).unwrap_or_default();
    let ours = texts.iter().any(|text| text.ends_with(".rs") && !Path::new(text).is_absolute());
    let externs = texts.windows(2).filter(|pair| pair[0] == "--extern");
    let needs = externs.filter_map(|pair| {
        let file = Path::new(pair[1].split_once('=')?.1).file_stem()?.to_str()?;
        Some(file.strip_prefix("lib").unwrap_or(file).to_owned())
    });
    Some(Unit {
        id: format!("{name}{hash}"),
        name: name.to_owned(),
        began: 0.0,
        wall: 0.0,
        cpu: 0.0,
        ours,
        needs: needs.collect(),
    })
}

/// Seconds of processor time that ended children of this process took.
fn cpu_of_children() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program is in parentheses and may hold spaces; cutime and cstime are fields 16 and 17.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |place: usize| fields.get(place)?.parse::<f64>().ok();
    Some((ticks(13)? + ticks(14)?) / TICKS)
}

/// Builds in a directory of its own and prints what it took.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let directory = graph::root().join("target").join("build-time");
    if !arguments.warm && directory.exists() {
        fs::remove_dir_all(&directory).with_context(|| format!("remove {}", directory.display()))?;
    }
    fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
    let records = directory.join("units.tsv");
    let _ = fs::remove_file(&records);
    ci::report(&format!("building {} ({}) in {}", arguments.package, arguments.profile, directory.display()));
    let began = Instant::now();
    let mut command = Command::new("cargo");
    command.current_dir(graph::root()).args(["build", "--profile", &arguments.profile]);
    command.args(["--package", &arguments.package, "--target-dir"]).arg(&directory);
    command.env(RECORDS, &records).env("RUSTC_WRAPPER", env::current_exe().context("find this program")?);
    let status = command.status().context("start cargo build")?;
    if !status.success() {
        bail!("cargo build failed ({status})");
    }
    let wall = began.elapsed().as_secs_f64();
    let text = fs::read_to_string(&records).unwrap_or_default();
    let units: Vec<Unit> = text.lines().filter_map(Unit::parse).collect();
    print(&report(&units, wall));
    let program = directory.join(profile_directory(&arguments.profile)).join(&arguments.package);
    if program.is_file() {
        print(&sections(&program)?);
    }
    Ok(())
}

fn profile_directory(profile: &str) -> &str {
    if profile == "dev" { "debug" } else { profile }
}

/// Figures of a build, as tables.
fn report(units: &[Unit], wall: f64) -> String {
    let sum = |units: &mut dyn Iterator<Item = &Unit>| units.map(|unit| unit.cpu).sum::<f64>();
    let (all, ours) = (sum(&mut units.iter()), sum(&mut units.iter().filter(|unit| unit.ours)));
    let mut lines = vec![
        "| figure | value |".to_owned(),
        "|---|---|".to_owned(),
        format!("| wall | {wall:.0} s |"),
        format!("| processor time of rustc | {all:.0} s |"),
        format!("| of it crates of this workspace | {ours:.0} s |"),
        format!("| units | {} |", units.len()),
    ];
    let mut crates: BTreeMap<&str, f64> = BTreeMap::new();
    for unit in units {
        *crates.entry(&unit.name).or_default() += unit.cpu;
    }
    let mut crates: Vec<_> = crates.into_iter().collect();
    crates.sort_by(|left, right| right.1.total_cmp(&left.1));
    lines.extend(["", "| crate | processor seconds |", "|---|---|"].map(str::to_owned));
    lines.extend(crates.iter().take(MOST).map(|(name, cpu)| format!("| {name} | {cpu:.0} |")));
    let chain = longest_chain(units);
    let took: f64 = chain.iter().map(|unit| unit.wall).sum();
    lines.push(String::new());
    lines.push(format!("The longest chain: {} units that wait for each other, {took:.0} s.", chain.len()));
    lines.extend(chain.iter().map(|unit| format!("- {} {:.1} s", unit.name, unit.wall)));
    lines.join("\n")
}

/// Units that need each other and together took longest, first to last.
fn longest_chain(units: &[Unit]) -> Vec<&Unit> {
    // A unit starts after what it needs, so in this order everything needed is known already.
    let mut ordered: Vec<&Unit> = units.iter().collect();
    ordered.sort_by(|left, right| left.began.total_cmp(&right.began));
    let mut best: BTreeMap<&str, (f64, Option<&str>)> = BTreeMap::new();
    for unit in &ordered {
        let known = unit.needs.iter().filter_map(|id| {
            let (key, (took, _)) = best.get_key_value(id.as_str())?;
            Some((*took, *key))
        });
        let before = known.max_by(|left, right| left.0.total_cmp(&right.0));
        let took = before.map_or(0.0, |(took, _)| took) + unit.wall;
        best.insert(&unit.id, (took, before.map(|(_, id)| id)));
    }
    let last = best.iter().max_by(|left, right| left.1.0.total_cmp(&right.1.0)).map(|(id, _)| *id);
    let mut chain = Vec::new();
    let mut next = last;
    while let Some(id) = next {
        chain.extend(ordered.iter().find(|unit| unit.id == id));
        next = best.get(id).and_then(|(_, before)| *before);
    }
    chain.reverse();
    chain
}

/// Sizes of a program: whole, without symbols, and its largest sections, as `size` and `strip` tell.
fn sections(program: &Path) -> anyhow::Result<String> {
    let mib = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    let whole = fs::metadata(program).with_context(|| format!("look at {}", program.display()))?.len();
    let mut lines = vec![String::new(), "| program | size |".to_owned(), "|---|---|".to_owned()];
    lines.push(format!("| as built | {} |", mib(whole)));
    let stripped = program.with_extension("stripped");
    let strip = Command::new("strip").arg("-o").arg(&stripped).arg(program).status();
    if strip.is_ok_and(|status| status.success()) {
        lines.push(format!("| stripped | {} |", mib(fs::metadata(&stripped)?.len())));
    }
    if let Ok(output) = Command::new("size").arg("-A").arg(program).output() {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut sizes: Vec<(&str, u64)> = text
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                let name = words.next().filter(|name| name.starts_with('.'))?;
                Some((name, words.next()?.parse().ok()?))
            })
            .collect();
        sizes.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        lines.extend(sizes.iter().take(6).map(|(name, bytes)| format!("| `{name}` | {} |", mib(*bytes))));
    }
    Ok(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(id: &str, began: f64, wall: f64, needs: &[&str]) -> Unit {
        let needs = needs.iter().map(ToString::to_string).collect();
        Unit { id: id.to_owned(), name: id.to_owned(), began, wall, cpu: wall, ours: true, needs }
    }

    #[test]
    fn the_longest_chain_is_by_time_and_not_by_number() {
        let units = [
            unit("a", 0.0, 1.0, &[]),
            unit("slow", 0.0, 9.0, &[]),
            unit("b", 1.0, 1.0, &["a"]),
            unit("c", 2.0, 1.0, &["b"]),
            unit("end", 9.0, 2.0, &["c", "slow", "unknown"]),
        ];
        let names: Vec<&str> = longest_chain(&units).iter().map(|unit| unit.name.as_str()).collect();
        assert_eq!(names, ["slow", "end"]);
        assert!(longest_chain(&[]).is_empty());
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let unit = unit("a-1", 12.5, 3.25, &["b-2", "c-3"]);
        assert_eq!(Unit::parse(unit.to_line().trim_end()), Some(unit));
        assert_eq!(Unit::parse("half a\trecord"), None);
    }

    #[test]
    fn a_command_line_of_rustc_names_its_unit_and_what_it_needs() {
        let line = "--crate-name demo --edition=2024 crates/demo/src/lib.rs -C extra-filename=-1f \
                    --extern serde=/t/deps/libserde-ab.rmeta --extern proc_macro";
        let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let unit = described(&arguments).unwrap();
        assert_eq!((unit.id.as_str(), unit.ours, unit.needs), ("demo-1f", true, vec!["serde-ab".to_owned()]));
        assert!(described(&["-vV".into()]).is_none());
        let probe: Vec<OsString> = "- --crate-name ___ --print=cfg".split(' ').map(OsString::from).collect();
        assert!(described(&probe).is_none());
    }
}

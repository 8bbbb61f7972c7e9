//! What an executable of unknown origin is: its format, its processor, and what it needs to run.
//!
//! Files come from people and from the network. Nothing in them is believed before it is within bounds.

use std::{
    fmt,
    io::{self, Read, Seek, SeekFrom},
};

/// No program has more of any of these.
const SEGMENTS: u64 = 256;
const DYNAMIC: u64 = 1 << 20;
const NEEDED: usize = 256;
const NAME: usize = 4096;

/// Processors there are agents for, as container tools name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Architecture {
    Amd64,
    Arm64,
    Arm,
    S390x,
}

impl Architecture {
    pub const ALL: [Architecture; 4] =
        [Architecture::Amd64, Architecture::Arm64, Architecture::Arm, Architecture::S390x];

    pub fn name(self) -> &'static str {
        match self {
            Architecture::Amd64 => "amd64",
            Architecture::Arm64 => "arm64",
            Architecture::Arm => "arm",
            Architecture::S390x => "s390x",
        }
    }

    pub fn named(name: &str) -> Option<Architecture> {
        Self::ALL.into_iter().find(|architecture| architecture.name() == name)
    }

    /// That of the program that asks; `None` if there are no agents for it.
    pub fn own() -> Option<Architecture> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Architecture::Amd64),
            "aarch64" => Some(Architecture::Arm64),
            other => Self::named(other),
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whose executables these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// ELF.
    Linux,
    /// PE.
    Windows,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Linux => "linux",
            Format::Windows => "windows",
        })
    }
}

/// What an executable says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executable {
    pub format: Format,
    pub architecture: Architecture,
    /// The program that loads it; `None` if the system does so itself.
    pub interpreter: Option<String>,
    /// Names of libraries it is linked with.
    pub needed: Vec<String>,
    /// Directories it wants them looked for in first.
    pub search: Vec<String>,
}

impl Executable {
    /// Whether it runs where nothing else is.
    pub fn is_static(&self) -> bool {
        self.interpreter.is_none() && self.needed.is_empty()
    }
}

/// Why a file is no executable that can be used.
#[derive(Debug, thiserror::Error)]
pub enum ExecutableError {
    #[error("read the executable")]
    Read(#[from] io::Error),
    #[error("neither an ELF nor a PE executable")]
    Unknown,
    #[error("an executable for a processor there are no agents for (machine {0:#x})")]
    Processor(u16),
    #[error("a broken executable: {0}")]
    Broken(&'static str),
}

use ExecutableError::Broken;

/// Reads the headers of an executable, and nothing else of it.
pub fn read(file: &mut (impl Read + Seek)) -> Result<Executable, ExecutableError> {
    let mut head = [0; 64];
    let length = read_some(file, 0, &mut head)?;
    match &head[..length] {
        [0x7f, b'E', b'L', b'F', ..] => elf(file, &head[..length]),
        [b'M', b'Z', ..] => pe(file, &head[..length]),
        _ => Err(ExecutableError::Unknown),
    }
}

/// Fills as much of `buffer` as there is.
fn read_some(file: &mut (impl Read + Seek), at: u64, buffer: &mut [u8]) -> io::Result<usize> {
    file.seek(SeekFrom::Start(at))?;
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn read_all(file: &mut (impl Read + Seek), at: u64, length: u64) -> Result<Vec<u8>, ExecutableError> {
    let mut bytes = vec![0; usize::try_from(length).map_err(|_| Broken("a part is too large"))?];
    // Offsets beyond what files can have are no error of the disk.
    if i64::try_from(at).is_err() || read_some(file, at, &mut bytes)? < bytes.len() {
        return Err(Broken("it is cut off"));
    }
    Ok(bytes)
}

fn pe(file: &mut (impl Read + Seek), head: &[u8]) -> Result<Executable, ExecutableError> {
    let at = head.get(0x3c..0x40).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    let header = read_all(file, at.ok_or(Broken("it is cut off"))?.into(), 6)?;
    if !header.starts_with(b"PE\0\0") {
        return Err(ExecutableError::Unknown);
    }
    let architecture = match u16::from_le_bytes([header[4], header[5]]) {
        0x8664 => Architecture::Amd64,
        0xaa64 => Architecture::Arm64,
        other => return Err(ExecutableError::Processor(other)),
    };
    let (interpreter, needed, search) = (None, Vec::new(), Vec::new());
    Ok(Executable { format: Format::Windows, architecture, interpreter, needed, search })
}

/// How numbers are written in an ELF file.
#[derive(Clone, Copy)]
struct Numbers {
    big: bool,
    wide: bool,
}

impl Numbers {
    /// The number of `size` bytes at `at`; zero where there is nothing, which no caller takes for something.
    fn at(self, bytes: &[u8], at: usize, size: usize) -> u64 {
        let Some(bytes) = at.checked_add(size).and_then(|end| bytes.get(at..end)) else { return 0 };
        let add = |sum: u64, byte: &u8| (sum << 8) | u64::from(*byte);
        if self.big { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) }
    }

    fn word(self) -> usize {
        if self.wide { 8 } else { 4 }
    }
}

/// A piece of the file and where it is in memory.
#[derive(Clone, Copy)]
struct Segment {
    kind: u64,
    offset: u64,
    address: u64,
    size: u64,
}

fn elf(file: &mut (impl Read + Seek), head: &[u8]) -> Result<Executable, ExecutableError> {
    let (wide, big) = match (head.get(4), head.get(5)) {
        (Some(1), Some(1)) => (false, false),
        (Some(1), Some(2)) => (false, true),
        (Some(2), Some(1)) => (true, false),
        (Some(2), Some(2)) => (true, true),
        _ => return Err(Broken("its class is unknown")),
    };
    if head.len() < if wide { 64 } else { 52 } {
        return Err(Broken("it is cut off"));
    }
    let numbers = Numbers { big, wide };
    // 2: executable, 3: executable anywhere in memory.
    if ![2, 3].contains(&numbers.at(head, 16, 2)) {
        return Err(Broken("it is an object file, not a program"));
    }
    let architecture = match (numbers.at(head, 18, 2), wide, big) {
        (62, true, false) => Architecture::Amd64,
        (183, true, false) => Architecture::Arm64,
        (40, false, false) => Architecture::Arm,
        (22, true, true) => Architecture::S390x,
        (other, ..) => return Err(ExecutableError::Processor(other as u16)),
    };
    let segments = segments(file, head, numbers)?;
    let found = |kind: u64| segments.iter().find(|segment| segment.kind == kind);
    let interpreter = match found(3) {
        Some(segment) if segment.size <= NAME as u64 => {
            let bytes = read_all(file, segment.offset, segment.size)?;
            Some(name(&bytes, 0).ok_or(Broken("the name of its loader is no text"))?)
        }
        Some(_) => return Err(Broken("the name of its loader is too long")),
        None => None,
    };
    let (needed, search) = match found(2) {
        Some(segment) => dynamic(file, numbers, *segment, &segments)?,
        None => (Vec::new(), Vec::new()),
    };
    Ok(Executable { format: Format::Linux, architecture, interpreter, needed, search })
}

fn segments(
    file: &mut (impl Read + Seek),
    head: &[u8],
    numbers: Numbers,
) -> Result<Vec<Segment>, ExecutableError> {
    let (at, size, count) = if numbers.wide {
        (numbers.at(head, 32, 8), numbers.at(head, 54, 2), numbers.at(head, 56, 2))
    } else {
        (numbers.at(head, 28, 4), numbers.at(head, 42, 2), numbers.at(head, 44, 2))
    };
    if count == 0 {
        return Ok(Vec::new());
    }
    if count > SEGMENTS || size < if numbers.wide { 56 } else { 32 } {
        return Err(Broken("its table of segments makes no sense"));
    }
    let table = read_all(file, at, size * count)?;
    let word = numbers.word();
    let (offset, address, length) = if numbers.wide { (8, 16, 32) } else { (4, 8, 16) };
    let segments = table.chunks(size as usize).map(|entry| Segment {
        kind: numbers.at(entry, 0, 4),
        offset: numbers.at(entry, offset, word),
        address: numbers.at(entry, address, word),
        size: numbers.at(entry, length, word),
    });
    Ok(segments.collect())
}

/// Libraries, and where to look for them.
fn dynamic(
    file: &mut (impl Read + Seek),
    numbers: Numbers,
    table: Segment,
    segments: &[Segment],
) -> Result<(Vec<String>, Vec<String>), ExecutableError> {
    if table.size > DYNAMIC {
        return Err(Broken("its dynamic table is too large"));
    }
    let bytes = read_all(file, table.offset, table.size)?;
    let word = numbers.word();
    let pairs = bytes.chunks(word * 2).map(|pair| (numbers.at(pair, 0, word), numbers.at(pair, word, word)));
    let pairs: Vec<(u64, u64)> = pairs.take_while(|(tag, _)| *tag != 0).collect();
    let value = |tag: u64| pairs.iter().find(|pair| pair.0 == tag).map(|pair| pair.1);
    let (Some(address), Some(size)) = (value(5), value(10)) else { return Ok((Vec::new(), Vec::new())) };
    if size > DYNAMIC {
        return Err(Broken("its table of names is too large"));
    }
    let holds = |segment: &&Segment| {
        segment.kind == 1 && segment.address <= address && address - segment.address < segment.size
    };
    let segment = segments.iter().find(holds).ok_or(Broken("its table of names is nowhere"))?;
    let at = segment.offset.checked_add(address - segment.address).ok_or(Broken("it is cut off"))?;
    let names = read_all(file, at, size)?;
    let text = |at: u64| usize::try_from(at).ok().and_then(|at| name(&names, at));
    let mut needed = Vec::new();
    for (_, at) in pairs.iter().filter(|(tag, _)| *tag == 1).take(NEEDED) {
        needed.push(text(*at).ok_or(Broken("the name of a library is no text"))?);
    }
    // DT_RUNPATH takes the place of DT_RPATH.
    let search = value(29).or_else(|| value(15)).and_then(text).unwrap_or_default();
    let search = search.split(':').filter(|directory| !directory.is_empty()).map(str::to_owned).collect();
    Ok((needed, search))
}

/// The text at `at`, up to its zero byte.
fn name(bytes: &[u8], at: usize) -> Option<String> {
    let rest = bytes.get(at..)?;
    let end = rest.iter().take(NAME).position(|byte| *byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok().filter(|text| !text.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

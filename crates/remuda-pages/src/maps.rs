//! Which pages of a process are those of a file, from what `/proc` says.

use std::ops::Range;

/// Libraries every program of the platform is linked to. They are loaded and relocated with it, before its first
/// instruction; others may be loaded, and so written, at any time.
const LIBRARIES: [&str; 4] = ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"];

/// The parts of the program and of its libraries that cannot be written, from the text of `/proc/self/maps`.
pub(crate) fn read_only(maps: &str, program: &str) -> Vec<Range<usize>> {
    maps.lines().filter_map(|line| mapping(line, program)).collect()
}

fn mapping(line: &str, program: &str) -> Option<Range<usize>> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    let range = number(start)?..number(end)?;
    let read_only = matches!(words.next()?, "r--p" | "r-xp");
    let path = words.nth(3)?.trim();
    let name = path.strip_prefix('/')?.rsplit('/').next()?;
    let ours = path == program || LIBRARIES.contains(&name);
    (read_only && ours && !range.is_empty()).then_some(range)
}

/// Bytes of an entry of `/proc/self/pagemap`.
pub(crate) const ENTRY: usize = 8;
const PRESENT: u64 = 1 << 63;
const OF_A_FILE: u64 = 1 << 61;

/// Runs of pages that are in memory and the file's, by number. A page that was written or relocated is a page of the
/// process's own.
pub(crate) fn of_the_file(pagemap: &[u8]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let (entries, _) = pagemap.as_chunks::<ENTRY>();
    for (number, entry) in entries.iter().enumerate() {
        let entry = u64::from_ne_bytes(*entry);
        if entry & (PRESENT | OF_A_FILE) != PRESENT | OF_A_FILE {
            continue;
        }
        match runs.last_mut() {
            Some(run) if run.end == number => run.end += 1,
            _ => runs.push(number..number + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(maps: &str) -> Vec<Range<usize>> {
        read_only(maps, "/usr/bin/remuda")
    }

    #[test]
    fn code_and_tables_of_the_program_are_found() {
        let maps = "00200000-016be000 r--p 00000000 fe:00 7                    /usr/bin/remuda\n\
                    016be000-05338000 r-xp 014bd000 fe:00 7                    /usr/bin/remuda\n\
                    055b8000-055f2000 rw-p 053b5000 fe:00 7                    /usr/bin/remuda\n\
                    7f0000000000-7f0000010000 r-xp 00010000 fe:00 9            /usr/lib/libc.so.6\n";
        assert_eq!(
            found(maps),
            [0x20_0000..0x16b_e000, 0x16b_e000..0x533_8000, 0x7f00_0000_0000..0x7f00_0001_0000]
        );
    }

    #[test]
    fn what_can_be_written_or_is_shared_is_not() {
        for permissions in ["rw-p", "rwxp", "r--s", "r-xs", "---p", "r-x", "r-xpp", ""] {
            let line = format!("00400000-00410000 {permissions} 00000000 fe:00 7    /usr/bin/remuda");
            assert!(found(&line).is_empty(), "{permissions}");
        }
    }

    #[test]
    fn neither_are_other_files_nor_what_has_no_file() {
        for path in [
            "/var/lib/remuda/store",
            "",
            "[vdso]",
            "/usr/bin/remuda2",
            "/usr/bin/remuda (deleted)",
            "/usr/lib/libnss_dns.so.2",
            "[libc.so.6]",
            "libc.so.6",
        ] {
            assert!(
                found(&format!("00400000-00410000 r-xp 00000000 fe:00 7    {path}")).is_empty(),
                "{path}"
            );
        }
    }

    #[test]
    fn what_is_no_mapping_is_passed_over() {
        for line in [
            "nonsense",
            "",
            "-",
            "00-",
            "zz-00410000 r-xp 0 fe:00 7 /usr/bin/remuda",
            "00410000-00400000 r-xp 0 fe:00 7 /usr/bin/remuda",
        ] {
            assert!(found(line).is_empty(), "{line}");
        }
    }

    #[test]
    fn only_pages_that_are_there_and_the_files_are_counted() {
        let file = PRESENT | OF_A_FILE;
        let entries = [file, file | 1 << 55, 0, PRESENT, file, OF_A_FILE, 1 << 62 | OF_A_FILE, file];
        let pagemap: Vec<u8> = entries.iter().flat_map(|entry| entry.to_ne_bytes()).collect();
        assert_eq!(of_the_file(&pagemap), [0..2, 4..5, 7..8]);
        assert_eq!(of_the_file(&pagemap[..12]).len(), 1);
    }
}

//! Lets go of the pages of the program that nothing uses any more.
//!
//! Starting takes much code that is never run again: schemas are compiled, keys are made, kinds are described. The
//! kernel maps sixteen pages around each one that is touched, and keeps them mapped until memory is short. A process
//! that has settled can give them back: what it runs from then on comes back from the page cache with a minor fault,
//! and only that.
//!
//! This is the one crate of the workspace that has `unsafe` code; `maps` decides what it is used on.

mod maps;

use std::io;

/// Unmaps the pages of the program and its libraries that can be read again from their files, and says how many
/// bytes of them there were.
///
/// Nothing is lost: a page that was written or relocated is not the file's and stays. Elsewhere than on Linux this does
/// nothing.
pub fn let_go() -> io::Result<u64> {
    #[cfg(target_os = "linux")]
    return linux::let_go();
    #[cfg(not(target_os = "linux"))]
    return Ok(0);
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        fs::{self, File},
        io,
        ops::Range,
        os::unix::fs::FileExt,
        ptr,
    };

    use rustix::{
        mm::{Advice, madvise},
        param::page_size,
    };

    use crate::maps::{self, ENTRY};

    /// Pages that are looked at together.
    const AT_A_TIME: usize = 512;

    pub(super) fn let_go() -> io::Result<u64> {
        let program = fs::read_link("/proc/self/exe")?;
        let mappings = String::from_utf8_lossy(&fs::read("/proc/self/maps")?).into_owned();
        let pages = File::open("/proc/self/pagemap")?;
        let size = page_size();
        let mut bytes = 0;
        // Whoever gives memory back should not need much for it.
        let mut entries = [0; AT_A_TIME * ENTRY];
        for range in maps::read_only(&mappings, &program.to_string_lossy()) {
            for start in range.clone().step_by(AT_A_TIME * size) {
                let entries = &mut entries[..AT_A_TIME.min((range.end - start) / size) * ENTRY];
                pages.read_exact_at(entries, (start / size * ENTRY) as u64)?;
                for run in maps::of_the_file(entries) {
                    let part = start + run.start * size..start + run.end * size;
                    bytes += part.len() as u64;
                    unmap(part)?;
                }
            }
        }
        Ok(bytes)
    }

    #[allow(unsafe_code, reason = "advice about memory is given by address")]
    fn unmap(part: Range<usize>) -> io::Result<()> {
        let start = ptr::with_exposed_provenance_mut(part.start);
        // SAFETY: these pages belong to a private mapping of a file that cannot be written through
        // (`maps::read_only`), and they are pages of that file (`maps::of_the_file`). Neither changes any more: the
        // program and its libraries are mapped and relocated before its first instruction, and nothing makes them
        // writable again. Each is mapped again from the file when it is next touched, so no byte of memory changes.
        unsafe { madvise(start, part.len(), Advice::LinuxDontNeed) }?;
        Ok(())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::{fs, hint::black_box};

    use parking_lot::Mutex;

    /// Touched by nothing but the test below, and long enough to show.
    static TABLE: [u64; 1 << 18] = {
        let mut table = [0; 1 << 18];
        let mut at = 0;
        while at < table.len() {
            table[at] = at as u64 * 7 + 1;
            at += 1;
        }
        table
    };

    fn resident_of_files() -> u64 {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssFile:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    fn sum() -> u64 {
        black_box(&TABLE).iter().sum()
    }

    /// Both tests look at the same pages.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn what_was_let_go_is_read_again_as_it_was() {
        let _alone = ALONE.lock();
        let before = sum();
        let resident = resident_of_files();
        let bytes = super::let_go().unwrap();
        assert!(bytes > size_of_val(&TABLE) as u64, "{bytes} bytes");
        assert!(resident_of_files() + (size_of_val(&TABLE) as u64) / 2 < resident, "of {resident}");
        assert_eq!(sum(), before);
    }

    #[test]
    fn threads_at_work_do_not_notice() {
        let _alone = ALONE.lock();
        let expected = sum();
        std::thread::scope(|scope| {
            let others: Vec<_> =
                (0..2).map(|_| scope.spawn(|| (0..200).all(|_| sum() == expected))).collect();
            for _ in 0..50 {
                super::let_go().unwrap();
            }
            assert!(others.into_iter().all(|other| other.join().unwrap()));
        });
    }
}

//! The last plans that were applied, for people to look at.

use std::{fs, path::Path};

use remuda_names::agent::path;
use remuda_plan::CheckedPlan;

use crate::{
    disk::{Context, DiskError, create_dirs, read_limited, remove_all, replace},
    stamp::Stamp,
};

const KEPT: usize = 64;

/// Adds a plan unless it is the newest one already. An empty directory name means no history.
pub fn record(directory: &Path, plan: &CheckedPlan, now: Stamp) -> Result<(), DiskError> {
    if directory.as_os_str().is_empty() {
        return Ok(());
    }
    create_dirs(directory, 0o700)?;
    let mut names: Vec<String> = fs::read_dir(directory)
        .on("read", directory)?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.ends_with(path::APPLIED_SUFFIX))
        .collect();
    names.sort();
    let mut content = br#"{"Plan":"#.to_vec();
    content.extend_from_slice(&plan.plan.encode());
    content.extend_from_slice(format!(r#","Checksum":"{}"}}"#, plan.checksum).as_bytes());
    let newest = names.last().map(|name| directory.join(name));
    let is_known =
        newest.is_some_and(|newest| read_limited(&newest, 64 << 20).is_ok_and(|known| known == content));
    if !is_known {
        let name = format!("{}{}", now.compact(), path::APPLIED_SUFFIX);
        replace(&directory.join(&name), &content, 0o600)?;
        if names.last() != Some(&name) {
            names.push(name);
        }
    }
    let surplus = names.len().saturating_sub(KEPT);
    names[..surplus].iter().try_for_each(|name| remove_all(&directory.join(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_plans_are_written_once_and_only_the_newest_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let count = || fs::read_dir(dir.path()).unwrap().count();
        let plan = CheckedPlan::decode(b"{}").unwrap();
        record(dir.path(), &plan, Stamp(0)).unwrap();
        record(dir.path(), &plan, Stamp(1)).unwrap();
        assert_eq!(count(), 1);
        let text = fs::read_to_string(dir.path().join("19700101-000000-applied.plan")).unwrap();
        assert_eq!(text, format!(r#"{{"Plan":{{}},"Checksum":"{}"}}"#, plan.checksum));
        for index in 0..80 {
            let plan = CheckedPlan::decode(format!(r#"{{"error":"{index}"}}"#).as_bytes()).unwrap();
            record(dir.path(), &plan, Stamp(100 + index)).unwrap();
        }
        assert_eq!(count(), KEPT);
        record(Path::new(""), &plan, Stamp(0)).unwrap();
    }
}

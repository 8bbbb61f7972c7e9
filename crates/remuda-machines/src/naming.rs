//! Names of what belongs to a machine, as Rancher gives them.

use aws_lc_rs::digest;
use remuda_names::rancher::name::GLOBAL_DATA;

/// Longest name of an object that may end up in a label.
const LONGEST: usize = 63;

/// Hex digits of the sha256 of `content`.
pub(crate) fn sha256_hex(content: &[u8]) -> String {
    digest::digest(&digest::SHA256, content).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Joins with `-`; what is too long ends in a digest of the whole.
pub(crate) fn safe_concat_name(parts: &[&str]) -> String {
    safe_concat_name_max(LONGEST, parts)
}

pub(crate) fn safe_concat_name_max(max: usize, parts: &[&str]) -> String {
    let joined = parts.join("-");
    if joined.len() <= max {
        return joined;
    }
    if max <= 5 {
        return head(&joined, max);
    }
    let digest = sha256_hex(joined.as_bytes());
    let last = joined.as_bytes()[max.saturating_sub(7)];
    let (kept, digits) = if last.is_ascii_lowercase() || last.is_ascii_digit() {
        (max - 6, 5)
    } else {
        (max.saturating_sub(7), 6)
    };
    match head(&joined, kept) {
        kept if kept.is_empty() => digest[..digits].to_owned(),
        kept => format!("{kept}-{}", &digest[..digits]),
    }
}

/// As much of a text as fits, in whole characters.
fn head(text: &str, bytes: usize) -> String {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text[..end].to_owned()
}

/// Secret with what a driver keeps of a machine.
pub fn state_secret(machine: &str) -> String {
    safe_concat_name(&[machine, "machine", "state"])
}

/// Secret with the variables of a machine's job.
pub fn env_secret(machine: &str) -> String {
    safe_concat_name(&[machine, "machine", "driver", "secret"])
}

/// The machine's Job, its ServiceAccount, Role and RoleBinding, and the Secret with files for the driver.
pub fn job(machine: &str) -> String {
    safe_concat_name(&[machine, "machine", "provision"])
}

/// ConfigMap with what a machine's jobs wrote; it stays when the machine is gone.
pub fn log(machine: &str) -> String {
    safe_concat_name(&[machine, "machine", "log"])
}

/// The name the driver knows a machine by.
pub fn instance(machine: &str) -> String {
    safe_concat_name(&[&machine.replace('.', "-")])
}

/// Host name of a machine; `limit` is what its annotation says.
pub fn hostname(machine: &str, limit: Option<&str>) -> String {
    let limit = limit.and_then(|limit| limit.trim().parse().ok()).filter(|limit| (10..=63).contains(limit));
    safe_concat_name_max(limit.unwrap_or(LONGEST), &[&machine.replace('.', "-")])
}

/// Namespace and name of a credential: `cattle-global-data:NAME`, or a Secret beside the machine. No other
/// namespace can be named: who may make machines in one could read Secrets of all.
pub fn credential<'a>(namespace: &'a str, reference: &'a str) -> (&'a str, &'a str) {
    match reference.split_once(':') {
        Some((GLOBAL_DATA, name)) => (GLOBAL_DATA, name),
        _ => (namespace, reference),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_shortened_as_everywhere() {
        let long = "abcdef0123456789".repeat(4);
        assert_eq!(
            safe_concat_name(&[&long]),
            "abcdef0123456789abcdef0123456789abcdef0123456789abcdef012-aa23e"
        );
        assert_eq!(safe_concat_name_max(6, &["input", "s"]), "deab5");
        assert_eq!(safe_concat_name_max(8, &["a", "&", "b", "=", "c"]), "a-359087");
        assert_eq!(safe_concat_name_max(3, &["abcdef"]), "abc");
        assert_eq!(safe_concat_name_max(0, &["abcdef"]), "");
        assert!(safe_concat_name(&[&"é".repeat(60)]).len() <= 63);
        assert_eq!(job("m1"), "m1-machine-provision");
        assert_eq!(env_secret("m1"), "m1-machine-driver-secret");
    }

    #[test]
    fn host_names_keep_their_limit() {
        assert_eq!(hostname("a.b", None), "a-b");
        assert_eq!(hostname("demo-pool-abcdefgh", Some("12")).len(), 12);
        assert_eq!(hostname("demo-pool-abcdefgh", Some("9")), "demo-pool-abcdefgh");
        assert_eq!(hostname("demo-pool-abcdefgh", Some("many")), "demo-pool-abcdefgh");
    }
}

//! Names of MachineSets and Machines, and values of labels that hold names.

/// The characters of generated suffixes: no vowels, nothing that reads as something else.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX: usize = 5;
const LONGEST: usize = 63;

/// FNV-1a, as label values and template hashes use it.
pub fn fnv32a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// A suffix that follows from its seed: whoever creates twice by mistake collides instead of duplicating.
///
/// Seeds hold what must differ between two children of one parent, such as the parent's UID and a number.
pub fn suffix(seed: &[&str]) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in seed {
        for byte in part.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    let size = ALPHABET.len() as u64;
    let mut text = String::with_capacity(SUFFIX);
    for _ in 0..SUFFIX {
        text.push(char::from(ALPHABET[(hash % size) as usize]));
        hash /= size;
    }
    text
}

/// The name of a MachineSet: its deployment's name, cut to leave room, and the suffix.
pub fn of_set(deployment: &str, suffix: &str) -> String {
    format!("{}{suffix}", cut(&format!("{deployment}-"), LONGEST - SUFFIX))
}

/// A naming template that cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTemplate {
    #[error("unknown variable {0:?}")]
    Unknown(String),
    #[error("an action is not closed")]
    Open,
    #[error("must contain {{{{ .random }}}}")]
    NotRandom,
}

/// The name of a Machine from its set's naming template.
///
/// A result that is too long keeps its beginning and ends in `spare`, which must be as random as `random`.
pub fn of_machine(
    template: Option<&str>,
    cluster: &str,
    set: &str,
    random: &str,
    spare: &str,
) -> Result<String, BadTemplate> {
    let template = template.unwrap_or("{{ .machineSet.name }}-{{ .random }}");
    let mut name = String::new();
    let mut rest = template;
    let mut drawn = false;
    while let Some((before, after)) = rest.split_once("{{") {
        name.push_str(before);
        let (action, after) = after.split_once("}}").ok_or(BadTemplate::Open)?;
        // Go trims white space next to an action that is written with dashes.
        let action = action.trim_start_matches('-').trim_end_matches('-').trim();
        name.push_str(match action {
            ".cluster.name" => cluster,
            ".machineSet.name" => set,
            ".random" => {
                drawn = true;
                random
            }
            other => return Err(BadTemplate::Unknown(other.to_owned())),
        });
        rest = after;
    }
    name.push_str(rest);
    if !drawn {
        return Err(BadTemplate::NotRandom);
    }
    if name.len() > LONGEST {
        name = format!("{}{spare}", cut(&name, LONGEST - SUFFIX));
    }
    Ok(name)
}

/// A name as a label's value: itself if it can be one, otherwise a hash of it.
pub fn as_label(name: &str) -> String {
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let outer = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    if bytes.len() <= LONGEST && bytes.iter().all(inner) && outer(bytes.first()) && outer(bytes.last()) {
        return name.to_owned();
    }
    format!("hash_{}_z", base64_url(fnv32a(bytes).to_be_bytes()))
}

/// Four bytes in URL-safe base64 without padding: six characters.
fn base64_url(bytes: [u8; 4]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits = u64::from(u32::from_be_bytes(bytes)) << 4;
    (0..6).rev().map(|place| char::from(DIGITS[(bits >> (6 * place) & 63) as usize])).collect()
}

fn cut(text: &str, length: usize) -> &str {
    let mut end = text.len().min(length);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_label_values_are_hashed() {
        assert_eq!(as_label("demo"), "demo");
        assert_eq!(as_label(&"a".repeat(64)), "hash_2W8PhQ_z");
        let long = "prod-eu-west-general-purpose-workers-with-a-very-long-pool-name-x7k2q";
        assert_eq!(as_label(long), "hash_yM9d1Q_z");
        assert!(as_label("demo-").starts_with("hash_"));
    }

    #[test]
    fn equal_seeds_give_equal_suffixes() {
        assert_eq!(suffix(&["uid", "1"]), suffix(&["uid", "1"]));
        assert_ne!(suffix(&["uid", "1"]), suffix(&["uid", "2"]));
        assert_ne!(suffix(&["a", "bc"]), suffix(&["ab", "c"]));
        assert!(suffix(&["x"]).bytes().all(|byte| ALPHABET.contains(&byte)));
    }

    #[test]
    fn a_set_is_named_after_its_deployment() {
        assert_eq!(of_set("demo-pool1", "x7k2q"), "demo-pool1-x7k2q");
        let name = of_set(&"d".repeat(70), "x7k2q");
        assert_eq!((name.len(), name.ends_with("dx7k2q")), (63, true));
    }

    #[test]
    fn a_machine_is_named_by_its_sets_template() {
        let name = |template, set| of_machine(template, "demo", set, "9w4tz", "bbbbb");
        assert_eq!(name(None, "set"), Ok("set-9w4tz".into()));
        assert_eq!(name(Some("{{.cluster.name}}-{{ .random }}"), "set"), Ok("demo-9w4tz".into()));
        assert_eq!(name(Some("fixed"), "set"), Err(BadTemplate::NotRandom));
        assert_eq!(name(Some("{{ .random }}{{"), "set"), Err(BadTemplate::Open));
        assert_eq!(name(Some("{{ .node }}"), "set"), Err(BadTemplate::Unknown(".node".into())));
        let long = name(None, &"s".repeat(60)).unwrap();
        assert_eq!((long.len(), long.ends_with("sbbbbb")), (63, true));
    }
}

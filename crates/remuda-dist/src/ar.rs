//! Archives of `ar`, the outer form of a Debian package.

use anyhow::ensure;

const MAGIC: &[u8] = b"!<arch>\n";

/// An archive of these members, all of them made at `time`.
pub(crate) fn archive(members: &[(&str, Vec<u8>)], time: u64) -> anyhow::Result<Vec<u8>> {
    let mut out = MAGIC.to_vec();
    for (name, content) in members {
        ensure!(name.len() <= 16, "{name:?} is too long for an ar archive");
        let size = content.len();
        // Decimal but for the mode; each field is filled up with spaces.
        let header = format!("{name:<16}{time:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, "100644");
        ensure!(header.len() == 60, "{name:?} is too large for an ar archive");
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(content);
        // Members begin at even offsets.
        if size % 2 == 1 {
            out.push(b'\n');
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_begin_at_even_offsets() {
        let bytes = archive(&[("odd", b"abc".to_vec()), ("even", b"abcd".to_vec())], 7).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let expected = "!<arch>\n\
            odd             7           0     0     100644  3         `\nabc\n\
            even            7           0     0     100644  4         `\nabcd";
        assert_eq!(text, expected);
        assert!(archive(&[("a name that is too long", Vec::new())], 0).is_err());
    }
}

//! PEM blocks: base64 between labelled lines.

use base64::{Engine, engine::general_purpose::STANDARD};

/// One block with its label, such as `CERTIFICATE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub label: String,
    pub der: Vec<u8>,
}

pub fn encode(label: &str, der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    let mut out = String::with_capacity(body.len() + body.len() / 64 + 2 * label.len() + 40);
    out.push_str(&format!("-----BEGIN {label}-----\n"));
    let mut rest = body.as_str();
    while !rest.is_empty() {
        let (line, tail) = rest.split_at(rest.len().min(64));
        out.push_str(line);
        out.push('\n');
        rest = tail;
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}

/// All well-formed blocks in order; text around them and broken ones are passed over.
pub fn decode(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(&str, String)> = None;
    for line in text.lines().map(str::trim) {
        if let Some(label) = line.strip_prefix("-----BEGIN ").and_then(|rest| rest.strip_suffix("-----")) {
            open = Some((label, String::new()));
        } else if let Some(label) = line.strip_prefix("-----END ").and_then(|rest| rest.strip_suffix("-----"))
        {
            if let Some((begun, body)) = open.take()
                && begun == label
                && let Ok(der) = STANDARD.decode(&body)
            {
                blocks.push(Block { label: label.to_owned(), der });
            }
        } else if let Some((_, body)) = &mut open {
            // Headers of the old encrypted form contain a colon; such keys cannot be used anyway.
            body.push_str(line);
        }
    }
    blocks
}

/// The first block with one of these labels.
pub fn find(text: &str, labels: &[&str]) -> Option<Block> {
    decode(text).into_iter().find(|block| labels.contains(&block.label.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_survive_a_round_trip_among_other_text() {
        let long: Vec<u8> = (0..=255).collect();
        let text = format!("# key\n{}\nnoise\n{}", encode("A B", &long), encode("C", b""));
        let blocks = decode(&text.replace('\n', "\r\n"));
        assert_eq!(blocks.len(), 2);
        assert_eq!((blocks[0].label.as_str(), &blocks[0].der), ("A B", &long));
        assert_eq!(find(&text, &["X", "C"]).unwrap().der, b"");
        assert!(text.lines().all(|line| line.len() <= 64));
    }

    #[test]
    fn broken_blocks_are_passed_over() {
        for text in [
            "",
            "-----BEGIN A-----\nQQ==",
            "-----BEGIN A-----\n!!\n-----END A-----",
            "-----END A-----",
            "-----BEGIN A-----\nQQ==\n-----END B-----",
        ] {
            assert_eq!(decode(text), []);
        }
    }
}

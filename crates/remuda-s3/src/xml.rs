//! Just enough XML to read the answers of Amazon's interfaces: elements and text. Attributes, comments and processing
//! instructions are skipped; document types are refused, and with them entity tricks.

/// An element.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub text: String,
    pub children: Vec<Node>,
}

const DEPTH: usize = 32;
const NODES: usize = 200_000;

impl Node {
    pub fn child(&self, name: &str) -> Option<&Node> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The text at a path of element names, empty if there is none.
    pub fn get(&self, path: &str) -> &str {
        let mut node = self;
        for name in path.split('/') {
            match node.child(name) {
                Some(child) => node = child,
                None => return "",
            }
        }
        &node.text
    }

    /// The `item`s of a list.
    pub fn items(&self, name: &str) -> impl Iterator<Item = &Node> {
        self.child(name)
            .into_iter()
            .flat_map(|list| list.children.iter().filter(|child| child.name == "item"))
    }
}

/// Reads a document; `None` if it is not well formed enough.
pub fn parse(text: &str) -> Option<Node> {
    let mut open: Vec<Node> = vec![Node::default()];
    let mut rest = text;
    let mut count = 0;
    while let Some(at) = rest.find('<') {
        let (before, tag) = rest.split_at(at);
        let top = open.last_mut()?;
        unescape(before, &mut top.text)?;
        if let Some(comment) = tag.strip_prefix("<!--") {
            rest = &comment[comment.find("-->")? + 3..];
            continue;
        }
        if tag.starts_with("<!") {
            return None;
        }
        let end = tag.find('>')?;
        let (inside, after) = (&tag[1..end], &tag[end + 1..]);
        rest = after;
        if inside.starts_with('?') {
            continue;
        }
        if let Some(name) = inside.strip_prefix('/') {
            let mut node = open.pop()?;
            if node.name != name.trim() {
                return None;
            }
            node.text = node.text.trim().to_owned();
            open.last_mut()?.children.push(node);
            continue;
        }
        let (inside, closed) = match inside.strip_suffix('/') {
            Some(inside) => (inside, true),
            None => (inside, false),
        };
        let name = inside.split_whitespace().next()?.to_owned();
        count += 1;
        if open.len() > DEPTH || count > NODES {
            return None;
        }
        let node = Node { name, ..Node::default() };
        if closed {
            open.last_mut()?.children.push(node);
        } else {
            open.push(node);
        }
    }
    let root = open.pop()?;
    let whole = open.is_empty() && rest.trim().is_empty();
    if whole { root.children.into_iter().next() } else { None }
}

fn unescape(text: &str, out: &mut String) -> Option<()> {
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        let end = rest[at..].find(';')? + at;
        match &rest[at + 1..end] {
            "lt" => out.push('<'),
            "gt" => out.push('>'),
            "amp" => out.push('&'),
            "quot" => out.push('"'),
            "apos" => out.push('\''),
            other => {
                let number = match other.strip_prefix("#x") {
                    Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                    None => other.strip_prefix('#')?.parse().ok()?,
                };
                out.push(char::from_u32(number)?);
            }
        }
        rest = &rest[end + 1..];
    }
    out.push_str(rest);
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_text_and_escapes_are_read() {
        let text = "<?xml version=\"1.0\"?>\n<R xmlns=\"x\"><!-- c --><a>1 &lt; 2 &#x41;</a><e/>\
                    <set><item><id>i-1</id></item><item><id>i-2</id></item></set></R>";
        let root = parse(text).unwrap();
        assert_eq!((root.name.as_str(), root.get("a")), ("R", "1 < 2 A"));
        assert_eq!(root.items("set").map(|item| item.get("id")).collect::<Vec<_>>(), ["i-1", "i-2"]);
        assert_eq!(root.get("none/there"), "");
    }

    #[test]
    fn what_is_not_well_formed_is_refused() {
        let deep = "<a>".repeat(100) + &"</a>".repeat(100);
        for bad in
            ["", "<a>", "<a></b>", "</a>", "<!DOCTYPE x [<!ENTITY y \"z\">]><a/>", "<a>&y;</a>", "<a", &deep]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]
        #[test]
        fn any_text_is_survived(text in "[<>/&;!?#a-c\"= -]{0,80}") {
            let _ = parse(&text);
        }
    }
}

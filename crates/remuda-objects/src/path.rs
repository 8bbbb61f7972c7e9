//! The place of a field inside an object, written out only when an error needs it.

use std::fmt;

/// A chain of steps on the stack: walking a valid object builds no strings.
#[derive(Debug, Clone, Copy)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Name(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    pub const fn root(name: &'a str) -> Self {
        Self { parent: None, step: Step::Name(name) }
    }

    pub const fn child(&'a self, name: &'a str) -> Self {
        Self { parent: Some(self), step: Step::Name(name) }
    }

    pub const fn index(&'a self, index: usize) -> Self {
        Self { parent: Some(self), step: Step::Index(index) }
    }

    pub const fn key(&'a self, key: &'a str) -> Self {
        Self { parent: Some(self), step: Step::Key(key) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Depth is that of the code that walks, never that of the input.
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Name(name) if self.parent.is_some() => write!(f, ".{name}"),
            Step::Name(name) => f.write_str(name),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}

impl From<Path<'_>> for String {
    fn from(path: Path<'_>) -> Self {
        path.to_string()
    }
}

impl From<&Path<'_>> for String {
    fn from(path: &Path<'_>) -> Self {
        path.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::Path;

    #[test]
    fn a_path_reads_like_the_field_in_an_error() {
        let spec = Path::root("spec");
        let containers = spec.child("containers");
        let first = containers.index(0);
        let limits = first.child("limits");
        assert_eq!(limits.key("cpu").to_string(), "spec.containers[0].limits[cpu]");
    }
}

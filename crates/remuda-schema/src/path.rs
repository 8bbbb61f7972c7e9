//! Where a walk is, as a chain of stack frames: text is only made when there is something to report.

use std::fmt::Write;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Segment<'a> {
    /// A declared property: `.name`.
    Field(&'a str),
    /// An entry of a map: `[name]` in field paths, `.name` in schema messages.
    Key(&'a str),
    Index(usize),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    segment: Option<Segment<'a>>,
}

impl<'a> Path<'a> {
    pub(crate) const ROOT: Path<'static> = Path { parent: None, segment: None };

    pub(crate) fn field(&'a self, name: &'a str) -> Path<'a> {
        Path { parent: Some(self), segment: Some(Segment::Field(name)) }
    }

    pub(crate) fn key(&'a self, name: &'a str) -> Path<'a> {
        Path { parent: Some(self), segment: Some(Segment::Key(name)) }
    }

    pub(crate) fn index(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), segment: Some(Segment::Index(index)) }
    }

    pub(crate) fn is_root(&self) -> bool {
        self.segment.is_none()
    }

    /// The path in schema messages: every name follows a dot.
    pub(crate) fn dotted(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, false);
        out
    }

    /// The path of a field error. The reference prints its nil path as `<nil>`.
    pub(crate) fn field_path(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, true);
        if out.is_empty() { "<nil>".to_owned() } else { out }
    }

    /// The path of a field error below `base`.
    pub(crate) fn field_path_below(&self, base: &str) -> String {
        if base.is_empty() {
            return self.field_path();
        }
        let mut out = base.to_owned();
        self.write(&mut out, true);
        out
    }

    fn write(&self, out: &mut String, brackets: bool) {
        if let Some(parent) = self.parent {
            parent.write(out, brackets);
        }
        match self.segment {
            None => {}
            Some(Segment::Index(index)) => {
                let _ = write!(out, "[{index}]");
            }
            Some(Segment::Key(name)) if brackets => {
                let _ = write!(out, "[{name}]");
            }
            Some(Segment::Field(name) | Segment::Key(name)) => {
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(name);
            }
        }
    }
}

//! What pages say, and are told.

use serde::{Deserialize, Serialize};

use crate::{
    keys::Held,
    screen::{Cursor, Run},
};

/// A message of a page. Of several fields all count, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Said {
    /// Columns and rows.
    pub(crate) size: Option<(u16, u16)>,
    /// How many rows above the newest the page looks at.
    pub(crate) back: Option<usize>,
    pub(crate) key: String,
    pub(crate) shift: bool,
    pub(crate) alt: bool,
    pub(crate) control: bool,
    /// Typed by other means than keys.
    pub(crate) text: String,
    pub(crate) paste: String,
}

impl Said {
    /// `None` for what is no message; it is ignored.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    pub(crate) fn held(&self) -> Held {
        Held { shift: self.shift, alt: self.alt, control: self.control }
    }
}

/// What a page is told.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(crate) struct Told {
    /// Columns and rows, when they changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<(u16, u16)>,
    /// Rows that changed: which, and what is in them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) rows: Vec<(u16, Vec<Run>)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cursor: Option<Cursor>,
    /// How many rows there are above the screen, and how many above the newest are shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) back: Option<usize>,
    /// How it ended; empty if it ended well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<String>,
}

impl Told {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn ended(why: impl Into<String>) -> Self {
        Self { ended: Some(why.into()), ..Self::default() }
    }

    pub(crate) fn text(&self) -> String {
        // Numbers, texts and lists: nothing in it fails to be written.
        serde_json::to_string(self).unwrap_or_default()
    }
}

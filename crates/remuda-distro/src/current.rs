//! The release data of a process, which can be replaced while it runs.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::release::Catalog;

/// Where all parts of a process look. Copies share what they hold; what comes with the program is read when it
/// is first needed and nothing better is known.
#[derive(Clone, Default)]
pub struct Current(Arc<ArcSwapOption<Catalog>>);

impl Current {
    pub fn get(&self) -> Arc<Catalog> {
        self.0.load_full().unwrap_or_else(Catalog::shipped)
    }

    /// From now on; `None` goes back to what comes with the program.
    pub fn set(&self, catalog: Option<Arc<Catalog>>) {
        self.0.store(catalog);
    }
}

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Current")
    }
}

//! Errors with everything that led to them.

use std::{
    error::Error,
    fmt::{Display, Formatter, Result},
};

/// Shows an error and its sources in one line.
pub struct Chain<'a>(pub &'a dyn Error);

impl Display for Chain<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "{}", self.0)?;
        let mut next = self.0.source();
        while let Some(source) = next {
            write!(formatter, ": {source}")?;
            next = source.source();
        }
        Ok(())
    }
}

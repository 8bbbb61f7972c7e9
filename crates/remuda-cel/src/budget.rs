//! What an evaluation may spend.

use crate::EvalError;

/// Cost left for evaluations. Units are those of Kubernetes: about one per step, a tenth
/// per byte of a string looked at. Share one over several evaluations to bound their sum.
#[derive(Debug, Clone)]
pub struct Budget {
    /// In tenths of a unit, so that single bytes count.
    left: u64,
    limit: u64,
    /// Left for the program at hand, out of what each may spend.
    own: u64,
    each: u64,
}

/// Strings and bytes built by an expression may not be longer, whatever the budget.
pub(crate) const MAX_BYTES: usize = 4 << 20;
/// Lists and maps built by an expression may not have more elements.
pub(crate) const MAX_ITEMS: usize = 1 << 20;

impl Budget {
    pub fn new(limit: u64) -> Self {
        Self::with_each(limit, u64::MAX)
    }

    /// The same; no program may spend more than `each` of it. One that a lazy value runs has a share of its own.
    pub fn with_each(limit: u64, each: u64) -> Self {
        let (limit, each) = (limit.saturating_mul(10), each.saturating_mul(10));
        Self { left: limit, limit, own: each, each }
    }

    /// A program begins; returns what to give to [`Budget::leave`] at its end.
    pub(crate) fn enter(&mut self) -> u64 {
        std::mem::replace(&mut self.own, self.each)
    }

    pub(crate) fn leave(&mut self, outer: u64) {
        self.own = outer;
    }

    /// Spent so far, rounded up.
    pub fn used(&self) -> u64 {
        (self.limit - self.left).div_ceil(10)
    }

    pub(crate) fn charge(&mut self, units: u64) -> Result<(), EvalError> {
        self.tenths(units.saturating_mul(10))
    }

    /// For work in proportion to a length in bytes, or to elements passed by.
    pub(crate) fn tenths(&mut self, tenths: u64) -> Result<(), EvalError> {
        let Some(own) = self.own.checked_sub(tenths) else {
            self.own = 0;
            return Err(EvalError::Cost);
        };
        match self.left.checked_sub(tenths) {
            Some(left) => {
                (self.left, self.own) = (left, own);
                Ok(())
            }
            None => {
                self.left = 0;
                Err(EvalError::Cost)
            }
        }
    }

    /// Allows for a string of that length to be built, and charges for it.
    pub(crate) fn bytes(&mut self, len: usize) -> Result<(), EvalError> {
        if len > MAX_BYTES {
            return Err(EvalError::failed("string is too long"));
        }
        self.tenths(len as u64)
    }

    /// Allows for a list or map of that length to be built, and charges for it.
    pub(crate) fn items(&mut self, len: usize) -> Result<(), EvalError> {
        if len > MAX_ITEMS {
            return Err(EvalError::failed("list is too long"));
        }
        self.tenths(len as u64)
    }
}

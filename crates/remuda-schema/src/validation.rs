//! Value validations of one schema node.

/// Value validations of one schema node.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Validation {}

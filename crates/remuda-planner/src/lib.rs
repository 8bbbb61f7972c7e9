//! Which node gets which plan next, as a pure function.

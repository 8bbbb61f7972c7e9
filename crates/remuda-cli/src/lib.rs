//! Commands for people.

//! Processes that hold keys leave no copy of their memory behind.

use nix::sys::{
    prctl::set_dumpable,
    resource::{Resource, setrlimit},
};

/// No core is written when this process crashes, nor when one that it starts does. A limit of zero also holds where
/// cores are piped to a program.
pub(crate) fn no_cores() {
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
}

/// As [`no_cores`]; and other processes of the same user can neither trace this one nor read its memory and
/// environment. Its files in `/proc` belong to root from now on, so this is for processes that do not find out there
/// who they are. Programs that it starts are what they were.
pub(crate) fn keep_memory() {
    no_cores();
    let _ = set_dumpable(false);
}

//! The built-in drivers as a plugin: `MACHINE_PLUGIN_DRIVER_NAME` says which. Tests use it as a driver program
//! that speaks Go's protocol.

use std::process::ExitCode;

use remuda_drivers::{builtin::Registry, plugin::serve_builtin};

fn main() -> ExitCode {
    serve_builtin(&Registry::standard(), "")
}

//! The Python client library, which shares no code with any other.

use std::process::Command;

use crate::harness::{Place, Server, assert_success, skipped};

#[test]
fn the_python_client_works() {
    let python = std::env::var_os("REMUDA_TEST_PYTHON").unwrap_or_else(|| "python3".into());
    let found = Command::new(&python).args(["-c", "import kubernetes"]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        skipped("there is no Python with the package kubernetes (PyPI)");
        return;
    }
    let place = Place::new();
    let server = Server::start(&place.data(), &[]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/client.py");
    let output = Command::new(python).arg(script).arg(server.kubeconfig()).output().unwrap();
    assert_success(&output);
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("done\n"));
}

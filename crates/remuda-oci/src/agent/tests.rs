use std::fs;

use super::*;

/// A static program of ours, or of somebody else.
fn program(machine: u16, mark: &str) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
    bytes[16] = 2;
    bytes[18..20].copy_from_slice(&machine.to_le_bytes());
    bytes.extend_from_slice(mark.as_bytes());
    bytes
}

fn written(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("remuda");
    fs::write(&path, bytes).unwrap();
    (directory, path)
}

#[test]
fn a_static_build_for_another_processor_becomes_an_image() {
    let (directory, path) = written(&program(183, "remuda-binary/v1 version=0.4.2\n"));
    let build = Build::look(&path).unwrap();
    assert_eq!(
        (build.executable.architecture, build.version.to_string().as_str()),
        (Architecture::Arm64, "0.4.2")
    );
    let image = super::build(&directory.path().join("layers"), &build).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&image.config).unwrap();
    assert_eq!(config["architecture"], "arm64");
    assert_eq!(config["config"]["Entrypoint"], serde_json::json!([PROGRAM]));
    assert_eq!(config["config"]["Cmd"], serde_json::json!([COMMAND]));
    let parts = parts(&build).unwrap();
    for path in ["etc/passwd", "etc/group", "etc/nsswitch.conf", "tmp"] {
        assert!(parts.layers[0].contains_key(path), "{path}");
    }
}

#[test]
fn the_libraries_of_a_dynamic_build_are_in_its_image() {
    // This test is a program of this host; what it lacks is the mark.
    let own = std::env::current_exe().unwrap();
    let executable = executable::read(&mut File::open(&own).unwrap()).unwrap();
    let interpreter = executable.interpreter.clone();
    let digest = Digest::of(b"");
    let build = Build { path: own, executable, version: "1.2.3".parse().unwrap(), digest, size: 0 };
    let parts = parts(&build).unwrap();
    if let Some(loader) = interpreter {
        assert!(parts.layers[0].contains_key(loader.trim_start_matches('/')), "{loader}");
    }
    assert_eq!(parts.layers[1].keys().collect::<Vec<_>>(), ["usr/bin/remuda"]);
}

#[test]
fn what_is_not_ours_is_refused_by_name() {
    let refused = |bytes: &[u8]| {
        let (_directory, path) = written(bytes);
        let looked = Build::look(&path).and_then(|build| parts(&build).map(drop));
        remuda_base::Chain(&looked.unwrap_err()).to_string()
    };
    assert!(refused(&program(62, "")).ends_with("is not a build of Remuda"));
    assert!(refused(b"#!/bin/sh\n").contains("neither an ELF nor a PE executable"));
    let mut windows = vec![0; 0x46];
    windows[..2].copy_from_slice(b"MZ");
    windows[0x3c] = 0x40;
    windows[0x40..0x46].copy_from_slice(b"PE\0\0\x64\x86");
    windows.extend_from_slice(b"remuda-binary/v1 version=0.4.2\n");
    assert!(refused(&windows).contains("for windows"));
}

#[test]
fn a_build_for_another_processor_with_libraries_is_refused_with_what_to_do() {
    let (_directory, path) = written(&program(183, "remuda-binary/v1 version=0.4.2\n"));
    let mut build = Build::look(&path).unwrap();
    build.executable.architecture = match Architecture::own() {
        Some(Architecture::Arm64) => Architecture::Amd64,
        _ => Architecture::Arm64,
    };
    build.executable.interpreter = Some("/lib/ld-linux-aarch64.so.1".to_owned());
    let error = parts(&build).unwrap_err().to_string();
    assert!(error.contains("static build (musl)"), "{error}");
}

#[test]
fn the_key_of_an_image_follows_from_what_is_in_it() {
    let key_of = |mark: &str| {
        let (_directory, path) = written(&program(183, mark));
        key(&Build::look(&path).unwrap()).unwrap()
    };
    assert_eq!(key_of("remuda-binary/v1 version=0.4.2\n"), key_of("remuda-binary/v1 version=0.4.2\n"));
    assert_ne!(key_of("remuda-binary/v1 version=0.4.2\n"), key_of("remuda-binary/v1 version=0.4.2\nx"));
}

use std::io::Cursor;

use super::*;
use crate::executable;

/// The head of a program without anything in it.
pub(super) fn program(machine: u16) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
    bytes[16] = 2;
    bytes[18..20].copy_from_slice(&machine.to_le_bytes());
    bytes
}

fn windows(machine: u16) -> Vec<u8> {
    let mut bytes = vec![0; 0x46];
    bytes[..2].copy_from_slice(b"MZ");
    bytes[0x3c] = 0x40;
    bytes[0x40..0x44].copy_from_slice(b"PE\0\0");
    bytes[0x44..].copy_from_slice(&machine.to_le_bytes());
    bytes
}

fn told(bytes: &[u8]) -> Result<Executable, String> {
    executable::read(&mut Cursor::new(bytes)).map_err(|error| error.to_string())
}

#[test]
fn format_and_processor_are_told() {
    for (bytes, format, architecture) in [
        (program(62), Format::Linux, Architecture::Amd64),
        (program(183), Format::Linux, Architecture::Arm64),
        (windows(0x8664), Format::Windows, Architecture::Amd64),
        (windows(0xaa64), Format::Windows, Architecture::Arm64),
    ] {
        let found = told(&bytes).unwrap();
        assert_eq!((found.format, found.architecture), (format, architecture));
        assert!(found.is_static());
    }
    assert_eq!(told(b"#!/bin/sh\n").unwrap_err(), "neither an ELF nor a PE executable");
    assert_eq!(told(b"").unwrap_err(), "neither an ELF nor a PE executable");
    assert!(told(&program(8)).unwrap_err().contains("no agents for (machine 0x8)"));
    assert!(told(&program(62)[..40]).unwrap_err().contains("cut off"));
    let mut object = program(62);
    object[16] = 1;
    assert!(told(&object).unwrap_err().contains("object file"));
}

#[test]
fn a_program_of_this_host_names_its_loader_and_libraries() {
    let own = std::env::current_exe().unwrap();
    let found = executable::read(&mut std::fs::File::open(own).unwrap()).unwrap();
    assert_eq!(Some(found.architecture), Architecture::own());
    if cfg!(target_env = "gnu") {
        assert!(found.interpreter.as_deref().is_some_and(|path| path.contains("ld-linux")), "{found:?}");
        assert!(found.needed.iter().any(|name| name == "libc.so.6"), "{found:?}");
    }
}

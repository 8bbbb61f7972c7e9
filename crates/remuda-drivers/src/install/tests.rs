use std::io::Write as _;

use proptest::prelude::*;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinSet,
};

use super::*;

fn tarred(name: &str, content: &[u8]) -> Vec<u8> {
    let mut archive =
        tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (name, content) in [("README", b"hello".as_slice()), (name, content)] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        header.set_cksum();
        archive.append_data(&mut header, name, content).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

/// An archive with one compressed file.
fn zipped(name: &str, content: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(content).unwrap();
    let packed = packed.finish().unwrap();
    let mut crc = flate2::Crc::new();
    crc.update(content);
    let lengths = |out: &mut Vec<u8>| {
        out.extend(crc.sum().to_le_bytes());
        out.extend((packed.len() as u32).to_le_bytes());
        out.extend((content.len() as u32).to_le_bytes());
        out.extend((name.len() as u16).to_le_bytes());
        out.extend([0, 0]);
    };
    let mut zip = b"PK\x03\x04\x14\0\0\0\x08\0\0\0\0\0".to_vec();
    lengths(&mut zip);
    zip.extend(name.bytes());
    zip.extend(&packed);
    let directory = zip.len() as u32;
    zip.extend(b"PK\x01\x02\x14\0\x14\0\0\0\x08\0\0\0\0\0");
    lengths(&mut zip);
    zip.extend([0; 14]);
    zip.truncate(directory as usize + 42);
    zip.extend(0u32.to_le_bytes());
    zip.extend(name.bytes());
    let size = zip.len() as u32 - directory;
    zip.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    zip.extend(size.to_le_bytes());
    zip.extend(directory.to_le_bytes());
    zip.extend([0, 0]);
    zip
}

/// Serves one answer to whoever asks, and counts.
async fn serve(content: Vec<u8>) -> (String, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let count = stream.read(&mut request).await.unwrap_or(0);
            let moved = request[..count].starts_with(b"GET /moved");
            let head = if moved {
                "HTTP/1.1 302 Found\r\nlocation: /there/remuda-driver-demo\r\ncontent-length: 0\r\n\r\n"
                    .to_owned()
            } else {
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", content.len())
            };
            let _ = stream.write_all(head.as_bytes()).await;
            if !moved {
                let _ = stream.write_all(&content).await;
            }
        }
    });
    (format!("http://{address}"), tasks)
}

#[tokio::test]
async fn a_download_is_checked_kept_and_not_repeated() {
    let cache = tempfile::tempdir().unwrap();
    let script = b"#!/bin/sh\necho hi\n".to_vec();
    let sum = hex(digest::digest(&digest::SHA256, &script));
    let (url, server) = serve(script).await;
    let url = format!("{url}/remuda-driver-demo-linux");
    let wrong = Source { url: &url, checksum: &"0".repeat(64), cache: cache.path() };
    let error = obtain(wrong).await.unwrap_err().to_string();
    assert_eq!(error, format!("the checksum is {sum}, expected {}", "0".repeat(64)));
    let source = Source { url: &url, checksum: &sum, cache: cache.path() };
    let program = obtain(source).await.unwrap();
    assert_eq!((program.driver.as_str(), program.protocol, &program.digest), ("demo", Protocol::Exec, &sum));
    drop(server);
    assert_eq!(obtain(source).await.unwrap(), program);
}

#[tokio::test]
async fn redirects_are_followed() {
    let cache = tempfile::tempdir().unwrap();
    let (url, _server) = serve(b"#!/bin/sh\n".to_vec()).await;
    let url = format!("{url}/moved/remuda-driver-demo");
    obtain(Source { url: &url, checksum: "", cache: cache.path() }).await.unwrap();
}

#[test]
fn a_program_is_found_in_archives_and_checked_for_the_processor() {
    let script = b"#!/bin/sh\n";
    let name = "docker-machine-driver-demo";
    let found = |content: Vec<u8>| find_program("http://x/demo.tar.gz", content);
    assert_eq!(found(tarred(&format!("dir/{name}"), script)).unwrap(), (name.to_owned(), script.to_vec()));
    assert_eq!(found(zipped(&format!("dir/{name}"), script)).unwrap(), (name.to_owned(), script.to_vec()));
    assert!(found(tarred("other", script)).unwrap_err().to_string().contains("no program named"));
    assert!(found(b"<html>not found</html>".to_vec()).is_err());
    let mut elf = b"\x7fELF".to_vec();
    elf.resize(64, 0);
    elf[18] = 8;
    let error = find_program("http://x/docker-machine-driver-demo?x=1", elf.clone()).unwrap_err();
    assert_eq!(error.class(), Class::DriverCrash);
    let error = find_program("http://x/remuda-driver-demo", elf.clone()).unwrap_err();
    assert!(error.to_string().contains("for another processor"), "{error}");
    assert_eq!(found(tarred("remuda-driver-demo", &elf)).unwrap_err().class(), Class::DriverCrash);
    assert!(find_program("http://x/demo", elf).unwrap_err().to_string().contains("is not named"));
}

#[test]
fn checksums_are_told_by_their_length() {
    for sum in [
        "900150983cd24fb0d6963f7d28e17f72",
        "a9993e364706816aba3e25717850c26c9cd0d89d",
        "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD",
        "",
    ] {
        Checksum::parse(sum).unwrap().check(b"abc").unwrap();
        assert!(sum.is_empty() || Checksum::parse(sum).unwrap().check(b"abd").is_err());
    }
    assert!(Checksum::parse("abc").is_err());
    assert!(Checksum::parse("zz").is_err());
}

#[test]
fn a_file_that_was_damaged_in_its_archive_is_refused() {
    let name = "docker-machine-driver-demo";
    let whole = zipped(name, b"#!/bin/sh\n");
    assert_eq!(zip::find(&whole, 1000, |_| true).unwrap().unwrap().1, b"#!/bin/sh\n");
    // The checksum in the directory, which is behind the file.
    let directory = whole.windows(4).position(|four| four == b"PK\x01\x02").unwrap();
    let mut damaged = whole.clone();
    damaged[directory + 16] ^= 1;
    assert!(zip::find(&damaged, 1000, |_| true).unwrap_err().to_string().contains("checksum"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn broken_archives_are_refused_without_panic(at in 0usize..200, byte in any::<u8>(), cut in 0usize..200) {
        let mut zip = zipped("docker-machine-driver-demo", b"#!/bin/sh\n");
        let place = at % zip.len();
        zip[place] = byte;
        zip.truncate(zip.len() - cut % zip.len());
        let _ = zip::find(&zip, 1000, |_| true);
    }
}

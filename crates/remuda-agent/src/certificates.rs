//! When the certificates of a node end: plans ask for it where they are rotated in time.
//!
//! K3s and RKE2 keep them below `server/tls` and in `agent` of their data directory. Authorities are not looked at: they
//! live for many years, and a rotation leaves them as they are.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde::Serialize;

/// No directory of certificates has more below it.
const DEPTH: usize = 3;
/// No certificate is larger.
const LARGEST: u64 = 1 << 20;

/// The certificate that ends first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Expiry {
    /// When it ends, RFC 3339.
    pub expires: String,
    /// Where it is.
    pub path: PathBuf,
}

/// The first to end of those below a data directory, if there are any.
pub fn first_to_end(data_dir: &Path) -> Option<Expiry> {
    let mut found = Vec::new();
    collect(&data_dir.join("server/tls"), DEPTH, &mut found);
    collect(&data_dir.join("agent"), 1, &mut found);
    found.into_iter().min_by(|one, other| (&one.expires, &one.path).cmp(&(&other.expires, &other.path)))
}

fn collect(directory: &Path, depth: usize, found: &mut Vec<Expiry>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() && depth > 1 {
            collect(&path, depth - 1, found);
        }
        // A link leads to a file that is counted where it is.
        if !kind.is_file() || !name.ends_with(".crt") || is_authority(&name) {
            continue;
        }
        let small = entry.metadata().is_ok_and(|metadata| metadata.len() <= LARGEST);
        let Some(pem) = small.then(|| fs::read(&path).ok()).flatten() else { continue };
        // The first is the node's own; those behind it lead to its authority.
        let first = CertificateDer::pem_slice_iter(&pem).next().and_then(Result::ok);
        if let Some(expires) = first.and_then(|certificate| not_after(&certificate)) {
            found.push(Expiry { expires, path });
        }
    }
}

fn is_authority(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default();
    stem == "ca" || stem.ends_with("-ca")
}

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// The end of a certificate, RFC 3339. Nothing of what is not a certificate.
fn not_after(certificate: &[u8]) -> Option<String> {
    let (tag, mut outer, _) = element(certificate)?;
    let mut signed = expect(&mut outer, SEQUENCE).filter(|_| tag == SEQUENCE)?;
    if signed.first() == Some(&VERSION) {
        expect(&mut signed, VERSION)?;
    }
    // Serial number, algorithm, issuer.
    expect(&mut signed, INTEGER)?;
    expect(&mut signed, SEQUENCE)?;
    expect(&mut signed, SEQUENCE)?;
    let validity = expect(&mut signed, SEQUENCE)?;
    let (_, _, rest) = element(validity)?;
    let (kind, time, _) = element(rest)?;
    let time = std::str::from_utf8(time).ok()?.strip_suffix('Z')?;
    if !time.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let time = match (kind, time.len()) {
        // RFC 5280: two digits from 50 on are of the last century.
        (UTC_TIME, 12) if time >= "5" => format!("19{time}"),
        (UTC_TIME, 12) => format!("20{time}"),
        (GENERALIZED_TIME, 14) => time.to_owned(),
        _ => return None,
    };
    let part = |from: usize, to: usize| time.get(from..to).unwrap_or_default();
    Some(format!(
        "{}-{}-{}T{}:{}:{}Z",
        part(0, 4),
        part(4, 6),
        part(6, 8),
        part(8, 10),
        part(10, 12),
        part(12, 14)
    ))
}

/// The content of the next element, which is of this kind.
fn expect<'a>(input: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let (found, content, rest) = element(input)?;
    *input = rest;
    (found == tag).then_some(content)
}

/// Tag and content of a DER element, and what is behind it.
fn element(input: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = input.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn certificate(year: i32) -> rcgen::Certificate {
        let mut params = CertificateParams::new(vec!["node".to_owned()]).unwrap();
        params.not_before = date_time_ymd(1999, 1, 1);
        params.not_after = date_time_ymd(year, 3, 4);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap()
    }

    #[test]
    fn the_end_of_a_certificate_is_read_whatever_its_form() {
        for (year, expected) in
            [(1999, "1999-03-04T00:00:00Z"), (2027, "2027-03-04T00:00:00Z"), (2051, "2051-03-04T00:00:00Z")]
        {
            assert_eq!(not_after(certificate(year).der()).as_deref(), Some(expected));
        }
        let whole = certificate(2027);
        for length in 0..whole.der().len() {
            // A cut one may still say when it ends; it must not do harm.
            let _ = not_after(&whole.der()[..length]);
        }
        for odd in
            [&b""[..], b"\x30", b"\x30\x84\xff\xff\xff\xff", b"\x30\x80\x00\x00", &[0x30; 64], b"hello"]
        {
            assert_eq!(not_after(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn the_first_to_end_is_found_and_no_authority_counts() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        assert_eq!(first_to_end(data), None);
        fs::create_dir_all(data.join("server/tls/etcd")).unwrap();
        fs::create_dir_all(data.join("agent/deep")).unwrap();
        let write = |path: &str, year: i32| fs::write(data.join(path), certificate(year).pem()).unwrap();
        write("server/tls/serving-kube-apiserver.crt", 2031);
        write("server/tls/server-ca.crt", 2026);
        write("server/tls/etcd/peer-ca.crt", 2026);
        write("server/tls/etcd/ca.nochain.crt", 2026);
        write("agent/deep/other.crt", 2026);
        fs::write(data.join("agent/broken.crt"), "-----BEGIN CERTIFICATE-----\nAA==\n").unwrap();
        fs::write(data.join("agent/client.key"), "x").unwrap();
        let first = |path: &str, expires: &str| {
            let expected = Expiry { expires: expires.to_owned(), path: data.join(path) };
            assert_eq!(first_to_end(data), Some(expected));
        };
        first("server/tls/serving-kube-apiserver.crt", "2031-03-04T00:00:00Z");
        // The authority behind it ends earlier, which is not its own end.
        let chain = certificate(2030).pem() + &certificate(2027).pem();
        fs::write(data.join("server/tls/etcd/client.crt"), chain).unwrap();
        first("server/tls/etcd/client.crt", "2030-03-04T00:00:00Z");
        write("agent/client-kubelet.crt", 2029);
        first("agent/client-kubelet.crt", "2029-03-04T00:00:00Z");
    }
}

//! Saved output: how it is cleaned, bounded, packed and unpacked.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::{Compression, Crc, GzBuilder, read::GzDecoder};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{json, lenient::lenient};

/// Bytes of packed output in one key of the Secret. A Secret holds 1 MiB in all, most of it the plan.
pub const PACKED_LIMIT: usize = 320 << 10;

/// Bytes that are packed without being compressed.
const STORED_LIMIT: usize = 16 << 10;

/// Bytes that packed output may unpack to.
const UNPACKED_LIMIT: u64 = 32 << 20;

/// Captured bytes; base64 in JSON, where `null` is read as nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blob(pub Vec<u8>);

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
        STANDARD.decode(text).map(Self).map_err(serde::de::Error::custom)
    }
}

/// Output of one-time instructions by their name.
pub type Outputs = BTreeMap<String, Blob>;

/// Results of periodic instructions by their name.
pub type PeriodicResults = BTreeMap<String, PeriodicResult>;

/// What became of a periodic instruction. All keys are always written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PeriodicResult {
    /// The instruction.
    pub name: String,
    /// Standard output of the last run.
    pub stdout: Blob,
    /// Standard error of the last run, if asked for.
    pub stderr: Blob,
    /// Exit code of the last run; -1 when it was killed or did not start.
    pub exit_code: i64,
    /// When it last succeeded, or empty.
    pub last_successful_run_time: String,
    /// Failures in a row.
    pub failures: i64,
    /// When it last failed, or empty.
    pub last_failed_run_time: String,
}

lenient!(PeriodicResult {
    "name" => name,
    "stdout" => stdout,
    "stderr" => stderr,
    "exitCode" => exit_code,
    "lastSuccessfulRunTime" => last_successful_run_time,
    "failures" => failures,
    "lastFailedRunTime" => last_failed_run_time,
});

/// Why packed output cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// Not gzip, or cut off, or too large.
    #[error("decompress saved output")]
    Gzip(#[source] io::Error),
    /// Not the expected JSON.
    #[error("decode saved output")]
    Json(#[source] serde_json::Error),
}

/// Packs a map as the Secret carries it: gzip of JSON, the same bytes for the same map. Entries that
/// make it too large are cut, the largest first, so that a report always fits into the Secret.
pub fn pack<V: Serialize + Shrink>(mut map: BTreeMap<String, V>) -> Vec<u8> {
    loop {
        let packed = gzip(&json::encode(&map));
        if packed.len() <= PACKED_LIMIT {
            return packed;
        }
        let Some(largest) = map.values_mut().max_by_key(|value| value.size()) else { return packed };
        if largest.size() <= 1024 {
            return packed;
        }
        largest.shrink();
    }
}

/// Reads what `pack` or another agent wrote. Nothing is an empty map.
pub fn unpack<V: for<'de> Deserialize<'de>>(packed: &[u8]) -> Result<BTreeMap<String, V>, UnpackError> {
    if packed.is_empty() {
        return Ok(BTreeMap::new());
    }
    let raw = gunzip(packed, UNPACKED_LIMIT).map_err(UnpackError::Gzip)?;
    serde_json::from_slice::<Option<_>>(&raw).map(Option::unwrap_or_default).map_err(UnpackError::Json)
}

/// Something that can be made to fit.
pub trait Shrink {
    /// Bytes it holds.
    fn size(&self) -> usize;
    /// Gives up about half of them.
    fn shrink(&mut self);
}

impl Shrink for Blob {
    fn size(&self) -> usize {
        self.0.len()
    }

    fn shrink(&mut self) {
        const MARK: &[u8] = b"\n[output cut]\n";
        let body = self.0.strip_suffix(MARK).map_or(self.0.len(), <[u8]>::len);
        self.0.truncate(body / 2);
        self.0.extend_from_slice(MARK);
    }
}

impl Shrink for PeriodicResult {
    fn size(&self) -> usize {
        self.stdout.size() + self.stderr.size()
    }

    fn shrink(&mut self) {
        if self.stdout.size() > self.stderr.size() { self.stdout.shrink() } else { self.stderr.shrink() }
    }
}

/// Gzip without a time or a name, so that equal input gives equal bytes. What is short is stored as it is: the
/// tables of the compressor would be the largest thing an idle agent has in memory.
pub fn gzip(raw: &[u8]) -> Vec<u8> {
    match u16::try_from(raw.len()) {
        Ok(length) if raw.len() <= STORED_LIMIT => stored(raw, length),
        _ => {
            let mut encoder = GzBuilder::new().write(Vec::new(), Compression::default());
            encoder.write_all(raw).and_then(|()| encoder.finish()).expect("writing to memory does not fail")
        }
    }
}

/// Gzip of one block that is not compressed.
fn stored(raw: &[u8], length: u16) -> Vec<u8> {
    const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    let mut crc = Crc::new();
    crc.update(raw);
    let mut packed = Vec::with_capacity(raw.len() + 23);
    packed.extend_from_slice(&HEADER);
    // The last block, of the kind that is stored.
    packed.push(1);
    packed.extend_from_slice(&length.to_le_bytes());
    packed.extend_from_slice(&(!length).to_le_bytes());
    packed.extend_from_slice(raw);
    packed.extend_from_slice(&crc.sum().to_le_bytes());
    packed.extend_from_slice(&crc.amount().to_le_bytes());
    packed
}

fn gunzip(packed: &[u8], limit: u64) -> io::Result<Vec<u8>> {
    let mut raw = Vec::new();
    GzDecoder::new(packed).take(limit + 1).read_to_end(&mut raw)?;
    if raw.len() as u64 > limit {
        return Err(io::Error::other(format!("more than {limit} bytes")));
    }
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn output_of_another_agent_is_read() {
        let packed = hex(
            "1f8b08000000000000ff002800d7ff7b2262223a22222c22696e7374616c6c223a22614756736247384b222c226e696c223a6e756c6c7d03004444247b28000000",
        );
        let outputs: Outputs = unpack(&packed).unwrap();
        assert_eq!(outputs["install"].0, b"hello\n");
        assert_eq!(outputs["nil"].0, b"");
        assert_eq!(outputs["b"].0, b"");
    }

    #[test]
    fn periodic_results_have_the_reference_form() {
        let result = PeriodicResult {
            name: "etcd-snapshot-list-local".into(),
            stdout: Blob(b"x\n".to_vec()),
            last_successful_run_time: "Mon Aug  3 09:05:07 CEST 2026".into(),
            ..PeriodicResult::default()
        };
        let text = json::encode(&PeriodicResults::from([(result.name.clone(), result)]));
        assert_eq!(
            String::from_utf8(text).unwrap(),
            r#"{"etcd-snapshot-list-local":{"name":"etcd-snapshot-list-local","stdout":"eAo=","stderr":"","exitCode":0,"lastSuccessfulRunTime":"Mon Aug  3 09:05:07 CEST 2026","failures":0,"lastFailedRunTime":""}}"#
        );
    }

    #[test]
    fn packing_is_deterministic_and_carries_no_time() {
        let outputs = Outputs::from([("a<b".into(), Blob(b"1".to_vec()))]);
        let packed = pack(outputs.clone());
        assert_eq!(packed, pack(outputs.clone()));
        assert_eq!(packed[..10], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff]);
        assert_eq!(unpack::<Blob>(&packed).unwrap(), outputs);
        assert_eq!(json::encode(&outputs), br#"{"a\u003cb":"MQ=="}"#);
    }

    #[test]
    fn output_too_large_for_a_secret_is_cut_the_largest_first() {
        let mut state = 1u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        })
        .take(600 << 10)
        .collect();
        let packed =
            pack(Outputs::from([("big".into(), Blob(noise)), ("small".into(), Blob(b"kept".to_vec()))]));
        assert!(packed.len() <= PACKED_LIMIT);
        let outputs: Outputs = unpack(&packed).unwrap();
        assert_eq!(outputs["small"].0, b"kept");
        assert!(outputs["big"].0.ends_with(b"[output cut]\n"));
    }

    #[test]
    fn short_output_is_stored_and_long_output_compressed() {
        assert_eq!(gzip(b"{}"), hex("1f8b08000000000000ff010200fdff7b7d43bfa6a302000000"));
        for length in [0, 1, STORED_LIMIT, STORED_LIMIT + 1, 70_000] {
            let raw = vec![b'x'; length];
            let packed = gzip(&raw);
            assert_eq!(gunzip(&packed, 100_000).unwrap(), raw);
            assert_eq!(packed.len() > length, length <= STORED_LIMIT);
        }
    }

    #[test]
    fn broken_and_bloated_output_is_refused() {
        assert!(unpack::<Blob>(b"garbage").is_err());
        assert!(unpack::<Blob>(&gzip(b"[]")).is_err());
        assert!(unpack::<Blob>(&gzip(b"{\"a\":\"b\"}")[..12]).is_err());
        assert!(gunzip(&gzip(&[b' '; 5000]), 4999).is_err());
        assert!(gunzip(&gzip(&[b' '; 5000]), 5000).is_ok());
        assert!(unpack::<Blob>(&gzip(b"null")).unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn unpacking_never_panics(raw in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = unpack::<PeriodicResult>(&raw);
            let _ = unpack::<PeriodicResult>(&gzip(&raw));
        }
    }
}

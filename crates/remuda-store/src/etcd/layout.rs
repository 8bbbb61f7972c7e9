//! How the store lies in etcd.
//!
//! ```text
//! <prefix>/o<key>    the value of a key
//! <prefix>/head      rewritten by every write, in the same transaction
//! <prefix>-identity  what the processes share (see `shared`), not part of the store
//!
//! value  format 1 │ flags 1 │ slot 4 │ bytes, sealed if configured
//! head   format 1 │ write id 8 │ nothing, or for a delete: key length 4 │ key │ final state as a value
//! ```
//!
//! The head does three things. Its modification revision is the revision of the newest write, so
//! a linearizable read costs one tiny request, whatever other users of the cluster do to its
//! revision. It carries the final state of a deleted key to all replicas, in the same revision as
//! the deletion, without leaving a key behind. And the write id tells a writer who lost its
//! connection that its write happened after all.

use bytes::Bytes;

use super::{client::EtcdError, proto::KeyValue};
use crate::{
    Record, Revision, Template,
    seal::{self, SealError, Sealing},
};

const FORMAT: u8 = 1;
const SEALED: u8 = 1;
const NO_SLOT: u32 = u32::MAX;
const VALUE_HEADER: usize = 6;

pub(super) struct Layout {
    prefix: String,
    pub(super) sealing: Option<Sealing>,
}

/// What the head says about the newest write.
pub(super) struct Head {
    pub(super) id: u64,
    pub(super) last: Option<(String, Template)>,
}

impl Layout {
    pub(super) fn new(prefix: &str, sealing: Option<Sealing>) -> Self {
        Self { prefix: prefix.trim_end_matches('/').to_owned(), sealing }
    }

    pub(super) fn head(&self) -> Bytes {
        format!("{}/head", self.prefix).into()
    }

    pub(super) fn identity(&self) -> Bytes {
        format!("{}-identity", self.prefix).into()
    }

    pub(super) fn object(&self, key: &str) -> Bytes {
        format!("{}/o{key}", self.prefix).into()
    }

    /// First key and end of everything that is ours.
    pub(super) fn range(&self) -> (Bytes, Bytes) {
        // '0' follows '/'.
        (format!("{}/", self.prefix).into(), format!("{}0", self.prefix).into())
    }

    /// The store's key, if this is an object of the store.
    pub(super) fn key<'a>(&self, raw: &'a [u8]) -> Option<&'a str> {
        let rest = raw.strip_prefix(self.prefix.as_bytes())?.strip_prefix(b"/o")?;
        std::str::from_utf8(rest).ok()
    }

    pub(super) fn is_head(&self, raw: &[u8]) -> bool {
        raw.strip_prefix(self.prefix.as_bytes()) == Some(b"/head")
    }

    pub(super) fn encode(&self, key: &str, value: &Template, out: &mut Vec<u8>) {
        let sealing = self.sealing.as_ref().filter(|sealing| sealing.covers(key));
        out.extend_from_slice(&[FORMAT, if sealing.is_some() { SEALED } else { 0 }]);
        let slot = value.slot.map_or(NO_SLOT, |slot| slot.min(value.bytes.len() as u32));
        out.extend_from_slice(&slot.to_le_bytes());
        match sealing {
            Some(sealing) => sealing.seal(key, &[&value.bytes], out),
            None => out.extend_from_slice(&value.bytes),
        }
    }

    pub(super) fn encode_head(&self, id: u64, last: Option<(&str, &Template)>) -> Bytes {
        let mut out = vec![FORMAT];
        out.extend_from_slice(&id.to_le_bytes());
        if let Some((key, value)) = last {
            out.extend_from_slice(&(key.len() as u32).to_le_bytes());
            out.extend_from_slice(key.as_bytes());
            self.encode(key, value, &mut out);
        }
        out.into()
    }

    pub(super) fn decode(&self, key: &str, value: &Bytes) -> Result<Template, EtcdError> {
        let foreign = |detail: &str| EtcdError::Foreign { key: key.into(), detail: detail.into() };
        if value.len() < VALUE_HEADER {
            return Err(foreign("the value is too short"));
        }
        if value[0] != FORMAT {
            return Err(foreign("the value has a format this program does not know"));
        }
        let slot = u32::from_le_bytes([value[2], value[3], value[4], value[5]]);
        let bytes = if value[1] & SEALED != 0 {
            let sealing = self.sealing.as_ref().ok_or_else(|| SealError::NoKeyring { key: key.into() })?;
            sealing.open_or_reload(key, &value[VALUE_HEADER..])?.into()
        } else {
            value.slice(VALUE_HEADER..)
        };
        Ok(Template { bytes, slot: (slot != NO_SLOT).then_some(slot) })
    }

    pub(super) fn decode_head(&self, value: &Bytes) -> Result<Head, EtcdError> {
        let foreign = || EtcdError::Foreign { key: "the head".into(), detail: "it makes no sense".into() };
        let parse = || {
            let id = u64::from_le_bytes(value.get(1..9)?.try_into().ok()?);
            if value.len() == 9 {
                return Some((id, None));
            }
            let len = u32::from_le_bytes(value.get(9..13)?.try_into().ok()?) as usize;
            let key = std::str::from_utf8(value.get(13..13 + len)?).ok()?;
            Some((id, Some((key.to_owned(), value.slice(13 + len..)))))
        };
        if value.first() != Some(&FORMAT) {
            return Err(foreign());
        }
        let (id, last) = parse().ok_or_else(foreign)?;
        let last = match last {
            Some((key, bytes)) => {
                let value = self.decode(&key, &bytes)?;
                Some((key, value))
            }
            None => None,
        };
        Ok(Head { id, last })
    }

    pub(super) fn record(&self, key: &str, kv: &KeyValue) -> Result<Record, EtcdError> {
        let value = self.decode(key, &kv.value)?;
        Ok(Record::new(key.into(), kv.create_revision as Revision, kv.mod_revision as Revision, &value))
    }

    /// Whether values of this key are sealed.
    pub(super) fn seals(&self, key: &str) -> bool {
        self.sealing.as_ref().is_some_and(|sealing| sealing.covers(key))
    }

    /// The keyring key a stored value is sealed with.
    pub(super) fn sealed_with(&self, value: &[u8]) -> Option<u64> {
        (value.len() > VALUE_HEADER && value[1] & SEALED != 0)
            .then(|| seal::sealed_with(&value[VALUE_HEADER..]))
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_heads_come_back_as_they_went() {
        let layout = Layout::new("/remuda/", None);
        assert_eq!(layout.object("/core/pods/a"), "/remuda/o/core/pods/a");
        assert_eq!(layout.key(b"/remuda/o/core/pods/a"), Some("/core/pods/a"));
        assert_eq!(layout.key(b"/remuda/head"), None);
        for slot in [None, Some(0), Some(3)] {
            let value = Template { bytes: Bytes::from_static(b"abc"), slot };
            let mut out = Vec::new();
            layout.encode("/a", &value, &mut out);
            assert_eq!(layout.decode("/a", &out.into()).unwrap(), value);
            let head = layout.decode_head(&layout.encode_head(7, Some(("/a", &value)))).unwrap();
            assert_eq!((head.id, head.last), (7, Some(("/a".to_owned(), value))));
        }
        assert_eq!(layout.decode_head(&layout.encode_head(7, None)).unwrap().id, 7);
        for junk in [
            &b""[..],
            b"\x01",
            b"\x02aaaaaaaa",
            b"\x01aaaaaaaa\xff\xff\xff\xff",
            b"\x01aaaaaaaa\x00\x00\x00\x00x",
        ] {
            assert!(layout.decode_head(&Bytes::copy_from_slice(junk)).is_err());
        }
    }
}

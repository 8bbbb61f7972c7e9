//! Forms of values of an [`Input`](super::Input) that JSON has no own for.

/// Contents of secrets, in base64.
pub(super) mod contents {
    use std::collections::BTreeMap;

    use base64::{Engine, prelude::BASE64_STANDARD};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    type Contents = BTreeMap<String, Vec<u8>>;

    pub(in crate::input) fn serialize<S: Serializer>(contents: &Contents, out: S) -> Result<S::Ok, S::Error> {
        out.collect_map(contents.iter().map(|(key, value)| (key, BASE64_STANDARD.encode(value))))
    }

    pub(in crate::input) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Contents, D::Error> {
        let encoded = BTreeMap::<String, String>::deserialize(input)?;
        let decode = |(key, value): (String, String)| match BASE64_STANDARD.decode(value) {
            Ok(value) => Ok((key, value)),
            Err(error) => Err(D::Error::custom(format!("{key} is not base64: {error}"))),
        };
        encoded.into_iter().map(decode).collect()
    }
}

/// Objects by namespace and name, as `namespace/name`.
pub(super) mod named {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    type Named<T> = BTreeMap<(String, String), T>;

    pub(in crate::input) fn serialize<S: Serializer, T: Serialize>(
        objects: &Named<T>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        out.collect_map(
            objects.iter().map(|((namespace, name), object)| (format!("{namespace}/{name}"), object)),
        )
    }

    pub(in crate::input) fn deserialize<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
        input: D,
    ) -> Result<Named<T>, D::Error> {
        let objects = BTreeMap::<String, T>::deserialize(input)?;
        let split = |(key, object): (String, T)| match key.split_once('/') {
            Some((namespace, name)) => Ok(((namespace.to_owned(), name.to_owned()), object)),
            None => Err(D::Error::custom(format!("{key:?} is not namespace/name"))),
        };
        objects.into_iter().map(split).collect()
    }
}

/// Files, as plans have them.
pub(super) mod files {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error};
    use serde_json::Value;

    use crate::node_plan::{File, NodePlan};

    pub(in crate::input) fn serialize<S: Serializer>(files: &[File], out: S) -> Result<S::Ok, S::Error> {
        let plan = NodePlan { files: files.to_vec(), ..NodePlan::default() }.encode();
        let mut plan: Value = serde_json::from_slice(&plan).map_err(S::Error::custom)?;
        let files = plan.get_mut("files").map_or_else(|| Value::Array(Vec::new()), Value::take);
        files.serialize(out)
    }

    pub(in crate::input) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<File>, D::Error> {
        Vec::<File>::deserialize(input)
    }
}

//! Rust types of the kinds we serve, and their definitions.
//!
//! Everything here is wire format: what objects look like, how one version of them becomes another, and the
//! CustomResourceDefinitions that say so to clients. What controllers do with them is elsewhere.

pub mod addons;
pub mod clusterctl;
pub mod convert;
pub mod core;
pub mod crd;
#[doc(hidden)]
pub mod instances;
pub mod ipam;
pub mod management;
mod object;
pub mod provisioning;
pub mod quota;
pub mod rke;

/// Zero values are not written: an absent field and its zero mean the same, where they do not the field is an `Option`.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Structs as they appear in JSON: camel case, zero values left out, unknown fields ignored.
macro_rules! wire {
    ($($(#[$attr:meta])* pub struct $name:ident {
        $($(#[$field_attr:meta])* pub $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$attr])*
        #[derive(Debug, Clone, Default, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
        // Definitions are generated from and compared with what the types say of themselves.
        #[cfg_attr(test, derive(::schemars::JsonSchema))]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            $($(#[$field_attr])*
            #[serde(default, skip_serializing_if = "crate::is_default")]
            pub $field: $type,)*
        }
    )*};
}
pub(crate) use wire;

/// Null is the zero value as well.
fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + serde::Deserialize<'de>,
{
    Ok(<Option<T> as serde::Deserialize>::deserialize(deserializer)?.unwrap_or_default())
}

/// As [`wire`], for definitions that let fields be null, which then have their zero value.
///
/// What is written after two dots is part of the object itself: fields that several objects have in common,
/// or a map of all that has no field here.
macro_rules! lenient {
    ($($(#[$attr:meta])* pub struct $name:ident {
        $($(#[$field_attr:meta])* pub $field:ident: $type:ty,)*
        $(..$flat:ident: $flat_type:ty,)?
    })*) => {$(
        $(#[$attr])*
        #[derive(Debug, Clone, Default, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
        #[cfg_attr(test, derive(::schemars::JsonSchema))]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            $($(#[$field_attr])*
            #[serde(
                default,
                deserialize_with = "crate::null_is_default",
                skip_serializing_if = "crate::is_default"
            )]
            pub $field: $type,)*
            $(#[serde(flatten)]
            pub $flat: $flat_type,)?
        }
    )*};
}
pub(crate) use lenient;

//! Built-in Kubernetes kinds as data: what exists, which fields it has, how it is decoded
//! from JSON and protobuf, and how it is described in OpenAPI.
//!
//! Pure: no I/O, no clock. One table ([`table`]) feeds everything.

pub mod decode;
pub mod inventory;
pub mod openapi;
pub mod protobuf;
pub mod scalar;
pub mod table;
pub mod trees;

pub use decode::{DecodeError, decode, zero_object};
pub use inventory::{NameRule, Resource, Subresource, find_kind, find_resource, groups, resources};
pub use protobuf::{Expected, ProtoError, decode_protobuf, decode_protobuf_as};
pub use table::{Field, Ty, TypeDef, type_of};
pub use trees::{object_meta, schema};

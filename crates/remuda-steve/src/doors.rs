//! The door of the list API.

use remuda_door::{ANY_METHOD, Access, Cookie, Door, Owned, Shown};
use remuda_names::list_api::path;

/// Rows and single objects of any kind, their changes, and writes as the caller.
pub static LIST_API: Door = Door {
    name: "list-api",
    purpose: "any kind as rows with state: lists, objects, schemas, counts, changes",
    paths: &[Owned::Tree(path::ROOT), Owned::Tree(path::LOCAL_ROOT)],
    methods: ANY_METHOD,
    access: Access::Authenticated,
    cookie: Cookie::Proof,
    shown: Shown::Query,
    body: 4 << 20,
    personal: true,
};

/// All doors of the list API.
pub static ALL: [&Door; 1] = [&LIST_API];

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

/// Settings, some of which the login page needs before a login.
pub static SETTINGS: Door = Door {
    name: "settings",
    purpose: "settings as the list API shows them; strangers see those of a login page",
    paths: &[Owned::Tree(path::SETTINGS)],
    access: Access::Optional,
    ..LIST_API
};

/// The same for older clients, to read.
pub static OLDER_SETTINGS: Door = Door {
    name: "older-settings",
    purpose: "settings with the value that counts; strangers see those of a login page",
    paths: &[Owned::Tree(path::SETTINGS_V3)],
    methods: &["GET", "HEAD"],
    access: Access::Optional,
    shown: Shown::Path,
    body: 0,
    ..LIST_API
};

/// Kinds there are below `/v3`, to read.
pub static OLDER_SCHEMAS: Door = Door {
    name: "older-schemas",
    purpose: "which kinds there are below `/v3`",
    paths: &[Owned::Tree(path::SCHEMAS_V3)],
    access: Access::Authenticated,
    ..OLDER_SETTINGS
};

/// All doors of the list API.
pub static ALL: [&Door; 4] = [&LIST_API, &SETTINGS, &OLDER_SETTINGS, &OLDER_SCHEMAS];

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

/// Kinds below `/v3` that Rancher's dashboard cannot do without.
pub static OLDER_KINDS: Door = Door {
    name: "older-kinds",
    purpose: "registration tokens, node drivers and cloud credentials as older clients know them",
    paths: &[
        Owned::Tree(path::REGISTRATION_TOKENS_V3),
        Owned::Tree(path::REGISTRATION_TOKENS_V3_CAMEL),
        Owned::Tree(path::NODE_DRIVERS_V3),
        Owned::Tree(path::NODE_DRIVERS_V3_CAMEL),
        Owned::Tree(path::CREDENTIALS_V3),
        Owned::Tree(path::CREDENTIALS_V3_CAMEL),
    ],
    methods: &["GET", "HEAD", "POST", "PUT", "DELETE"],
    shown: Shown::Action,
    body: 256 << 10,
    ..LIST_API
};

/// What Rancher's clients ask before anything else.
pub static OLDER_FACTS: Door = Door {
    name: "older-facts",
    purpose: "the version of Rancher's APIs this server speaks, and that there are no extensions of its dashboard",
    paths: &[Owned::Exact(path::VERSION), Owned::Exact(path::UI_PLUGINS)],
    methods: &["GET", "HEAD"],
    access: Access::Anonymous,
    cookie: Cookie::Never,
    shown: Shown::Path,
    body: 0,
    personal: false,
};

/// All doors of the list API.
pub static ALL: [&Door; 6] =
    [&LIST_API, &SETTINGS, &OLDER_SETTINGS, &OLDER_SCHEMAS, &OLDER_KINDS, &OLDER_FACTS];

//! NodeDriver and the DynamicSchemas of what drivers can do.

use std::collections::BTreeMap;

use remuda_names::rancher::group::MANAGEMENT;

use crate::{lenient, object::object, rke::Condition};

lenient! {
    pub struct NodeDriverSpec {
        /// Name of the driver.
        pub display_name: String,
        /// What it is for.
        pub description: String,
        /// Where its program is downloaded from.
        pub url: String,
        /// Where it came from.
        pub external_id: String,
        /// It came with the server.
        pub builtin: bool,
        /// Machines can be made by it.
        pub active: bool,
        /// Credentials can be made for it.
        pub add_cloud_credential: bool,
        /// MD5, SHA-1, SHA-256 or SHA-512 of its program.
        pub checksum: String,
        /// Where its user interface is.
        pub ui_url: String,
        /// Hosts its user interface may reach through this server.
        pub whitelist_domains: Vec<String>,
    }

    pub struct NodeDriverStatus {
        /// Conditions of the driver.
        pub conditions: Vec<Condition>,
        /// Where the program that is used came from.
        #[serde(rename = "appliedURL")]
        pub applied_url: String,
        /// Checksum of the program that is used.
        pub applied_checksum: String,
        /// Version of docker-machine that asked the driver for its flags.
        pub applied_docker_machine_version: String,
    }

    pub struct DynamicSchemaSpec {
        /// Name of the type.
        pub schema_name: String,
        /// It extends another type.
        pub embed: bool,
        /// Type it extends.
        pub embed_type: String,
        /// Name of several.
        pub plural_name: String,
        /// Methods of an object.
        pub resource_methods: Vec<String>,
        /// Fields of an object.
        pub resource_fields: BTreeMap<String, SchemaField>,
        /// Actions of an object.
        pub resource_actions: BTreeMap<String, SchemaAction>,
        /// Methods of a collection.
        pub collection_methods: Vec<String>,
        /// Fields of a collection.
        pub collection_fields: BTreeMap<String, SchemaField>,
        /// Actions of a collection.
        pub collection_actions: BTreeMap<String, SchemaAction>,
        /// Filters of a collection.
        pub collection_filters: BTreeMap<String, SchemaFilter>,
        /// Links that can be followed.
        pub includeable_links: Vec<String>,
        /// Version of the schema.
        pub dynamic_schema_version: String,
    }

    pub struct SchemaField {
        /// Type of the value: string, password, int, boolean or array[string].
        #[serde(rename = "type")]
        pub kind: String,
        /// What it is unless it is given.
        pub default: SchemaDefault,
        pub unique: bool,
        /// It may be null.
        pub nullable: bool,
        /// It can be given at creation.
        pub create: bool,
        /// It must be given.
        pub required: bool,
        /// It can be changed.
        pub update: bool,
        pub min_length: Option<i64>,
        pub max_length: Option<i64>,
        pub min: Option<i64>,
        pub max: Option<i64>,
        /// What it can be.
        pub options: Vec<String>,
        pub valid_chars: String,
        pub invalid_chars: String,
        /// What it is for.
        pub description: String,
        /// It was added by a driver.
        pub dynamic_field: bool,
    }

    /// One of its fields, by the type of the value.
    pub struct SchemaDefault {
        pub string_value: String,
        pub int_value: i64,
        pub bool_value: bool,
        pub string_slice_value: Vec<String>,
    }

    pub struct SchemaAction {
        pub input: String,
        pub output: String,
    }

    pub struct SchemaFilter {
        pub modifiers: Vec<String>,
    }

    pub struct DynamicSchemaStatus {
        pub fake: String,
    }
}

object! {
    /// A driver that makes machines.
    mod node_driver; NodeDriver = "NodeDriver", MANAGEMENT, "v3", "nodedrivers", ClusterResourceScope;
    spec: NodeDriverSpec; status: NodeDriverStatus;
    {}
}

object! {
    /// Fields of what a driver makes.
    mod dynamic_schema; DynamicSchema = "DynamicSchema", MANAGEMENT, "v3", "dynamicschemas", ClusterResourceScope;
    spec: DynamicSchemaSpec; status: DynamicSchemaStatus;
    {}
}

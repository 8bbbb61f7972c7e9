//! One level of configuration. A field is a flag, an environment variable and a key of the file.

use std::path::PathBuf;

use remuda_names::env;
use serde::Deserialize;

use super::{SharedSecret, backup::BackupKeys};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// How machines on the host of a server that is root are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum LocalMachines {
    /// Their users are nobody on the host.
    #[default]
    Isolated,
    /// Their root is the host's, with its devices, as a real distribution needs.
    Privileged,
}

impl LocalMachines {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Isolated => "isolated",
            Self::Privileged => "privileged",
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, clap::Args)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Options {
    /// Read options from this YAML file [default: /etc/remuda/config.yaml if it exists]
    ///
    /// Its keys are the names of the flags. A flag or an environment variable wins over the file.
    #[serde(skip)]
    #[arg(long, env = env::CONFIG, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Listen on this address [default: port 8443 on all addresses]
    ///
    /// `:PORT` is all addresses, port 0 is any free port.
    #[arg(long, env = env::BIND, value_name = "ADDRESS:PORT")]
    pub bind: Option<String>,

    /// Tell agents and people elsewhere to use this address [default: 127.0.0.1, which serves this host alone]
    #[arg(long, env = env::ADVERTISE, value_name = "HOST[:PORT]")]
    pub advertise: Option<String>,

    /// Tell other servers on the same etcd to use this address [default: the address listened on, or the
    /// first one of this machine]
    ///
    /// They reach clusters through each other, so this is the machine's own address, not that of something in
    /// front of all of them.
    #[arg(long, env = env::PEER_ADDRESS, value_name = "ADDRESS[:PORT]")]
    pub peer_address: Option<String>,

    /// Write the address the server listens on to this file once it is ready
    #[arg(long, env = env::ADDRESS_FILE, value_name = "FILE")]
    pub address_file: Option<PathBuf>,

    /// Keep keys, certificates and the embedded store here
    /// [default: /var/lib/remuda as root, else ~/.local/share/remuda]
    #[arg(long, env = env::DATA_DIR, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// Store objects here: embedded, memory, or etcd://HOST[:PORT][,HOST…] [default: embedded]
    ///
    /// `memory` forgets everything at the end. With etcd several servers may share the data.
    #[arg(long, env = env::DATASTORE, value_name = "WHERE")]
    pub datastore: Option<String>,

    /// Trust this certificate authority for etcd
    #[arg(long, env = env::DATASTORE_CA, value_name = "FILE")]
    pub datastore_ca: Option<PathBuf>,

    /// Present this client certificate to etcd
    #[arg(long, env = env::DATASTORE_CERT, value_name = "FILE")]
    pub datastore_cert: Option<PathBuf>,

    /// Key of --datastore-cert
    #[arg(long, env = env::DATASTORE_KEY, value_name = "FILE")]
    pub datastore_key: Option<PathBuf>,

    /// Share keys and certificates with the other servers on the same etcd by the secret in this
    /// file [default: the variable REMUDA_SHARED_SECRET]
    #[arg(long, env = env::SHARED_SECRET_FILE, value_name = "FILE")]
    pub shared_secret_file: Option<PathBuf>,

    /// The secret itself, from the environment.
    #[serde(skip)]
    #[arg(skip)]
    pub shared_secret: Option<SharedSecret>,

    /// Back the server up by this schedule, in UTC, such as "0 3 * * *"
    ///
    /// Backups are made while the server runs, and each is read again. A time that was missed is made up for, once.
    #[arg(long, env = env::BACKUP_SCHEDULE, value_name = "CRON")]
    pub backup_schedule: Option<String>,

    /// Put these backups into this directory, or into s3://BUCKET[/FOLDER]
    #[arg(long, env = env::BACKUP_TO, value_name = "WHERE")]
    pub backup_to: Option<String>,

    /// Keep so many of them [default: 7]
    #[arg(long, env = env::BACKUP_RETENTION, value_name = "N")]
    pub backup_retention: Option<usize>,

    /// The S3 store of --backup-to [default: Amazon's]
    #[arg(long, env = env::BACKUP_S3_ENDPOINT, value_name = "HOST[:PORT]")]
    pub backup_s3_endpoint: Option<String>,

    /// Region of its bucket [default: us-east-1]
    #[arg(long, env = env::BACKUP_S3_REGION, value_name = "REGION")]
    pub backup_s3_region: Option<String>,

    /// Trust these authorities for it (PEM) [default: those of the system]
    #[arg(long, env = env::BACKUP_S3_CA, value_name = "FILE")]
    pub backup_s3_ca: Option<PathBuf>,

    /// Where its bucket is in addresses: auto, dns or path [default: auto]
    #[arg(long, env = env::BACKUP_S3_LOOKUP, value_name = "HOW")]
    pub backup_s3_lookup: Option<String>,

    /// Its keys: a file with access-key and secret-key (YAML) [default: the variables
    /// REMUDA_BACKUP_S3_ACCESS_KEY and REMUDA_BACKUP_S3_SECRET_KEY]
    ///
    /// The file is read for every backup, so keys can be replaced while the server runs.
    #[arg(long, env = env::BACKUP_S3_KEYS, value_name = "FILE")]
    pub backup_s3_keys: Option<PathBuf>,

    /// The keys themselves, from the environment.
    #[serde(skip)]
    #[arg(skip)]
    pub backup_keys: Option<BackupKeys>,

    /// Serve with this certificate instead of a generated one (PEM, chain included)
    #[arg(long, env = env::TLS_CERT, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// Key of --tls-cert
    #[arg(long, env = env::TLS_KEY, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// Also put this name or address into the generated certificate (may be repeated)
    #[arg(long, env = env::TLS_SAN, value_name = "NAME", value_delimiter = ',')]
    pub tls_san: Option<Vec<String>>,

    /// Log this: error, warn, info, debug, trace, or a filter such as info,remuda_store=debug
    /// [default: info]
    #[arg(long, env = env::LOG_LEVEL, value_name = "LEVEL")]
    pub log_level: Option<String>,

    /// Log as text or as JSON lines [default: text]
    #[arg(long, env = env::LOG_FORMAT, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,

    /// Write an audit log (JSON lines) to this file
    #[arg(long, env = env::AUDIT_LOG, value_name = "FILE")]
    pub audit_log: Option<PathBuf>,

    /// Begin a new audit log at this size, in MiB [default: 100]
    #[arg(long, env = env::AUDIT_LOG_MAX_SIZE, value_name = "MIB")]
    pub audit_log_max_size: Option<u64>,

    /// Keep this many older audit logs [default: 10]
    #[arg(long, env = env::AUDIT_LOG_MAX_BACKUPS, value_name = "N")]
    pub audit_log_max_backups: Option<usize>,

    /// What to audit (audit.k8s.io/v1 Policy, YAML) [default: metadata of every request]
    #[arg(long, env = env::AUDIT_POLICY, value_name = "FILE")]
    pub audit_policy: Option<PathBuf>,

    /// Take what is known of K3s and RKE2 releases from this file (data.json of Rancher's metadata service, or
    /// channels.yaml) [default: what comes with this program]
    ///
    /// What the setting rke-metadata-config fetches wins over it.
    #[arg(long, env = env::RELEASE_DATA, value_name = "FILE")]
    pub release_data: Option<PathBuf>,

    /// Mirror the registries in this file (YAML) for machines, which then need no way to them
    ///
    /// Bundles of images in the directory `bundles` of the data directory are served without it.
    #[arg(long, env = env::REGISTRY_CONFIG, value_name = "FILE")]
    pub registry_config: Option<PathBuf>,

    /// Accept the tokens in this file (CSV: token,user,uid,"group1,group2")
    #[arg(long, env = env::TOKEN_FILE, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Let requests without credentials in as system:anonymous [default: true]
    #[arg(long, env = env::ANONYMOUS_AUTH, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub anonymous_auth: Option<bool>,

    /// Issuer of service-account tokens [default: https://kubernetes.default.svc]
    #[arg(long, env = env::SERVICE_ACCOUNT_ISSUER, value_name = "URL")]
    pub service_account_issuer: Option<String>,

    /// Accept service-account tokens for these audiences [default: the issuer]
    #[arg(long, env = env::API_AUDIENCES, value_name = "AUDIENCE", value_delimiter = ',')]
    pub api_audiences: Option<Vec<String>>,

    /// Run the controllers of Cluster API in this server [default: true]
    ///
    /// Without them the API is served all the same, and another set of controllers, such as that of
    /// the Cluster API project, can work on it.
    #[arg(long, env = env::CONTROLLERS, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub controllers: Option<bool>,

    /// Keep at most this many connections open [default: 20000]
    #[arg(long, env = env::MAX_CONNECTIONS, value_name = "N")]
    pub max_connections: Option<usize>,

    /// Work on at most this many reading requests at a time [default: 400]
    #[arg(long, env = env::MAX_REQUESTS_INFLIGHT, value_name = "N")]
    pub max_requests_inflight: Option<usize>,

    /// Work on at most this many writing requests at a time [default: 200]
    #[arg(long, env = env::MAX_MUTATING_REQUESTS_INFLIGHT, value_name = "N")]
    pub max_mutating_requests_inflight: Option<usize>,

    /// Refuse request bodies larger than this [default: 3145728]
    #[arg(long, env = env::MAX_REQUEST_BYTES, value_name = "BYTES")]
    pub max_request_bytes: Option<usize>,

    /// Make and remove at most this many machines at a time [default: 256, less where memory is short]
    ///
    /// Each is a process of this server while its provider is at work.
    #[arg(long, env = env::MAX_MACHINE_JOBS, value_name = "N")]
    pub max_machine_jobs: Option<usize>,

    /// The same for machines of one driver and one cloud credential [default: 256]
    #[arg(long, env = env::MAX_MACHINE_JOBS_PER_CREDENTIAL, value_name = "N")]
    pub max_machine_jobs_per_credential: Option<usize>,

    /// How machines on this host are kept, if the server is root [default: isolated]
    ///
    /// `privileged` gives them the host's root and some of its devices, which real K3s or RKE2 needs. Whoever can
    /// run anything in such a machine, Pods included, can then do everything on this host.
    #[arg(long, env = env::LOCAL_MACHINES, value_name = "HOW")]
    pub local_machines: Option<LocalMachines>,
}

impl Options {
    /// These options, and from `lower` what they leave open.
    #[must_use]
    pub fn or(self, lower: Options) -> Options {
        macro_rules! either {
            ($($field:ident)*) => { Options { $($field: self.$field.or(lower.$field)),* } };
        }
        either! {
            config bind advertise peer_address address_file data_dir datastore datastore_ca datastore_cert datastore_key
            shared_secret_file shared_secret backup_schedule backup_to backup_retention backup_s3_endpoint
            backup_s3_region backup_s3_ca backup_s3_lookup backup_s3_keys backup_keys tls_cert tls_key tls_san log_level log_format audit_log audit_log_max_size audit_log_max_backups
            audit_policy token_file anonymous_auth service_account_issuer api_audiences controllers max_connections
            max_requests_inflight max_mutating_requests_inflight max_request_bytes max_machine_jobs
            max_machine_jobs_per_credential local_machines release_data registry_config
        }
    }
}

//! Every label, annotation, finalizer, path and header name that leaves the process.
//!
//! This crate is the index of what other programs and people can depend on. Each constant says
//! who writes it and who reads it; a string that appears here appears nowhere else.

/// The program's name: of the binary, in `Server` headers and in the data directory.
pub const PROGRAM: &str = "remuda";

/// API group of kinds that are ours alone.
pub const GROUP: &str = "remuda.io";

/// The port the server listens on unless told otherwise.
pub const DEFAULT_PORT: u16 = 8443;

/// Environment variables. Each sets the flag of the same name; a flag on the command line wins.
pub mod env {
    /// Where a configuration file is read from.
    pub const CONFIG: &str = "REMUDA_CONFIG";
    /// Listening address.
    pub const BIND: &str = "REMUDA_BIND";
    /// Address under which clients reach the server.
    pub const ADVERTISE: &str = "REMUDA_ADVERTISE";
    /// Address under which other servers on the same datastore reach the server.
    pub const PEER_ADDRESS: &str = "REMUDA_PEER_ADDRESS";
    /// Where the chosen listening address is written to.
    pub const ADDRESS_FILE: &str = "REMUDA_ADDRESS_FILE";
    /// Data directory.
    pub const DATA_DIR: &str = "REMUDA_DATA_DIR";
    /// Where objects are stored.
    pub const DATASTORE: &str = "REMUDA_DATASTORE";
    /// Certificate authority of an etcd datastore.
    pub const DATASTORE_CA: &str = "REMUDA_DATASTORE_CA";
    /// Client certificate for an etcd datastore.
    pub const DATASTORE_CERT: &str = "REMUDA_DATASTORE_CERT";
    /// Key of the client certificate for an etcd datastore.
    pub const DATASTORE_KEY: &str = "REMUDA_DATASTORE_KEY";
    /// File with the secret that servers on one etcd have in common.
    pub const SHARED_SECRET_FILE: &str = "REMUDA_SHARED_SECRET_FILE";
    /// That secret itself. It has no flag: command lines can be read by anybody.
    pub const SHARED_SECRET: &str = "REMUDA_SHARED_SECRET";
    /// When the server backs itself up.
    pub const BACKUP_SCHEDULE: &str = "REMUDA_BACKUP_SCHEDULE";
    /// Where these backups go.
    pub const BACKUP_TO: &str = "REMUDA_BACKUP_TO";
    /// How many of them are kept.
    pub const BACKUP_RETENTION: &str = "REMUDA_BACKUP_RETENTION";
    /// The S3 store they go to: host and port.
    pub const BACKUP_S3_ENDPOINT: &str = "REMUDA_BACKUP_S3_ENDPOINT";
    /// Its region.
    pub const BACKUP_S3_REGION: &str = "REMUDA_BACKUP_S3_REGION";
    /// File with the authorities of its certificate.
    pub const BACKUP_S3_CA: &str = "REMUDA_BACKUP_S3_CA";
    /// How the name of the bucket gets into its addresses.
    pub const BACKUP_S3_LOOKUP: &str = "REMUDA_BACKUP_S3_LOOKUP";
    /// File with the keys to it.
    pub const BACKUP_S3_KEYS: &str = "REMUDA_BACKUP_S3_KEYS";
    /// The keys themselves. They have no flags: command lines can be read by anybody.
    pub const BACKUP_S3_ACCESS_KEY: &str = "REMUDA_BACKUP_S3_ACCESS_KEY";
    pub const BACKUP_S3_SECRET_KEY: &str = "REMUDA_BACKUP_S3_SECRET_KEY";
    pub const BACKUP_S3_SESSION_TOKEN: &str = "REMUDA_BACKUP_S3_SESSION_TOKEN";
    /// Serving certificate brought by the operator.
    pub const TLS_CERT: &str = "REMUDA_TLS_CERT";
    /// Key of the serving certificate brought by the operator.
    pub const TLS_KEY: &str = "REMUDA_TLS_KEY";
    /// Further names and addresses in the generated serving certificate, separated by commas.
    pub const TLS_SAN: &str = "REMUDA_TLS_SAN";
    /// Log filter.
    pub const LOG_LEVEL: &str = "REMUDA_LOG_LEVEL";
    /// Log format.
    pub const LOG_FORMAT: &str = "REMUDA_LOG_FORMAT";
    /// Audit log file.
    pub const AUDIT_LOG: &str = "REMUDA_AUDIT_LOG";
    /// Size at which the audit log is rotated, in MiB.
    pub const AUDIT_LOG_MAX_SIZE: &str = "REMUDA_AUDIT_LOG_MAX_SIZE";
    /// Rotated audit logs that are kept.
    pub const AUDIT_LOG_MAX_BACKUPS: &str = "REMUDA_AUDIT_LOG_MAX_BACKUPS";
    /// Audit policy file.
    pub const AUDIT_POLICY: &str = "REMUDA_AUDIT_POLICY";
    /// Who pushes an image to a registry.
    pub const REGISTRY_USERNAME: &str = "REMUDA_REGISTRY_USERNAME";
    /// Their password. It has no flag: command lines can be read by anybody.
    pub const REGISTRY_PASSWORD: &str = "REMUDA_REGISTRY_PASSWORD";
    /// Static token file.
    pub const TOKEN_FILE: &str = "REMUDA_TOKEN_FILE";
    /// Whether requests without credentials are let in as `system:anonymous`.
    pub const ANONYMOUS_AUTH: &str = "REMUDA_ANONYMOUS_AUTH";
    /// Issuer of service-account tokens.
    pub const SERVICE_ACCOUNT_ISSUER: &str = "REMUDA_SERVICE_ACCOUNT_ISSUER";
    /// Audiences the API accepts in service-account tokens, separated by commas.
    pub const API_AUDIENCES: &str = "REMUDA_API_AUDIENCES";
    /// Connections open at one time.
    pub const MAX_CONNECTIONS: &str = "REMUDA_MAX_CONNECTIONS";
    /// Reading requests under way at one time.
    pub const MAX_REQUESTS_INFLIGHT: &str = "REMUDA_MAX_REQUESTS_INFLIGHT";
    /// Writing requests under way at one time.
    pub const MAX_MUTATING_REQUESTS_INFLIGHT: &str = "REMUDA_MAX_MUTATING_REQUESTS_INFLIGHT";
    /// Bytes in one request body.
    pub const MAX_REQUEST_BYTES: &str = "REMUDA_MAX_REQUEST_BYTES";
    /// Machines that are made or removed at one time.
    pub const MAX_MACHINE_JOBS: &str = "REMUDA_MAX_MACHINE_JOBS";
    /// The same for those of one driver and credential.
    pub const MAX_MACHINE_JOBS_PER_CREDENTIAL: &str = "REMUDA_MAX_MACHINE_JOBS_PER_CREDENTIAL";
    /// Whether machines on a root server's host are kept apart from it. Also tells jobs of machines.
    pub const LOCAL_MACHINES: &str = "REMUDA_LOCAL_MACHINES";
    /// The file with what is known of K3s and RKE2 releases.
    pub const RELEASE_DATA: &str = "REMUDA_RELEASE_DATA";
    /// The file with registries that are mirrored for machines.
    pub const REGISTRY_CONFIG: &str = "REMUDA_REGISTRY_CONFIG";
    /// Whether the server runs its controllers.
    pub const CONTROLLERS: &str = "REMUDA_CONTROLLERS";
    /// Proxies, as most programs read them. Jobs of machines get those of the server.
    pub const PROXIES: &[&str] = &["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"];
}

/// Files. Relative ones are below the data directory.
pub mod file {
    /// Read by the server when it exists and no other file is named.
    pub const DEFAULT_CONFIG: &str = "/etc/remuda/config.yaml";
    /// Data directory of a server that runs as root.
    pub const ROOT_DATA_DIR: &str = "/var/lib/remuda";
    /// Held locked by whichever process works on the data directory; contains its process id.
    pub const LOCK: &str = "remuda.lock";
    /// Which format the data directory has, on its first line as `format 1`. Written by servers, read by them and by
    /// the Debian package before it is unpacked.
    pub const FORMAT: &str = "format";
    /// The embedded store.
    pub const STORE: &str = "store";
    /// Keys that encrypt Secrets at rest.
    pub const KEYRING: &str = "encryption.keys";
    /// Certificates and keys.
    pub const PKI: &str = "pki";
    /// Certificate authority; agents and clients pin it.
    pub const CA_CERT: &str = "pki/ca.crt";
    /// Key of the certificate authority.
    pub const CA_KEY: &str = "pki/ca.key";
    /// Generated serving certificate.
    pub const SERVER_CERT: &str = "pki/server.crt";
    /// Key of the generated serving certificate.
    pub const SERVER_KEY: &str = "pki/server.key";
    /// Signs service-account tokens.
    pub const SERVICE_ACCOUNT_KEY: &str = "pki/service-account.key";
    /// Full rights on this server; written at each start, read by kubectl.
    pub const ADMIN_KUBECONFIG: &str = "admin.kubeconfig";
    /// The server a user has logged in to, in the configuration directory of their user; read by commands.
    pub const REMEMBERED_SERVER: &str = "server.kubeconfig";
    /// Programs for machines of other architectures than the server's.
    pub const ASSETS: &str = "assets";
    /// Images of the cluster agent, made when somebody asks for one.
    pub const AGENT_IMAGES: &str = "agent-images";
    /// Bundles of images for machines; people put them there.
    pub const BUNDLES: &str = "bundles";
    /// Images for machines that were fetched from registries.
    pub const IMAGE_CACHE: &str = "image-cache";
    /// Short-lived files, emptied at start.
    pub const SCRATCH: &str = "tmp";
}

/// HTTP paths that are ours, beside those of the Kubernetes API.
pub mod path {
    /// Everything below is served by the server itself.
    pub const PREFIX: &str = "/remuda/v1/";
    /// POST answers with a backup file. Authorised as a non-resource URL.
    pub const BACKUP: &str = "/remuda/v1/backup";
    /// POST makes a new encryption key and re-encrypts everything with it.
    pub const ROTATE_KEYS: &str = "/remuda/v1/rotate-keys";
    /// In front of a path of the Kubernetes API: GET answers with what the caller may see of it.
    pub const VISIBLE: &str = "/remuda/v1/visible/";
    /// GET answers with the newest lines of the audit log. Authorised as a non-resource URL.
    pub const AUDIT: &str = "/remuda/v1/audit";
    /// A WebSocket: a shell in a container of a cluster, emulated by the server for pages of the dashboard.
    pub const TERMINAL: &str = "/remuda/v1/terminal";
    /// Programs for machines of other architectures: GET lists them, POST adds one. Authorised as a non-resource URL.
    pub const ASSETS: &str = "/remuda/v1/assets";
    /// GET answers with what machines of a cluster need for their next plan, and whether they can get it.
    pub const PREFLIGHT: &str = "/remuda/v1/preflight";
    /// Releases of our Cluster API providers, as `clusterctl` reads them.
    pub const CLUSTERCTL: &str = "/remuda/v1/clusterctl";
    /// Releases and channels of K3s, as clients of Rancher ask for them.
    pub const K3S_RELEASES: &str = "/v1-k3s-release";
    /// The same of RKE2.
    pub const RKE2_RELEASES: &str = "/v1-rke2-release";
    /// Prometheus metrics of the API and the process.
    pub const METRICS: &str = "/metrics";
    /// The web dashboard.
    pub const DASHBOARD: &str = "/dashboard";
}

/// Annotations that are ours.
pub mod annotation {
    /// On CRDs and inventory the server keeps as it ships them; its number grows with what is shipped.
    /// Written and read by the server at start. Taken away, the object belongs to whoever took it.
    pub const SHIPPED: &str = "remuda.io/shipped";
    /// On webhook configurations and CRDs of providers of Cluster API: what their clients were before they were pointed
    /// at a program, as JSON by the names of the webhooks. Written and read by `remuda capi provider run`.
    pub const PROVIDER_WEBHOOKS: &str = "remuda.io/provider-webhooks";
    /// On plan Secrets: the removal of this machine's etcd member has begun. Until the machine is gone the
    /// planner neither relies on the member nor takes down another one in its place.
    pub const ETCD_LEAVING: &str = "remuda.io/etcd-member-leaving";
    /// On a Node: why the member on it cannot be removed from etcd. Written by whoever manages members there, read
    /// by the server that asked for it.
    pub const ETCD_REMOVAL_REFUSED: &str = "remuda.io/etcd-removal-refused";
    /// On what belongs to an RKEBootstrap: digest of what was applied. Written and read by its controller, which
    /// then knows after a restart that nothing has to be applied.
    pub const APPLIED: &str = "remuda.io/applied";
    /// On pools of addresses: what is promised to claims whose IPAddress is not made yet, as
    /// `{"NAMESPACE/NAME/UID": "ADDRESS"}`. Written and read by the controllers of claims and pools; it is what keeps
    /// two servers from giving one address twice.
    pub const PROMISED_ADDRESSES: &str = "remuda.io/promised-addresses";
    /// On Machines of servers that registered themselves: `true` leaves on the server what was installed there when
    /// the Machine is deleted. Written by people.
    pub const KEEP_HOST: &str = "remuda.io/keep-host";
    /// On RKEClusters: the Machine whose address the endpoint is, if the user gave none. Written and read by their
    /// controller, which takes another Machine when that one goes.
    pub const ENDPOINT_OF: &str = "remuda.io/endpoint-of";
    /// On notes of removed servers: when that was.
    pub const REMOVED_AT: &str = "remuda.io/removed-at";
    /// On plan Secrets: checksum of the plan that cleans a server whose Machine goes. Written and read by the
    /// controller of CustomMachines, which so knows its own plan whatever the cluster says by then.
    pub const LAST_PLAN: &str = "remuda.io/last-plan";
    /// On MachineDeployments and MachineSets: how many Machines that failed are kept to look at, and for how long,
    /// as `{"max": 1, "for": "24h"}`. Written by people.
    pub const PRESERVE_FAILED: &str = "remuda.io/preserve-failed";
    /// On Machines that failed and were replaced: until when they are kept. Written by their MachineSet, which does
    /// not count them; people may change the time, or take it away.
    pub const PRESERVED_UNTIL: &str = "remuda.io/preserved-until";
    /// On MachineDeployments and MachineSets: what is tried with unhealthy Machines before they are replaced, as
    /// `restart-service=5m,reboot=10m`. Written by people.
    pub const REMEDIATION_STEPS: &str = "remuda.io/remediation-steps";
    /// On Machines: when the service of the distribution was to be restarted last. Written by their MachineSet or
    /// people, read by the planner; another value asks again.
    pub const RESTART_REQUESTED: &str = "remuda.io/restart-requested";
    /// On Machines: when their server was to be rebooted last. Written by their MachineSet or people, read by the
    /// machine provider; another value asks again.
    pub const REBOOT_REQUESTED: &str = "remuda.io/reboot-requested";
    /// On machines of drivers, and on the Jobs that reboot them: the request that was carried out. Written and read by
    /// the
    /// machine provider.
    pub const REBOOTED: &str = "remuda.io/rebooted";
    /// On Machines: whether their server is to run: a constant of [`power`](crate::power). Written as the planner
    /// decides, read by the machine provider. On machines of drivers, and on the Jobs that stop and start them: what
    /// was carried out.
    pub const POWER: &str = "remuda.io/power";
    /// On Clusters of Cluster API: when their machines were started again. How long nodes were not healthy is counted
    /// from then on. Written as the planner decides.
    pub const WOKEN: &str = "remuda.io/woken";
}

/// Whether a server is to run.
pub mod power {
    pub const STOPPED: &str = "stopped";
    pub const RUNNING: &str = "running";
}

/// Notes of servers that were removed from a cluster: Secrets beside its registration tokens.
pub mod removed {
    /// The note of a server, by the name of its former Machine.
    pub fn name(machine: &str) -> String {
        format!("removed-{machine}")
    }
}

/// Users and groups the server issues certificates for.
pub mod user {
    /// Group of the server's own controllers. Only requests from inside the process are in it: credentials and
    /// impersonation that name it are refused.
    pub const CONTROLLERS: &str = "system:remuda:controllers";
    /// User names of the server's controllers: this, and the name of the component.
    pub const CONTROLLER_PREFIX: &str = "system:remuda:controller:";
    /// Common name in the administrator's client certificate.
    pub const ADMIN: &str = "kubernetes-admin";
    /// Group that is allowed everything, as in Kubernetes.
    pub const MASTERS: &str = "system:masters";
}

/// How servers that share a datastore find each other.
pub mod peer {
    /// Where their Leases are.
    pub const NAMESPACE: &str = "kube-system";
    /// Names of Leases: this, and what is unique of the process.
    pub const LEASE_PREFIX: &str = "remuda-server-";
    /// Label on them, `true`.
    pub const LABEL: &str = "remuda.io/server";
    /// Annotation on them: address and port for other servers.
    pub const ADDRESS: &str = "remuda.io/peer-address";
}

pub mod agent;
pub mod capi;
pub mod cluster_agent;
pub mod conditions;
pub mod driver;
pub mod endpoint;
pub mod fuzz;
pub mod gateway;
pub mod identity;
pub mod list_api;
pub mod machines;
pub mod node;
pub mod provisioning;
pub mod rancher;
pub mod sandbox;
pub mod waiting;
pub mod webhook;

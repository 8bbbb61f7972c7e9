//! `remuda generate`: manifests from a few flags.

mod pool;

use clap::{Args, Subcommand, ValueEnum};
use remuda_distro::{
    Distro,
    wanted::{Alias, Wanted},
};
use remuda_names::rancher::{group, name};
use serde_json::{Map, Value, json};

use crate::{
    api,
    failure::Failure,
    object::Object,
    output::{self, Format, Out},
};

pub use self::pool::{PoolRoles, PoolShape};

#[derive(Args, Debug)]
pub struct Generate {
    #[command(subcommand)]
    pub command: GenerateCommand,
}

#[derive(Subcommand, Debug)]
pub enum GenerateCommand {
    /// Print the manifest of a cluster, to be changed and applied
    #[command(after_help = "Examples:
  remuda generate cluster demo
  remuda generate cluster demo --servers 3 --workers 5 --distribution rke2
  remuda generate cluster prod --driver digitalocean --credential cattle-global-data:do \\
    --pool name=servers,roles=server,count=3,config.size=s-2vcpu-4gb \\
    --pool name=workers,roles=worker,count=5,config.size=s-4vcpu-8gb
  remuda generate cluster edge --custom            servers register themselves
  remuda generate cluster demo | kubectl apply -f -")]
    Cluster(Box<GenerateCluster>),
}

#[derive(Args, Debug)]
pub struct GenerateCluster {
    /// Name of the cluster
    pub name: String,

    #[command(flatten)]
    pub shape: ClusterShape,

    /// Namespace of the cluster
    #[arg(long, short, default_value = name::FLEET_DEFAULT)]
    pub namespace: String,

    /// How to print it
    #[arg(long, short, value_enum, default_value_t = Format::Yaml)]
    pub output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Distribution {
    K3s,
    Rke2,
}

/// The version a cluster gets that says nothing else.
const DEFAULT_VERSION: &str = "v1.35.1";

impl Distribution {
    pub(crate) fn distro(self) -> Distro {
        match self {
            Distribution::K3s => Distro::K3s,
            Distribution::Rke2 => Distro::Rke2,
        }
    }

    pub(crate) fn of(version: &str) -> Distribution {
        match Distro::of(version) {
            Distro::K3s => Distribution::K3s,
            Distro::Rke2 => Distribution::Rke2,
        }
    }
}

/// What a new cluster is like.
#[derive(Args, Debug, Clone, Default)]
pub struct ClusterShape {
    /// What runs on the machines [default: k3s]
    #[arg(long, value_enum, help_heading = "Cluster")]
    pub distribution: Option<Distribution>,

    /// Its version, such as v1.35.1+k3s1, 1.35.1, 1.35 or stable
    #[arg(long, visible_alias = "kubernetes-version", value_name = "VERSION", help_heading = "Cluster")]
    pub version: Option<String>,

    /// An argument of the distribution for all machines, such as disable=[servicelb]; can be repeated
    #[arg(long = "arg", value_name = "NAME=VALUE", help_heading = "Cluster")]
    pub arguments: Vec<String>,

    /// Machines with etcd and control plane [default: 1]
    #[arg(long, value_name = "N", conflicts_with = "pools", help_heading = "Machines")]
    pub servers: Option<u32>,

    /// Machines for workloads; without any, servers carry them [default: 0]
    #[arg(long, value_name = "N", conflicts_with = "pools", help_heading = "Machines")]
    pub workers: Option<u32>,

    /// A pool: name=…,roles=all|server|etcd+controlplane+worker,count=…[,driver=…][,config.FIELD=…]; can be repeated
    #[arg(long = "pool", value_name = "POOL", help_heading = "Machines")]
    pub pools: Vec<PoolShape>,

    /// Who makes the machines of pools that do not say [default: local]
    #[arg(long, value_name = "DRIVER", help_heading = "Machines")]
    pub driver: Option<String>,

    /// A field of the machine configuration of all pools; can be repeated
    #[arg(long, value_name = "FIELD=VALUE", help_heading = "Machines")]
    pub machine_config: Vec<String>,

    /// Secret with the credentials of the provider: cattle-global-data:NAME
    #[arg(long, value_name = "SECRET", help_heading = "Machines")]
    pub credential: Option<String>,

    /// No machines are made: servers register themselves
    #[arg(
        long,
        conflicts_with_all = ["pools", "servers", "workers", "driver", "machine_config", "credential"],
        help_heading = "Machines"
    )]
    pub custom: bool,
}

pub(crate) fn run(command: &GenerateCommand) -> Result<(), Failure> {
    let GenerateCommand::Cluster(arguments) = command;
    let objects = arguments.shape.manifest(&arguments.name, &arguments.namespace)?;
    for warning in warnings(&objects) {
        output::note(&format!("warning: {warning}"));
    }
    print(&Out::Terminal, &objects, arguments.output)
}

/// Prints objects so that they can be applied.
pub(crate) fn print(out: &Out, objects: &[Object], format: Format) -> Result<(), Failure> {
    match format {
        Format::Json => {
            let items = objects.iter().map(|object| object.0.clone()).collect();
            out.document(&output::list(items), format)
        }
        Format::Name => {
            for object in objects {
                out.line(&format!("{}.{}/{}", object.kind().to_lowercase(), object.group(), object.name()));
            }
            Ok(())
        }
        _ => {
            let documents: Result<Vec<String>, Failure> = objects.iter().map(output::yaml).collect();
            out.text(&documents?.join("---\n"));
            Ok(())
        }
    }
}

impl ClusterShape {
    /// The objects of a cluster, in the order they are to be created: configurations of machines, then the
    /// Cluster, which is last.
    pub fn manifest(&self, cluster: &str, namespace: &str) -> Result<Vec<Object>, Failure> {
        check_cluster_name(cluster)?;
        api::check_name(namespace)?;
        let mut rke = Map::new();
        let arguments =
            self.arguments.iter().map(|text| argument(text)).collect::<Result<Map<_, _>, Failure>>()?;
        if !arguments.is_empty() {
            rke.insert("machineGlobalConfig".to_owned(), Value::Object(arguments));
        }
        let mut objects = Vec::new();
        if !self.custom {
            let pools = self.pools()?;
            let mut listed = Vec::new();
            for pool in &pools {
                let driver = pool.driver.as_deref().or(self.driver.as_deref()).unwrap_or("local");
                let kind = config_kind(driver)?;
                let config = format!("nc-{cluster}-{}", pool.name);
                let mut fields = fields(&self.machine_config)?;
                fields.extend(fields_of(&pool.config));
                let mut object = Map::new();
                object.insert("apiVersion".to_owned(), json!(format!("{}/v1", group::MACHINE_CONFIG)));
                object.insert("kind".to_owned(), json!(kind));
                object.insert("metadata".to_owned(), json!({"name": config, "namespace": namespace}));
                for (name, value) in fields {
                    if object.contains_key(&name) {
                        return Err(Failure::invalid(format!(
                            "{name} is no field of a machine configuration"
                        )));
                    }
                    object.insert(name, value);
                }
                objects.push(Object(Value::Object(object)));
                listed.push(pool.entry(&kind, &config));
            }
            rke.insert("machinePools".to_owned(), Value::Array(listed));
        }
        let mut spec = json!({"kubernetesVersion": self.version()?, "rkeConfig": rke});
        if let Some(credential) = &self.credential {
            spec["cloudCredentialSecretName"] = json!(credential);
        }
        objects.push(Object(json!({
            "apiVersion": format!("{}/v1", group::PROVISIONING),
            "kind": "Cluster",
            "metadata": {"name": cluster, "namespace": namespace},
            "spec": spec,
        })));
        Ok(objects)
    }

    fn version(&self) -> Result<String, Failure> {
        full_version(self.version.as_deref(), self.distribution)
    }

    fn pools(&self) -> Result<Vec<PoolShape>, Failure> {
        let pools = match self.pools.as_slice() {
            [] => pool::simple(self.servers.unwrap_or(1), self.workers.unwrap_or(0)),
            pools => pools.to_vec(),
        };
        pool::check(&pools)?;
        Ok(pools)
    }
}

/// A version with the distribution in it, from what people write. Channels and minor versions stay what they are:
/// the server knows what they stand for.
pub(crate) fn full_version(
    version: Option<&str>,
    distribution: Option<Distribution>,
) -> Result<String, Failure> {
    let given = version.unwrap_or(DEFAULT_VERSION);
    let number = given.strip_prefix('v').unwrap_or(given);
    let distro = distribution.unwrap_or(Distribution::K3s).distro();
    let whole = match Wanted::parse(given) {
        Some(Wanted::Alias { alias: alias @ (Alias::Channel(_) | Alias::Minor(_)), distro: named }) => {
            format!("{alias}+{}", named.unwrap_or(distro))
        }
        _ if number.contains('+') => format!("v{number}"),
        _ => format!("v{number}+{}", distro.first_build()),
    };
    if Wanted::parse(&whole).is_none() {
        let failure = Failure::invalid(format!("{given:?} is not a version"));
        return Err(failure.hint("write it as v1.35.1+k3s1, v1.35.1+rke2r1, 1.35.1, 1.35 or stable"));
    }
    if let Some(distribution) = distribution.filter(|distribution| *distribution != Distribution::of(&whole))
    {
        return Err(Failure::invalid(format!("{whole} is not a version of {}", distribution.distro())));
    }
    Ok(whole)
}

fn check_cluster_name(name: &str) -> Result<(), Failure> {
    let good = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    if name.len() < 2
        || name.len() > 63
        || name.starts_with('-')
        || name.ends_with('-')
        || !name.chars().all(good)
    {
        let failure = Failure::invalid(format!("{name:?} cannot be the name of a cluster"));
        return Err(
            failure.hint("use 2 to 63 lower-case letters, digits and dashes, and no dash at either end")
        );
    }
    Ok(())
}

/// The kind that configures machines of a driver.
fn config_kind(driver: &str) -> Result<String, Failure> {
    let mut letters = driver.chars();
    let good = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    match letters.next() {
        Some(first) if driver.len() <= 57 && driver.chars().all(good) => {
            Ok(format!("{}{}Config", first.to_ascii_uppercase(), letters.as_str()))
        }
        _ => Err(Failure::invalid(format!("{driver:?} cannot be the name of a driver"))
            .hint("drivers are written in lower case, such as local or digitalocean")),
    }
}

/// `NAME=VALUE`, where the value is YAML.
fn argument(text: &str) -> Result<(String, Value), Failure> {
    let wrong = |why: &str| Failure::invalid(format!("argument {text:?}: {why}"));
    let (name, value) = text.split_once('=').ok_or_else(|| wrong("write it as NAME=VALUE"))?;
    if name.is_empty() {
        return Err(wrong("it has no name"));
    }
    let value = if value.is_empty() {
        json!("")
    } else {
        serde_saphyr::from_str(value).map_err(|_| wrong("the value is not YAML"))?
    };
    Ok((name.to_owned(), value))
}

fn fields(texts: &[String]) -> Result<Map<String, Value>, Failure> {
    let pairs = texts.iter().map(|text| match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(Failure::invalid(format!("machine configuration {text:?}: write it as FIELD=VALUE"))),
    });
    let pairs = pairs.collect::<Result<Vec<_>, Failure>>()?;
    Ok(fields_of(&pairs))
}

/// Fields of drivers are text or booleans, and nothing else.
fn fields_of(pairs: &[(String, String)]) -> Map<String, Value> {
    let value = |text: &str| match text {
        "true" => json!(true),
        "false" => json!(false),
        text => json!(text),
    };
    pairs.iter().map(|(name, text)| (name.clone(), value(text))).collect()
}

/// What is allowed and probably not meant.
pub(crate) fn warnings(objects: &[Object]) -> Vec<String> {
    let Some(cluster) = objects.last() else { return Vec::new() };
    let pools = cluster.list("/spec/rkeConfig/machinePools").iter().map(crate::evidence::Pool);
    let etcd: i64 = pools.filter(|pool| pool.has_etcd()).map(crate::evidence::Pool::wanted).sum();
    match etcd {
        count if count > 1 && count % 2 == 0 => vec![format!(
            "{count} machines with etcd survive no more failures than {} do: use an odd number",
            count - 1
        )],
        count if count > 7 => vec![format!("etcd gets slower with every member, and {count} are many")],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;

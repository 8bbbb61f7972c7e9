//! What providers have that nobody here knows.
//!
//! Everything a driver of ours makes carries an identity that was recorded before it was made. What a provider
//! shows with an identity that no state Secret has is an orphan: somebody took a machine's state away, or restored
//! an older backup.
//!
//! Drivers that come with us can be asked, and so can scripts that have the method `list`. The protocol of
//! docker-machine has no such question, which is said rather than passed over.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams},
};
use remuda_api::management::NodeDriver;
use remuda_drivers::{
    builtin::{Context, Registry},
    driver::{Config, Driver, Owned},
    error::Error as DriverError,
    flags::Flags,
    install::{self, BUILT_IN, Program, Protocol, Source},
    log::Log,
};
use remuda_names::rancher::{name::GLOBAL_DATA, secret_key, secret_type};
use serde_json::Value;

use crate::{
    driver::{kinds::Role, name_of},
    error::{Error, is_missing},
    flags::{field_of, variable, variable_of},
    state,
};

/// Where to look.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Name of the NodeDriver, or of its driver.
    pub driver: String,
    /// Name of a Secret in `cattle-global-data`; without one, all that have credentials for the driver.
    pub credential: Option<String>,
    /// Flags that say where, such as a region; with the driver's name in front. Without them, everywhere that
    /// configurations of the driver name.
    pub flags: Vec<(String, String)>,
    /// Where programs of drivers are kept; without it they are not asked.
    pub cache: Option<PathBuf>,
}

/// What was found out about one driver.
#[derive(Debug)]
pub struct Findings {
    pub driver: String,
    /// What the provider was not asked about.
    pub caveat: Option<String>,
    /// By credential and place.
    pub reports: Vec<Report>,
}

/// What was found with one credential in one place.
#[derive(Debug)]
pub struct Report {
    /// Name of the credential; empty if the driver needs none.
    pub credential: String,
    /// Values of the flags that say where.
    pub place: Vec<(String, String)>,
    /// What nobody knows, or why the provider could not be asked.
    pub found: Result<Vec<Owned>, DriverError>,
}

/// Who answers for a driver.
enum Oracle {
    BuiltIn,
    Script(Program),
}

/// Asks a driver's provider for everything that is ours, and leaves out what is known.
///
/// The provider is asked first: what is made meanwhile has been recorded before.
pub async fn orphans(client: Client, drivers: &Registry, query: &Query, log: Log) -> Result<Findings, Error> {
    let node_driver = node_driver(&client, &query.driver).await?;
    let driver = node_driver.as_ref().map_or_else(|| query.driver.clone(), name_of);
    let mut findings = Findings { driver: driver.clone(), caveat: None, reports: Vec::new() };
    let oracle = match oracle(&driver, node_driver.as_ref(), drivers, query).await {
        Ok((oracle, caveat)) => {
            findings.caveat = caveat;
            oracle
        }
        Err(error) => {
            findings.reports.push(Report { credential: String::new(), place: Vec::new(), found: Err(error) });
            return Ok(findings);
        }
    };
    let settings = settings(&client, &driver).await?;
    for (credential, content) in credentials(&client, &driver, query).await? {
        let asking = Asking { driver: &driver, oracle: &oracle, drivers, variables: &content, log: &log };
        let places = match asking.places(&query.flags, &settings).await {
            Ok(places) => places,
            Err(error) => {
                findings.reports.push(Report { credential, place: Vec::new(), found: Err(error) });
                continue;
            }
        };
        for place in places {
            let found = asking.inventory(&place).await;
            findings.reports.push(Report { credential: credential.clone(), place, found });
        }
    }
    let known = identities(&client).await?;
    let mut told = BTreeSet::new();
    for report in &mut findings.reports {
        if let Ok(found) = &mut report.found {
            // Two places, or two credentials of one account, may show the same.
            found.retain(|owned| {
                !known.contains(&owned.identity) && told.insert((owned.identity.clone(), owned.id.clone()))
            });
        }
    }
    Ok(findings)
}

async fn node_driver(client: &Client, name: &str) -> Result<Option<NodeDriver>, Error> {
    let api: Api<NodeDriver> = Api::all(client.clone());
    let list = api.list(&ListParams::default()).await.map_err(Error::api("list", "NodeDrivers"))?;
    let (mut named, others): (Vec<_>, Vec<_>) =
        list.items.into_iter().partition(|one| one.name_any() == name);
    Ok(named.pop().or_else(|| others.into_iter().find(|one| name_of(one) == name)))
}

/// Who can be asked, and what they do not know.
async fn oracle(
    driver: &str,
    node_driver: Option<&NodeDriver>,
    drivers: &Registry,
    query: &Query,
) -> Result<(Oracle, Option<String>), DriverError> {
    let spec = node_driver.map(|node_driver| &node_driver.spec);
    let (url, checksum) = spec.map_or(("", ""), |spec| (spec.url.as_str(), spec.checksum.as_str()));
    let plugin = || {
        DriverError::unsupported(format!(
            "driver {driver} is a docker-machine plugin, and their protocol has no way to list machines"
        ))
    };
    if url.is_empty() || url.starts_with(BUILT_IN) {
        return match (drivers.has(driver), spec.is_some_and(|spec| spec.builtin)) {
            (true, _) => Ok((Oracle::BuiltIn, None)),
            (false, true) => {
                let message = format!("driver {driver} can be asked on the server's own host only");
                Err(DriverError::unsupported(message))
            }
            // One of rancher-machine's own.
            (false, false) => Err(plugin()),
        };
    }
    if install::protocol_of(url) != Some(Protocol::Plugin) {
        let cache = query.cache.as_deref().ok_or_else(|| {
            DriverError::other(format!("there is no place to keep the program of driver {driver}"))
        })?;
        let program = install::obtain(Source { url, checksum, cache }).await?;
        if program.protocol == Protocol::Exec {
            return Ok((Oracle::Script(program), None));
        }
    }
    match drivers.has(driver) {
        true => {
            let caveat = format!(
                "driver {driver} is a docker-machine plugin, and their protocol has no way to list machines; the \
                 built-in driver of that name was asked instead, which knows only what Remuda's own drivers made"
            );
            Ok((Oracle::BuiltIn, Some(caveat)))
        }
        false => Err(plugin()),
    }
}

/// What configurations and templates of a driver say, field by field.
async fn settings(client: &Client, driver: &str) -> Result<Vec<Value>, Error> {
    let mut all = Vec::new();
    for (role, at) in [(Role::Config, ""), (Role::Template, "/spec/template/spec")] {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &role.resource(driver));
        match api.list(&ListParams::default()).await {
            Ok(list) => all.extend(list.items.iter().filter_map(|one| one.data.pointer(at).cloned())),
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(Error::api("list", role.crd_name(driver))(error)),
        }
    }
    Ok(all)
}

/// One driver, asked with one credential.
struct Asking<'a> {
    driver: &'a str,
    oracle: &'a Oracle,
    drivers: &'a Registry,
    variables: &'a BTreeMap<String, String>,
    log: &'a Log,
}

impl Asking<'_> {
    async fn open(&self) -> Result<Arc<dyn Driver>, DriverError> {
        if let Oracle::Script(program) = self.oracle {
            return program.open(self.driver, Vec::new(), self.log.clone()).await;
        }
        let context = Context::new(self.log.clone()).with_variables(|name| variable(self.variables, name));
        let opened = self.drivers.open(self.driver, context);
        opened.ok_or_else(|| DriverError::unsupported(format!("driver {} is not built in", self.driver)))
    }

    /// Everywhere to look: where one is told to, else where machines may be.
    async fn places(
        &self,
        told: &[(String, String)],
        settings: &[Value],
    ) -> Result<Vec<Vec<(String, String)>>, DriverError> {
        let driver = self.open().await?;
        driver.flags().await?;
        let open = driver.places().into_iter().filter(|flag| !told.iter().any(|(known, _)| known == flag));
        let open: Vec<(String, String)> =
            open.filter_map(|flag| field_of(&flag).map(|field| (flag, field))).collect();
        let place = |setting: &Value| -> Vec<(String, String)> {
            let named = open.iter().filter_map(|(flag, field)| {
                let text = setting[field].as_str().filter(|text| !text.is_empty())?;
                Some((flag.clone(), text.to_owned()))
            });
            told.iter().cloned().chain(named).collect()
        };
        let places: BTreeSet<_> = settings.iter().map(place).collect();
        Ok(if places.is_empty() { vec![told.to_vec()] } else { places.into_iter().collect() })
    }

    async fn inventory(&self, place: &[(String, String)]) -> Result<Vec<Owned>, DriverError> {
        let driver = self.open().await?;
        if !driver.makes_servers() {
            return Ok(Vec::new());
        }
        let flags = driver.flags().await?;
        let mut values = Flags::defaults(&flags);
        values.apply_env(&flags, |name| variable(self.variables, name))?;
        for (name, text) in place {
            let flag = flags.iter().find(|flag| flag.name == *name);
            let flag =
                flag.ok_or_else(|| DriverError::other(format!("driver {} has no flag {name}", self.driver)))?;
            values.set(name.clone(), flag.parse(text)?);
        }
        driver.load(Config::named("orphans", "")).await?;
        driver.configure(values).await?;
        driver.inventory().await
    }
}

/// The content of each credential for a driver, as variables; one without any if there is none.
async fn credentials(
    client: &Client,
    driver: &str,
    query: &Query,
) -> Result<Vec<(String, BTreeMap<String, String>)>, Error> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), GLOBAL_DATA);
    let list = secrets.list(&ListParams::default()).await.map_err(Error::api("list", "cloud credentials"))?;
    let prefix = format!("{driver}credentialConfig-");
    let mut found = Vec::new();
    for secret in list {
        let name = secret.name_any();
        if query.credential.as_ref().is_some_and(|wanted| *wanted != name) {
            continue;
        }
        let values = secret.data.into_iter().flatten().filter(|(key, _)| key.starts_with(&prefix));
        let values: BTreeMap<String, String> = values
            .filter_map(|(key, value)| Some((variable_of(driver, &key), String::from_utf8(value.0).ok()?)))
            .collect();
        if !values.is_empty() {
            found.push((name, values));
        }
    }
    if found.is_empty() && query.credential.is_none() {
        found.push(Default::default());
    }
    Ok(found)
}

/// Every identity that is recorded.
async fn identities(client: &Client) -> Result<BTreeSet<String>, Error> {
    let secrets: Api<Secret> = Api::all(client.clone());
    let selector = format!("type={}", secret_type::MACHINE_STATE);
    let mut known = BTreeSet::new();
    let mut params = ListParams::default().fields(&selector).limit(200);
    loop {
        let list = secrets.list(&params).await.map_err(Error::api("list", "machine states"))?;
        for secret in list.items {
            let archive = secret.data.as_ref().and_then(|data| data.get(secret_key::EXTRACTED_CONFIG));
            match archive.map(|archive| state::facts(&archive.0)) {
                Some(Ok(Some(facts))) if !facts.identity.is_empty() => {
                    known.insert(facts.identity);
                }
                Some(Err(error)) => {
                    tracing::warn!(secret = secret.name_any(), %error, "state of a machine cannot be read");
                }
                _ => {}
            }
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(known),
        }
    }
}

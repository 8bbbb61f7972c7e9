//! What providers have that nobody here knows.
//!
//! Everything a driver of ours makes carries an identity that was recorded before it was made. What a provider
//! shows with an identity that no state Secret has is an orphan: somebody took a machine's state away, or restored
//! an older backup.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt, api::ListParams};
use remuda_drivers::{
    builtin::{Context, Registry},
    driver::{Config, Owned},
    error::Error as DriverError,
    flags::Flags,
    log::Log,
};
use remuda_names::rancher::{name::GLOBAL_DATA, secret_key, secret_type};

use crate::{
    error::Error,
    flags::{variable, variable_of},
    state,
};

/// Where to look.
#[derive(Debug, Clone, Default)]
pub struct Query {
    pub driver: String,
    /// Name of a Secret in `cattle-global-data`; without one, all that have credentials for the driver.
    pub credential: Option<String>,
    /// Flags that say where, such as a region; with the driver's name in front.
    pub flags: Vec<(String, String)>,
}

/// What was found with one credential.
#[derive(Debug)]
pub struct Report {
    /// Name of the credential; empty if the driver needs none.
    pub credential: String,
    /// What nobody knows, or why the provider could not be asked.
    pub found: Result<Vec<Owned>, DriverError>,
}

/// Asks a driver's provider for everything that is ours, and leaves out what is known.
///
/// The provider is asked first: what is made meanwhile has been recorded before.
pub async fn orphans(
    client: Client,
    drivers: &Registry,
    query: &Query,
    log: Log,
) -> Result<Vec<Report>, Error> {
    let credentials = credentials(&client, query).await?;
    let mut reports = Vec::new();
    for (credential, content) in credentials {
        let found = inventory(drivers, query, &content, log.clone()).await;
        reports.push(Report { credential, found });
    }
    let known = identities(&client).await?;
    for report in &mut reports {
        if let Ok(found) = &mut report.found {
            found.retain(|owned| !known.contains(&owned.identity));
        }
    }
    Ok(reports)
}

/// The content of each credential for a driver, as variables; one without any if there is none.
async fn credentials(
    client: &Client,
    query: &Query,
) -> Result<Vec<(String, BTreeMap<String, String>)>, Error> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), GLOBAL_DATA);
    let list = secrets.list(&ListParams::default()).await.map_err(Error::api("list", "cloud credentials"))?;
    let prefix = format!("{}credentialConfig-", query.driver);
    let mut found = Vec::new();
    for secret in list {
        let name = secret.name_any();
        if query.credential.as_ref().is_some_and(|wanted| *wanted != name) {
            continue;
        }
        let values = secret.data.into_iter().flatten().filter(|(key, _)| key.starts_with(&prefix));
        let values: BTreeMap<String, String> = values
            .filter_map(|(key, value)| {
                Some((variable_of(&query.driver, &key), String::from_utf8(value.0).ok()?))
            })
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

async fn inventory(
    drivers: &Registry,
    query: &Query,
    variables: &BTreeMap<String, String>,
    log: Log,
) -> Result<Vec<Owned>, DriverError> {
    let context = Context::new(log).with_variables(|name| variable(variables, name));
    let Some(driver) = drivers.open(&query.driver, context) else {
        return Err(DriverError::unsupported(format!("driver {} cannot list its machines", query.driver)));
    };
    if !driver.makes_servers() {
        return Ok(Vec::new());
    }
    let flags = driver.flags().await?;
    let mut values = Flags::defaults(&flags);
    values.apply_env(&flags, |name| variable(variables, name))?;
    for (name, text) in &query.flags {
        let flag = flags.iter().find(|flag| flag.name == *name);
        let flag =
            flag.ok_or_else(|| DriverError::other(format!("driver {} has no flag {name}", query.driver)))?;
        values.set(name.clone(), flag.parse(text)?);
    }
    driver.load(Config::named("orphans", "")).await?;
    driver.configure(values).await?;
    driver.inventory().await
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

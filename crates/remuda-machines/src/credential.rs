//! Whether a provider takes a cloud credential: it is asked a question that changes nothing.
//!
//! The question is [`orphans`](crate::orphans)': what of ours there is. Only drivers that come with us are asked, only those
//! that speak to a provider, and of the credential only the fields its driver lists: it may hold any variable of the
//! driver, and one of them could say where its API is.

use std::{collections::BTreeMap, time::Duration};

use remuda_drivers::{
    builtin::{Context, Registry},
    driver::Config,
    error::Error,
    flags::Flags,
};
use remuda_names::{
    driver::{Listing, facts},
    machines::class,
    rancher::annotation::driver::{OPTIONAL_CREDENTIALS, PRIVATE_CREDENTIALS, PUBLIC_CREDENTIALS},
};

use crate::flags::{variable, variable_of};

/// Longest value of a field.
const LONGEST: usize = 16 << 10;

/// Whether credentials of a driver can be tried from the server: where its API is, is known and not for people to say.
pub fn is_tried(drivers: &Registry, driver: &str) -> bool {
    drivers.has(driver) && facts(driver).class == class::CLOUD && !fields_of(driver).is_empty()
}

/// Fields that a driver lists for its credentials.
fn fields_of(driver: &str) -> Vec<&'static str> {
    let listed = facts(driver).listing.map(|Listing { annotations, .. }| annotations).unwrap_or_default();
    let kinds = [PUBLIC_CREDENTIALS, PRIVATE_CREDENTIALS, OPTIONAL_CREDENTIALS];
    let texts = listed.iter().filter(|(key, _)| kinds.contains(key)).map(|(_, text)| *text);
    texts.flat_map(|text| text.split(',')).filter(|field| !field.is_empty()).collect()
}

/// Asks the provider of a driver with the fields of a credential. Changes nothing there.
///
/// # Errors
/// What the provider refuses it with, as a machine would; that it does not answer within `patience`.
pub async fn try_out(
    drivers: &Registry,
    context: Context,
    driver: &str,
    fields: &BTreeMap<String, String>,
    patience: Duration,
) -> Result<(), Error> {
    let opened = Some(driver).filter(|driver| is_tried(drivers, driver));
    let opened = opened.and_then(|driver| drivers.open(driver, context));
    let opened = opened.ok_or_else(|| {
        Error::unsupported(format!("credentials of driver {driver} are not tried from the server"))
    })?;
    let listed = fields_of(driver);
    let given =
        fields.iter().filter(|(field, value)| listed.contains(&field.as_str()) && value.len() <= LONGEST);
    let variables: BTreeMap<String, String> =
        given.map(|(field, value)| (variable_of(driver, field), value.clone())).collect();
    let asking = async {
        let flags = opened.flags().await?;
        let mut values = Flags::defaults(&flags);
        values.apply_env(&flags, |name| variable(&variables, name))?;
        opened.load(Config::named("trial", "")).await?;
        opened.configure(values).await?;
        opened.inventory().await.map(drop)
    };
    tokio::time::timeout(patience, asking)
        .await
        .unwrap_or_else(|_| Err(Error::timeout(format!("the provider did not answer within {patience:?}"))))
}

#[cfg(test)]
mod tests {
    use remuda_drivers::{
        error::Class,
        fake::{Fake, Fault, digitalocean::DigitalOcean},
        log::Log,
    };

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn fields(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(field, value)| ((*field).to_owned(), (*value).to_owned())).collect()
    }

    #[tokio::test]
    async fn a_provider_is_asked_and_nothing_is_made() {
        let cloud = Fake::start(DigitalOcean::new("right")).await.unwrap();
        let drivers = Registry::standard();
        let check = async |fields: BTreeMap<String, String>, patience| {
            let mut context = Context::new(Log::tracing());
            context.digitalocean = cloud.url();
            try_out(&drivers, context, "digitalocean", &fields, patience).await
        };
        check(fields(&[("accessToken", "right")]), SOON).await.unwrap();
        let wrong = check(fields(&[("accessToken", "wrong-canary")]), SOON).await.unwrap_err();
        assert_eq!(wrong.class(), Class::Credentials, "{wrong}");
        assert!(!wrong.to_string().contains("canary"), "{wrong}");
        let none = check(BTreeMap::new(), SOON).await.unwrap_err();
        assert!(none.to_string().contains("access-token"), "{none}");
        assert_eq!(cloud.api.resources(), [""; 0]);
        // One that does not answer is not waited for.
        cloud.fault(cloud.calls().len(), Fault::Hang);
        let slow = check(fields(&[("accessToken", "right")]), Duration::from_millis(200)).await.unwrap_err();
        assert_eq!(slow.class(), Class::Timeout, "{slow}");
    }

    /// A credential does not say where the server connects to.
    #[tokio::test]
    async fn only_what_the_driver_lists_counts() {
        let public = Fake::start(DigitalOcean::new("right")).await.unwrap();
        let hostile = Fake::start(DigitalOcean::new("right")).await.unwrap();
        let mut context = Context::new(Log::tracing());
        context.digitalocean = public.url();
        let fields =
            fields(&[("accessToken", "right"), ("apiUrl", &hostile.url()), ("API_URL", &hostile.url())]);
        try_out(&Registry::standard(), context, "digitalocean", &fields, SOON).await.unwrap();
        assert_eq!(hostile.calls().len(), 0);
        assert!(!public.calls().is_empty());
        for driver in ["proxmoxve", "generic", "local", "sky"] {
            assert!(!is_tried(&Registry::standard(), driver), "{driver}");
            let refused =
                try_out(&Registry::standard(), Context::new(Log::tracing()), driver, &fields, SOON).await;
            assert!(refused.unwrap_err().to_string().contains("not tried"), "{driver}");
        }
        for driver in ["amazonec2", "azure", "digitalocean", "google", "hetzner"] {
            assert!(is_tried(&Registry::standard(), driver), "{driver}");
        }
    }
}

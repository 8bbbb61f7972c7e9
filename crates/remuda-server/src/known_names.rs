//! Names by which agents know this server: its certificate has them, on whichever host it runs.
//!
//! Reads   the setting `server-url`.
//! Writes  nothing: the certificate is made anew with a name that is missing.

use std::sync::{Arc, Weak};

use http::Uri;
use kube::ResourceExt;
use remuda_api::management::Setting;
use remuda_control::{Ctx, Informer, Scope};
use remuda_names::rancher::setting::SERVER_URL;
use tokio_util::sync::CancellationToken;

use crate::serving::Serving;

/// Controllers may be dropped late, and the lock of the data directory must not wait for them: hence `Weak`.
pub(crate) async fn run(ctx: Arc<Ctx>, serving: Weak<Serving>, stop: CancellationToken) {
    let settings: Informer<Setting> = ctx.informers.of(Scope::all());
    let _settings = settings.subscribe(move |change| {
        let Some(serving) = serving.upgrade() else { return };
        let urls = change.new.iter().filter(|setting| setting.name_any() == SERVER_URL);
        let urls = urls.flat_map(|setting| [setting.value.clone(), setting.default.clone()]);
        urls.filter_map(|url| host(&url)).for_each(|host| serving.known_as(&host));
    });
    stop.cancelled().await;
}

/// The host of a URL, without the brackets of an IPv6 address.
fn host(url: &str) -> Option<String> {
    let uri: Uri = url.trim().parse().ok()?;
    let host = uri.host()?;
    Some(host.trim_start_matches('[').trim_end_matches(']').to_owned())
}

#[cfg(test)]
mod tests {
    use super::host;

    #[test]
    fn the_host_of_a_url_is_what_a_certificate_names() {
        let hosts =
            ["https://a.example:8443/x", "https://[fd00::1]:1", " https://10.0.0.1 ", "", "a b"].map(host);
        assert_eq!(
            hosts,
            [
                Some("a.example".to_owned()),
                Some("fd00::1".to_owned()),
                Some("10.0.0.1".to_owned()),
                None,
                None
            ]
        );
    }
}

//! Settings of this server, as they are now.

use jiff::SignedDuration;
use remuda_api::management::Setting;
use remuda_control::{Informer, ObjectKey};
use remuda_names::rancher::setting;
use remuda_planner::input;

/// The value that holds; empty if there is no such setting.
pub fn value(settings: &Informer<Setting>, name: &str) -> String {
    text(settings, name).trim().to_owned()
}

/// The same to the last character, where a checksum is made of it.
pub(crate) fn text(settings: &Informer<Setting>, name: &str) -> String {
    let found = settings.get(&ObjectKey::cluster_wide(name));
    found.map(|setting| setting.effective().to_owned()).unwrap_or_default()
}

/// What reaches plans.
pub fn of_plans(settings: &Informer<Setting>) -> input::Settings {
    let defaults = input::Settings::default();
    let image = value(settings, setting::INSTALLER_IMAGE);
    let secrets = value(settings, setting::SYSTEM_DEFAULT_REGISTRY_PULL_SECRETS);
    let secrets = secrets.split(',').map(str::trim).filter(|name| !name.is_empty());
    input::Settings {
        installer_image: if image.is_empty() { defaults.installer_image } else { image },
        system_default_registry: value(settings, setting::SYSTEM_DEFAULT_REGISTRY),
        pull_secrets: secrets.map(str::to_owned).collect(),
        prime: value(settings, setting::PRIME_DEFAULT) == "true",
    }
}

/// A duration as Go writes it, such as `1h30m` or `1.5s`; `None` for anything else, and for negative ones.
pub(crate) fn duration(text: &str) -> Option<SignedDuration> {
    remuda_base::duration::parse(text.trim()).and_then(|duration| SignedDuration::try_from(duration).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_go_writes_them() {
        let seconds = |text: &str| duration(text).map(|duration| duration.as_secs_f64());
        assert_eq!(seconds("30m"), Some(1800.0));
        assert_eq!(seconds("1h30m0s"), Some(5400.0));
        assert_eq!(seconds("1.5s"), Some(1.5));
        assert_eq!(seconds("250ms"), Some(0.25));
        assert_eq!(seconds("0"), Some(0.0));
        for odd in ["", "5", "h", "-1h", "1d", "1h-2m", "..s", "9e9h", "1hé"] {
            assert_eq!(seconds(odd), None, "{odd}");
        }
        assert_eq!(duration(&format!("{}h", "9".repeat(400))), None);
    }
}

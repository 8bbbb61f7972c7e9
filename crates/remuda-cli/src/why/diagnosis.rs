//! What messages of providers, installers and hosts usually mean.

/// Words that are all in a message in lower case, and what to do about it. The first that fits is taken.
const KNOWN: &[(&[&str], &str)] = &[
    (
        &["no space left on device"],
        "the disk is full: make room on the machine, or give its pool a larger disk",
    ),
    (&["disk quota exceeded"], "the disk is full: make room on the machine, or give its pool a larger disk"),
    (
        &["user namespaces"],
        "this host does not let ordinary users make namespaces: run as root, or allow it with \
         `sysctl -w kernel.unprivileged_userns_clone=1` (on Ubuntu also \
         `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`)",
    ),
    (
        &["unshare", "not permitted"],
        "this host does not let ordinary users make namespaces: run as root, or allow it with \
         `sysctl -w kernel.unprivileged_userns_clone=1` (on Ubuntu also \
         `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`)",
    ),
    (&["toomanyrequests"], "the registry limits how often it is asked: wait, log in to it, or use a mirror"),
    (&["rate limit"], "the provider limits how often it is asked: wait, it is tried again"),
    (&["quota"], "the account's quota is used up: delete something there, or ask the provider for more"),
    (
        &["limit exceeded"],
        "a limit of the account is reached: delete something there, or ask the provider for more",
    ),
    (
        &["limitexceeded"],
        "a limit of the account is reached: delete something there, or ask the provider for more",
    ),
    (
        &["insufficientinstancecapacity"],
        "the provider has no such machines left there: choose another size or zone in the pool's configuration",
    ),
    (
        &["manifest unknown"],
        "the registry has no such image: check the version of the cluster and the registry",
    ),
    (
        &["manifest not found"],
        "the registry has no such image: check the version of the cluster and the registry",
    ),
    (&["pull access denied"], "the registry wants credentials: give them in spec.rkeConfig.registries"),
    (&["exec format error"], "the program is for another architecture than the machine's"),
    (
        &["x509"],
        "the certificate is not trusted there: check the CA of the server or registry, and the clock",
    ),
    (
        &["certificate has expired"],
        "a certificate has expired: check the clock of the machine, then renew it",
    ),
    (&["unauthorized"], "the credentials are refused: check the cloud credential of the pool"),
    (&["authfailure"], "the credentials are refused: check the cloud credential of the pool"),
    (&["unable to authenticate"], "the credentials are refused: check the cloud credential of the pool"),
    (&["invalid credential"], "the credentials are refused: check the cloud credential of the pool"),
    (&["access denied"], "the credentials are refused: check the cloud credential of the pool"),
    (&["accessdenied"], "the credentials are refused: check the cloud credential of the pool"),
    (&["invalid image"], "there is no such image there: correct it in the pool's configuration"),
    (&["image not found"], "there is no such image there: correct it in the pool's configuration"),
    (&["invalidamiid"], "there is no such image there: correct it in the pool's configuration"),
    (&["no such host"], "a name cannot be resolved: check DNS where this was written"),
    (&["name resolution"], "a name cannot be resolved: check DNS where this was written"),
    (
        &["connection refused"],
        "nobody listens at that address: check that it is right and reachable from there",
    ),
    (&["no route to host"], "that address cannot be reached from there: check routes and firewalls"),
    (&["network is unreachable"], "that address cannot be reached from there: check routes and firewalls"),
    (&["i/o timeout"], "no answer came from that address: check routes and firewalls"),
    (&["deadline exceeded"], "it took too long: check routes and firewalls, and how busy the other side is"),
    (&["connection timed out"], "no answer came from that address: check routes and firewalls"),
    (&["permission denied"], "something is not allowed there: check rights and file modes"),
];

/// What is looked at of a message; more of it is repetition.
const LOOKED_AT: usize = 64 * 1024;

/// What the machine provider calls the kinds of failures (`status.failureClass`), and what to do about each.
const CLASSES: &[(&str, &str)] = &[
    (
        "quota",
        "a limit of the account or of the provider is reached: delete something there, or ask for more",
    ),
    ("credentials", "the credentials are refused: check the cloud credential of the pool"),
    ("image", "the image cannot be used: correct it in the pool's configuration"),
    (
        "network",
        "the provider or the machine could not be reached: check routes, firewalls and the provider's status",
    ),
    ("timeout", "it took longer than it may: see how far the log goes; it is tried again"),
    ("driver-crash", "the driver's program ended or spoke nonsense: check its version, or use another one"),
];

/// What to do about a webhook that could not be asked, if a message of the API says so. Those of the core provider of
/// Cluster API are `<what>.<kind>.cluster.x-k8s.io`, or of one of its other groups; providers have groups of their own.
pub(super) fn unserved_webhook(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("failed calling webhook \"")?;
    let (name, _) = rest.split_once('"')?;
    let core = name.strip_suffix(".cluster.x-k8s.io").is_some_and(|rest| {
        let own = ["addons", "ipam", "runtime"].iter().any(|group| rest.ends_with(&format!(".{group}")));
        own || rest.matches('.').count() == 1
    });
    Some(if core {
        "remuda capi reclaim".to_owned()
    } else {
        format!(
            "let webhook {name} answer, or delete its webhook configuration; that of a provider of Cluster API is answered by \
             remuda capi provider run, and remuda capi provider list says which provider"
        )
    })
}

/// What to do about a message, if that is known. Whoever wrote a hint into it knows best.
pub(super) fn advice(text: &str) -> Option<String> {
    let start = text.len().saturating_sub(LOOKED_AT);
    let start = (start..=text.len()).find(|start| text.is_char_boundary(*start))?;
    let text = &text[start..];
    if let Some((_, hint)) = text.rsplit_once("hint: ") {
        let hint = hint.lines().next().unwrap_or_default().trim();
        if !hint.is_empty() && hint.len() < 400 {
            return Some(hint.to_owned());
        }
    }
    // Kubernetes' word for any Job that failed: it says nothing of a limit at the provider.
    let lower = text.to_ascii_lowercase().replace("backofflimitexceeded", "");
    let fits = |(words, _): &&(&[&str], &str)| words.iter().all(|word| lower.contains(word));
    KNOWN.iter().find(fits).map(|(_, advice)| (*advice).to_owned())
}

/// What to do about a failure of a kind.
pub(super) fn advice_on_class(class: &str) -> Option<String> {
    CLASSES.iter().find(|(name, _)| *name == class).map(|(_, advice)| (*advice).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_that_is_not_served_is_told_from_a_refusal() {
        let failed = |name: &str| {
            format!(
                "create Cluster: Internal error occurred: failed calling webhook \"{name}\": failed to call webhook: \
                Post \"https://x\": service \"x\" not found"
            )
        };
        let reclaim = Some("remuda capi reclaim".to_owned());
        assert_eq!(unserved_webhook(&failed("default.cluster.cluster.x-k8s.io")), reclaim);
        assert_eq!(
            unserved_webhook(&failed("validation.clusterresourceset.addons.cluster.x-k8s.io")),
            reclaim
        );
        let other =
            unserved_webhook(&failed("validation.dockercluster.infrastructure.cluster.x-k8s.io")).unwrap();
        assert!(other.contains("validation.dockercluster") && other.contains("capi provider run"), "{other}");
        assert_eq!(unserved_webhook("admission webhook \"x\" denied the request: no"), None);
    }

    #[test]
    fn messages_of_providers_have_an_advice() {
        for (text, word) in [
            ("POST https://api.digitalocean.com/v2/droplets: 401 Unable to authenticate you", "credential"),
            ("creating Droplet will exceed your droplet limit, quota reached", "quota"),
            ("tar: write error: No space left on device", "disk"),
            ("MANIFEST UNKNOWN: manifest unknown", "registry"),
            ("dial tcp 10.0.0.1:443: connect: connection refused", "listens"),
            ("x509: certificate signed by unknown authority", "trusted"),
            ("unshare: Operation not permitted", "namespaces"),
        ] {
            assert!(advice(text).is_some_and(|advice| advice.contains(word)), "{text}: {:?}", advice(text));
        }
        assert_eq!(advice("all is well"), None);
        assert_eq!(advice("BackoffLimitExceeded: Job has reached the specified backoff limit"), None);
        assert_eq!(advice(""), None);
    }

    #[test]
    fn a_hint_in_a_message_is_the_advice() {
        let text = "local machines need namespaces (EPERM)\nhint: sudo sysctl -w user.max_user_namespaces=15000\nmore";
        assert_eq!(advice(text).as_deref(), Some("sudo sysctl -w user.max_user_namespaces=15000"));
    }

    #[test]
    fn classes_of_failures_have_an_advice() {
        assert!(advice_on_class("driver-crash").is_some_and(|advice| advice.contains("program")));
        assert_eq!(advice_on_class("other"), None);
        assert_eq!(advice("failed creating server in infrastructure provider: driver-crash: boo"), None);
    }

    #[test]
    fn only_the_end_of_a_long_message_counts_and_no_letter_is_cut() {
        let text = format!("quota {}", "ä".repeat(LOOKED_AT));
        assert_eq!(advice(&text), None);
    }
}

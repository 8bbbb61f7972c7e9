use super::*;
use crate::document;

const DOCUMENT: &[u8] = br#"{"K8sVersionInfo":{"ignored":1},"rke2":{
    "channels":[{"name":"default","latest":"v1.34.0+rke2r1"},{"name":"odd","latest":"v0.0.1"}],
    "appDefaults":[{"appName":"rancher","defaults":[{"appVersion":">= 2.9.0","defaultVersion":"1.33.x"},
        {"appVersion":">= 2.15.0","defaultVersion":"1.34.x"}]}],
    "releases":[
    {"version":"v1.35.1+rke2r1","minChannelServerVersion":"v2.15.0","maxChannelServerVersion":"v2.15.99",
     "serverArgs":{"cni":{"type":"array","options":["canal","calico"]},"prime":{"type":"boolean"}},
     "agentArgs":{"selinux":{"type":"boolean"}},
     "featureVersions":{"encryption-key-rotation":"2.0.0"},
     "charts":{"rke2-cilium":{"repo":"rancher-rke2-charts","version":"1.19.1"}}},
    {"version":"v1.34.0+rke2r1","serverArgs":{"old":{}},"agentArgs":{"older":null}}]},"k3s":null}"#;

fn read(document: &[u8]) -> Result<Catalog, String> {
    document::read(document, Source::File("f".into()), None).map_err(|error| error.to_string())
}

#[test]
fn the_shipped_table_is_whole() {
    let catalog = table::read(table::SHIPPED).unwrap();
    assert!(catalog.date.is_some());
    for distro in Distro::ALL {
        let releases = catalog.of(distro);
        assert!(releases.list().len() >= 40, "{distro}: {}", releases.list().len());
        assert_eq!(releases.minors().len(), 4, "{distro}");
        for minor in releases.minors() {
            assert!(releases.end_of_life(minor).is_some(), "{distro} {minor}");
        }
        for release in releases.list() {
            assert_eq!(Distro::reported(&release.version), Some(distro), "{}", release.version);
            assert!(release.facts().is_usable() && !release.images.is_empty(), "{}", release.version);
            assert_eq!(&*release.features["encryption-key-rotation"], "2.0.0", "{}", release.version);
            assert_eq!(catalog.find(&release.version).map(|found| &found.version), Some(&release.version));
            assert_eq!(
                release.facts().argument("protect-kernel-defaults", false).map(Argument::is_boolean),
                Some(true)
            );
            assert_eq!(release.facts().argument("garbage", true), None);
        }
        for (name, version) in releases.channels() {
            assert!(releases.find(version).is_some(), "{distro}: channel {name} is {version}");
        }
    }
    let rke2 = catalog.find("v1.35.7+rke2r1").unwrap();
    assert_eq!(&*rke2.charts["rke2-canal"], "v3.32.1-build2026072200");
    assert_eq!(&*rke2.images["rke2-runtime"], "v1.35.7-rke2r1");
}

#[test]
fn the_shipped_table_is_small() {
    assert!(table::SHIPPED.len() < 256 << 10, "{}", table::SHIPPED.len());
}

#[test]
fn what_releases_have_in_common_is_kept_once() {
    let catalog = Catalog::shipped();
    let mut distinct: Vec<*const Arguments> = Vec::new();
    for release in catalog.k3s.list().iter().chain(catalog.rke2.list()) {
        for args in [&release.server_args, &release.agent_args] {
            distinct.push(Arc::as_ptr(args));
        }
    }
    let all = distinct.len();
    distinct.sort();
    distinct.dedup();
    assert!(distinct.len() * 4 < all, "{} of {all}", distinct.len());
}

#[test]
fn a_document_of_others_is_read_and_checked() {
    let catalog = read(DOCUMENT).unwrap();
    let facts = catalog.facts("v1.35.1+rke2r1");
    assert_eq!(facts.argument("prime", true).map(Argument::is_boolean), Some(true));
    assert_eq!(facts.argument("prime", false), None);
    assert_eq!(facts.argument("selinux", false).map(Argument::is_boolean), Some(true));
    assert_eq!(facts.argument("old", true), None);
    assert_eq!(&*facts.features["encryption-key-rotation"], "2.0.0");
    assert_eq!(catalog.rke2.channel("stable"), Some("v1.34.0+rke2r1"), "the last default counts");
    assert_eq!(catalog.rke2.channel("latest"), Some("v1.35.1+rke2r1"));
    assert_eq!(catalog.rke2.channel("odd"), None, "it names no release");
    assert_eq!(catalog.k3s.channel("stable"), None);
    assert!(!catalog.facts("v1.35.1+k3s1").is_usable());

    let error = |document: &[u8]| read(document).expect_err("it is not good");
    assert_eq!(error(&DOCUMENT[..DOCUMENT.len() - 12]), "not a JSON document");
    assert_eq!(error(br#"{"k3s":{"releases":[]}}"#), "it names no release of K3s or RKE2");
    assert_eq!(error(br#"{"k3s":{"releases":[{"version":"1"}]}}"#), r#"release "1": not a version"#);
    assert_eq!(
        error(br#"{"k3s":{"releases":[{"version":"v1.35.1+rke2r1"}]}}"#),
        r#"release "v1.35.1+rke2r1": not of the distribution it is listed under"#
    );
    assert_eq!(
        error(br#"{"k3s":{"releases":[{"version":"v1.35.1+k3s1"}]}}"#),
        r#"release "v1.35.1+k3s1": neither it nor any other names its arguments"#
    );
    assert!(error(b"<html>").starts_with("not a YAML document"), "{}", error(b"<html>"));
}

#[test]
fn a_yaml_file_is_of_one_distribution_and_may_repeat_itself_by_anchors() {
    let catalog = read(
        b"channels:\n- name: stable\n  latest: v1.35.1+k3s1\n\
          releases:\n\
          - version: v1.35.0+k3s1\n  serverArgs: &s\n    tls-san:\n      type: array\n  agentArgs: &a\n    debug:\n      type: boolean\n\
          - version: v1.35.1+k3s1\n  serverArgs:\n    <<: *s\n    prime:\n      type: boolean\n  agentArgs: *a\n",
    )
    .unwrap();
    let facts = catalog.facts("v1.35.1+k3s1");
    assert!(facts.argument("tls-san", true).is_some() && facts.argument("prime", true).is_some());
    assert_eq!(catalog.k3s.channel("stable"), Some("v1.35.1+k3s1"));
}

#[test]
fn an_unknown_version_gets_the_arguments_of_all_without_features() {
    let catalog = read(DOCUMENT).unwrap();
    let custom = catalog.facts("v9.9.9+custom");
    assert_eq!(custom.argument("old", true).map(Argument::is_boolean), Some(false));
    assert!(custom.argument("prime", true).is_some() && custom.argument("older", false).is_some());
    assert!(custom.features.is_empty());
}

#[test]
fn what_is_written_of_a_release_can_be_read_again() {
    let shipped = Catalog::shipped();
    let written =
        |distro: Distro| -> Vec<Value> { shipped.of(distro).list().iter().map(document::written).collect() };
    let text = serde_json::json!({"k3s": {"releases": written(Distro::K3s)}, "rke2": {"releases": written(Distro::Rke2)}});
    let read = read(text.to_string().as_bytes()).unwrap().completed_by(&shipped);
    for distro in Distro::ALL {
        for (read, release) in read.of(distro).list().iter().zip(shipped.of(distro).list()) {
            assert_eq!(read.facts(), release.facts(), "{}", release.version);
        }
    }
    assert_eq!(read.end_of_life("v1.35.1+k3s1"), shipped.end_of_life("v1.35.1+k3s1"));
    let reduced = document::reduce(DOCUMENT).unwrap();
    assert!(reduced.len() < DOCUMENT.len());
    assert_eq!(super::tests::read(&reduced).unwrap().rke2.list().len(), 2);
}

#[test]
fn a_release_is_past_its_end_the_day_after_it() {
    let catalog = Catalog::shipped();
    let day = |text: &str| text.parse().unwrap();
    assert!(!catalog.is_past_end_of_life("v1.33.5+k3s1", day("2026-06-28")));
    assert!(catalog.is_past_end_of_life("v1.33.5+k3s1", day("2026-06-29")));
    assert!(catalog.is_past_end_of_life("v1.33.99+rke2r1", day("2026-06-29")), "unknown patches too");
    assert!(!catalog.is_past_end_of_life("v1.99.0+rke2r1", day("2026-06-29")));
}

#[test]
fn what_a_document_leaves_out_is_taken_from_elsewhere() {
    let shipped = Catalog::shipped();
    let catalog = read(DOCUMENT).unwrap().completed_by(&shipped);
    assert!(catalog.facts("v1.35.1+k3s1").is_usable(), "a document of RKE2 leaves clusters of K3s alone");
    assert_eq!(catalog.rke2.list().len(), 2);
    assert_eq!(catalog.end_of_life("v1.34.0+rke2r1"), shipped.end_of_life("v1.34.0+rke2r1"));
}

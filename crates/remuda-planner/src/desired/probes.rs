//! What an agent checks to call its node healthy.

use std::collections::BTreeMap;

use super::{
    Renderer,
    config::{CONTROLLER_MANAGER, Component, Config, SCHEDULER},
    values,
};
use remuda_distro::Distro;

use crate::{
    distro,
    entry::Entry,
    node_plan::{HttpGet, Probe},
};

pub(super) fn probes(renderer: &Renderer<'_>, entry: &Entry<'_>, config: &Config) -> BTreeMap<String, Probe> {
    let spec = &renderer.input.control_plane.spec;
    let host = distro::loopback(&spec.networking);
    let data = &renderer.data_dir;
    let mut probes = BTreeMap::new();
    let mut add = |name: &str, get: HttpGet| {
        probes.insert(name.to_owned(), probe(get));
    };
    let plain =
        |port: u16, path: &str| HttpGet { url: format!("http://{host}:{port}/{path}"), ..HttpGet::default() };
    if entry.roles.etcd && renderer.distro == Distro::Rke2 {
        add("etcd", plain(2381, "health"));
    }
    if entry.roles.control_plane {
        let tls = format!("{data}/server/tls");
        add(
            "kube-apiserver",
            HttpGet {
                url: format!("https://{host}:6443/readyz"),
                ca_cert: format!("{tls}/server-ca.crt"),
                client_cert: format!("{tls}/client-kube-apiserver.crt"),
                client_key: format!("{tls}/client-kube-apiserver.key"),
                insecure: false,
            },
        );
        for component in [CONTROLLER_MANAGER, SCHEDULER] {
            add(component.name, secure(&component, config, host, data));
        }
    }
    if !(entry.roles.only_etcd() && renderer.distro == Distro::K3s) {
        add("kubelet", plain(10248, "healthz"));
    }
    let cni = spec.machine_global_config.get("cni").map(values::text).unwrap_or_default();
    let calico = renderer.distro == Distro::Rke2 && ["", "calico", "calico+multus"].contains(&cni.as_str());
    if calico && !entry.roles.only_etcd() && !entry.windows {
        add("calico", plain(9099, "liveness"));
    }
    probes
}

fn probe(http_get: HttpGet) -> Probe {
    Probe {
        name: String::new(),
        initial_delay_seconds: 1,
        timeout_seconds: 5,
        success_threshold: 1,
        failure_threshold: 5,
        http_get,
    }
}

/// The component signs its certificate itself, so the certificate is its own authority.
fn secure(component: &Component, config: &Config, host: &str, data_dir: &str) -> HttpGet {
    let args = values::texts(config.get(component.arg));
    let or = |own: &str, default: &str| if own.is_empty() { default.to_owned() } else { own.to_owned() };
    let port = or(values::argument(&args, "secure-port"), component.port);
    let dir = or(values::argument(&args, "cert-dir"), &component.cert_dir(data_dir));
    let certificate = or(values::argument(&args, "tls-cert-file"), &format!("{dir}/{}.crt", component.name));
    HttpGet { url: format!("https://{host}:{port}/healthz"), ca_cert: certificate, ..HttpGet::default() }
}

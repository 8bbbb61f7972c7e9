//! Release data of this server: who may read it and where it comes from.
//!
//! ```text
//! setting rke-metadata-config ─ refresh ─► ConfigMap (the last good document) ─► every server
//! --release-data FILE ─────────────────────────────────────────────────────────► this server
//! what comes with the program ─────────────────────────────────────────────────► if there is nothing else
//! ```

mod fetch;
pub(crate) mod file;
mod refresh;
mod setting;

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{HeaderValue, Response, header};
use remuda_distro::{
    Catalog, Current, Distro, document,
    release::Release,
    version::{self, Minor},
};
use remuda_door::{Access, Answer, Body, Call, Cookie, Door, Handler, Opening, Owned, Refusal, Shown};
use remuda_names::path;
use serde_json::{Value, json};

pub(crate) use self::refresh::run;
pub(crate) use self::setting::Admission;

/// What is behind it is no secret, and no business of strangers.
pub(crate) static RELEASES: Door = Door {
    name: "releases",
    purpose: "releases of K3s and RKE2, and their channels",
    paths: &[Owned::Tree(path::K3S_RELEASES), Owned::Tree(path::RKE2_RELEASES)],
    methods: &["GET"],
    access: Access::Authenticated,
    cookie: Cookie::Proof,
    shown: Shown::Path,
    body: 0,
    personal: true,
};

/// Lists of releases and channels, as clients of Rancher ask for them.
pub(crate) struct Lists(pub(crate) Current);

impl Lists {
    pub(crate) fn opening(self) -> Opening {
        Opening { door: &RELEASES, handler: Arc::new(self) }
    }
}

impl Handler for Lists {
    fn handle(&self, call: Call, _: Body) -> BoxFuture<'_, Answer> {
        let found = answer(&self.0.get(), call.path());
        Box::pin(async move {
            let body = found.ok_or_else(Refusal::not_found)?;
            let mut response = Response::new(Body::from(body.to_string()));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            Ok(response)
        })
    }
}

/// What a path leads to: `/v1-k3s-release/{releases,channels}[/<id>]`.
fn answer(catalog: &Catalog, path: &str) -> Option<Value> {
    let (distro, prefix, rest) = [(Distro::K3s, path::K3S_RELEASES), (Distro::Rke2, path::RKE2_RELEASES)]
        .into_iter()
        .find_map(|(distro, prefix)| Some((distro, prefix, path.strip_prefix(prefix)?)))?;
    let rest = rest.trim_matches('/');
    let (kind, id) = rest.split_once('/').unwrap_or((rest, ""));
    let releases = catalog.of(distro);
    // What is newest is what is looked for.
    let (kind, items): (&str, Vec<Value>) = match kind {
        "release" | "releases" => {
            ("release", releases.list().iter().rev().map(|one| release(catalog, one)).collect())
        }
        "channel" | "channels" => (
            "channel",
            releases.channels().iter().map(|(name, latest)| channel(catalog, name, latest)).collect(),
        ),
        _ => return None,
    };
    if !id.is_empty() {
        // A plus sign in a path may come as `%2B`.
        let id = percent_encoding::percent_decode_str(id).decode_utf8().ok()?;
        return items.into_iter().find(|item| item["id"] == *id);
    }
    Some(json!({
        "type": "collection",
        "resourceType": kind,
        "links": {"self": format!("{prefix}/{kind}s")},
        "source": catalog.source.to_string(),
        "date": catalog.date.map(|date| date.to_string()),
        "data": items,
    }))
}

fn release(catalog: &Catalog, release: &Release) -> Value {
    let mut item = document::written(release);
    item["id"] = json!(release.version);
    item["type"] = json!("release");
    if let Some(date) = release.date {
        item["released"] = json!(date.to_string());
    }
    if let Some(date) = catalog.end_of_life(&release.version) {
        item["endOfLife"] = json!(date.to_string());
    }
    item
}

fn channel(catalog: &Catalog, name: &str, latest: &str) -> Value {
    let mut item = json!({"id": name, "type": "channel", "name": name, "latest": latest});
    let minor = Minor::parse(name).or_else(|| version::parse(latest).map(|version| Minor::of(&version)));
    let end = minor.and_then(|minor| catalog.of(Distro::of(latest)).end_of_life(minor));
    if let Some(date) = end {
        item["endOfLife"] = json!(date.to_string());
    }
    item
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_the_shape_clients_look_for() {
        let catalog = Catalog::shipped();
        let found = answer(&catalog, "/v1-k3s-release/channels").unwrap();
        let latest = |id: &str| {
            found["data"].as_array().unwrap().iter().find(|item| item["id"] == id).unwrap()["latest"].clone()
        };
        assert_eq!(found["resourceType"], "channel");
        assert_eq!(latest("default"), latest("stable"));
        assert_eq!(latest("v1.35"), "v1.35.7+k3s1");
        assert_eq!(found["date"], "2026-08-21");

        let found = answer(&catalog, "/v1-rke2-release/releases").unwrap();
        let first = &found["data"][0];
        assert_eq!(first["id"], "v1.36.3+rke2r1");
        assert_eq!(first["serverArgs"]["cni"]["type"], "array");
        assert_eq!(first["charts"]["rke2-cilium"]["repo"], "rancher-rke2-charts");
        assert_eq!(first["featureVersions"]["encryption-key-rotation"], "2.0.0");
        assert_eq!(first["endOfLife"], "2027-06-28");

        for one in ["/v1-k3s-release/releases/v1.35.1+k3s1", "/v1-k3s-release/releases/v1.35.1%2Bk3s1"] {
            assert_eq!(answer(&catalog, one).unwrap()["id"], "v1.35.1+k3s1", "{one}");
        }
        assert_eq!(answer(&catalog, "/v1-rke2-release/channels/stable").unwrap()["latest"], "v1.35.7+rke2r1");
        for nothing in ["/v1-k3s-release", "/v1-k3s-release/x", "/v1-k3s-release/releases/v0.0.0", "/"] {
            assert_eq!(answer(&catalog, nothing), None, "{nothing}");
        }
    }
}

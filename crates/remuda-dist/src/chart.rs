//! The Helm chart: a server with a volume, or several on etcd.

use anyhow::Context;
use flate2::Compression;

use crate::tree::Tree;

/// Files of the chart by their paths in it.
pub const FILES: [(&str, &str); 10] = [
    ("Chart.yaml", include_str!("../chart/Chart.yaml")),
    ("values.yaml", include_str!("../chart/values.yaml")),
    ("values.schema.json", include_str!("../chart/values.schema.json")),
    ("templates/_helpers.tpl", include_str!("../chart/templates/_helpers.tpl")),
    ("templates/config.yaml", include_str!("../chart/templates/config.yaml")),
    ("templates/server.yaml", include_str!("../chart/templates/server.yaml")),
    ("templates/service.yaml", include_str!("../chart/templates/service.yaml")),
    ("templates/serviceaccount.yaml", include_str!("../chart/templates/serviceaccount.yaml")),
    ("templates/disruption.yaml", include_str!("../chart/templates/disruption.yaml")),
    ("templates/NOTES.txt", include_str!("../chart/templates/NOTES.txt")),
];

/// Where the version of the program is put in.
const VERSION: &str = "0.0.0-unreleased";

/// The archive `helm install` takes.
pub(crate) fn package(version: &str, time: u64) -> anyhow::Result<Vec<u8>> {
    let mut tree = Tree::default();
    for (path, content) in FILES {
        tree.add(format!("remuda/{path}"), content.replace(VERSION, version));
    }
    tree.packed(time, Compression::best()).context("write the chart")
}

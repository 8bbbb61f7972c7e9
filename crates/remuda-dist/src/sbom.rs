//! What the program is made of, as CycloneDX 1.5.
//!
//! From `cargo tree`, which knows which optional dependencies are linked, and from Cargo.lock, which knows digests.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
};

use anyhow::{Context, bail};
use remuda_names::PROGRAM;
use serde_json::{Value, json};

/// A crate that is linked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
}

impl Package {
    fn url(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version)
    }
}

/// Crates, their licences, and what each needs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tree {
    root: Option<Package>,
    licences: BTreeMap<Package, String>,
    needs: BTreeMap<Package, BTreeSet<Package>>,
}

/// The list of a program that is built for a target from the workspace in `root`.
pub(crate) fn list(root: &Path, target: &str) -> anyhow::Result<Value> {
    let mut command = Command::new("cargo");
    command.current_dir(root).args(["tree", "--locked", "--package", PROGRAM, "--edges", "normal"]);
    command.args(["--prefix", "depth", "--format", " {p}|{l}", "--target", target]);
    let output = command.output().context("start cargo tree")?;
    if !output.status.success() {
        bail!("cargo tree ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let tree = parse(&String::from_utf8(output.stdout).context("read the output of cargo tree")?)?;
    let lock = root.join("Cargo.lock");
    let lock = std::fs::read_to_string(&lock).with_context(|| format!("read {}", lock.display()))?;
    document(&tree, &digests(&lock), target)
}

/// Lines such as `2 serde v1.0.0 (proc-macro)|MIT (*)`, the number being the depth.
fn parse(text: &str) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    let mut above: Vec<Package> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let strange = || format!("cargo tree printed {line:?}");
        let (depth, rest) = line.split_once(' ').with_context(strange)?;
        let depth: usize = depth.parse().with_context(strange)?;
        let (package, licence) = rest.split_once('|').with_context(strange)?;
        let mut words = package.split(' ');
        let (Some(name), Some(version)) = (words.next(), words.next()) else { bail!(strange()) };
        let version = version.strip_prefix('v').with_context(strange)?;
        let package = Package { name: name.to_owned(), version: version.to_owned() };
        above.truncate(depth);
        match above.last() {
            Some(parent) => {
                tree.needs.entry(parent.clone()).or_default().insert(package.clone());
            }
            None => tree.root = Some(package.clone()),
        }
        tree.needs.entry(package.clone()).or_default();
        let licence = licence.trim_end_matches("(*)").trim();
        tree.licences.insert(package.clone(), licence.to_owned());
        above.push(package);
    }
    Ok(tree)
}

/// SHA-256 of the archives of crates, from Cargo.lock.
fn digests(lock: &str) -> BTreeMap<Package, String> {
    let mut digests = BTreeMap::new();
    for part in lock.split("[[package]]").skip(1) {
        let value = |key: &str| {
            let line = part.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""));
            line.and_then(|line| line.strip_suffix('"')).map(str::to_owned)
        };
        if let (Some(name), Some(version), Some(digest)) =
            (value("name"), value("version"), value("checksum"))
        {
            digests.insert(Package { name, version }, digest);
        }
    }
    digests
}

fn document(tree: &Tree, digests: &BTreeMap<Package, String>, target: &str) -> anyhow::Result<Value> {
    let root = tree.root.as_ref().context("cargo tree printed nothing")?;
    let component = |package: &Package| {
        let url = package.url();
        let kind = if package == root { "application" } else { "library" };
        let mut component = json!({"type": kind, "bom-ref": url, "name": package.name, "version": package.version, "purl": url});
        // An old way to write a choice, which is no expression of SPDX.
        let licence = tree.licences.get(package).map(|licence| licence.replace('/', " OR "));
        if let Some(licence) = licence.filter(|licence| !licence.is_empty()) {
            component["licenses"] = json!([{"expression": licence}]);
        }
        if let Some(digest) = digests.get(package) {
            component["hashes"] = json!([{"alg": "SHA-256", "content": digest}]);
        }
        component
    };
    let components: Vec<Value> =
        tree.needs.keys().filter(|package| *package != root).map(component).collect();
    let dependencies: Vec<Value> = tree
        .needs
        .iter()
        .map(|(package, needs)| {
            let needs: Vec<String> = needs.iter().map(Package::url).collect();
            json!({"ref": package.url(), "dependsOn": needs})
        })
        .collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": component(root),
            "properties": [{"name": "remuda:target", "value": target}],
        },
        "components": components,
        "dependencies": dependencies,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "0 remuda v0.1.0 (/somewhere/crates/remuda)|Apache-2.0\n\
        1 a v1.0.0|MIT/Apache-2.0\n\
        2 b v2.0.0 (proc-macro)|MIT\n\
        1 b v2.0.0 (proc-macro)|MIT (*)\n\
        1 c v0.1.0|\n";
    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"x\"\n\
        checksum = \"aa\"\n\n[[package]]\nname = \"remuda\"\nversion = \"0.1.0\"\n";

    #[test]
    fn what_is_linked_is_listed_with_licence_digest_and_needs() {
        let tree = parse(TREE).unwrap();
        let document = document(&tree, &digests(LOCK), "x86_64-unknown-linux-gnu").unwrap();
        assert_eq!(document["metadata"]["component"]["name"], "remuda");
        let components = document["components"].as_array().unwrap();
        assert_eq!(components.len(), 3);
        assert_eq!(components[0]["purl"], "pkg:cargo/a@1.0.0");
        assert_eq!(components[0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(components[0]["hashes"][0]["content"], "aa");
        assert_eq!(components[2].get("licenses"), None);
        let needs = |name: &str| {
            let all = document["dependencies"].as_array().unwrap();
            all.iter().find(|entry| entry["ref"] == name).unwrap()["dependsOn"].clone()
        };
        assert_eq!(needs("pkg:cargo/a@1.0.0"), json!(["pkg:cargo/b@2.0.0"]));
        let all = json!(["pkg:cargo/a@1.0.0", "pkg:cargo/b@2.0.0", "pkg:cargo/c@0.1.0"]);
        assert_eq!(needs("pkg:cargo/remuda@0.1.0"), all);
        // Paths of the build machine are left out.
        assert!(!document.to_string().contains("somewhere"));
    }

    #[test]
    fn other_output_is_an_error() {
        assert!(parse("nonsense\n").is_err());
        assert!(parse("0 remuda|x\n").is_err());
        assert!(super::document(&Tree::default(), &BTreeMap::new(), "x").is_err());
    }
}

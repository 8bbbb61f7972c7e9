use std::{
    collections::BTreeMap,
    io::{Cursor, Read},
};

use flate2::read::GzDecoder;
use serde_json::Value;

use super::*;
use crate::{
    Architecture,
    image::Parts,
    layer::{Entry, What},
};

fn parts(program: &std::path::Path) -> Parts {
    let file = Entry { mode: 0o755, what: What::File(program.to_owned()) };
    let tmp = Entry { mode: 0o1777, what: What::Directory };
    Parts {
        architecture: Architecture::Arm64,
        layers: vec![[("tmp".to_owned(), tmp)].into(), [("usr/bin/program".to_owned(), file)].into()],
        entrypoint: vec!["/usr/bin/program".to_owned()],
        command: vec!["run".to_owned()],
        env: Vec::new(),
        labels: BTreeMap::new(),
    }
}

/// An archive, and the files in it by name.
fn made(content: &[u8]) -> (Vec<u8>, BTreeMap<String, Vec<u8>>) {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("source");
    std::fs::write(&program, content).unwrap();
    let image = Image::build(&directory.path().join("layers"), &parts(&program)).unwrap();
    let mut bytes = Vec::new();
    write(&image, &Reference::parse("rancher/agent:v1").unwrap(), &mut bytes).unwrap();
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(Cursor::new(&bytes)).entries().unwrap() {
        let mut entry = entry.unwrap();
        assert_eq!((entry.header().mtime().unwrap(), entry.header().uid().unwrap()), (0, 0));
        let (name, mut content) = (entry.path().unwrap().to_string_lossy().into_owned(), Vec::new());
        entry.read_to_end(&mut content).unwrap();
        files.insert(name, content);
    }
    (bytes, files)
}

fn json(files: &BTreeMap<String, Vec<u8>>, name: &str) -> Value {
    serde_json::from_slice(&files[name]).unwrap()
}

/// The blob a descriptor names, which must have its digest and size.
fn blob_of<'a>(files: &'a BTreeMap<String, Vec<u8>>, descriptor: &Value) -> &'a [u8] {
    let digest = descriptor["digest"].as_str().unwrap();
    let content = &files[&format!("blobs/sha256/{}", digest.strip_prefix("sha256:").unwrap())];
    assert_eq!(Digest::of(content).to_string(), digest);
    assert_eq!(descriptor["size"].as_u64(), Some(content.len() as u64));
    content
}

#[test]
fn everything_in_an_archive_is_named_by_its_digest() {
    let (_, files) = made(b"a program");
    assert_eq!(json(&files, "oci-layout")["imageLayoutVersion"], "1.0.0");
    let index = json(&files, "index.json");
    let [descriptor] = index["manifests"].as_array().unwrap().as_slice() else { panic!("{index}") };
    assert_eq!(descriptor["annotations"]["io.containerd.image.name"], "docker.io/rancher/agent:v1");
    assert_eq!(descriptor["platform"]["architecture"], "arm64");
    let manifest: Value = serde_json::from_slice(blob_of(&files, descriptor)).unwrap();
    let config: Value = serde_json::from_slice(blob_of(&files, &manifest["config"])).unwrap();
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/bin/program");
    let layers = manifest["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 2);
    let mut seen = Vec::new();
    for (layer, diff_id) in layers.iter().zip(config["rootfs"]["diff_ids"].as_array().unwrap()) {
        let mut unpacked = Vec::new();
        GzDecoder::new(blob_of(&files, layer)).read_to_end(&mut unpacked).unwrap();
        assert_eq!(&Digest::of(&unpacked).to_string(), diff_id.as_str().unwrap());
        for entry in tar::Archive::new(Cursor::new(unpacked)).entries().unwrap() {
            let entry = entry.unwrap();
            let mode = entry.header().mode().unwrap();
            seen.push((entry.path().unwrap().to_string_lossy().into_owned(), mode));
        }
    }
    let expected = [("tmp/", 0o1777), ("usr/", 0o755), ("usr/bin/", 0o755), ("usr/bin/program", 0o755)];
    assert_eq!(seen, expected.map(|(name, mode)| (name.to_owned(), mode)));
    // The same, as Docker reads it.
    let docker = json(&files, "manifest.json");
    assert_eq!(docker[0]["RepoTags"][0], "docker.io/rancher/agent:v1");
    assert_eq!(files[docker[0]["Config"].as_str().unwrap()], config.to_string().into_bytes());
    for layer in docker[0]["Layers"].as_array().unwrap() {
        assert!(files.contains_key(layer.as_str().unwrap()), "{layer}");
    }
}

#[test]
fn the_same_parts_make_the_same_bytes_and_others_do_not() {
    let (first, _) = made(b"a program");
    let (again, _) = made(b"a program");
    assert!(first == again, "two archives of the same parts differ");
    let (other, _) = made(b"b program");
    assert!(first != other);
}

#[test]
fn a_layer_that_was_changed_on_disk_is_not_packed() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("source");
    std::fs::write(&program, b"a program").unwrap();
    let image = Image::build(&directory.path().join("layers"), &parts(&program)).unwrap();
    std::fs::write(&image.layers[1].path, b"cut").unwrap();
    let error = write(&image, &Reference::parse("a:v1").unwrap(), io::sink()).unwrap_err();
    assert!(error.to_string().contains("was changed on disk"), "{error}");
}

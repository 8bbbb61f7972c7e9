use std::fs;

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// A bundle of one image for amd64, and the digests of manifest, configuration and layer.
fn bundle(directory: &Path) -> (Bundle, [String; 3]) {
    let mut source = Source { made_by: "0.1.0".to_owned(), ..Source::default() };
    let mut add = |name: &str, content: &[u8]| {
        fs::write(directory.join(name), content).unwrap();
        source.add(directory.join(name)).unwrap()
    };
    let layer = add("layer", &[7; 5000]);
    let config_text = json!({"architecture": "amd64", "os": "linux"}).to_string();
    let config = add("config", config_text.as_bytes());
    let manifest = json!({
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"digest": config, "size": config_text.len()},
        "layers": [{"digest": layer, "size": 5000}],
    });
    let manifest = add("manifest", manifest.to_string().as_bytes());
    source.images.insert("docker.io/rancher/a:v1".to_owned(), manifest.clone());
    source.architectures.insert("amd64".to_owned());
    (write(&directory.join("a.bundle"), &source).unwrap(), [manifest, config, layer])
}

#[test]
fn what_was_put_in_comes_out() {
    let directory = tempfile::tempdir().unwrap();
    let (bundle, [manifest, _, layer]) = bundle(directory.path());
    bundle.verify(Some("amd64")).unwrap();
    assert_eq!(bundle.image(&Reference::parse("rancher/a:v1").unwrap()), Some(manifest.as_str()));
    assert_eq!(bundle.image(&Reference::parse("rancher/a:v2").unwrap()), None);
    let mut content = Vec::new();
    bundle.reader(bundle.place(&layer).unwrap()).unwrap().read_to_end(&mut content).unwrap();
    assert_eq!(content, [7; 5000]);
    let arm = bundle.verify(Some("arm64")).unwrap_err().to_string();
    assert!(arm.ends_with("image docker.io/rancher/a:v1 is not made for linux/arm64"), "{arm}");
    let again = fs::read(bundle.path()).unwrap();
    let (second, _) = self::bundle(directory.path());
    assert_eq!(again, fs::read(second.path()).unwrap());
}

#[test]
fn any_flipped_byte_is_refused_with_the_name_of_the_part() {
    let directory = tempfile::tempdir().unwrap();
    let (bundle, digests) = bundle(directory.path());
    let whole = fs::read(bundle.path()).unwrap();
    let path = directory.path().join("b.bundle");
    for digest in &digests {
        let place = bundle.place(digest).unwrap();
        for at in [place.offset, place.offset + place.size - 1] {
            let mut bytes = whole.clone();
            bytes[usize::try_from(at).unwrap()] ^= 1;
            fs::write(&path, bytes).unwrap();
            let error = Bundle::open(&path).unwrap().verify(None).unwrap_err().to_string();
            assert!(error.contains(digest) && error.ends_with("differs from its digest"), "{error}");
        }
    }
}

#[test]
fn missing_parts_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let (bundle, [_, _, layer]) = bundle(directory.path());
    let whole = fs::read(bundle.path()).unwrap();
    let path = directory.path().join("b.bundle");
    // The end of a file that was not copied to the end.
    let last = bundle.index().parts.keys().next_back().unwrap();
    let place = bundle.place(last).unwrap();
    fs::write(&path, &whole[..usize::try_from(place.offset + 1).unwrap()]).unwrap();
    let error = Bundle::open(&path).unwrap_err().to_string();
    assert!(error.contains(last.as_str()), "{error}");

    // A layer that is in no list: the manifest needs it.
    let mut source = Source::default();
    let manifest = source.add(directory.path().join("manifest")).unwrap();
    source.add(directory.path().join("config")).unwrap();
    source.images.insert("docker.io/rancher/a:v1".to_owned(), manifest);
    let error = write(&path, &source).unwrap_err().to_string();
    assert!(error.contains(&format!("{layer} of image docker.io/rancher/a:v1 is missing")), "{error}");
    assert!(!path.with_extension("bundle.pending").exists());
}

#[test]
fn what_is_no_bundle_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    for content in [&b""[..], b"hello", &[0; 4096], &[255; 4096]] {
        fs::write(&path, content).unwrap();
        let error = Bundle::open(&path).unwrap_err().to_string();
        assert!(error.contains("is not a bundle"), "{error}");
    }
    let index = |text: &str| parse(Path::new("x"), text.as_bytes()).unwrap_err();
    assert!(matches!(index("{\"format\": 9}"), BundleError::Newer { found: 9, .. }));
    let base = json!({"format": 1, "madeBy": "", "images": {}, "architectures": [], "parts": {}});
    let with = |name: &str, value: serde_json::Value| {
        let mut changed = base.clone();
        changed[name] = value;
        index(&changed.to_string()).to_string()
    };
    assert!(with("parts", json!({"../x": 1})).contains("is no digest"));
    assert!(
        with("images", json!({"busybox": "sha256:x"})).contains("is called docker.io/library/busybox:latest")
    );
    assert!(with("images", json!({"docker.io/library/busybox:1": "sha256:x"})).contains("is missing"));
    assert!(with("extra", json!(1)).contains("unknown field"));
}

proptest! {
    #[test]
    fn nothing_in_a_file_makes_reading_it_fail_badly(
        at in 0_usize..9000, value in any::<u8>(), length in 0_usize..9000,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let (bundle, _) = bundle(directory.path());
        let mut bytes = fs::read(bundle.path()).unwrap();
        let last = bytes.len() - 1;
        bytes[at.min(last)] = value;
        bytes.truncate(bytes.len().saturating_sub(length % 3000));
        fs::write(bundle.path(), bytes).unwrap();
        let _ = Bundle::open(bundle.path()).and_then(|bundle| bundle.verify(None));
    }
}

use std::io::Write;

use super::*;

/// Builds a layer from lines: `d path`, `f path content [mode]`, `l path target`, `h path target`, `p path`.
fn layer(text: &str) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split(' ').collect();
        let mut header = tar::Header::new_old();
        let raw = words[1].as_bytes();
        header.as_old_mut().name[..raw.len()].copy_from_slice(raw);
        let mut content = Vec::new();
        header.set_mode(0o644);
        let kind = match words[0] {
            "d" => EntryType::Directory,
            "l" => EntryType::Symlink,
            "h" => EntryType::Link,
            "p" => EntryType::Fifo,
            _ => {
                content = words[2].as_bytes().to_vec();
                if let Some(mode) = words.get(3) {
                    header.set_mode(u32::from_str_radix(mode, 8).unwrap());
                }
                EntryType::Regular
            }
        };
        header.set_entry_type(kind);
        if matches!(kind, EntryType::Symlink | EntryType::Link) {
            let raw = words[2].as_bytes();
            header.as_old_mut().linkname[..raw.len()].copy_from_slice(raw);
        }
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, content.as_slice()).unwrap();
    }
    builder.into_inner().unwrap()
}

struct Place {
    dir: tempfile::TempDir,
    root: PathBuf,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir(&root).unwrap();
        Self { dir, root }
    }

    fn unpack(&self, layers: &[&str]) -> Result<(), ExtractError> {
        let mut unpacker = Unpacker::new(&self.root)?;
        layers.iter().try_for_each(|text| unpacker.layer(layer(text).as_slice()))
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.root.join(name)).unwrap_or_else(|error| error.kind().to_string())
    }

    fn outside(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).unwrap().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).filter(|name| name != "root").collect()
    }
}

#[test]
fn files_directories_and_links_are_made() {
    let place = Place::new();
    place
        .unpack(&["d ./bin\nf bin/run hello 755\nf /abs/file x 6777\nf zero x 0\nl bin/sh run\nh bin/hard bin/run\np fifo"])
        .unwrap();
    assert_eq!(place.read("bin/sh"), "hello");
    assert_eq!(place.read("bin/hard"), "hello");
    assert_eq!(place.read("abs/file"), "x");
    let mode = |name: &str| fs::metadata(place.root.join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("abs/file"), mode("zero"), mode("bin")), (0o755, 0o755, 0o755));
    assert!(!place.root.join("fifo").exists());
}

#[test]
fn whiteouts_hide_what_lies_below_and_only_that() {
    let place = Place::new();
    place
        .unpack(&[
            "f a/one 1\nf a/two 2\nf b/old 1\nf b/c/deep 1\nf keep 1",
            "f a/.wh.one x\nf b/new 2\nf b/c/new 2\nf b/.wh..wh..opq x\nf a/.wh.never x",
        ])
        .unwrap();
    assert_eq!(place.read("a/one"), "entity not found");
    assert_eq!(place.read("a/two"), "2");
    assert_eq!(place.read("b/old"), "entity not found");
    assert_eq!(place.read("b/new"), "2");
    assert_eq!(place.read("b/c/new"), "2");
    assert_eq!(place.read("keep"), "1");
}

#[test]
fn higher_layers_replace_lower_ones_whatever_they_are() {
    let place = Place::new();
    place.unpack(&["f x 1\nd y\nf y/z 1\nl l x", "d x\nf x/in 2\nf y 2\nf l 2"]).unwrap();
    assert_eq!(place.read("x/in"), "2");
    assert_eq!(place.read("y"), "2");
    assert_eq!(place.read("l"), "2");
}

#[test]
fn links_on_the_way_are_followed_inside_the_directory() {
    let place = Place::new();
    place.unpack(&["d usr/lib\nl lib /usr/lib\nf lib/a 1\nl up ../../..\nf up/b 2\nh c up/b"]).unwrap();
    assert_eq!(place.read("usr/lib/a"), "1");
    assert_eq!(place.read("b"), "2");
    assert_eq!(place.read("c"), "2");
    assert!(place.outside().is_empty());
}

#[test]
fn nothing_is_written_outside() {
    let place = Place::new();
    let outside = place.dir.path().join("victim");
    fs::create_dir(&outside).unwrap();
    for text in ["f ../evil x", "f a/../../evil x", "h hard ../../etc/passwd"] {
        assert!(matches!(place.unpack(&[text]), Err(ExtractError::Escape(_))), "{text}");
    }
    // Links out of the directory lead to its inside.
    place
        .unpack(&[&format!("l out {}\nf out/x 1\nl dots ../victim\nf dots/y 1", outside.display())])
        .unwrap();
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    // A link is replaced, not written through.
    fs::write(outside.join("file"), "safe").unwrap();
    place.unpack(&[&format!("l f {}/file\nf f evil", outside.display())]).unwrap();
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "safe");
    // Whiteouts remove inside only.
    place.unpack(&["f .wh... x\nf .wh.. x\nf .wh. x"]).unwrap();
    assert!(place.root.exists() && outside.exists());
    assert!(matches!(place.unpack(&["l a b\nl b a\nf a/x 1"]), Err(ExtractError::Escape(_))));
}

#[test]
fn compression_is_told_by_the_first_bytes() {
    let plain = layer("f a hello");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).unwrap();
    let zstd =
        ruzstd::encoding::compress_to_vec(plain.as_slice(), ruzstd::encoding::CompressionLevel::Fastest);
    for packed in [plain.clone(), gzip.finish().unwrap(), zstd] {
        let place = Place::new();
        let path = place.dir.path().join("layer");
        fs::write(&path, packed).unwrap();
        layers(&[path], &place.root).unwrap();
        assert_eq!(place.read("a"), "hello");
    }
}

#[test]
fn broken_archives_are_errors() {
    let place = Place::new();
    let whole = layer("f a hello\nf b world");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&whole).unwrap();
    let gzip = gzip.finish().unwrap();
    for raw in
        [&whole[..700], &gzip[..gzip.len() / 2], b"\x1f\x8bgarbage", b"\x28\xb5\x2f\xfdgarbage", &[1; 2000]]
    {
        let path = place.dir.path().join("layer");
        fs::write(&path, raw).unwrap();
        assert!(layers(&[path], &place.root).is_err());
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    #[test]
    fn damaged_layers_neither_panic_nor_leave_the_directory(
        at in 0usize..4096,
        byte in proptest::prelude::any::<u8>(),
        cut in 0usize..4096,
    ) {
        let place = Place::new();
        let mut raw = layer("d a\nf a/b 1\nl a/c ../../x\nf a/c/d 2\nh e a/b\nf a/.wh.b x");
        let length = raw.len();
        raw[at % length] = byte;
        raw.truncate(cut.max(512));
        let _ = Unpacker::new(&place.root).unwrap().layer(raw.as_slice());
        proptest::prop_assert!(place.outside().is_empty());
    }
}

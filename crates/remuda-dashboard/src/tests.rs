use std::io::Read;

use flate2::read::GzDecoder;
use http::HeaderName;

use super::*;

fn asked(lines: &[(HeaderName, &'static str)]) -> HeaderMap {
    lines.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
}

fn bytes(response: Response<Body>) -> Bytes {
    match response.into_body() {
        Body::Full(bytes) => bytes,
        _ => panic!("files are finished bytes"),
    }
}

fn get(path: &str, lines: &[(HeaderName, &'static str)]) -> Response<Body> {
    answer(&FILES, path, &asked(lines)).unwrap()
}

#[test]
fn every_page_is_the_shell_and_files_are_kept_for_good() {
    for path in ["/dashboard", "/dashboard/", "/dashboard/clusters/fleet-default/demo"] {
        let page = get(path, &[]);
        assert_eq!(page.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8", "{path}");
        assert_eq!(page.headers()[header::CACHE_CONTROL], "no-cache", "{path}");
    }
    let shell = String::from_utf8(bytes(get("/dashboard/", &[])).to_vec()).unwrap();
    let base = FILES.base();
    assert!(shell.contains(&format!("src=\"{base}main.js\"")), "{shell}");
    assert!(!shell.contains("VERSION"), "{shell}");
    let script = get(&format!("{base}main.js"), &[]);
    assert_eq!(script.headers()[header::CONTENT_TYPE], "text/javascript; charset=utf-8");
    assert_eq!(script.headers()[header::CACHE_CONTROL], "public, max-age=31536000, immutable");
}

#[test]
fn what_is_not_there_is_not_the_shell() {
    for path in [format!("{}none.js", FILES.base()), "/dashboard/-/0123456789abcdef/main.js".to_owned()] {
        assert_eq!(answer(&FILES, &path, &asked(&[])).err().unwrap().code, StatusCode::NOT_FOUND, "{path}");
    }
}

#[test]
fn a_file_that_is_known_is_not_sent_again() {
    let first = get("/dashboard/", &[]);
    let etag = first.headers()[header::ETAG].to_str().unwrap().to_owned();
    let again = answer(
        &FILES,
        "/dashboard/",
        &HeaderMap::from_iter([(header::IF_NONE_MATCH, etag.parse().unwrap())]),
    )
    .unwrap();
    assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    assert!(bytes(again).is_empty());
}

#[test]
fn files_are_compressed_for_those_who_can_read_it() {
    let path = format!("{}main.js", FILES.base());
    let plain = get(&path, &[(header::ACCEPT_ENCODING, "br, gzip;q=0")]);
    assert!(!plain.headers().contains_key(header::CONTENT_ENCODING));
    let packed = get(&path, &[(header::ACCEPT_ENCODING, "br, gzip;q=0.5")]);
    assert_eq!(packed.headers()[header::CONTENT_ENCODING], "gzip");
    let mut unpacked = Vec::new();
    GzDecoder::new(&bytes(packed)[..]).read_to_end(&mut unpacked).unwrap();
    assert_eq!(unpacked, bytes(plain));
}

/// The figures of the first paint: everything it takes, in one go; and everything there is.
#[test]
fn files_stay_small() {
    let sent = |first: bool| -> usize {
        let files = FILES.all().filter(|(name, _)| !first || FILES.is_first(name));
        files.map(|(_, file)| file.compressed().len()).sum::<usize>() + FILES.shell().compressed().len()
    };
    assert!(sent(true) < 112 << 10, "{} bytes before the first page", sent(true));
    assert!(sent(false) < 176 << 10, "{} bytes", sent(false));
}

#[test]
fn what_the_first_page_needs_is_asked_for_at_once_and_nothing_else() {
    let shell = String::from_utf8(bytes(get("/dashboard/", &[])).to_vec()).unwrap();
    let named =
        |name: &str| shell.contains(&format!("<link rel=\"modulepreload\" href=\"{}{name}\">", FILES.base()));
    for name in ["main.js", "core/dom.js", "pages/home.js", "pages/clusters.js", "parts/table.js"] {
        assert!(named(name), "{name}");
    }
    for name in ["pages/explore/overview.js", "parts/terminal.js", "pages/audit.js"] {
        assert!(FILES.get(name).is_some() && !named(name), "{name}");
    }
}

/// What the policy would refuse in a browser is not even written.
#[test]
fn nothing_inline_and_nothing_of_others() {
    for (name, file) in FILES.all().chain([("index.html", FILES.shell())]) {
        let text = std::str::from_utf8(&file.plain).unwrap_or_else(|_| panic!("{name} is not text"));
        for forbidden in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "localStorage.setItem('token",
            "http://",
        ] {
            // The namespace of SVG is a name, not an address.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains(forbidden), "{name} has {forbidden}");
        }
        if name.ends_with(".html") {
            assert!(
                !text.contains(" style=") && !text.contains("<style") && !text.contains(" onclick"),
                "{name}"
            );
            assert_eq!(text.matches("<script").count(), text.matches("<script type=\"module\" src=").count());
        }
    }
    let policy = POLICY.to_str().unwrap().to_owned();
    assert!(!policy.contains("unsafe") && policy.contains("require-trusted-types-for 'script'"), "{policy}");
}

#[test]
fn only_browsers_want_a_page() {
    let wants = |accept| wants_page(&asked(&[(header::ACCEPT, accept)]));
    assert!(wants("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"));
    assert!(!wants("*/*"));
    assert!(!wants("application/json"));
    assert!(!wants_page(&HeaderMap::new()));
}

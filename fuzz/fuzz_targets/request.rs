//! A request line: what it asks for is one thing, whatever it is.
//!
//! The input is a method, a path and a query, one per line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remuda_auth::{bearer::Stored, request_info::RequestInfo, tokens::BootstrapToken};

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.split('\n');
    let mut line = || lines.next().unwrap_or_default();
    let (method, path, query) = (line(), line(), line());
    let info = RequestInfo::parse(method, path, Some(query));
    let parts = [&info.group, &info.version, &info.namespace, &info.resource, &info.name, &info.subresource];
    assert!(parts.iter().all(|part| !part.contains('/')));
    assert_eq!(info.attributes().path.is_some(), !info.is_resource());
    // Every byte encoded is the same request.
    let encoded: String = path.bytes().map(|byte| format!("%{byte:02X}")).collect();
    if !path.contains('%') {
        assert_eq!(RequestInfo::parse(method, &encoded, Some(query)), info);
    }
    if let Some(token) = BootstrapToken::parse(path) {
        assert_eq!(token.reveal(), path);
    }
    if let Some(stored) = Stored::parse(path, true) {
        assert!(!stored.verify(""));
    }
});

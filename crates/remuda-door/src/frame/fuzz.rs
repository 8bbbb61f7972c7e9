//! Requests at random, through the whole frame: who is let in is who the door says, and every refusal can be read.

use futures::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use http_body_util::BodyExt;
use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed},
};
use remuda_names::{fuzz, identity};
use serde_json::Value;

use super::{
    tests::{ADMIN, API, Names, OPEN, USERS},
    *,
};
use crate::{
    browser::adopt,
    call::Answer,
    door::Cookie,
    session::{cookie, csrf_proof},
};

fn config() -> Config {
    let told = |name: &str| std::env::var_os(name)?.to_str()?.parse::<u32>().ok();
    let seed = RngSeed::Fixed(told(fuzz::SEED).unwrap_or(1).into());
    Config { cases: told(fuzz::CASES).unwrap_or(1024), rng_seed: seed, ..Config::default() }
}

/// Says which door it was reached through, and by whom.
struct Reached;

impl Handler for Reached {
    fn handle(&self, call: Call, _: Body) -> BoxFuture<'_, Answer> {
        let action: String = call.action().chars().take(8).collect();
        let text = serde_json::json!({"door": call.door.name, "by": call.caller.name, "action": action});
        Box::pin(std::future::ready(Ok(Response::new(Body::from(text.to_string())))))
    }
}

type Lines = Vec<(String, String)>;

fn target() -> impl Strategy<Value = String> {
    "/{1,2}(open|users|admin|api|OPEN|%6fpen|users/x|users%2fx|users/\\.\\./admin|admin;x|admin/|\\.\\./open|[a-z%.;/]{0,8})(\\?(action|%61ction)=[a-zA-Z0-9%+&=;]{0,20})?"
}

fn lines() -> impl Strategy<Value = Lines> {
    let line = prop_oneof![
        (
            "authorization",
            "(Bearer|bearer|Basic|basic|Digest|)( {0,2})(ann|root|bad|liar|YW5uOng=|cm9vdA==|[ -~]{0,12})"
        ),
        ("cookie", "([a-zA-Z_]{0,6}|R_SESS|CSRF)=?\"?(ann|root|[ -~]{0,8})\"?(; ?R_SESS=(ann|root|;|))?"),
        ("x-api-csrf", "[0-9a-f]{0,32}"),
        ("sec-fetch-site", "same-origin|cross-site|none|same-site|[a-z]{0,4}"),
        ("sec-fetch-mode", "cors|navigate|no-cors|websocket"),
        ("sec-fetch-dest", "empty|document|websocket|image"),
        ("origin", "null|https://h|https://evil|http://h|[ -~]{0,10}"),
        ("host", "h|h:443|evil"),
        ("content-length", "[0-9]{0,20}|-1|x"),
        ("user-agent", "[ -~]{0,20}"),
    ];
    proptest::collection::vec(line.prop_map(|(name, value)| (name.to_owned(), value)), 0..5)
}

fn headers(lines: &Lines) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        if let (Ok(name), Ok(value)) =
            (HeaderName::try_from(name.as_str()), HeaderValue::try_from(value.as_str()))
        {
            headers.append(name, value);
        }
    }
    headers
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_door_that_is_found_is_the_one_that_judges(
        method in "GET|POST|PUT|DELETE|OPTIONS|PATCH",
        target in target(),
        lines in lines(),
        certificate in any::<bool>(),
    ) {
        let Ok(uri) = target.parse::<Uri>() else { return Ok(()) };
        let names = Arc::new(Names::default());
        let openings =
            [&OPEN, &USERS, &ADMIN].map(|door| Opening { door, handler: Arc::new(Reached) as Arc<dyn Handler> });
        let frame = Frame::new(super::tests::Kubernetes, [&API], openings.to_vec(), Arc::new(names.clone()));
        let door = frame.table().doors()[frame.table().find(uri.path())];
        let mut request = Request::builder().method(method.as_str()).uri(uri.clone()).body(Body::from("")).unwrap();
        *request.headers_mut() = headers(&lines);
        let client = Client { address: ([192, 0, 2, 1], 1).into(), certificate };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (code, kind, body) = runtime.block_on(async {
            let response = frame.handle(client, request).await;
            let (head, body) = response.into_parts();
            let kind = head.headers.get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
            (head.status, kind.unwrap_or_default(), body.collect().await.unwrap().to_bytes())
        });
        let audited = names.lines();
        if door.access == Access::Api && code.is_success() {
            prop_assert!(audited.is_empty(), "the API writes its own lines: {:?}", audited);
            return Ok(());
        }
        prop_assert_eq!(audited.len(), 1, "{:?}", audited);
        prop_assert!(!audited[0].contains('\n'));
        let answer: Value = serde_json::from_slice(&body).unwrap();
        if code.is_success() {
            prop_assert_eq!(&answer["door"], door.name);
            prop_assert!(door.allows(&method));
            let by = answer["by"].as_str().unwrap();
            match door.access {
                Access::Authenticated => prop_assert!(by != "system:anonymous" && !by.is_empty()),
                Access::Permission => prop_assert_eq!(by, "root"),
                _ => {}
            }
        } else {
            prop_assert!(code.is_client_error(), "{} {:?}", code, answer);
            prop_assert_eq!(kind, "application/json");
            prop_assert_eq!(&answer["kind"], "Status");
            prop_assert_eq!(&answer["status"], "Failure");
            prop_assert_eq!(answer["code"].as_u64(), Some(u64::from(code.as_u16())));
            prop_assert!(!answer["reason"].as_str().unwrap().is_empty());
        }
    }

    #[test]
    fn a_cookie_counts_only_with_its_proof_and_from_here(
        method in "GET|POST|DELETE|HEAD",
        mut lines in lines(),
        session in "[a-z]{1,8}(:[a-z]{1,8})?",
        proven in any::<bool>(),
        accepted in prop_oneof![Just(Cookie::Never), Just(Cookie::Proof), Just(Cookie::Fetch)],
    ) {
        lines.push(("cookie".into(), format!("{}={session}", identity::cookie::SESSION)));
        if proven {
            lines.retain(|(name, _)| name != identity::CSRF_HEADER && !name.eq_ignore_ascii_case("x-api-csrf"));
            lines.push((identity::CSRF_HEADER.to_ascii_lowercase(), csrf_proof(&session)));
        }
        let before = headers(&lines);
        let mut after = before.clone();
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let outcome = adopt(accepted, false, &method, &Uri::from_static("/x"), &mut after);
        let given = before.get(header::AUTHORIZATION);
        if outcome.is_ok() && given.is_none() && let Some(adopted) = after.get(header::AUTHORIZATION) {
            prop_assert!(accepted != Cookie::Never);
            let found = cookie(&before, identity::cookie::SESSION).unwrap();
            prop_assert!(!found.contains(';'));
            prop_assert_eq!(adopted.to_str().unwrap(), format!("Bearer {found}"));
            let proof = before.get(identity::CSRF_HEADER).map(HeaderValue::as_bytes).unwrap_or_default();
            let safe = matches!(method, Method::GET | Method::HEAD);
            prop_assert!(safe || proof == csrf_proof(&found).as_bytes());
            let site = before.get("sec-fetch-site").map(|site| site.to_str().unwrap());
            prop_assert!(site.is_none_or(|site| matches!(site, "same-origin" | "none")), "{:?}", site);
        }
        // Whoever shows a token in a header is known by that and nothing else.
        if given.is_some() {
            prop_assert!(outcome.is_ok());
        }
    }
}

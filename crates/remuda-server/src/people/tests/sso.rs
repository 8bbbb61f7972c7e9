//! Login at an OpenID provider, by people and by those who only say so.

use remuda_api::management::{AuthConfig, User};
use remuda_testkit::oidc::{CLIENT, Provider, SECRET};

use super::*;

/// A way back from the provider: the path with its query, and the cookie of the browser.
struct Return {
    path: String,
    cookie: String,
}

impl Site {
    async fn trust(&self, provider: &Provider) {
        let configs: Api<AuthConfig> = Api::all(self.root().await);
        let config = AuthConfig {
            provider_type: "genericOIDCConfig".to_owned(),
            enabled: true,
            issuer: provider.issuer().to_owned(),
            client_id: CLIENT.to_owned(),
            client_secret: SECRET.to_owned(),
            ..AuthConfig::named("genericoidc")
        };
        configs.create(&PostParams::default(), &config).await.unwrap();
        for _ in 0..100 {
            let known = self.send(None, "GET", "/v3-public/authProviders", &[], json!(null)).await;
            if known.body["data"].as_array().unwrap().len() == 2 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the provider is not offered");
    }

    /// A browser goes to the provider, where somebody logs in, and is about to come back.
    async fn visit(&self, query: &str) -> Return {
        let begun = self.send(None, "GET", &format!("/v1-public/sso{query}"), &[], json!(null)).await;
        assert_eq!(begun.code, StatusCode::FOUND, "{}", begun.text);
        let cookie = cookies(&begun.headers).remove(0);
        let location = begun.headers["location"].to_str().unwrap().to_owned();
        let client =
            hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        let there = client.get(location.parse().unwrap()).await.unwrap();
        assert_eq!(there.status(), StatusCode::FOUND);
        let back = there.headers()["location"].to_str().unwrap();
        let path = back.strip_prefix(self.server.url()).unwrap_or_else(|| panic!("{back}")).to_owned();
        Return { path, cookie }
    }

    async fn come_back(&self, back: &Return) -> Got {
        self.send(None, "GET", &back.path, &[("cookie", &back.cookie)], json!(null)).await
    }

    /// The session of somebody who logs in.
    async fn sign_in(&self) -> String {
        let got = self.come_back(&self.visit("?to=/x").await).await;
        assert_eq!(
            (got.code, got.headers["location"].to_str().unwrap()),
            (StatusCode::FOUND, "/x"),
            "{}",
            got.text
        );
        let session = cookies(&got.headers).into_iter().find(|cookie| cookie.starts_with("R_SESS=")).unwrap();
        session.strip_prefix("R_SESS=").unwrap().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_logs_in_at_their_provider_and_is_in_its_groups() {
    let (site, provider) = (Site::start().await, Provider::start().await);
    let none = site.send(None, "GET", "/v1-public/sso", &[], json!(null)).await;
    assert_eq!(none.code, StatusCode::NOT_FOUND, "nothing is offered that is not there");
    site.trust(&provider).await;
    let session = site.sign_in().await;
    let me = site.send(Some(&session), "GET", "/v3/users?me=true", &[], json!(null)).await;
    let (id, name) = (me.body["data"][0]["id"].as_str().unwrap(), &me.body["data"][0]["name"]);
    assert_eq!(name, "Ann");
    assert_eq!(me.body["data"][0]["principalIds"], json!(["genericoidc_user://1001"]));
    assert_eq!(site.gets(&session, SETTINGS, 200).await.code, StatusCode::OK, "by role");

    for cluster in ["c-a", "c-b"] {
        site.cluster(cluster).await;
    }
    let mut namespace = k8s_openapi::api::core::v1::Namespace::default();
    namespace.metadata.name = Some("c-a".to_owned());
    let _ = Api::all(site.root().await).create(&PostParams::default(), &namespace).await;
    let bindings: Api<ClusterRoleTemplateBinding> = Api::namespaced(site.root().await, "c-a");
    let binding = ClusterRoleTemplateBinding {
        cluster_name: "c-a".to_owned(),
        group_principal_name: "genericoidc_group://dev".to_owned(),
        role_template_name: "cluster-member".to_owned(),
        ..ClusterRoleTemplateBinding::named("dev")
    };
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    let made = site.send(Some(&session), "POST", "/v3/tokens", &[], json!({"clusterId": "c-a"})).await;
    let derived = made.body["token"].as_str().unwrap().to_owned();
    for token in [&session, &derived] {
        assert_eq!(site.enters(token, "c-a", 503).await.code, StatusCode::SERVICE_UNAVAILABLE);
    }
    assert_eq!(site.enters(&session, "c-b", 403).await.code, StatusCode::FORBIDDEN);

    // Who leaves a group has left it with every token at the next login. They stay the same user.
    provider.is(json!({"sub": "1001", "name": "Ann B", "groups": ["ops"]}));
    let second = site.sign_in().await;
    for token in [&second, &session, &derived] {
        assert_eq!(site.enters(token, "c-a", 403).await.code, StatusCode::FORBIDDEN);
    }
    let users: Api<User> = Api::all(site.root().await);
    assert_eq!(users.get(id).await.unwrap().display_name, "Ann B");
    // Groups may also be told only when asked.
    provider.is(json!({"sub": "1001", "name": "Ann B", "groups": ["dev"]}));
    provider.tells_when_asked(true);
    let third = site.sign_in().await;
    assert_eq!(site.enters(&third, "c-a", 503).await.code, StatusCode::SERVICE_UNAVAILABLE);

    // Nobody is let in by a provider that is not trusted any more.
    let configs: Api<AuthConfig> = Api::all(site.root().await);
    configs.delete("genericoidc", &Default::default()).await.unwrap();
    assert_eq!(site.enters(&third, "c-a", 401).await.code, StatusCode::UNAUTHORIZED);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_counts_once_and_where_it_began() {
    let (site, provider) = (Site::start().await, Provider::start().await);
    site.trust(&provider).await;
    let (mine, theirs) = (site.visit("").await, site.visit("").await);
    let mixed = Return { path: theirs.path.clone(), cookie: mine.cookie.clone() };
    assert_eq!(site.come_back(&mixed).await.code, StatusCode::BAD_REQUEST, "a link somebody sent");
    let bare = Return { path: mine.path.clone(), cookie: String::new() };
    assert_eq!(site.come_back(&bare).await.code, StatusCode::BAD_REQUEST, "another browser");
    let spoilt = Return { path: mine.path.clone(), cookie: format!("{}A", mine.cookie) };
    assert_eq!(site.come_back(&spoilt).await.code, StatusCode::BAD_REQUEST);
    let good = site.come_back(&mine).await;
    assert_eq!(good.code, StatusCode::FOUND, "{}", good.text);
    assert!(cookies(&good.headers).iter().any(|cookie| cookie == "R_SSO="), "the login is over");
    assert_eq!(site.come_back(&mine).await.code, StatusCode::BAD_REQUEST, "again");
    // A code of another login does not do, nor one that was used: the provider says so.
    let (code, _) = mine.path.split_once("&state=").unwrap();
    let (_, state) = theirs.path.split_once("&state=").unwrap();
    let replayed = Return { path: format!("{code}&state={state}"), cookie: theirs.cookie.clone() };
    assert_eq!(site.come_back(&replayed).await.code, StatusCode::UNAUTHORIZED);
    let said = "/verify-auth?error=access_denied&error_description=%3Cscript%3E";
    let told = site.send(None, "GET", said, &[], json!(null)).await;
    assert_eq!(told.code, StatusCode::FORBIDDEN);
    assert!(told.text.contains("&lt;script&gt;") && !told.text.contains("<script>"), "{}", told.text);
    assert!(told.headers["content-security-policy"].to_str().unwrap().contains("default-src 'none'"));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_are_not_what_they_should_be_let_nobody_in() {
    let (site, provider) = (Site::start().await, Provider::start().await);
    site.trust(&provider).await;
    site.sign_in().await;
    let past = jiff::Timestamp::now().as_second() - 3600;
    let lies = [
        (json!({"alg": "none"}), json!({})),
        (json!({"alg": "HS256"}), json!({})),
        (json!({"kid": "invented"}), json!({})),
        (json!({}), json!({"iss": "https://other.example"})),
        (json!({}), json!({"aud": "other"})),
        (json!({}), json!({"exp": past})),
        (json!({}), json!({"nonce": "another"})),
        (json!({}), json!({"sub": ""})),
    ];
    for (header, claims) in lies {
        provider.lies(header.clone(), claims.clone());
        let got = site.come_back(&site.visit("").await).await;
        assert_eq!(got.code, StatusCode::UNAUTHORIZED, "{header} {claims}");
        assert!(!cookies(&got.headers).iter().any(|cookie| cookie.starts_with("R_SESS")));
    }
    provider.lies(json!({}), json!({}));
    provider.forges(true);
    assert_eq!(site.come_back(&site.visit("").await).await.code, StatusCode::UNAUTHORIZED);
    provider.forges(false);
    // Keys that are invented do not have the provider asked each time.
    provider.lies(json!({"kid": "invented"}), json!({}));
    for _ in 0..5 {
        site.come_back(&site.visit("").await).await;
    }
    assert!(provider.asked("/keys") <= 2, "{}", provider.asked("/keys"));
    assert_eq!(provider.asked("/.well-known/openid-configuration"), 1);
    provider.lies(json!({}), json!({}));
    // Whoever tries on has to wait.
    for _ in 0..20 {
        let nothing = Return { path: "/verify-auth?code=x&state=y".to_owned(), cookie: String::new() };
        if site.come_back(&nothing).await.code == StatusCode::TOO_MANY_REQUESTS {
            return site.stop().await;
        }
    }
    panic!("nobody was told to wait");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_given_a_token_if_its_owner_agrees() {
    let (site, provider) = (Site::start().await, Provider::start().await);
    site.trust(&provider).await;
    let (verifier, challenge) =
        ("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    let ask = || async {
        let back = site.visit(&format!("?port=4711&state=abc&challenge={challenge}")).await;
        let page = site.come_back(&back).await;
        assert_eq!(page.code, StatusCode::OK, "{}", page.text);
        assert!(page.text.contains("You are Ann."), "{}", page.text);
        assert!(
            !cookies(&page.headers).iter().any(|cookie| cookie.starts_with("R_SESS")),
            "the browser gets none"
        );
        let (_, link) = page.text.split_once("href=\"http://127.0.0.1:4711/?code=").unwrap();
        let (code, rest) = link.split_once("&amp;state=").unwrap();
        assert!(rest.starts_with("abc\""));
        code.to_owned()
    };
    let redeem = |code: String, verifier: &'static str| {
        let body =
            json!({"code": code, "verifier": verifier, "responseType": "json", "ttl": 99_999_999_999_i64});
        site.send(None, "POST", "/v1-public/login", &[], body)
    };
    let code = ask().await;
    assert_eq!(redeem(code.clone(), "a guess of somebody else").await.code, StatusCode::UNAUTHORIZED);
    assert_eq!(redeem(code, verifier).await.code, StatusCode::UNAUTHORIZED, "one attempt");
    let code = ask().await;
    let got = redeem(code.clone(), verifier).await;
    assert_eq!(got.code, StatusCode::CREATED, "{}", got.text);
    assert!(got.headers.get("set-cookie").is_none());
    let expires: jiff::Timestamp = got.body["expiresAt"].as_str().unwrap().parse().unwrap();
    let left = expires.duration_since(jiff::Timestamp::now());
    assert!(left <= jiff::SignedDuration::from_mins(960), "no longer than a session: {left:?}");
    let token = got.body["token"].as_str().unwrap();
    assert_eq!(site.send(Some(token), "GET", "/v3/tokens", &[], json!(null)).await.code, StatusCode::OK);
    assert_eq!(redeem(code, verifier).await.code, StatusCode::UNAUTHORIZED, "again");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_those_come_in_who_are_meant_to() {
    let (site, provider) = (Site::start().await, Provider::start().await);
    site.trust(&provider).await;
    let configs: Api<AuthConfig> = Api::all(site.root().await);
    let patch = json!({"accessMode": "required", "allowedPrincipalIds": ["genericoidc_group://ops"]});
    configs.patch("genericoidc", &Default::default(), &kube::api::Patch::Merge(patch)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let got = site.come_back(&site.visit("").await).await;
    assert_eq!(got.code, StatusCode::FORBIDDEN, "{}", got.text);
    let users: Api<User> = Api::all(site.root().await);
    let listed = users.list(&Default::default()).await.unwrap();
    assert_eq!(listed.items.len(), 1, "nobody is made who may not come in");
    provider.is(json!({"sub": "1002", "groups": ["ops"]}));
    let session = site.sign_in().await;
    // Who is disabled here stays out, whatever the provider says.
    let me = site.send(Some(&session), "GET", "/v3/users?me=true", &[], json!(null)).await;
    let id = me.body["data"][0]["id"].as_str().unwrap().to_owned();
    let patch = kube::api::Patch::Merge(json!({"enabled": false}));
    users.patch(&id, &Default::default(), &patch).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(site.come_back(&site.visit("").await).await.code, StatusCode::FORBIDDEN);
    let after = site.send(Some(&session), "GET", "/v3/tokens", &[], json!(null)).await;
    assert_eq!(after.code, StatusCode::UNAUTHORIZED);
    site.stop().await;
}

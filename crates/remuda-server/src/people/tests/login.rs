//! Logins: who has to wait, second factors, and sessions.

use hyper_util::client::legacy::connect::HttpConnector;
use jiff::{SignedDuration, Timestamp};
use remuda_api::management::Setting;

use super::*;

impl Site {
    /// A login from an address of this machine.
    async fn login_from(&self, address: [u8; 4], username: &str, password: &str) -> StatusCode {
        let mut config = self.config().await;
        config.auth_info = AuthInfo::default();
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_local_address(Some(address.into()));
        let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .build(config.rustls_https_connector_with_connector(connector).unwrap());
        let request = Request::post(format!("{}/v1-public/login", self.server.url()))
            .header("content-type", "application/json");
        let body = json!({"username": username, "password": password}).to_string();
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        client.request(request).await.unwrap().status()
    }

    async fn login_with(&self, body: Value) -> Got {
        self.send(None, "POST", "/v1-public/login", &[("user-agent", "a browser")], body).await
    }

    /// Sets a setting and waits until a login is `expected`.
    async fn set(&self, name: &str, value: &str) {
        let settings: Api<Setting> = Api::all(self.root().await);
        let setting = Setting { value: value.to_owned(), ..Setting::named(name) };
        settings.create(&PostParams::default(), &setting).await.unwrap();
    }

    /// A user with a password.
    async fn person(&self, name: &str, password: &str) -> String {
        let token = self.user(name, json!({})).await;
        let path = format!("/v3/users/{name}?action=setpassword");
        self.post_as_root(&path, &json!({"newPassword": password})).await;
        token
    }
}

/// What an authenticator shows.
struct Authenticator {
    secret: Vec<u8>,
    last: i64,
}

impl Authenticator {
    fn new(uri: &Value) -> Self {
        let secret = uri.as_str().unwrap().split("secret=").nth(1).unwrap().split('&').next().unwrap();
        let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
        let (mut buffer, mut bits, mut bytes) = (0_u64, 0, Vec::new());
        for letter in secret.chars() {
            buffer = (buffer << 5) | alphabet.find(letter).unwrap() as u64;
            bits += 5;
            if bits >= 8 {
                bits -= 8;
                bytes.push((buffer >> bits) as u8);
            }
        }
        Self { secret: bytes, last: 0 }
    }

    /// The next code that is good for as long as a slow test takes: that of now, then the one after it.
    fn code(&mut self) -> String {
        let now = Timestamp::now().as_second() / 30;
        let step = now.max(self.last + 1);
        assert!(step <= now + 1, "more codes than time has passed");
        self.last = step;
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &self.secret);
        let tag = aws_lc_rs::hmac::sign(&key, &(step as u64).to_be_bytes());
        let at = usize::from(tag.as_ref()[19] & 15);
        let number = u32::from_be_bytes(tag.as_ref()[at..at + 4].try_into().unwrap()) & 0x7fff_ffff;
        format!("{:06}", number % 1_000_000)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_at_one_address_do_not_keep_out_the_right_password_from_another() {
    let site = Site::start().await;
    let password = site.server.first_user().unwrap().password.clone();
    let (here, there) = ([127, 0, 0, 1], [127, 0, 0, 2]);
    let mut waits = false;
    for _ in 0..8 {
        waits = site.login_from(here, "admin", "guess").await == StatusCode::TOO_MANY_REQUESTS;
    }
    assert!(waits, "whoever guesses has to wait");
    assert_eq!(site.login_from(here, "admin", &password).await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(site.login_from(there, "admin", &password).await, StatusCode::CREATED);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_factor_is_asked_for_once_it_is_confirmed_and_each_code_is_good_once() {
    let site = Site::start().await;
    let (user, password) = ("ann", "a password of mine");
    let token = site.person(user, password).await;
    let own = |action: &str| format!("/v3/users?action={action}");
    let wrong = site
        .send(Some(&token), "POST", &own("enrolsecondfactor"), &[], json!({"currentPassword": "x"}))
        .await;
    assert_eq!(wrong.code, StatusCode::UNAUTHORIZED, "a session alone does not do");
    let known = json!({"currentPassword": password});
    let begun = site.send(Some(&token), "POST", &own("enrolsecondfactor"), &[], known.clone()).await;
    assert_eq!(begun.code, StatusCode::OK, "{}", begun.text);
    assert!(begun.body["uri"].as_str().unwrap().starts_with("otpauth://totp/Remuda:ann?secret="));
    let mut phone = Authenticator::new(&begun.body["uri"]);
    let login = |otp: Option<&str>| json!({"username": user, "password": password, "otp": otp});
    assert_eq!(site.login_with(login(None)).await.code, StatusCode::CREATED, "not before it is confirmed");
    let guessed =
        site.send(Some(&token), "POST", &own("confirmsecondfactor"), &[], json!({"otp": "000000"})).await;
    assert_eq!(guessed.code, StatusCode::UNAUTHORIZED, "{}", guessed.text);
    let code = json!({"otp": phone.code()});
    let confirmed = site.send(Some(&token), "POST", &own("confirmsecondfactor"), &[], code.clone()).await;
    assert_eq!(confirmed.code, StatusCode::OK, "{}", confirmed.text);
    let recovery = confirmed.body["recoveryCodes"].as_array().unwrap().clone();
    assert_eq!(recovery.len(), 10);
    let again = site.send(Some(&token), "POST", &own("enrolsecondfactor"), &[], known).await;
    assert_eq!((again.code, &again.body["reason"]), (StatusCode::CONFLICT, &json!("SecondFactorEnrolled")));

    let needed = site.login_with(login(None)).await;
    assert_eq!((needed.code.as_u16(), &needed.body["reason"]), (401, &json!("SecondFactorRequired")));
    let mut unknown = login(None);
    unknown["password"] = "wrong".into();
    let refused = site.login_with(unknown).await;
    assert_eq!(refused.body["reason"], "Unauthorized", "a wrong password is told nothing of a second factor");
    let used = code["otp"].as_str();
    assert_eq!(site.login_with(login(used)).await.code, StatusCode::UNAUTHORIZED, "it was used");
    let next = phone.code();
    let (one, other) = tokio::join!(site.login_with(login(Some(&next))), site.login_with(login(Some(&next))));
    let mut codes = [one.code.as_u16(), other.code.as_u16()];
    codes.sort_unstable();
    assert_eq!(codes, [201, 401], "of two at once one is good: {} {}", one.text, other.text);

    let first = recovery[0].as_str();
    assert_eq!(site.login_with(login(first)).await.code, StatusCode::CREATED);
    assert_eq!(site.login_with(login(first)).await.code, StatusCode::UNAUTHORIZED, "each once");
    let me = site.send(Some(&token), "GET", "/v3/users?me=true", &[], json!(null)).await;
    let expected = json!({"enrolled": true, "required": false, "recoveryCodesLeft": 9});
    assert_eq!(me.body["data"][0]["secondFactor"], expected);
    // What is stored is good for nothing by itself.
    let secrets: Api<k8s_openapi::api::core::v1::Secret> =
        Api::namespaced(site.root().await, "remuda-second-factors");
    let stored = serde_json::to_string(&secrets.get("ann").await.unwrap()).unwrap();
    assert!(!stored.contains(recovery[1].as_str().unwrap()));

    let end = json!({"currentPassword": password, "otp": recovery[1]});
    let ended = site.send(Some(&token), "POST", &own("removesecondfactor"), &[], end).await;
    assert_eq!(ended.code, StatusCode::OK, "{}", ended.text);
    assert_eq!(site.login_with(login(None)).await.code, StatusCode::CREATED);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_factor_can_be_demanded_and_is_reset_by_those_who_may_as_much() {
    let site = Site::start().await;
    let admin_password = site.server.first_user().unwrap().password.clone();
    let ann = site.person("ann", "a password of mine").await;
    let bindings: Api<GlobalRoleBinding> = Api::all(site.root().await);
    for role in ["users-manage", "settings-manage"] {
        let binding = GlobalRoleBinding {
            user_name: "ann".to_owned(),
            global_role_name: role.to_owned(),
            ..GlobalRoleBinding::named(&format!("ann-{role}"))
        };
        bindings.create(&PostParams::default(), &binding).await.unwrap();
    }
    assert_eq!(site.gets(&ann, "/apis/management.cattle.io/v3/users", 200).await.code, StatusCode::OK);
    assert_eq!(site.gets(&ann, SETTINGS, 200).await.code, StatusCode::OK);
    site.set("auth-second-factor", "administrators").await;
    let headers = [("content-type", "application/merge-patch+json")];
    let one = format!("{SETTINGS}/auth-second-factor");
    let switched = site.send_plain(&ann, "PATCH", &one, &headers, json!({"value": "off"})).await;
    assert_eq!(switched.code, StatusCode::FORBIDDEN, "{}", switched.text);
    let settings: Api<Setting> = Api::all(site.root().await);
    let odd = kube::api::Patch::Merge(json!({"value": "sometimes"}));
    assert!(settings.patch("auth-second-factor", &Default::default(), &odd).await.is_err());

    let login = |otp: Option<&str>| json!({"username": "admin", "password": admin_password, "otp": otp});
    let mut told = site.login_with(login(None)).await;
    for _ in 0..100 {
        if told.code == StatusCode::FORBIDDEN {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        told = site.login_with(login(None)).await;
    }
    assert_eq!(told.body["reason"], "SecondFactorEnrolmentRequired", "{}", told.text);
    let mut phone = Authenticator::new(&told.body["details"]["uri"]);
    let done = site.login_with(login(Some(&phone.code()))).await;
    assert_eq!(done.code, StatusCode::CREATED, "{}", done.text);
    assert_eq!(done.body["recoveryCodes"].as_array().unwrap().len(), 10);
    let needed = site.login_with(login(None)).await;
    assert_eq!(needed.body["reason"], "SecondFactorRequired");
    let body = json!({"username": "ann", "password": "a password of mine"});
    assert_eq!(site.login_with(body).await.code, StatusCode::CREATED, "of others it is not demanded");

    let reset = "/v3/users/user-admin?action=resetsecondfactor";
    let taken = site.send(Some(&ann), "POST", reset, &[], json!({})).await;
    assert_eq!(taken.code, StatusCode::FORBIDDEN, "a keeper of users does not outrank the administrator");
    site.post_as_root(reset, &json!({})).await;
    let told = site.login_with(login(None)).await;
    assert_eq!(told.body["reason"], "SecondFactorEnrolmentRequired", "{}", told.text);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_listed_with_where_they_came_from_and_end_together() {
    let site = Site::start().await;
    let token = site.person("ann", "a password of mine").await;
    let body = json!({"username": "ann", "password": "a password of mine"});
    let bearer = |got: &Got| got.body["token"].as_str().unwrap().to_owned();
    let (old, new) = (bearer(&site.login_with(body.clone()).await), bearer(&site.login_with(body).await));
    let listed = site.send(Some(&new), "GET", "/v3/tokens", &[], json!(null)).await;
    let tokens = listed.body["data"].as_array().unwrap();
    let of = |bearer: &str| {
        let (name, _) = bearer.split_once(':').unwrap();
        tokens.iter().find(|token| token["name"] == name).unwrap()
    };
    let seen = |token: &Value| {
        [&token["kind"], &token["current"], &token["address"], &token["userAgent"]].map(Value::clone)
    };
    assert_eq!(seen(of(&new)), [json!("session"), json!(true), json!("127.0.0.1"), json!("a browser")]);
    assert_eq!(seen(of(&old))[1], json!(false));
    assert_eq!(seen(of(&token)), [json!("api"), json!(false), json!(null), json!(null)]);

    let ended = site.send(Some(&new), "POST", "/v3/tokens?action=revokeothers", &[], json!({})).await;
    assert_eq!((ended.code, &ended.body["revoked"]), (StatusCode::OK, &json!(1)));
    let code = |bearer: String| {
        let site = &site;
        async move { site.send(Some(&bearer), "GET", "/v3/tokens", &[], json!(null)).await.code.as_u16() }
    };
    assert_eq!([code(new.clone()).await, code(old).await, code(token.clone()).await], [200, 401, 200]);
    site.send(Some(&new), "POST", "/v3/tokens?action=revokeothers", &[], json!({"all": true})).await;
    assert_eq!([code(new).await, code(token).await], [200, 401]);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_login_outlives_the_time_of_a_session() {
    let site = Site::start().await;
    site.person("ann", "a password of mine").await;
    let left = |got: &Got| {
        let expires: Timestamp = got.body["expiresAt"].as_str().unwrap().parse().unwrap();
        expires.duration_since(Timestamp::now())
    };
    for ttl in [0, -1, i64::from(u32::MAX) * 1000] {
        let body = json!({"username": "ann", "password": "a password of mine", "ttl": ttl});
        let got = site.login_with(body).await;
        assert!(left(&got) <= SignedDuration::from_mins(960), "{ttl}: {}", got.text);
    }
    site.set("auth-user-session-ttl-minutes", "10").await;
    let body = json!({"username": "ann", "password": "a password of mine", "ttl": -1});
    let mut got = site.login_with(body.clone()).await;
    for _ in 0..100 {
        if left(&got) <= SignedDuration::from_mins(10) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        got = site.login_with(body.clone()).await;
    }
    assert!(left(&got) <= SignedDuration::from_mins(10), "{}", got.text);
    let settings: Api<Setting> = Api::all(site.root().await);
    let odd = kube::api::Patch::Merge(json!({"value": "for ever"}));
    assert!(settings.patch("auth-user-session-ttl-minutes", &Default::default(), &odd).await.is_err());
    site.stop().await;
}

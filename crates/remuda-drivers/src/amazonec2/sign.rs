//! AWS Signature Version 4, for form posts and simple gets.

use aws_lc_rs::{
    digest::{SHA256, digest},
    hmac,
};
use remuda_base::hex;

use crate::secret::Secret;

/// Who signs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Credentials {
    pub access_key: String,
    pub secret_key: Secret,
    pub session_token: Secret,
}

/// What is signed beside the credentials.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub method: &'a str,
    /// Already in canonical order.
    pub query: &'a str,
    /// The headers that are signed, in lower case and in order.
    pub headers: &'a [(&'a str, &'a str)],
    pub body: &'a [u8],
    pub region: &'a str,
    pub service: &'a str,
    /// `20150830T123600Z`.
    pub time: &'a str,
}

/// The value of the `Authorization` header.
pub(crate) fn authorization(credentials: &Credentials, request: Request<'_>) -> String {
    let Request { method, query, headers, body, region, service, time } = request;
    let day = time.get(..8).unwrap_or(time);
    let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let headers: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let hash = hex(digest(&SHA256, body));
    let canonical = format!("{method}\n/\n{query}\n{headers}\n{names}\n{hash}");
    let scope = format!("{day}/{region}/{service}/aws4_request");
    let canonical = hex(digest(&SHA256, canonical.as_bytes()));
    let to_sign = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{canonical}");
    let first = format!("AWS4{}", credentials.secret_key.expose());
    let key = [day, region, service, "aws4_request"]
        .iter()
        .fold(first.into_bytes(), |key, part| mac(&key, part.as_bytes()));
    let signature = hex(mac(&key, to_sign.as_bytes()));
    let id = &credentials.access_key;
    format!("AWS4-HMAC-SHA256 Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}")
}

fn mac(key: &[u8], data: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Credentials {
        Credentials {
            access_key: "AKIDEXAMPLE".into(),
            secret_key: Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
            session_token: Secret::default(),
        }
    }

    #[test]
    fn the_published_example_signs_as_published() {
        let request = Request {
            method: "GET",
            query: "Action=ListUsers&Version=2010-05-08",
            headers: &[
                ("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
                ("host", "iam.amazonaws.com"),
                ("x-amz-date", "20150830T123600Z"),
            ],
            body: b"",
            region: "us-east-1",
            service: "iam",
            time: "20150830T123600Z",
        };
        assert_eq!(
            authorization(&example(), request),
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date, \
             Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
        );
    }

    #[test]
    fn the_published_form_post_signs_as_published() {
        let request = Request {
            method: "POST",
            query: "",
            headers: &[
                ("content-type", "application/x-www-form-urlencoded"),
                ("host", "example.amazonaws.com"),
                ("x-amz-date", "20150830T123600Z"),
            ],
            body: b"Param1=value1",
            region: "us-east-1",
            service: "service",
            time: "20150830T123600Z",
        };
        let signed = authorization(&example(), request);
        assert!(
            signed.ends_with("ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"),
            "{signed}"
        );
        assert!(!format!("{:?}", example()).contains("wJalr"));
    }
}

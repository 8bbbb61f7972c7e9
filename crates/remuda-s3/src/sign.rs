//! AWS Signature Version 4.

use aws_lc_rs::{
    digest::{SHA256, digest},
    hmac,
};
use remuda_base::hex;

/// In place of the hash of a body that is not signed.
pub const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// Who signs.
#[derive(Clone, Copy)]
pub struct Signer<'a> {
    pub access_key: &'a str,
    pub secret_key: &'a str,
}

/// What is signed beside the credentials.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub method: &'a str,
    /// Already encoded.
    pub path: &'a str,
    /// Already encoded, and in canonical order.
    pub query: &'a str,
    /// The headers that are signed, in lower case and in order.
    pub headers: &'a [(&'a str, &'a str)],
    /// [`hash`] of the body, or [`UNSIGNED`].
    pub payload: &'a str,
    pub region: &'a str,
    pub service: &'a str,
    /// `20150830T123600Z`.
    pub time: &'a str,
}

/// The hash of a body.
pub fn hash(body: &[u8]) -> String {
    hex(digest(&SHA256, body))
}

/// The value of the `Authorization` header.
pub fn authorization(signer: Signer<'_>, request: Request<'_>) -> String {
    let Request { method, path, query, headers, payload, region, service, time } = request;
    let day = time.get(..8).unwrap_or(time);
    let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let headers: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let canonical = format!("{method}\n{path}\n{query}\n{headers}\n{names}\n{payload}");
    let scope = format!("{day}/{region}/{service}/aws4_request");
    let canonical = hash(canonical.as_bytes());
    let to_sign = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{canonical}");
    let first = format!("AWS4{}", signer.secret_key);
    let key = [day, region, service, "aws4_request"]
        .iter()
        .fold(first.into_bytes(), |key, part| mac(&key, part.as_bytes()));
    let signature = hex(mac(&key, to_sign.as_bytes()));
    let id = signer.access_key;
    format!("AWS4-HMAC-SHA256 Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}")
}

fn mac(key: &[u8], data: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: Signer<'_> =
        Signer { access_key: "AKIDEXAMPLE", secret_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY" };

    #[test]
    fn the_published_example_signs_as_published() {
        let request = Request {
            method: "GET",
            path: "/",
            query: "Action=ListUsers&Version=2010-05-08",
            headers: &[
                ("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
                ("host", "iam.amazonaws.com"),
                ("x-amz-date", "20150830T123600Z"),
            ],
            payload: &hash(b""),
            region: "us-east-1",
            service: "iam",
            time: "20150830T123600Z",
        };
        assert_eq!(
            authorization(EXAMPLE, request),
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date, \
             Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
        );
    }

    #[test]
    fn the_published_form_post_signs_as_published() {
        let request = Request {
            method: "POST",
            path: "/",
            query: "",
            headers: &[
                ("content-type", "application/x-www-form-urlencoded"),
                ("host", "example.amazonaws.com"),
                ("x-amz-date", "20150830T123600Z"),
            ],
            payload: &hash(b"Param1=value1"),
            region: "us-east-1",
            service: "service",
            time: "20150830T123600Z",
        };
        let signed = authorization(EXAMPLE, request);
        assert!(
            signed.ends_with("ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"),
            "{signed}"
        );
    }

    #[test]
    fn the_published_get_of_an_object_signs_as_published() {
        let empty = hash(b"");
        let request = Request {
            method: "GET",
            path: "/test.txt",
            query: "",
            headers: &[
                ("host", "examplebucket.s3.amazonaws.com"),
                ("range", "bytes=0-9"),
                ("x-amz-content-sha256", &empty),
                ("x-amz-date", "20130524T000000Z"),
            ],
            payload: &empty,
            region: "us-east-1",
            service: "s3",
            time: "20130524T000000Z",
        };
        let signer = Signer {
            access_key: "AKIAIOSFODNN7EXAMPLE",
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        };
        let signed = authorization(signer, request);
        assert!(
            signed.ends_with("f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
            "{signed}"
        );
    }
}

//! The kubeconfig Secret of clusters that no control plane object looks after.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, ResourceExt, api::PostParams};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose,
};
use remuda_api::core::{Cluster, Endpoint};
use remuda_control::ObjectKey;
use remuda_names::capi::label;
use time::OffsetDateTime;

use super::Clusters;
use crate::{Error, error::is_code, managed::plain_owner};

/// Type of every Secret that Cluster API makes.
const SECRET_TYPE: &str = "cluster.x-k8s.io/secret";
/// Where a kubeconfig is, in its Secret.
const KUBECONFIG: &str = "value";
const LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);
/// Clocks differ.
const BACKDATE: Duration = Duration::from_secs(300);

impl Clusters {
    /// Makes the Secret once the endpoint is known, from the cluster's CA. One that is there is left alone. The
    /// CA may come later; it wakes us if it has the label, like every Secret of a cluster should.
    pub(super) async fn ensure_kubeconfig(&self, cluster: &Cluster, now: Timestamp) -> Result<(), Error> {
        let spec = &cluster.spec;
        if !spec.control_plane_endpoint.is_valid()
            || spec.control_plane_ref.is_defined()
            || spec.topology.is_some()
        {
            return Ok(());
        }
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        let secret_name = format!("{name}-kubeconfig");
        if self.secrets.get(&ObjectKey::namespaced(&namespace, &secret_name)).is_some() {
            return Ok(());
        }
        let secrets: Api<Secret> = Api::namespaced(self.capi.ctx.client.clone(), &namespace);
        let read = async |name: &str| {
            let what = format!("Secret {namespace}/{name}");
            secrets.get_opt(name).await.map_err(Error::api("read", what))
        };
        // Without the label it is not in the cache.
        if read(&secret_name).await?.is_some() {
            return Ok(());
        }
        let ca_name = format!("{name}-ca");
        let Some(ca) = read(&ca_name).await? else {
            return Ok(());
        };
        let kubeconfig = generate(&name, &spec.control_plane_endpoint, &ca, now)
            .map_err(|why| Error::Invalid(format!("Secret {ca_name} is no use for a kubeconfig: {why}")))?;
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(secret_name.clone()),
                namespace: Some(namespace.clone()),
                labels: Some(BTreeMap::from([(label::CLUSTER_NAME.to_owned(), name)])),
                owner_references: Some(vec![plain_owner(cluster)]),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(KUBECONFIG.to_owned(), ByteString(kubeconfig.into_bytes()))])),
            type_: Some(SECRET_TYPE.to_owned()),
            ..Secret::default()
        };
        let params = PostParams {
            field_manager: Some(self.capi.ctx.field_manager.to_string()),
            ..PostParams::default()
        };
        match secrets.create(&params, &secret).await {
            Ok(_) => Ok(()),
            Err(error) if is_code(&error, 409) => Ok(()),
            Err(source) => Err(Error::api("create", format!("Secret {namespace}/{secret_name}"))(source)),
        }
    }
}

/// A kubeconfig with a client certificate of an administrator, signed by the cluster's CA.
fn generate(cluster: &str, endpoint: &Endpoint, ca: &Secret, now: Timestamp) -> Result<String, String> {
    let text = |key: &str| {
        let bytes = ca.data.as_ref().and_then(|data| data.get(key)).ok_or(format!("{key} is missing"))?;
        std::str::from_utf8(&bytes.0).map_err(|_| format!("{key} is not PEM"))
    };
    let certificate = text("tls.crt")?;
    let key = KeyPair::from_pem(text("tls.key")?).map_err(|error| format!("tls.key: {error}"))?;
    let issuer = Issuer::from_ca_cert_pem(certificate, key).map_err(|error| format!("tls.crt: {error}"))?;

    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, "system:masters");
    subject.push(DnType::CommonName, remuda_names::user::ADMIN);
    let mut params = CertificateParams::default();
    params.distinguished_name = subject;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    let now = OffsetDateTime::from_unix_timestamp(now.as_second()).map_err(|error| error.to_string())?;
    (params.not_before, params.not_after) = (now - BACKDATE, now + LIFETIME);
    let own = KeyPair::generate().map_err(|error| error.to_string())?;
    let signed = params.signed_by(&own, &issuer).map_err(|error| error.to_string())?;

    let host = match endpoint.host.parse::<std::net::Ipv6Addr>() {
        Ok(address) => format!("[{address}]"),
        Err(_) => endpoint.host.clone(),
    };
    // JSON strings are YAML strings, whatever is in them.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let user = format!("{cluster}-admin");
    let context = format!("{user}@{cluster}");
    Ok(format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - cluster:\n    \
         certificate-authority-data: {ca}\n    \
         server: {server}\n  \
         name: {cluster}\n\
         contexts:\n\
         - context:\n    \
         cluster: {cluster}\n    \
         user: {user}\n  \
         name: {context}\n\
         current-context: {context}\n\
         users:\n\
         - name: {user}\n  \
         user:\n    \
         client-certificate-data: {certificate}\n    \
         client-key-data: {key}\n",
        ca = STANDARD.encode(certificate),
        server = quoted(&format!("https://{host}:{}", endpoint.port)),
        cluster = quoted(cluster),
        user = quoted(&user),
        context = quoted(&context),
        certificate = STANDARD.encode(signed.pem()),
        key = STANDARD.encode(own.serialize_pem()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(certificate: &str, key: &str) -> Secret {
        let data = [("tls.crt", certificate), ("tls.key", key)];
        let data = data.into_iter().map(|(key, text)| (key.to_owned(), ByteString(text.as_bytes().to_vec())));
        Secret { data: Some(data.collect()), ..Secret::default() }
    }

    fn now() -> Timestamp {
        "2026-06-01T00:00:00Z".parse().unwrap()
    }

    /// Keys as `openssl` and Cluster API write them: not PKCS#8.
    #[test]
    fn authorities_of_all_usual_kinds_sign_administrators() {
        for (certificate, key) in [
            (include_str!("testdata/ca-rsa.crt"), include_str!("testdata/ca-rsa.key")),
            (include_str!("testdata/ca-ec.crt"), include_str!("testdata/ca-ec.key")),
        ] {
            let endpoint = Endpoint { host: "api.demo".to_owned(), port: 6443 };
            let text = generate("demo", &endpoint, &authority(certificate, key), now()).unwrap();
            let config = kube::config::Kubeconfig::from_yaml(&text).unwrap();
            let cluster = config.clusters[0].cluster.as_ref().unwrap();
            assert_eq!(cluster.server.as_deref(), Some("https://api.demo:6443"));
            let user = config.auth_infos[0].auth_info.as_ref().unwrap();
            let pem = STANDARD.decode(user.client_certificate_data.as_ref().unwrap()).unwrap();
            let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).unwrap();
            let signed = pem.parse_x509().unwrap();
            assert_eq!(signed.subject().to_string(), "O=system:masters, CN=kubernetes-admin");
            let (_, pem) = x509_parser::pem::parse_x509_pem(certificate.as_bytes()).unwrap();
            let authority = pem.parse_x509().unwrap();
            assert_eq!(signed.issuer().as_raw(), authority.subject().as_raw());
            assert!(signed.validity().not_after.timestamp() > now().as_second());
        }
    }

    #[test]
    fn an_authority_that_is_none_is_told() {
        let endpoint = Endpoint { host: "h".to_owned(), port: 1 };
        let told = |secret: &Secret| generate("demo", &endpoint, secret, now()).unwrap_err();
        assert_eq!(told(&Secret::default()), "tls.crt is missing");
        assert!(told(&authority("x", "y")).starts_with("tls.key: "));
    }
}

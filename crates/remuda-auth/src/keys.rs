//! Key pairs for tokens and certificates: ECDSA P-256, or RSA when somebody brings one.

use std::fmt;

use aws_lc_rs::{
    digest,
    encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der},
    rand::SystemRandom,
    rsa,
    signature::{
        ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING,
        EcdsaKeyPair, KeyPair as _, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256,
        RsaKeyPair, VerificationAlgorithm,
    },
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use x509_parser::{prelude::FromDer, public_key::PublicKey as ParsedKey, x509::SubjectPublicKeyInfo};

use crate::pem;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("no usable key in the PEM text")]
    NoKey,
    #[error("only ECDSA P-256 and RSA keys of at least 2048 bits are supported")]
    Unsupported,
    #[error("generate a key")]
    Generate,
    #[error("sign with a key")]
    Sign,
}

/// Signature algorithms by their names in JSON web tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    Es256,
    Rs256,
}

impl Algorithm {
    pub fn name(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::Rs256 => "RS256",
        }
    }

    fn verification(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Self::Es256 => &ECDSA_P256_SHA256_FIXED,
            Self::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
        }
    }
}

/// A private key with its public half.
pub struct KeyPair {
    private: Private,
    spki: Vec<u8>,
}

enum Private {
    /// The same key twice: token signatures have a fixed width, those in certificates are ASN.1.
    P256 {
        fixed: EcdsaKeyPair,
        asn1: EcdsaKeyPair,
    },
    Rsa(Box<RsaKeyPair>),
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyPair({})", self.algorithm().name())
    }
}

impl KeyPair {
    /// A fresh ECDSA P-256 key.
    pub fn generate() -> Result<Self, KeyError> {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(|_| KeyError::Generate)?;
        let pkcs8 = key.to_pkcs8v1().map_err(|_| KeyError::Generate)?;
        Self::from_der(pkcs8.as_ref())
    }

    /// A fresh RSA key of 2048 bits, for peers that know nothing else. Takes a while.
    pub fn generate_rsa() -> Result<Self, KeyError> {
        let key = RsaKeyPair::generate(rsa::KeySize::Rsa2048).map_err(|_| KeyError::Generate)?;
        Self::from_rsa(key)
    }

    /// Reads PKCS#8 as well as the older `EC PRIVATE KEY` and `RSA PRIVATE KEY` forms.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let block =
            pem::find(text, &["PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY"]).ok_or(KeyError::NoKey)?;
        Self::from_der(&block.der)
    }

    pub fn from_der(der: &[u8]) -> Result<Self, KeyError> {
        let fixed = EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_FIXED_SIGNING, der);
        let asn1 = EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_ASN1_SIGNING, der);
        if let (Ok(fixed), Ok(asn1)) = (fixed, asn1) {
            let spki = AsDer::<PublicKeyX509Der<'_>>::as_der(fixed.public_key())
                .map_err(|_| KeyError::Unsupported)?;
            let spki = spki.as_ref().to_vec();
            return Ok(Self { private: Private::P256 { fixed, asn1 }, spki });
        }
        let rsa = RsaKeyPair::from_pkcs8(der).or_else(|_| RsaKeyPair::from_der(der));
        Self::from_rsa(rsa.map_err(|_| KeyError::Unsupported)?)
    }

    fn from_rsa(key: RsaKeyPair) -> Result<Self, KeyError> {
        let spki =
            AsDer::<PublicKeyX509Der<'_>>::as_der(key.public_key()).map_err(|_| KeyError::Unsupported)?;
        let spki = spki.as_ref().to_vec();
        Ok(Self { private: Private::Rsa(Box::new(key)), spki })
    }

    /// PKCS#8 in PEM. Secret.
    pub fn to_pem(&self) -> Result<String, KeyError> {
        match &self.private {
            Private::P256 { fixed, .. } => {
                let der = fixed.to_pkcs8v1().map_err(|_| KeyError::Unsupported)?;
                Ok(pem::encode("PRIVATE KEY", der.as_ref()))
            }
            Private::Rsa(key) => {
                let der = AsDer::<Pkcs8V1Der<'_>>::as_der(&**key).map_err(|_| KeyError::Unsupported)?;
                Ok(pem::encode("PRIVATE KEY", der.as_ref()))
            }
        }
    }

    pub fn algorithm(&self) -> Algorithm {
        match self.private {
            Private::P256 { .. } => Algorithm::Es256,
            Private::Rsa(_) => Algorithm::Rs256,
        }
    }

    /// The public half as DER SubjectPublicKeyInfo.
    pub fn spki(&self) -> &[u8] {
        &self.spki
    }

    pub fn public(&self) -> Result<PublicKey, KeyError> {
        PublicKey::from_spki(&self.spki)
    }

    /// A signature as JSON web tokens carry it.
    pub fn sign_token(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        match &self.private {
            Private::P256 { fixed, .. } => sign_ecdsa(fixed, message),
            Private::Rsa(key) => sign_rsa(key, message),
        }
    }

    /// A signature as certificates carry it.
    pub(crate) fn sign_asn1(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        match &self.private {
            Private::P256 { asn1, .. } => sign_ecdsa(asn1, message),
            Private::Rsa(key) => sign_rsa(key, message),
        }
    }
}

fn sign_ecdsa(key: &EcdsaKeyPair, message: &[u8]) -> Result<Vec<u8>, KeyError> {
    let signature = key.sign(&SystemRandom::new(), message).map_err(|_| KeyError::Sign)?;
    Ok(signature.as_ref().to_vec())
}

fn sign_rsa(key: &RsaKeyPair, message: &[u8]) -> Result<Vec<u8>, KeyError> {
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature).map_err(|_| KeyError::Sign)?;
    Ok(signature)
}

/// A key that verifies token signatures.
#[derive(Clone)]
pub struct PublicKey {
    algorithm: Algorithm,
    id: String,
    spki: Vec<u8>,
    parsed: ParsedPublicKey,
    numbers: Numbers,
}

/// What a JSON web key is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Numbers {
    Ec { x: Vec<u8>, y: Vec<u8> },
    Rsa { n: Vec<u8>, e: Vec<u8> },
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({} {})", self.algorithm.name(), self.id)
    }
}

impl PublicKey {
    pub fn from_spki(der: &[u8]) -> Result<Self, KeyError> {
        let (_, info) = SubjectPublicKeyInfo::from_der(der).map_err(|_| KeyError::Unsupported)?;
        let (algorithm, numbers) = match info.parsed().map_err(|_| KeyError::Unsupported)? {
            // An uncompressed point of P-256: 4, then two numbers of 32 bytes.
            ParsedKey::EC(point) if point.data().len() == 65 && point.data()[0] == 4 => {
                let (x, y) = point.data()[1..].split_at(32);
                (Algorithm::Es256, Numbers::Ec { x: x.to_vec(), y: y.to_vec() })
            }
            ParsedKey::RSA(key) => {
                let trim = |number: &[u8]| {
                    let zeros = number.iter().take_while(|byte| **byte == 0).count();
                    number[zeros..].to_vec()
                };
                (Algorithm::Rs256, Numbers::Rsa { n: trim(key.modulus), e: trim(key.exponent) })
            }
            _ => return Err(KeyError::Unsupported),
        };
        // Rejects other curves and short moduli.
        let parsed =
            ParsedPublicKey::new(algorithm.verification(), der).map_err(|_| KeyError::Unsupported)?;
        Ok(Self { algorithm, id: key_id(der), spki: der.to_vec(), parsed, numbers })
    }

    pub fn to_pem(&self) -> String {
        pem::encode("PUBLIC KEY", &self.spki)
    }

    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The `kid` of tokens signed by the private half.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    pub(crate) fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        self.parsed.verify_sig(message, signature).is_ok()
    }
}

/// Base64url of the SHA-256 of the DER public key: tells which key without revealing it.
pub(crate) fn key_id(spki: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(sha256(spki))
}

pub fn sha256(data: &[u8]) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, data);
    digest.as_ref().try_into().expect("SHA-256 yields 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_a_round_trip_through_pem() {
        let key = KeyPair::generate().unwrap();
        let again = KeyPair::from_pem(&key.to_pem().unwrap()).unwrap();
        assert_eq!(key.spki(), again.spki());
        let public = key.public().unwrap();
        let signature = again.sign_token(b"m").unwrap();
        assert_eq!(signature.len(), 64);
        assert!(public.verify(b"m", &signature) && !public.verify(b"n", &signature));
        assert_eq!(format!("{key:?}"), "KeyPair(ES256)");
    }

    #[test]
    fn rsa_keys_sign_and_verify() {
        let key = KeyPair::generate_rsa().unwrap();
        let again = KeyPair::from_pem(&key.to_pem().unwrap()).unwrap();
        let public = key.public().unwrap();
        assert_eq!(public.algorithm(), Algorithm::Rs256);
        assert!(public.verify(b"m", &again.sign_token(b"m").unwrap()));
        let Numbers::Rsa { n, e } = public.numbers() else { panic!() };
        assert_eq!((n.len(), e.as_slice()), (256, &[1, 0, 1][..]));
    }

    #[test]
    fn keys_in_the_form_openssl_writes_are_read() {
        // A throwaway key: openssl ecparam -name prime256v1 -genkey -noout
        let sec1 = "-----BEGIN EC PRIVATE KEY-----\n\
            MHcCAQEEIB3jGyR74PFQi+nYqvWMnRufsHRIq/OZ72jDoDqQKqg2oAoGCCqGSM49\n\
            AwEHoUQDQgAEiDA9681I+Ea0H/QaBJVeimpmwOAw4urxjEv+vA15XfpJC2rfMQ1U\n\
            kF9cTYKCAlvLUd7UWILJjb2DG4gY0m66fQ==\n\
            -----END EC PRIVATE KEY-----\n";
        let key = KeyPair::from_pem(sec1).unwrap();
        assert!(key.public().unwrap().verify(b"m", &key.sign_token(b"m").unwrap()));
        assert_eq!(KeyPair::from_pem("").unwrap_err(), KeyError::NoKey);
        assert!(PublicKey::from_spki(b"junk").is_err());
    }
}

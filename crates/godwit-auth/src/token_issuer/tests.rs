use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use serde_json::json;

use super::*;

pub(crate) const NOW: f64 = 1_800_000_000.0;

/// Encodes bytes as URL-safe Base64 (RFC 4648 §5) without padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for at in 0..=three.len() {
            text.push(char::from(LETTERS[(bits >> (18 - 6 * at) & 63) as usize]));
        }
    }
    text
}

pub(crate) struct Signer {
    edwards: Ed25519KeyPair,
    curve: EcdsaKeyPair,
    random: SystemRandom,
}

impl Signer {
    pub(crate) fn new() -> Self {
        let random = SystemRandom::new();
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let edwards = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let curve = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).unwrap();
        Self { edwards, curve, random }
    }

    pub(crate) fn keys(&self) -> String {
        let point = self.curve.public_key().as_ref();
        json!({ "keys": [
            { "kty": "OKP", "crv": "Ed25519", "kid": "e", "x": encode(self.edwards.public_key().as_ref()) },
            { "kty": "EC", "crv": "P-256", "kid": "c", "alg": "ES256", "x": encode(&point[1..33]), "y": encode(&point[33..]) },
            { "kty": "RSA", "kid": "short", "n": encode(&[1; 128]), "e": "AQAB" },
            { "kty": "oct", "kid": "secret", "k": "c2VjcmV0" },
        ]})
        .to_string()
    }

    pub(crate) fn token(&self, header: &Value, claims: &Value) -> Vec<u8> {
        let signed = format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.to_string().as_bytes()));
        let signature = match header["alg"].as_str() {
            Some("ES256") => self.curve.sign(&self.random, signed.as_bytes()).unwrap().as_ref().to_vec(),
            _ => self.edwards.sign(signed.as_bytes()).as_ref().to_vec(),
        };
        format!("{signed}.{}", encode(&signature)).into_bytes()
    }
}

/// The modulus of an RSA key of 2048 bits that OpenSSL 3 generated.
const RSA_MODULUS: &str = "qU2PuTYYKmnYLl82L8gCkMBLoGDZIO6vxhcJsNj1RfOsXuujt1AsRp0fhwKEKPbC2YPrmeXRLjBGyAUDYi5Vc9jJuNV6BucB\
    Q3Hv7OJICCCKnDpGSqApO4_STxAs5fGSup9MUJOaPGcEkNLWbPjrFcX-ZY016nJeu8jqYEt3XYGgsTP-nuLou4x7IV2ZCDnb\
    KRrZDfLQi2J9XZYE1gRHCLxdG7b-Y8M18evWOlUKwJpdBeavuuLOTdqDkF3Lfvu5G0VcsJ5JdH5Mx5OWJrvCPWHChcLJ5GFO\
    oCmKkCvNDFjtiYsu1DPpqryffCJttZIsQVFi0w7U0SBnK5PPscgZnw";
/// A token that OpenSSL 3 signed with this key (`openssl dgst -sha256 -sign`).
const RSA_TOKEN: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6InIifQ.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUub3JnIiwiYXVkIjoiZ29kd\
    2l0Iiwic3ViIjoiYWxpY2UiLCJleHAiOjE4MDAwMDAzMDB9.kAE7EcmiiGqT-nskcSTOhX2woOk149edpryXzvU_4x2j1PWm\
    G3rq1YFJZwABI5JSRJP54SgO_ec67H_PgfpDLh7joq6hVjwis563kr0dZrbezFrNboqd8a8r2NSB047yct_rwCYO3vUmWwZE\
    WjakGN8qnVv8UMXjeVb_Woq5MnO6kYR-Tl6JoaYqksOkFPKWwiY-sGg1V0cGtrO6wdNLQuAbRZ4Y5SeB99mqARu38YzS1_cZ\
    iPa5XHoWU5VwQizFmzJrHVNowgeQ-Yy_EwJ_0iphGDaHnAwtEckz9PmtBXx3eKyKaYDDO8acgPW2POTyGasllD4zlZMCAocr\
    lHjP1w";

fn claims() -> Value {
    json!({ "iss": "https://login.example.org", "aud": ["x", "godwit"], "sub": "alice", "exp": NOW + 300.0, "nbf": NOW })
}

fn issuer(signer: &Signer) -> TokenIssuer {
    TokenIssuer::new(&signer.keys(), "https://login.example.org", "godwit", SUBJECT_CLAIM).unwrap()
}

#[test]
fn a_token_signed_by_the_issuer_names_its_subject() {
    let signer = Signer::new();
    for (algorithm, id) in [("EdDSA", "e"), ("ES256", "c")] {
        let token = signer.token(&json!({ "alg": algorithm, "kid": id, "typ": "JWT" }), &claims());
        assert!(TokenIssuer::is_jwt(&token));
        assert_eq!(
            issuer(&signer).verify_at(&token, NOW).map(|shown| shown.name).as_deref(),
            Some("alice"),
            "{algorithm}"
        );
        for at in 0..token.len() {
            let mut changed = token.clone();
            changed[at] ^= 1;
            // The last Base64 character may contain unused bits; changing them does not change the token.
            let end = [token.len() - 1, token.iter().rposition(|byte| *byte == b'.').unwrap() - 1];
            let admitted = issuer(&signer).verify_at(&changed, NOW);
            assert!(admitted.is_none() || end.contains(&at), "{algorithm}: byte {at} does not count");
        }
    }
}

#[test]
fn a_token_that_openssl_signed_with_an_rsa_key_is_accepted() {
    let keys = |modulus: &str| json!({ "keys": [{ "kty": "RSA", "kid": "r", "n": modulus, "e": "AQAB" }] }).to_string();
    let issuer =
        |modulus: &str| TokenIssuer::new(&keys(modulus), "https://login.example.org", "godwit", SUBJECT_CLAIM).unwrap();
    let verified = issuer(RSA_MODULUS).verify_at(RSA_TOKEN.as_bytes(), NOW).unwrap();
    assert_eq!((&*verified.name, verified.expires_unix_s), ("alice", NOW as u64 + 360));
    let other_key = RSA_MODULUS.replacen("A", "B", 1);
    assert!(issuer(&other_key).verify_at(RSA_TOKEN.as_bytes(), NOW).is_none());
}

#[test]
fn a_token_for_another_audience_or_time_is_rejected() {
    let signer = Signer::new();
    let with = |name: &str, value: Value| {
        let mut claims = claims();
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value,
        }
        let token = signer.token(&json!({ "alg": "EdDSA", "kid": "e" }), &claims);
        issuer(&signer).verify_at(&token, NOW).is_some()
    };
    assert!(with("iat", json!(NOW)) && with("nbf", Value::Null) && with("aud", json!("godwit")));
    for (name, value) in [
        ("exp", json!(NOW - 61.0)),
        ("exp", json!("2099-01-01")),
        ("exp", Value::Null),
        ("nbf", json!(NOW + 61.0)),
        ("nbf", json!("soon")),
        ("iss", json!("https://login.example.org/")),
        ("iss", Value::Null),
        ("aud", json!("another")),
        ("aud", json!(["another"])),
        ("aud", Value::Null),
        ("sub", Value::Null),
        ("sub", json!("")),
        ("sub", json!("a\nb")),
        ("sub", json!(7)),
    ] {
        assert!(!with(name, value.clone()), "{name} {value}");
    }
}

#[test]
fn the_key_determines_the_algorithm_and_never_the_token() {
    let signer = Signer::new();
    for header in [
        json!({ "alg": "none", "kid": "e" }),
        json!({ "alg": "HS256", "kid": "e" }),
        json!({ "alg": "HS256", "kid": "secret" }),
        json!({ "alg": "ES256", "kid": "e" }),
        json!({ "alg": "RS256", "kid": "short" }),
        json!({ "alg": "EdDSA", "kid": "c" }),
        json!({ "alg": "EdDSA", "kid": "none" }),
        json!({ "alg": "EdDSA", "kid": 7 }),
        json!({ "alg": "EdDSA" }),
        json!({ "kid": "e" }),
        json!({ "alg": "EdDSA", "kid": "e", "crit": ["exp"] }),
    ] {
        let token = signer.token(&header, &claims());
        assert!(issuer(&signer).verify_at(&token, NOW).is_none(), "{header}");
        let end = token.iter().rposition(|byte| *byte == b'.').unwrap() + 1;
        assert!(issuer(&signer).verify_at(&token[..end], NOW).is_none(), "{header}, not signed");
    }
    let stranger = Signer::new().token(&json!({ "alg": "EdDSA", "kid": "e" }), &claims());
    assert!(issuer(&signer).verify_at(&stranger, NOW).is_none());
    for nonsense in ["..", "a.b.c", "", "eyJ.eyJ.", &format!("{}..", "A".repeat(crate::key_set::MAX_TOKEN_BYTES))] {
        assert!(issuer(&signer).verify_at(nonsense.as_bytes(), NOW).is_none());
    }
}

#[test]
fn unusable_keys_are_reported() {
    let error = |keys: &str| TokenIssuer::new(keys, "i", "a", SUBJECT_CLAIM).unwrap_err();
    assert!(
        matches!(error("[]"), KeySetError::Malformed { .. }) && matches!(error("{"), KeySetError::Malformed { .. })
    );
    assert_eq!(error("{\"keys\":[]}"), KeySetError::NoUsableKey);
    let for_secrets = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "use": "enc", "x": encode(&[7; 32]) }] });
    assert_eq!(error(&for_secrets.to_string()), KeySetError::NoUsableKey);
}

use serde_json::json;

use super::*;
use crate::token_issuer::tests::{NOW, Signer, encode};
use crate::token_issuer::{SUBJECT_CLAIM, TokenIssuer};

const KEYS: &str = "https://visas.example.org/jwks";
const SOURCE: &str = "https://ega-archive.org/dacs/EGAC00000000001";

/// Key pairs of a passport broker, of a visa issuer, and of an impostor that uses the name of this visa issuer.
struct TestIssuers {
    broker: Signer,
    visa_issuer: Signer,
    other_issuer: Signer,
}

impl TestIssuers {
    fn new() -> Self {
        Self { broker: Signer::new(), visa_issuer: Signer::new(), other_issuer: Signer::new() }
    }

    fn issuer(&self, keys_at: Option<&str>) -> TokenIssuer {
        let visas = VisaIssuer::new("https://visas.example.org", keys_at, &self.visa_issuer.keys()).unwrap();
        let broker =
            TokenIssuer::new(&self.broker.keys(), "https://broker.example.org", "godwit", SUBJECT_CLAIM).unwrap();
        broker.with_visas(vec![visas])
    }

    fn passport(&self, visas: &[Vec<u8>]) -> Vec<u8> {
        let visas: Vec<_> = visas.iter().map(|visa| String::from_utf8(visa.clone()).unwrap()).collect();
        let claims = json!({ "iss": "https://broker.example.org", "sub": "alice", "iat": NOW, "exp": NOW + 600.0,
            "ga4gh_passport_v1": visas });
        self.broker.token(&json!({ "alg": "ES256", "kid": "c", "typ": PASSPORT_TYPE }), &claims)
    }

    fn visa(&self, change: &dyn Fn(&mut Value, &mut Value)) -> Vec<u8> {
        let mut header = json!({ "alg": "ES256", "kid": "c", "typ": "JWT", "jku": KEYS });
        let mut claims = grant();
        change(&mut header, &mut claims);
        self.visa_issuer.token(&header, &claims)
    }

    /// Returns the values of those visas in a passport that are accepted.
    fn accepted_values(&self, visas: &[Vec<u8>]) -> Vec<String> {
        let shown = self.issuer(Some(KEYS)).verify_at(&self.passport(visas), NOW).expect("the passport is good");
        assert_eq!(&*shown.name, "alice");
        shown.visas.into_iter().map(|visa| visa.value).collect()
    }
}

fn grant() -> Value {
    json!({ "iss": "https://visas.example.org", "sub": "a1", "iat": NOW - 9000.0, "exp": NOW + 300.0, "jti": "1",
        "ga4gh_visa_v1": { "type": "ControlledAccessGrants", "asserted": NOW - 9000.0,
            "value": "https://ega-archive.org/datasets/EGAD1", "source": SOURCE, "by": "dac" } })
}

fn set(name: &'static str, value: Value) -> impl Fn(&mut Value, &mut Value) {
    move |_, claims| match &value {
        Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
        value => claims[name] = value.clone(),
    }
}

fn set_visa(name: &'static str, value: Value) -> impl Fn(&mut Value, &mut Value) {
    move |_, claims| match &value {
        Value::Null => drop(claims[VISA_CLAIM].as_object_mut().unwrap().remove(name)),
        value => claims[VISA_CLAIM][name] = value.clone(),
    }
}

#[test]
fn a_visa_that_its_issuer_signed_counts_and_ends_the_passport_with_it() {
    let world = TestIssuers::new();
    let passport = world.passport(&[world.visa(&|_, _| ())]);
    let shown = world.issuer(Some(KEYS)).verify_at(&passport, NOW).unwrap();
    let expected = Visa {
        issuer: "https://visas.example.org".to_owned(),
        kind: "ControlledAccessGrants".to_owned(),
        value: "https://ega-archive.org/datasets/EGAD1".to_owned(),
        source: SOURCE.to_owned(),
        by: Some("dac".to_owned()),
        expires_unix_s: NOW as u64 + 360,
    };
    assert_eq!((shown.visas, shown.expires_unix_s), (vec![expected], NOW as u64 + 360));
    // If no key location is configured, any key location is accepted.
    assert_eq!(world.issuer(None).verify_at(&passport, NOW).unwrap().visas.len(), 1);
    // A token of an issuer without visa issuers must contain an audience.
    let plain = TokenIssuer::new(&world.broker.keys(), "https://broker.example.org", "godwit", SUBJECT_CLAIM).unwrap();
    assert!(plain.verify_at(&passport, NOW).is_none());
    for at in 0..passport.len() {
        let mut changed = passport.clone();
        changed[at] ^= 1;
        let admitted = world.issuer(None).verify_at(&changed, NOW);
        assert!(admitted.is_none() || at == passport.len() - 1, "byte {at} does not count");
    }
}

#[test]
fn visas_that_are_not_good_are_passed_over() {
    let world = TestIssuers::new();
    let good = world.visa(&|_, _| ());
    assert_eq!(world.accepted_values(&[good.clone(), b"a.b.c".to_vec(), good.clone()]).len(), 2);
    let header = |name: &'static str, value: Value| {
        world.visa(&move |header, _| match &value {
            Value::Null => drop(header.as_object_mut().unwrap().remove(name)),
            value => header[name] = value.clone(),
        })
    };
    let access = |since: f64, scope: &'static str, more: &'static str| {
        world.visa(&move |header, claims| {
            header.as_object_mut().unwrap().remove("jku");
            (claims["iat"], claims["scope"]) = (json!(since), json!(scope));
            claims[more] = json!("x");
        })
    };
    assert_eq!(world.accepted_values(&[access(NOW - 60.0, "openid ga4gh", "other")]).len(), 1);
    let signed_by_another = world.other_issuer.token(&json!({ "alg": "ES256", "kid": "c", "jku": KEYS }), &grant());
    let mut with_a_body_of_another: Vec<Vec<u8>> = good.split(|byte| *byte == b'.').map(<[u8]>::to_vec).collect();
    with_a_body_of_another[1] = encode(grant().to_string().replace("EGAD1", "EGAD2").as_bytes()).into_bytes();
    for (what, visa) in [
        ("of a stranger", signed_by_another),
        ("of another body", with_a_body_of_another.join(&b'.')),
        ("of the broker", world.broker.token(&json!({ "alg": "ES256", "kid": "c", "jku": KEYS }), &grant())),
        ("of another issuer", world.visa(&set("iss", json!("https://elsewhere.example.org")))),
        ("ended", world.visa(&set("exp", json!(NOW - 61.0)))),
        ("without an end", world.visa(&set("exp", Value::Null))),
        ("not yet good", world.visa(&set("nbf", json!(NOW + 61.0)))),
        ("without a beginning", world.visa(&set("iat", Value::Null))),
        ("without a subject", world.visa(&set("sub", Value::Null))),
        ("a document that is to be asked about", world.visa(&set("scope", json!("openid")))),
        ("without a visa", world.visa(&set(VISA_CLAIM, Value::Null))),
        ("without a type", world.visa(&set_visa("type", Value::Null))),
        ("without a value", world.visa(&set_visa("value", json!("")))),
        ("without a source", world.visa(&set_visa("source", json!(7)))),
        ("never asserted", world.visa(&set_visa("asserted", Value::Null))),
        ("with conditions that are none", world.visa(&set_visa("conditions", json!("const:x")))),
        ("with keys elsewhere", header("jku", json!("https://evil.example.org/jwks"))),
        ("signed in another way", header("alg", json!("EdDSA"))),
        ("not signed", header("alg", json!("none"))),
        ("of no known key", header("kid", json!("x"))),
        ("old, and not checked at the issuer", access(NOW - 3601.0, "openid", "other")),
        ("for another audience", access(NOW - 60.0, "openid", "aud")),
        ("neither a document nor for access", access(NOW - 60.0, "profile", "other")),
    ] {
        assert_eq!(world.accepted_values(&[visa]).len(), 0, "{what}");
    }
    let many: Vec<Vec<u8>> = std::iter::repeat_n(b"x".to_vec(), MAX_VISAS).chain([good]).collect();
    assert_eq!(world.accepted_values(&many).len(), 0, "too many");
}

#[test]
fn conditions_are_met_by_other_visas_of_the_same_person() {
    let world = TestIssuers::new();
    let of = |subject: &str, kind: &str, value: &str| {
        let (subject, kind, value) = (subject.to_owned(), kind.to_owned(), value.to_owned());
        world.visa(&move |_, claims| {
            claims["sub"] = json!(subject);
            (claims[VISA_CLAIM]["type"], claims[VISA_CLAIM]["value"]) = (json!(kind), json!(value));
        })
    };
    let role = of("a1", "AffiliationAndRole", "faculty@uni.example.org");
    let status = of("a1", "ResearcherStatus", "https://doi.org/10.1038/s41431-018-0219-y");
    let role_of_bob = of("b1", "AffiliationAndRole", "faculty@uni.example.org");
    let link = of("a1", LINKED_IDENTITIES, "x9,https%3A%2F%2Felse;b1,https%3A%2F%2Fvisas.example.org");
    let counts = |conditions: Value, others: &[&Vec<u8>]| {
        let visa = world.visa(&set_visa("conditions", conditions));
        let all: Vec<Vec<u8>> = [&visa].into_iter().chain(others.iter().copied()).cloned().collect();
        world.accepted_values(&all).iter().any(|value| value.contains("EGAD1"))
    };
    let faculty = json!({ "type": "AffiliationAndRole", "value": "pattern:faculty@*" });
    let researcher = json!({ "type": "ResearcherStatus", "by": "const:dac", "source": format!("const:{SOURCE}") });
    assert!(counts(json!([]), &[]));
    assert!(counts(json!([[faculty]]), &[&role]) && !counts(json!([[faculty]]), &[]));
    assert!(
        !counts(json!([[faculty, researcher]]), &[&role]) && counts(json!([[faculty, researcher]]), &[&role, &status])
    );
    assert!(counts(json!([[researcher], [faculty]]), &[&role]), "either list");
    assert!(
        !counts(json!([[faculty]]), &[&role_of_bob]) && counts(json!([[faculty]]), &[&role_of_bob, &link]),
        "linked"
    );
    let split = json!({ "type": LINKED_IDENTITIES, "value": "split_pattern:b?,https*" });
    assert!(counts(json!([[split]]), &[&link]));
    for unfit in [
        json!([[]]),
        json!([faculty]),
        json!([[{ "type": "AffiliationAndRole" }]]),
        json!([[{ "value": "const:faculty@uni.example.org", "by": "const:dac" }]]),
        json!([[{ "type": "AffiliationAndRole", "value": "faculty@uni.example.org" }]]),
        json!([[{ "type": "AffiliationAndRole", "value": "regex:.*" }]]),
        json!([[{ "type": "AffiliationAndRole", "value": "const:Faculty@uni.example.org" }]]),
        json!([[{ "type": "AffiliationAndRole", "asserted": "pattern:*" }]]),
        json!([[{ "type": "AffiliationAndRole", "value": "pattern:faculty@*", "by": "const:so" }]]),
    ] {
        assert!(!counts(unfit.clone(), &[&role, &status]), "{unfit}");
    }
    // A visa with conditions cannot meet a condition of another visa.
    let conditional = world.visa(&|_, claims| {
        claims[VISA_CLAIM]["type"] = json!("AffiliationAndRole");
        claims[VISA_CLAIM]["conditions"] = json!([[researcher]]);
    });
    let role_of_anybody = json!([[{ "type": "AffiliationAndRole", "by": "const:dac" }]]);
    let value = |visa: &Vec<u8>| {
        world.accepted_values(&[
            visa.clone(),
            status.clone(),
            world.visa(&set_visa("conditions", role_of_anybody.clone())),
        ])
    };
    assert_eq!(value(&conditional).len(), 2);
}

#[test]
fn patterns_have_two_wildcards() {
    for (pattern, text, fitting) in [
        ("", "", true),
        ("*", "", true),
        ("?", "", false),
        ("a*b?c", "axxbbyc", true),
        ("a*b?c", "axxbc", false),
        ("*.org", "a.org.org", true),
        ("é?", "éü", true),
        ("a\\*", "a*", false),
        (&"*a".repeat(30), &"a".repeat(29), false),
        ("faculty@*", "Faculty@x", false),
    ] {
        assert_eq!(matches_pattern(pattern, text), fitting, "{pattern} {text}");
    }
}

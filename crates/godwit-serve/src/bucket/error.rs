//! What can be wrong with an object store, said without what requests were signed with.

use std::error::Error;
use std::io;
use std::path::Path;

use godwit_flight::DatasetError;

use super::BucketPlace;

/// Why objects cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum RemoteError {
    /// There is no such bucket.
    #[error("there is no bucket {bucket:?} at {endpoint}; check the name, AWS_REGION and AWS_ENDPOINT_URL")]
    NoBucket { bucket: String, endpoint: String },
    /// Who asks may not.
    #[error("{path}: the object store at {endpoint} does not let this be read{told}; {advice}")]
    Denied { path: String, endpoint: String, told: String, advice: &'static str },
    /// Nobody answers.
    #[error("cannot reach the object store at {endpoint}: {problem}; check the network and AWS_ENDPOINT_URL")]
    Unreachable { endpoint: String, problem: String },
    /// It is another object by now, or gone.
    #[error("{path} has changed since this was asked for; ask again")]
    Changed { path: String },
    /// It answers with something else.
    #[error("{path}: the object store at {endpoint} failed: {problem}; try again later")]
    Failed { path: String, endpoint: String, problem: String },
}

impl RemoteError {
    pub(crate) fn new(place: &BucketPlace, path: &Path, error: object_store::Error) -> Self {
        let endpoint = place.endpoint();
        let path = path.display().to_string();
        let text = error.to_string();
        let code = code_in(&text);
        match error {
            _ if code == Some("NoSuchBucket") => Self::NoBucket { bucket: place.name.clone(), endpoint },
            // A request is for one state of an object.
            object_store::Error::NotFound { .. } | object_store::Error::Precondition { .. } => Self::Changed { path },
            object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
                Self::denied(place, path, code)
            }
            // Of listing it is not told apart.
            _ if matches!(status_in(&text), Some("401" | "403")) => Self::denied(place, path, code),
            error => match (status_in(&text), code) {
                (Some(status), code) => {
                    let code = code.map(|code| format!(" ({code})")).unwrap_or_default();
                    Self::Failed { path, endpoint, problem: format!("it answers with status {status}{code}") }
                }
                (None, _) => Self::Unreachable { endpoint, problem: last_cause(&error) },
            },
        }
    }

    fn denied(place: &BucketPlace, path: String, code: Option<&str>) -> Self {
        let endpoint = place.endpoint();
        let told = code.map(|code| format!(" ({code})")).unwrap_or_default();
        let advice = if place.is_anonymous {
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY if it is not public"
        } else {
            "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and what they permit"
        };
        Self::Denied { path, endpoint, told, advice }
    }
}

impl From<RemoteError> for DatasetError {
    fn from(error: RemoteError) -> Self {
        match error {
            RemoteError::Changed { path } => Self::Changed { name: path },
            error => Self::Remote(error.into()),
        }
    }
}

/// The error code that S3 answers with, in XML.
fn code_in(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    (!code.is_empty() && code.chars().all(|letter| letter.is_ascii_alphanumeric())).then_some(code)
}

/// The HTTP status that an answer had.
fn status_in(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3).filter(|status| status.bytes().all(|letter| letter.is_ascii_digit()))
}

/// The innermost cause: outer ones tell of requests and of how often they were made.
fn last_cause(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

/// What an error says, without which store it is of.
pub(super) fn without_kind(error: &object_store::Error) -> String {
    match error {
        object_store::Error::Generic { source, .. } => source.to_string(),
        error => error.to_string(),
    }
}

/// The error of an object store among the causes of another, which readers know as one of reading.
pub(crate) fn remote_cause(error: &(dyn Error + 'static)) -> Option<RemoteError> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(found) = wrapped.and_then(|error| error.downcast_ref::<RemoteError>()) {
            return Some(found.clone());
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(error: object_store::Error) -> String {
        let place = BucketPlace { name: "b".into(), endpoint: Some("https://e".into()), is_anonymous: true };
        RemoteError::new(&place, Path::new("s3://b/x"), error).to_string()
    }

    #[test]
    fn what_servers_say_becomes_one_line_without_what_was_signed() {
        let path = || "x".to_owned();
        let body = |code: &str| {
            format!(
                "Server returned non-2xx status code: 403 Forbidden: <Error><Code>{code}</Code><StringToSign>AWS4 hushed</StringToSign>"
            )
        };
        let denied = object_store::Error::PermissionDenied { path: path(), source: body("AccessDenied").into() };
        let said = of(denied);
        assert!(said.contains("(AccessDenied)") && said.contains("AWS_ACCESS_KEY_ID"), "{said}");
        assert!(!said.contains("hushed") && !said.contains('<'), "{said}");
        let listing = object_store::Error::Generic { store: "S3", source: body("SignatureDoesNotMatch").into() };
        assert!(of(listing).contains("does not let this be read (SignatureDoesNotMatch)"));
        let no_bucket = object_store::Error::NotFound { path: path(), source: body("NoSuchBucket").into() };
        assert!(of(no_bucket).starts_with("there is no bucket \"b\" at https://e"));
        let busy = "status code: 503 Slow: hushed".to_owned();
        let said = of(object_store::Error::Generic { store: "S3", source: busy.into() });
        assert!(said.contains("status 503") && !said.contains("hushed"), "{said}");
        let down = io::Error::new(io::ErrorKind::ConnectionRefused, "refused");
        let said = of(object_store::Error::Generic { store: "S3", source: down.into() });
        assert!(said.starts_with("cannot reach the object store at https://e: refused"), "{said}");
    }

    #[test]
    fn errors_are_found_below_those_of_readers() {
        let remote = RemoteError::Changed { path: "x".into() };
        assert!(matches!(remote_cause(&io::Error::other(remote)), Some(RemoteError::Changed { .. })));
        assert!(remote_cause(&io::Error::other("another")).is_none());
    }
}

//! Errors of an object store. They do not contain the credentials of requests.

use std::error::Error;
use std::io;
use std::path::Path;

use godwit_dataset::DatasetError;

use super::BucketEndpoint;

/// An error of listing or reading objects.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum RemoteError {
    /// The bucket does not exist.
    #[error("there is no bucket {bucket:?} at {endpoint}; check the name, AWS_REGION and AWS_ENDPOINT_URL")]
    BucketNotFound { bucket: String, endpoint: String },
    /// The credentials do not permit this request.
    #[error("{path}: access denied by the object store at {endpoint}{code_text}; {advice}")]
    AccessDenied { path: String, endpoint: String, code_text: String, advice: &'static str },
    /// The endpoint does not respond.
    #[error("cannot reach the object store at {endpoint}: {problem}; check the network and AWS_ENDPOINT_URL")]
    Unreachable { endpoint: String, problem: String },
    /// The object was replaced or deleted after its snapshot.
    #[error("{path} has changed since the request began; send the request again")]
    Changed { path: String },
    /// The store responded with another error.
    #[error("{path}: the object store at {endpoint} failed: {problem}; try again later")]
    RequestFailed { path: String, endpoint: String, problem: String },
}

impl RemoteError {
    pub(crate) fn new(place: &BucketEndpoint, path: &Path, error: object_store::Error) -> Self {
        let endpoint = place.display_name();
        let path = path.display().to_string();
        let text = error.to_string();
        let code = s3_error_code(&text);
        match error {
            _ if code == Some("NoSuchBucket") => Self::BucketNotFound { bucket: place.bucket.clone(), endpoint },
            // Each request contains the expected ETag of the object, so both errors mean that the object has changed.
            object_store::Error::NotFound { .. } | object_store::Error::Precondition { .. } => Self::Changed { path },
            object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
                Self::access_denied(place, path, code)
            }
            // The object store library has no separate error type for denied listings, so use the HTTP status in the
            // message.
            _ if matches!(http_status(&text), Some("401" | "403")) => Self::access_denied(place, path, code),
            error => match (http_status(&text), code) {
                (Some(status), code) => {
                    let code = code.map(|code| format!(" ({code})")).unwrap_or_default();
                    Self::RequestFailed { path, endpoint, problem: format!("it responded with status {status}{code}") }
                }
                (None, _) => Self::Unreachable { endpoint, problem: innermost_cause(&error) },
            },
        }
    }

    fn access_denied(place: &BucketEndpoint, path: String, code: Option<&str>) -> Self {
        let endpoint = place.display_name();
        let code_text = code.map(|code| format!(" ({code})")).unwrap_or_default();
        let advice = if place.is_anonymous {
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY if the bucket is not public"
        } else {
            "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, and the permissions of this key"
        };
        Self::AccessDenied { path, endpoint, code_text, advice }
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

/// Returns the error code in the XML error response of S3.
fn s3_error_code(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    (!code.is_empty() && code.chars().all(|letter| letter.is_ascii_alphanumeric())).then_some(code)
}

/// Returns the HTTP status code that an error message contains.
fn http_status(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3).filter(|status| status.bytes().all(|letter| letter.is_ascii_digit()))
}

/// Returns the message of the innermost cause. The outer errors only describe requests and retries.
fn innermost_cause(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

/// Returns the message of an error, without the name of the object store library's backend.
pub(super) fn message_without_store(error: &object_store::Error) -> String {
    match error {
        object_store::Error::Generic { source, .. } => source.to_string(),
        error => error.to_string(),
    }
}

/// Returns the object store error among the causes of an I/O error; `None` if there is none.
pub(crate) fn find_remote_error(error: &(dyn Error + 'static)) -> Option<RemoteError> {
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

    fn error_message(error: object_store::Error) -> String {
        let place = BucketEndpoint { bucket: "b".into(), url: Some("https://e".into()), is_anonymous: true };
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
        let message = error_message(denied);
        assert!(message.contains("(AccessDenied)") && message.contains("AWS_ACCESS_KEY_ID"), "{message}");
        assert!(!message.contains("hushed") && !message.contains('<'), "{message}");
        let listing = object_store::Error::Generic { store: "S3", source: body("SignatureDoesNotMatch").into() };
        assert!(
            error_message(listing).contains("access denied by the object store at https://e (SignatureDoesNotMatch)")
        );
        let no_bucket = object_store::Error::NotFound { path: path(), source: body("NoSuchBucket").into() };
        assert!(error_message(no_bucket).starts_with("there is no bucket \"b\" at https://e"));
        let busy = "status code: 503 Slow: hushed".to_owned();
        let message = error_message(object_store::Error::Generic { store: "S3", source: busy.into() });
        assert!(message.contains("status 503") && !message.contains("hushed"), "{message}");
        let down = io::Error::new(io::ErrorKind::ConnectionRefused, "refused");
        let message = error_message(object_store::Error::Generic { store: "S3", source: down.into() });
        assert!(message.starts_with("cannot reach the object store at https://e: refused"), "{message}");
    }

    #[test]
    fn errors_are_found_below_those_of_readers() {
        let remote = RemoteError::Changed { path: "x".into() };
        assert!(matches!(find_remote_error(&io::Error::other(remote)), Some(RemoteError::Changed { .. })));
        assert!(find_remote_error(&io::Error::other("another")).is_none());
    }
}

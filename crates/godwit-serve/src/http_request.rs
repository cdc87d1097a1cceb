//! The parts of answering an HTTP request that all protocols share: work on blocking threads, and the access record.

use godwit_dataset::web::{WebBody, WebRequest};
use godwit_dataset::{AccessRecord, Principal};
use http::Response;

/// Maximum number of bytes of a request that the audit log contains.
const MAX_RECORDED_BYTES: usize = 4096;
/// An error of a task that panicked on a blocking thread.
#[derive(Debug, thiserror::Error)]
#[error("a bug in godwit: {0}")]
pub(crate) struct TaskPanic(#[from] tokio::task::JoinError);

/// Runs blocking work on a separate thread and returns its result.
pub(crate) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, TaskPanic> {
    Ok(tokio::task::spawn_blocking(work).await?)
}

/// Returns the description of a request that the access record contains.
pub(crate) fn request_description(request: &WebRequest) -> String {
    let query = request.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
    let body = request.body.as_deref().unwrap_or_default();
    let mut text = format!("{} {}{query} {}", request.method, request.path, String::from_utf8_lossy(body));
    text.truncate(text.trim_end().len());
    if text.len() > MAX_RECORDED_BYTES {
        let end = text.floor_char_boundary(MAX_RECORDED_BYTES);
        text = format!("{}… ({} bytes)", &text[..end], text.len());
    }
    text
}

/// Creates the access record of a response. `problem`: the error of the request, if it failed. The bytes of a streamed
/// body are added while they are sent.
pub(crate) fn access_record(
    principal: &Principal,
    call: &str,
    resource: String,
    problem: Option<String>,
    response: &Response<WebBody>,
) -> AccessRecord {
    let bytes = match response.body() {
        WebBody::Full(bytes) if problem.is_none() => bytes.len() as u64,
        WebBody::Full(_) | WebBody::Stream { .. } => 0,
    };
    AccessRecord {
        principal: principal.name().to_owned(),
        call: call.to_owned(),
        resource,
        datasets: principal.accesses().to_vec(),
        bytes,
        outcome: problem.unwrap_or_else(|| "done".to_owned()),
        ..AccessRecord::default()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, Method};

    use super::*;

    #[test]
    fn what_is_recorded_of_a_request_is_bounded() {
        let request = WebRequest {
            principal: Ok(Principal::default()),
            is_auth_disabled: true,
            origin: "http://localhost:1".to_owned(),
            method: Method::POST,
            path: "/reads/x".to_owned(),
            query: Some("a=b".to_owned()),
            headers: HeaderMap::new(),
            body: Some(Bytes::from_static(b"{}")),
        };
        assert_eq!(request_description(&request), "POST /reads/x?a=b {}");
        let long = WebRequest { body: Some(Bytes::from("é".repeat(9000))), ..request };
        let text = request_description(&long);
        assert!(text.len() < MAX_RECORDED_BYTES + 40 && text.ends_with("… (18018 bytes)"), "{}", &text[4000..]);
    }
}

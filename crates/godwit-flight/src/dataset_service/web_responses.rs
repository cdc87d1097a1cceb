//! Answers HTTP requests that are not gRPC, and records the accesses.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use godwit_auth::random_bytes;
use godwit_dataset::AccessRecord;
use godwit_dataset::web::{API_PREFIX, NFS_HEALTH_PATH, READS_PREFIX, SQL_PATH, VARIANTS_PREFIX};
use godwit_dataset::web::{WebRequest, WebResponse};
use http::{Response, StatusCode};

use super::DatasetService;
use super::batch_stream::READ_SPAN;
use crate::access_recorder::{AccessRecorder, record_access};
use crate::error::dataset_status;
use crate::file_tickets::SignedFileTickets;
use crate::lease_header::MemberLeaseId;
use crate::trace;
use crate::web::{ResponsePrincipal, WebBody, text_response};

impl DatasetService {
    /// Answers a request by the web service. If the access cannot be recorded, sends an error instead of the response.
    pub(super) async fn serve_page(&self, request: WebRequest) -> Response<WebBody> {
        if request.path == SQL_PATH {
            return self.respond_sql(request).await;
        }
        let web = self.inner.options.web_service.as_ref();
        // Health checks are frequent and create no spans.
        let span = if request.path == NFS_HEALTH_PATH { None } else { self.start_span(READ_SPAN) };
        let WebResponse { mut response, access_record } = match web {
            _ if request.path.starts_with(API_PREFIX) => self.respond_api(request).await,
            Some(web) => {
                let tickets = SignedFileTickets::new(self.inner.ticket_key.clone(), self.inner.options.ticket_lifetime);
                let asks_where = request.path.starts_with(READS_PREFIX) || request.path.starts_with(VARIANTS_PREFIX);
                let locations = match &self.inner.pool {
                    Some(pool) if asks_where => {
                        pool.lease_locations(MemberLeaseId::from_le_bytes(random_bytes())).await
                    }
                    _ => Vec::new(),
                };
                web.respond(request, Arc::new(tickets.with_location(locations.first()))).await
            }
            None => return text_response(StatusCode::NOT_FOUND, "the page does not exist"),
        };
        if let Some(access) = &access_record {
            response.extensions_mut().insert(ResponsePrincipal(access.principal.clone()));
        }
        // The span of a body that is completely in memory ends here, because all data have been read. The span of a
        // streamed body ends with the stream.
        let response = response.map(|body| match body {
            godwit_dataset::web::WebBody::Full(bytes) => WebBody::Full(bytes),
            godwit_dataset::web::WebBody::Stream { content_length, stream } => {
                let stream = Box::pin(stream.map_err(dataset_status));
                let measure = |piece: &Bytes| piece.len() as i64;
                WebBody::Stream { content_length, stream: trace::trace_stream(span, stream, "godwit.bytes", measure) }
            }
        });
        match access_record {
            Some(access) => self.record_response(response, access).await,
            None => response,
        }
    }

    /// Records the access of a response: one record for a complete body; for a streamed body, one record before the
    /// first byte and one after the last.
    async fn record_response(&self, response: Response<WebBody>, access: AccessRecord) -> Response<WebBody> {
        let Some(log) = &self.inner.options.access_log else { return response };
        let (head, body) = response.into_parts();
        let recorded = match body {
            WebBody::Full(bytes) => record_access(&**log, access).await.map(|()| WebBody::Full(bytes)),
            WebBody::Stream { content_length, stream } => AccessRecorder::start(log, access).await.map(|recorded| {
                WebBody::Stream { content_length, stream: recorded.record_bytes(stream, content_length) }
            }),
        };
        match recorded {
            Ok(body) => Response::from_parts(head, body),
            Err(status) => text_response(StatusCode::SERVICE_UNAVAILABLE, status.message()),
        }
    }
}

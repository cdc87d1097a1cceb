//! What a node answers over plain HTTP, and records of it.

use bytes::Bytes;
use http::{Response, StatusCode};

use super::Node;
use super::reading::READ;
use crate::access::{Accessed, Recorded};
use crate::pool::GrantId;
use crate::sql::random_bytes;
use crate::trace;
use crate::web::{API, AnsweredTo, FileTickets, READS, VARIANTS, WebBody, WebReply, WebRequest, plain};

impl Node {
    /// Answers a request by whoever knows its page. What cannot be recorded does not leave.
    pub(super) async fn answer_page(&self, request: WebRequest) -> Response<WebBody> {
        let web = self.inner.options.web.as_ref();
        let span = self.span(READ);
        let WebReply { mut response, access } = match web {
            _ if request.path.starts_with(API) => self.answer_api(request).await,
            Some(web) => {
                let tickets = FileTickets::new(self.inner.key.clone(), self.inner.options.ticket_lifetime);
                let asks_where = request.path.starts_with(READS) || request.path.starts_with(VARIANTS);
                let places = match &self.inner.pool {
                    Some(pool) if asks_where => pool.locations_for(GrantId::from_le_bytes(random_bytes())).await,
                    _ => Vec::new(),
                };
                web.answer(request, tickets.at(places.first())).await
            }
            None => return plain(StatusCode::NOT_FOUND, "there is no page of that name"),
        };
        if let Some(access) = &access {
            response.extensions_mut().insert(AnsweredTo(access.who.clone()));
        }
        // What is held whole has been read by now.
        let response = response.map(|body| match body {
            WebBody::Whole(bytes) => WebBody::Whole(bytes),
            WebBody::Stream { bytes, stream } => {
                let measure = |piece: &Bytes| piece.len() as i64;
                WebBody::Stream { bytes, stream: trace::over_stream(span, stream, "godwit.bytes", measure) }
            }
        });
        match access {
            Some(access) => self.recorded(response, access).await,
            None => response,
        }
    }

    /// One line for what is held whole; two for what is streamed, before it leaves and when it has left.
    async fn recorded(&self, response: Response<WebBody>, access: Accessed) -> Response<WebBody> {
        let Some(log) = &self.inner.options.log else { return response };
        let (head, body) = response.into_parts();
        let recorded = match body {
            WebBody::Whole(bytes) => log.record(access).await.map(|()| WebBody::Whole(bytes)),
            WebBody::Stream { bytes, stream } => Recorded::begin(log, access)
                .await
                .map(|recorded| WebBody::Stream { bytes, stream: recorded.bytes(stream, bytes) }),
        };
        match recorded {
            Ok(body) => Response::from_parts(head, body),
            Err(status) => plain(StatusCode::SERVICE_UNAVAILABLE, status.message()),
        }
    }
}

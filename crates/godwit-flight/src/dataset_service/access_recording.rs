//! Writes access records of a server to its audit log: principal, call, resource and outcome.

use arrow_flight::sql::{Any, Command};
use arrow_flight::{Action, FlightDescriptor, FlightInfo};
use godwit_dataset::{AccessRecord, Principal};
use prost::Message as _;
use tonic::Status;

use super::endpoint_locations::ClientKind;
use super::{DatasetService, DescriptorCommand, decode_sql_command, parse_descriptor};
use crate::access_recorder::{AccessRecorder, OUTCOME_DONE, record_access, status_outcome};
use crate::file_service::FILES_PREFIX;
use crate::tickets::TicketClaims;

/// Maximum length of a statement or request in an access record, bytes.
const MAX_RECORDED_BYTES: usize = 4096;

impl DatasetService {
    /// Records a call that has ended. If recording fails, the call fails too.
    pub(super) async fn record_outcome<T>(
        &self,
        principal: &Principal,
        call: &str,
        resource: String,
        outcome: Result<T, Status>,
    ) -> Result<T, Status> {
        let Some(log) = &self.inner.options.access_log else { return outcome };
        let access =
            AccessRecord { resource, datasets: principal.accesses().to_vec(), ..AccessRecord::new(principal, call) };
        let outcome_text = outcome.as_ref().map_or_else(status_outcome, |_| OUTCOME_DONE.to_owned());
        record_access(&**log, access.with_outcome(outcome_text)).await?;
        outcome
    }

    /// Records the start of a call. The call may still be rejected later.
    pub(super) async fn record_start(
        &self,
        principal: &Principal,
        call: &str,
        resource: String,
    ) -> Result<Option<AccessRecorder>, Status> {
        let Some(log) = &self.inner.options.access_log else { return Ok(None) };
        AccessRecorder::start(log, AccessRecord { resource, ..AccessRecord::new(principal, call) }).await.map(Some)
    }

    /// Records that the server is about to send data, or why it rejects the call. The server sends data only after
    /// this. The returned recorder is `None` if there is no audit log.
    pub(super) async fn record_start_or_failure<T>(
        &self,
        principal: &Principal,
        call: &str,
        resource: String,
        started: Result<T, Status>,
    ) -> Result<(T, Option<AccessRecorder>), Status> {
        let Some(log) = &self.inner.options.access_log else { return started.map(|started| (started, None)) };
        let access =
            AccessRecord { resource, datasets: principal.accesses().to_vec(), ..AccessRecord::new(principal, call) };
        match started {
            Ok(started) => Ok((started, Some(AccessRecorder::start(log, access).await?))),
            Err(status) => {
                record_access(&**log, access.with_outcome(status_outcome(&status))).await?;
                Err(status)
            }
        }
    }

    /// Returns the flight info of a descriptor, and records the call.
    pub(super) async fn flight_info(
        &self,
        principal: &Principal,
        call: &str,
        descriptor: FlightDescriptor,
        client: ClientKind,
    ) -> Result<FlightInfo, Status> {
        let resource = self.descriptor_resource(principal, &descriptor);
        let info = self.build_flight_info(principal, descriptor, client).await;
        self.record_outcome(principal, call, resource, info).await
    }

    /// Returns the resource in a descriptor, as an access record contains it.
    pub(super) fn descriptor_resource(&self, principal: &Principal, descriptor: &FlightDescriptor) -> String {
        match parse_descriptor(descriptor) {
            Ok(DescriptorCommand::Sql(command)) => self.command_resource(principal, &command),
            _ if descriptor.cmd.is_empty() => truncate_for_record(descriptor.path.join("/").as_bytes()),
            _ if descriptor.cmd.starts_with(FILES_PREFIX.as_bytes()) => file_request_resource(&descriptor.cmd),
            _ => truncate_for_record(&descriptor.cmd),
        }
    }

    fn command_resource(&self, principal: &Principal, command: &Command) -> String {
        match command {
            Command::CommandStatementQuery(query) => truncate_for_record(query.query.as_bytes()),
            Command::CommandPreparedStatementQuery(query) => {
                let found = self.inner.prepared_statements.get(principal, &query.prepared_statement_handle);
                found.map_or_else(
                    |_| "a prepared statement".to_owned(),
                    |found| truncate_for_record(found.sql.as_bytes()),
                )
            }
            Command::CommandStatementIngest(ingest) => truncate_for_record(ingest.table.as_bytes()),
            other => command_name(other),
        }
    }

    /// Returns the resource in a ticket, as an access record contains it. The ticket may be invalid.
    pub(super) fn ticket_resource(&self, ticket: &[u8]) -> String {
        if ticket.starts_with(FILES_PREFIX.as_bytes()) {
            return file_request_resource(ticket);
        }
        let claim = match TicketClaims::read_signed(ticket, &self.inner.ticket_key) {
            Some(claim) => claim,
            None => {
                return decode_sql_command(ticket)
                    .map_or_else(|_| "no ticket".to_owned(), |command| command_name(&command));
            }
        };
        if let (Some(part), None) = (claim.part, &claim.statement) {
            let regions = part.regions.map(|regions| format!(" {}", regions.texts.join(" "))).unwrap_or_default();
            return truncate_for_record(format!("{}{regions}", part.name).as_bytes());
        }
        match claim.statement {
            Some(statement) => truncate_for_record(statement.sql.as_bytes()),
            None => decode_sql_command(&claim.command)
                .map_or_else(|_| "a command".to_owned(), |command| command_name(&command)),
        }
    }

    /// Returns the resource of an action, as an access record contains it. Flight SQL actions contain statements, and
    /// file actions contain JSON requests.
    pub(super) fn action_resource(&self, action: &Action) -> String {
        let statement = || {
            let any = Any::decode(action.body.clone()).ok()?;
            let request: arrow_flight::sql::ActionCreatePreparedStatementRequest = any.unpack().ok()??;
            Some(request.query)
        };
        let about = match action.r#type.as_str() {
            files if files.starts_with(FILES_PREFIX) => file_request_resource(&action.body),
            crate::action_names::DROP_DATASET => truncate_for_record(&action.body),
            _ => statement().unwrap_or_default(),
        };
        truncate_for_record(format!("{} {about}", action.r#type).trim().as_bytes())
    }
}

/// Returns the name and the paths of a file request. Omits all other fields, because one of them may be a secret token
/// of another server.
fn file_request_resource(request: &[u8]) -> String {
    let text = String::from_utf8_lossy(request);
    let (kind, json) = text.split_at(text.find(['{', '[']).unwrap_or(text.len()));
    let mut words = vec![kind.trim().to_owned()];
    if let Ok(value) = serde_json::from_str(json) {
        collect_paths(&value, &mut words);
    }
    truncate_for_record(words.join(" ").trim().as_bytes())
}

fn collect_paths(value: &serde_json::Value, words: &mut Vec<String>) {
    match value {
        serde_json::Value::Array(values) => values.iter().for_each(|value| collect_paths(value, words)),
        serde_json::Value::Object(members) => members.iter().for_each(|(name, value)| match value.as_str() {
            Some(path) if matches!(name.as_str(), "path" | "base" | "destination") => words.push(path.to_owned()),
            Some(_) => {}
            None => collect_paths(value, words),
        }),
        _ => {}
    }
}

fn command_name(command: &Command) -> String {
    let url = command.type_url();
    url.rsplit('.').next().unwrap_or(url).to_owned()
}

/// Returns bytes as text, truncated to [`MAX_RECORDED_BYTES`].
pub(super) fn truncate_for_record(bytes: &[u8]) -> String {
    let kept = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_RECORDED_BYTES)]).into_owned();
    if bytes.len() > MAX_RECORDED_BYTES { format!("{kept}… ({} bytes)", bytes.len()) } else { kept }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paths_of_requests_about_files_are_recorded_and_tokens_are_not() {
        let relayed =
            br#"godwit.files.relay{"from":"grpc+tls://a","token":"gwg1.secret","read":{"spans":[{"path":"x/y.bam"}]}}"#;
        assert_eq!(file_request_resource(relayed), "godwit.files.relay x/y.bam");
        let fetched = br#"{"name":"n","sources":[["grpc+tls://a/x","gwg1.secret"]],"destination":"in/"}"#;
        assert_eq!(file_request_resource(fetched), "in/");
        assert_eq!(file_request_resource(b"godwit.files.read{gwg1.secret"), "godwit.files.read");
    }
}

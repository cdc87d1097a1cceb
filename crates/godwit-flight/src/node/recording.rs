//! What a node records of accesses: who called what, what it was about, and what came of it.

use arrow_flight::sql::{Any, Command};
use arrow_flight::{Action, FlightDescriptor, FlightInfo};
use prost::Message as _;
use tonic::Status;

use super::placing::Asker;
use super::{Asked, Node, asked, command_in};
use crate::access::{Accessed, DONE, Recorded, outcome_of};
use crate::files::FILES_MARK;
use crate::gate::Caller;
use crate::tickets::Claim;

/// Bytes of a statement or request that are recorded.
const RECORDED_BYTES: usize = 4096;

impl Node {
    /// Records a call that has ended. One that cannot be recorded has failed.
    pub(super) async fn ended<T>(
        &self,
        caller: &Caller,
        call: &str,
        what: String,
        outcome: Result<T, Status>,
    ) -> Result<T, Status> {
        let Some(log) = &self.inner.options.log else { return outcome };
        let access = Accessed { what, touched: caller.touches().all(), ..Accessed::of(caller, call) };
        let said = outcome.as_ref().map_or_else(outcome_of, |_| DONE.to_owned());
        log.record(access.ended(said)).await?;
        outcome
    }

    /// Records that something begins, of which it is not known yet whether it is let be.
    pub(super) async fn begin(&self, caller: &Caller, call: &str, what: String) -> Result<Option<Recorded>, Status> {
        let Some(log) = &self.inner.options.log else { return Ok(None) };
        Recorded::begin(log, Accessed { what, ..Accessed::of(caller, call) }).await.map(Some)
    }

    /// Records that data begin to leave, or why they do not. They leave only once that is done; what is to record their end is
    /// `None` where nothing is recorded.
    pub(super) async fn begun<T>(
        &self,
        caller: &Caller,
        call: &str,
        what: String,
        started: Result<T, Status>,
    ) -> Result<(T, Option<Recorded>), Status> {
        let Some(log) = &self.inner.options.log else { return started.map(|started| (started, None)) };
        let access = Accessed { what, touched: caller.touches().all(), ..Accessed::of(caller, call) };
        match started {
            Ok(started) => Ok((started, Some(Recorded::begin(log, access).await?))),
            Err(status) => {
                log.record(access.ended(outcome_of(&status))).await?;
                Err(status)
            }
        }
    }

    /// Flight info, recorded.
    pub(super) async fn told(
        &self,
        caller: &Caller,
        call: &str,
        descriptor: FlightDescriptor,
        asker: Asker,
    ) -> Result<FlightInfo, Status> {
        let what = self.what_is_described(caller, &descriptor);
        let info = self.info(caller, descriptor, asker).await;
        self.ended(caller, call, what, info).await
    }

    /// What a descriptor is about.
    pub(super) fn what_is_described(&self, caller: &Caller, descriptor: &FlightDescriptor) -> String {
        match asked(descriptor) {
            Ok(Asked::Sql(command)) => self.what_a_command_says(caller, &command),
            _ if descriptor.cmd.is_empty() => shortened(descriptor.path.join("/").as_bytes()),
            _ if descriptor.cmd.starts_with(FILES_MARK.as_bytes()) => about_files(&descriptor.cmd),
            _ => shortened(&descriptor.cmd),
        }
    }

    fn what_a_command_says(&self, caller: &Caller, command: &Command) -> String {
        match command {
            Command::CommandStatementQuery(query) => shortened(query.query.as_bytes()),
            Command::CommandPreparedStatementQuery(query) => {
                let found = self.inner.statements.get(caller, &query.prepared_statement_handle);
                found.map_or_else(|_| "a prepared statement".to_owned(), |found| shortened(found.sql.as_bytes()))
            }
            Command::CommandStatementIngest(ingest) => shortened(ingest.table.as_bytes()),
            other => name_of(other),
        }
    }

    /// What a ticket is about. Whether it is good is another question.
    pub(super) fn what_is_wanted(&self, ticket: &[u8]) -> String {
        if ticket.starts_with(FILES_MARK.as_bytes()) {
            return about_files(ticket);
        }
        let claim = match Claim::read(ticket, &self.inner.key) {
            Some(claim) => claim,
            None => return command_in(ticket).map_or_else(|_| "no ticket".to_owned(), |command| name_of(&command)),
        };
        if let (Some(part), None) = (claim.part, &claim.statement) {
            let regions = part.regions.map(|regions| format!(" {}", regions.texts.join(" "))).unwrap_or_default();
            return shortened(format!("{}{regions}", part.name).as_bytes());
        }
        match claim.statement {
            Some(statement) => shortened(statement.sql.as_bytes()),
            None => command_in(&claim.command).map_or_else(|_| "a command".to_owned(), |command| name_of(&command)),
        }
    }

    /// What an action is about: bodies of Flight SQL hold statements, those of files requests in JSON.
    pub(super) fn what_is_to_be_done(&self, action: &Action) -> String {
        let statement = || {
            let any = Any::decode(action.body.clone()).ok()?;
            let request: arrow_flight::sql::ActionCreatePreparedStatementRequest = any.unpack().ok()??;
            Some(request.query)
        };
        let about = match action.r#type.as_str() {
            files if files.starts_with(FILES_MARK) => about_files(&action.body),
            super::actions::DROP => shortened(&action.body),
            _ => statement().unwrap_or_default(),
        };
        shortened(format!("{} {about}", action.r#type).trim().as_bytes())
    }
}

/// What a request about files is, and the paths it names. The rest may be the token of another server.
fn about_files(request: &[u8]) -> String {
    let text = String::from_utf8_lossy(request);
    let (kind, json) = text.split_at(text.find(['{', '[']).unwrap_or(text.len()));
    let mut words = vec![kind.trim().to_owned()];
    if let Ok(value) = serde_json::from_str(json) {
        paths_in(&value, &mut words);
    }
    shortened(words.join(" ").trim().as_bytes())
}

fn paths_in(value: &serde_json::Value, words: &mut Vec<String>) {
    match value {
        serde_json::Value::Array(values) => values.iter().for_each(|value| paths_in(value, words)),
        serde_json::Value::Object(members) => members.iter().for_each(|(name, value)| match value.as_str() {
            Some(path) if matches!(name.as_str(), "path" | "base" | "destination") => words.push(path.to_owned()),
            Some(_) => {}
            None => paths_in(value, words),
        }),
        _ => {}
    }
}

fn name_of(command: &Command) -> String {
    let url = command.type_url();
    url.rsplit('.').next().unwrap_or(url).to_owned()
}

/// Bytes as text, not more than are recorded.
pub(super) fn shortened(bytes: &[u8]) -> String {
    let kept = String::from_utf8_lossy(&bytes[..bytes.len().min(RECORDED_BYTES)]).into_owned();
    if bytes.len() > RECORDED_BYTES { format!("{kept}… ({} bytes)", bytes.len()) } else { kept }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paths_of_requests_about_files_are_recorded_and_tokens_are_not() {
        let relayed =
            br#"godwit.files.relay{"from":"grpc+tls://a","token":"gwg1.secret","read":{"spans":[{"path":"x/y.bam"}]}}"#;
        assert_eq!(about_files(relayed), "godwit.files.relay x/y.bam");
        let fetched = br#"{"name":"n","sources":[["grpc+tls://a/x","gwg1.secret"]],"destination":"in/"}"#;
        assert_eq!(about_files(fetched), "in/");
        assert_eq!(about_files(b"godwit.files.read{gwg1.secret"), "godwit.files.read");
    }
}

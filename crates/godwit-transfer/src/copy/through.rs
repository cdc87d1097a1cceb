//! A relay: the server in between that the blocks of a copy go through.

use std::sync::{Arc, Mutex, PoisonError};

use super::Copy;
use super::sources::Mirror;
use crate::control::{Control, Credentials};
use crate::error::TransferError;
use crate::place::Place;
use crate::select::split_glob;
use crate::service::random_name;
use crate::streams::Through;

/// The server in between, and what the servers behind it let it do.
pub(super) struct RelayWay {
    pub(super) control: Arc<Control>,
    /// Of each source, or of the destination.
    grants: Mutex<Vec<Granted>>,
    /// A name of this copy.
    copy: String,
}

/// What a server behind a relay lets it do.
#[derive(Clone, Default)]
struct Granted {
    server: String,
    /// What it may read there; empty where it writes.
    path: String,
    token: String,
}

impl RelayWay {
    /// Connects to a relay.
    ///
    /// # Errors
    /// Where it is not there.
    pub(super) async fn connect(
        relay: &Place,
        credentials: &Credentials,
        patience: std::time::Duration,
    ) -> Result<Self, TransferError> {
        let Place::There(remote) = relay else {
            return Err(TransferError::refused(format!("{relay} is no server, which a relay is")));
        };
        let control = Arc::new(Control::connect(remote, credentials, patience).await?);
        Ok(Self { control, grants: Mutex::default(), copy: random_name()? })
    }

    fn grants(&self) -> std::sync::MutexGuard<'_, Vec<Granted>> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the sources grant it what is to be copied.
    ///
    /// # Errors
    /// Where a source grants nothing.
    pub(super) async fn let_read(
        &self,
        sources: &[Place],
        control: &Control,
        mirrors: &[Mirror],
    ) -> Result<(), TransferError> {
        let mut grants = Vec::new();
        let lead = (control, common_directory(sources)?);
        let others = mirrors.iter().map(|mirror| (&*mirror.control, mirror.path().to_owned()));
        for (control, path) in std::iter::once(lead).chain(others) {
            grants.push(Granted { server: control.server(), token: control.grant(&path).await?, path });
        }
        *self.grants() = grants;
        Ok(())
    }

    /// What the relay is told about a source, 0-based, or the destination, which is the first.
    pub(super) fn through(&self, source: u32) -> Through {
        let Granted { server, token, .. } = self.grants().get(source as usize).cloned().unwrap_or_default();
        Through { server, token, copy: self.copy.clone() }
    }
}

impl Copy<'_> {
    /// Has a source, 0-based, grant the relay again what it may read.
    pub(super) async fn let_relay_read(&self, source: u32) -> Result<(), TransferError> {
        let Some(relay) = &self.relay else { return Ok(()) };
        let Some(before) = relay.grants().get(source as usize).cloned() else { return Ok(()) };
        let token = self.control_of(source).grant(&before.path).await?;
        if let Some(granted) = relay.grants().get_mut(source as usize) {
            granted.token = token;
        }
        Ok(())
    }

    /// Has the destination grant the relay, where there is one, to send what a session takes.
    pub(super) async fn let_relay_write(&self, session: &str) -> Result<(), TransferError> {
        let Some(relay) = &self.relay else { return Ok(()) };
        let token = self.control.grant_writing(session).await?;
        *relay.grants() = vec![Granted { server: self.control.server(), path: String::new(), token }];
        Ok(())
    }
}

/// The longest path that all sources are at or below.
fn common_directory(sources: &[Place]) -> Result<String, TransferError> {
    let mut common: Option<Vec<String>> = None;
    for source in sources {
        let Place::There(remote) = source else { continue };
        let path = remote.path.trim_matches('/');
        let path = split_glob(path)?.map_or_else(|| path.to_owned(), |(directory, _)| directory);
        let parts: Vec<String> = path.split('/').map(str::to_owned).collect();
        common = Some(match common {
            None => parts,
            Some(before) => {
                before.into_iter().zip(parts).take_while(|(one, other)| one == other).map(|(one, _)| one).collect()
            }
        });
    }
    Ok(common.unwrap_or_default().join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_is_let_see_no_more_than_what_is_copied_has_in_common() {
        let common = |paths: &[&str]| {
            let places: Vec<_> =
                paths.iter().map(|path| Place::parse(&format!("grpc+tcp://h/{path}")).unwrap()).collect();
            common_directory(&places).unwrap()
        };
        assert_eq!(common(&["runs/7/S.bam"]), "runs/7/S.bam");
        assert_eq!(common(&["runs/7/*.bam"]), "runs/7");
        assert_eq!(common(&["runs/7/S.bam", "/runs/7/S.bai"]), "runs/7");
        assert_eq!(common(&["runs/7", "runs/77"]), "runs");
        assert_eq!(common(&["a", "b"]), "");
    }
}

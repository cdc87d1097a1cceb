//! The route of a copy through a relay: a server that forwards blocks between this host and the other servers.

use std::sync::Arc;

use godwit_auth::random_id;
use parking_lot::Mutex;

use super::CopyOperation;
use super::mirrors::Mirror;
use super::stream_task::RelayTarget;
use crate::control_client::ControlClient;
use crate::credentials::Credentials;
use crate::error::TransferError;
use crate::location::Location;
use crate::selection::split_glob;

/// A relay, and the delegation tokens with which the relay accesses the servers behind it.
pub(super) struct RelayRoute {
    pub(super) control: Arc<ControlClient>,
    /// One token for each source of a download, or a single token for the destination of an upload.
    tokens: Mutex<Vec<RelayToken>>,
    /// Random identifier of this copy.
    copy_id: String,
}

/// The delegation token with which a relay accesses a server.
#[derive(Clone, Default)]
struct RelayToken {
    server: String,
    /// Path on the server that the relay may read; empty if the relay writes.
    path: String,
    token: String,
}

impl RelayRoute {
    /// Connects to a relay.
    ///
    /// # Errors
    /// [`TransferError::Flight`] if the relay is unreachable, [`TransferError::Rejected`] if the location is not on a
    /// server.
    pub(super) async fn connect(
        relay: &Location,
        credentials: &Credentials,
        retry_timeout: std::time::Duration,
    ) -> Result<Self, TransferError> {
        let Location::Remote(remote) = relay else {
            return Err(TransferError::rejected(format!("{relay} is not the URL of a server, as --relay requires")));
        };
        let control = Arc::new(ControlClient::connect(remote, credentials, retry_timeout).await?);
        Ok(Self { control, tokens: Mutex::default(), copy_id: random_id() })
    }

    /// Requests a delegation token from each source, which allows the relay to read the files.
    ///
    /// # Errors
    /// [`TransferError::Rejected`] if a source does not issue the token.
    pub(super) async fn request_read_tokens(
        &self,
        sources: &[Location],
        control: &ControlClient,
        mirrors: &[Mirror],
    ) -> Result<(), TransferError> {
        let mut grants = Vec::new();
        let lead = (control, common_directory(sources)?);
        let others = mirrors.iter().map(|mirror| (&*mirror.control, mirror.path().to_owned()));
        for (control, path) in std::iter::once(lead).chain(others) {
            grants.push(RelayToken {
                server: control.server_uri(),
                token: control.request_read_token(&path).await?,
                path,
            });
        }
        *self.tokens.lock() = grants;
        Ok(())
    }

    /// Returns the server that the relay connects to, with its token: for a download the source with this 0-based
    /// index, for an upload the destination (index 0).
    pub(super) fn relay_target(&self, source: u32) -> RelayTarget {
        let RelayToken { server, token, .. } = self.tokens.lock().get(source as usize).cloned().unwrap_or_default();
        RelayTarget { server, token, copy_id: self.copy_id.clone() }
    }
}

impl CopyOperation<'_> {
    /// Requests a new delegation token from the source with this 0-based index, if there is a relay.
    pub(super) async fn renew_relay_read_token(&self, source: u32) -> Result<(), TransferError> {
        let Some(relay) = &self.relay_route else { return Ok(()) };
        let Some(before) = relay.tokens.lock().get(source as usize).cloned() else { return Ok(()) };
        let token = self.source_server(source).request_read_token(&before.path).await?;
        if let Some(granted) = relay.tokens.lock().get_mut(source as usize) {
            granted.token = token;
        }
        Ok(())
    }

    /// Requests a delegation token from the destination, which allows the relay to write to an upload session, if there
    /// is a relay.
    pub(super) async fn request_relay_write_token(&self, session: &str) -> Result<(), TransferError> {
        let Some(relay) = &self.relay_route else { return Ok(()) };
        let token = self.control.request_write_token(session).await?;
        *relay.tokens.lock() = vec![RelayToken { server: self.control.server_uri(), path: String::new(), token }];
        Ok(())
    }
}

/// Returns the longest path that is an ancestor of all sources; the path itself if there is one source.
fn common_directory(sources: &[Location]) -> Result<String, TransferError> {
    let mut common: Option<Vec<String>> = None;
    for source in sources {
        let Location::Remote(remote) = source else { continue };
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
    fn a_relay_is_authorized_for_the_common_directory_only() {
        let common = |paths: &[&str]| {
            let places: Vec<_> =
                paths.iter().map(|path| Location::parse(&format!("grpc+tcp://h/{path}")).unwrap()).collect();
            common_directory(&places).unwrap()
        };
        assert_eq!(common(&["runs/7/S.bam"]), "runs/7/S.bam");
        assert_eq!(common(&["runs/7/*.bam"]), "runs/7");
        assert_eq!(common(&["runs/7/S.bam", "/runs/7/S.bai"]), "runs/7");
        assert_eq!(common(&["runs/7", "runs/77"]), "runs");
        assert_eq!(common(&["a", "b"]), "");
    }
}

//! A relay: the server in between that the blocks of a copy come through.

use std::sync::Arc;

use super::sources::Mirror;
use crate::control::{Control, Credentials};
use crate::error::TransferError;
use crate::place::Place;
use crate::select::split_glob;
use crate::service::random_name;
use crate::streams::Through;

/// The server in between, and what the sources let it read.
pub(super) struct RelayWay {
    pub(super) control: Arc<Control>,
    /// Server and grant of each source.
    grants: Vec<(String, String)>,
    /// A name of this copy.
    copy: String,
}

impl RelayWay {
    /// Connects to a relay and has the sources grant it what is to be copied.
    ///
    /// # Errors
    /// Where it is not there, or a source grants nothing.
    pub(super) async fn prepare(
        relay: &Place,
        sources: &[Place],
        control: &Control,
        mirrors: &[Mirror],
        credentials: &Credentials,
        patience: std::time::Duration,
    ) -> Result<Self, TransferError> {
        let Place::There(remote) = relay else {
            return Err(TransferError::refused(format!("{relay} is no server, which a relay is")));
        };
        let mut grants = vec![(control.server(), control.grant(&common_directory(sources)?).await?)];
        for mirror in mirrors {
            grants.push((mirror.control.server(), mirror.control.grant(mirror.path()).await?));
        }
        let control = Arc::new(Control::connect(remote, credentials, patience).await?);
        Ok(Self { control, grants, copy: random_name()? })
    }

    /// What the relay is told about a source, 0-based.
    pub(super) fn through(&self, source: u32) -> Through {
        let (from, token) = self.grants.get(source as usize).cloned().unwrap_or_default();
        Through { from, token, copy: self.copy.clone() }
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

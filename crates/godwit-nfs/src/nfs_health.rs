//! The health check of a server: the task that accepts connections runs, and the storage answers.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use crate::export::Export;

/// Time within which a healthy server answers. Clients wait while another server takes over an address, so a longer time
/// would extend their wait.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of checks that may wait for the server.
const MAX_WAITING_CHECKS: usize = 16;

/// The health check of a server of NFS. Clones check the same server.
#[derive(Clone, Debug)]
pub struct NfsHealth {
    requests: mpsc::Sender<oneshot::Sender<()>>,
}

impl NfsHealth {
    /// Creates the check, and the end at which the server receives its requests.
    pub(crate) fn new() -> (Self, HealthRequests) {
        let (requests, received) = mpsc::channel(MAX_WAITING_CHECKS);
        (Self { requests }, HealthRequests { received, inspections: Arc::new(Semaphore::new(1)) })
    }

    /// Reports whether the server runs, and reads the attributes of its root within a second. Calls of clients do not
    /// delay the check, so that a server with much work remains healthy.
    pub async fn check(&self) -> bool {
        let (sender, answer) = oneshot::channel();
        let check = async { self.requests.send(sender).await.is_ok() && answer.await.is_ok() };
        timeout(HEALTH_TIMEOUT, check).await.unwrap_or(false)
    }
}

/// The requests that a server receives from its [`NfsHealth`].
#[derive(Debug)]
pub(crate) struct HealthRequests {
    received: mpsc::Receiver<oneshot::Sender<()>>,
    /// One permit: at most one thread waits for storage that does not answer.
    inspections: Arc<Semaphore>,
}

impl HealthRequests {
    /// Returns the next request; `None` if no check exists.
    pub(crate) async fn recv(&mut self) -> Option<HealthRequest> {
        let sender = self.received.recv().await?;
        Some(HealthRequest { sender, inspections: self.inspections.clone() })
    }
}

/// A request for the health of a server.
#[derive(Debug)]
pub(crate) struct HealthRequest {
    sender: oneshot::Sender<()>,
    inspections: Arc<Semaphore>,
}

impl HealthRequest {
    /// Starts to read the attributes of the root, and answers if that succeeds. Dropping the request reports a failure.
    pub(crate) fn answer(self, export: &Arc<Export>) {
        let Self { mut sender, inspections } = self;
        let export = export.clone();
        tokio::spawn(async move {
            let permit = tokio::select! {
                permit = inspections.acquire_owned() => permit,
                () = sender.closed() => return,
            };
            tokio::task::spawn_blocking(move || {
                let is_healthy = export.root.root_node().is_ok();
                drop(permit);
                if is_healthy {
                    // The check may have timed out.
                    let _ = sender.send(());
                }
            });
        });
    }
}

//! `--nfs`: the files below the root for clients of NFSv3.

use std::net::SocketAddr;
use std::sync::Arc;

use godwit_cli::cli::ServeArgs;
use godwit_cli::failure::Failure;
use godwit_cli::log::log_message;
use godwit_dataset::{AccessLog, Authorizer, Principal};
use godwit_model::ErrorKind;
use godwit_nfs::{ClientAccess, Export, ExportOptions, NfsServer};
use godwit_rules::PolicyStore;
use godwit_serve::{DatasetRoot, HealthCheck};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::parse_listen_address;

/// A server of NFS that has bound its address and does not serve yet.
pub(super) struct BoundNfsExport {
    server: NfsServer,
    address: SocketAddr,
}

/// The running server of NFS.
pub(super) struct NfsExport {
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

impl BoundNfsExport {
    /// Binds the address of the server of NFS; returns `None` without `--nfs`.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if the root is a bucket, or if clients would need no rights;
    /// [`ErrorKind::Machine`] if the address cannot be bound.
    pub(super) async fn bind(
        args: &ServeArgs,
        policy_store: Option<Arc<PolicyStore>>,
        access_log: Option<Arc<dyn AccessLog>>,
    ) -> Result<Option<Self>, Failure> {
        let Some(listen) = &args.nfs else { return Ok(None) };
        let address = parse_listen_address("--nfs", listen)?;
        if DatasetRoot::is_bucket_url(&args.root) {
            let problem = format!("--nfs serves files of a directory, not objects of {}", args.root.display());
            return Err(Failure::new(ErrorKind::Usage, problem));
        }
        let has_credentials = args.tokens.is_some() || args.jwks.is_some() || args.tls_client_ca.is_some();
        if policy_store.is_none() && !args.insecure && (has_credentials || !address.ip().is_loopback()) {
            let problem = format!(
                "clients of --nfs {listen} have no credentials: add --policy with the table [addresses], or --insecure \
                 to permit every client everything"
            );
            return Err(Failure::new(ErrorKind::Usage, problem));
        }
        let rules = policy_store.clone().map(|policy_store| policy_store as Arc<dyn Authorizer>);
        let identify = move |client| match &policy_store {
            Some(policy_store) => policy_store.policy().principal_at(client),
            None => Some(Principal::default()),
        };
        let access = ClientAccess::new(Box::new(identify), rules, args.writable);
        let options = ExportOptions { access, access_log, log: Arc::new(log_message) };
        let export = Export::open(&args.root, options).map_err(|error| {
            Failure::new(ErrorKind::Machine, format!("cannot open {}: {error}", args.root.display()))
        })?;
        let bound = NfsServer::bind(address, export, args.connections as usize).await;
        let failed = |error| {
            let problem = format!("cannot serve NFS at {address}: {error}; choose another --nfs HOST:PORT");
            Failure::new(ErrorKind::Machine, problem)
        };
        let server = bound.map_err(failed)?;
        let address = server.address().map_err(failed)?;
        Ok(Some(Self { server, address }))
    }

    /// Starts to serve, and logs the options with which Linux mounts the export.
    pub(super) fn serve(self) -> NfsExport {
        let (address, port) = (self.address, self.address.port());
        log_message(&format!("NFS at {address}: mount -t nfs -o vers=3,nolock,tcp,port={port},mountport={port}"));
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(self.server.serve_until(async {
            let _ = stopped.await;
        }));
        NfsExport { stop, server }
    }

    /// Returns the check for `GET /healthz/nfs`.
    pub(super) fn health_check(&self) -> HealthCheck {
        let health = self.server.health();
        HealthCheck::new(move || {
            let health = health.clone();
            async move { health.check().await }
        })
    }
}

impl NfsExport {
    /// Closes the connections of a server, if there is one, and waits until the accesses are recorded.
    pub(super) async fn stop(export: Option<Self>) {
        let Some(Self { stop, server }) = export else { return };
        drop(stop);
        // The server has no result, and its panic was reported.
        let _ = server.await;
    }
}

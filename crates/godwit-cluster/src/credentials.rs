//! The credentials by which the processes of a cluster run recognize each other.

use std::path::Path;

use godwit_auth::Token;
use godwit_flight::{ClientTls, ConnectionSecurity, ServerTls, create_identity};

use crate::error::ConnectionError;

/// The credentials of a process of a cluster run, as a server and as a client.
#[derive(Clone)]
pub struct ClusterCredentials {
    /// Security that this process requires from clients that connect to it.
    pub server_access: ConnectionSecurity<ServerTls>,
    /// Credentials that this process sends to the servers to which it connects.
    pub client_access: ConnectionSecurity<ClientTls>,
}

/// The host name in the TLS certificate that all processes of a run share. It does not depend on the host.
const CERTIFICATE_NAME: &str = "godwit";

impl ClusterCredentials {
    /// Creates the TLS certificate of a run and stores it in a directory that the workers can read.
    ///
    /// # Errors
    /// [`ConnectionError::Tls`] if the certificate cannot be created or stored.
    pub fn create_certificate(directory: &Path) -> Result<(), ConnectionError> {
        Ok(create_identity(directory, CERTIFICATE_NAME).map(drop)?)
    }

    /// Loads the certificate of a run from the directory that [`Self::create_certificate`] wrote. Both ends of every
    /// connection of the run require the certificate and the token.
    ///
    /// # Errors
    /// [`ConnectionError::Tls`] if the certificate cannot be read; [`ConnectionError::InvalidMessage`] if the token is
    /// malformed.
    pub fn load(token: &str, directory: &Path) -> Result<Self, ConnectionError> {
        let token = Token::new(token);
        let malformed =
            || ConnectionError::InvalidMessage { peer: "the rendezvous", problem: "its token is invalid".into() };
        let token = Some(token.ok_or_else(malformed)?);
        let (certificate, key) = (directory.join("certificate.pem"), directory.join("key.pem"));
        let server = ServerTls::from_files(&certificate, &key, Some(&certificate))?;
        let client = ClientTls::from_files(&certificate, CERTIFICATE_NAME, Some((&certificate, &key)))?;
        let server_access = ConnectionSecurity { token: token.clone(), tls: Some(server) };
        Ok(Self { server_access, client_access: ConnectionSecurity { token, tls: Some(client) } })
    }
}

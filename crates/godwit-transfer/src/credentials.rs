//! The credentials of a copy: tokens, certificates and pools for the servers that it calls.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use godwit_auth::Token;
use godwit_flight::pool::Pool;
use godwit_flight::{ClientTls, ConnectionSecurity};

use crate::error::TransferError;
use crate::location::RemoteLocation;

/// Credentials of a copy, and the certificate authorities that the copy trusts.
#[derive(Clone, Default)]
pub struct Credentials {
    /// Bearer token that is sent to the servers.
    pub token: Option<Token>,
    /// PEM file of the trusted certificate authorities.
    pub ca_certificates: Option<PathBuf>,
    /// PEM files of the client certificate and its key, for servers that require a client certificate.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Pools of servers, by the pool name in locations.
    pub pools: HashMap<String, Arc<Pool>>,
}

/// Files in which common operating systems store their trusted certificate authorities.
const SYSTEM_CA_FILES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

impl Credentials {
    /// Returns the token and the TLS configuration for a connection to a server.
    ///
    /// # Errors
    /// [`TransferError::Rejected`] if a certificate is invalid, or if no certificate authorities are configured or
    /// installed.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_auth::Token;
    /// use godwit_flight::create_identity;
    /// use godwit_transfer::location::Location;
    /// use godwit_transfer::{Credentials, TransferError};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let (certificate, _key) = create_identity(directory.path(), "data.example.org")?;
    /// let Location::Remote(remote) = Location::parse("grpc+tls://data.example.org/run7")? else { unreachable!() };
    ///
    /// let (token, ca_certificates) = (Token::new("3f9ac1"), Some(certificate));
    /// let access = Credentials { token, ca_certificates, ..Credentials::default() }.server_access(&remote)?;
    /// assert!(access.tls.is_some() && access.token.is_some());
    ///
    /// let absent = Credentials { ca_certificates: Some("absent.pem".into()), ..Credentials::default() };
    /// assert!(matches!(absent.server_access(&remote), Err(TransferError::Rejected { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn server_access(&self, remote: &RemoteLocation) -> Result<ConnectionSecurity<ClientTls>, TransferError> {
        let tls = if remote.uses_tls {
            let system = || SYSTEM_CA_FILES.iter().map(PathBuf::from).find(|path| path.exists());
            let none = || TransferError::rejected("no certificate authorities found on this system; give --ca FILE");
            let authority = self.ca_certificates.clone().or_else(system).ok_or_else(none)?;
            let identity = self.identity.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path()));
            let tls = ClientTls::from_files(&authority, &remote.host, identity);
            Some(tls.map_err(|error| TransferError::rejected(godwit_model::message_with_causes(&error)))?)
        } else {
            None
        };
        Ok(ConnectionSecurity { token: self.token.clone(), tls })
    }
}

//! Reads the credentials with which verbs connect to servers and pools, and opens the connections.

use std::collections::HashMap;
use std::sync::Arc;

use godwit_auth::Token;
use godwit_cli::cli::AccessArgs;
use godwit_cli::failure::Failure;
use godwit_cli::log::{log_event, log_message};
use godwit_flight::pool::{Pool, PoolNotice, WaitOptions};
use godwit_flight::{Address, Client, Code, FlightError, TransportOptions};
use godwit_model::ErrorKind;
use godwit_transfer::Credentials;
use godwit_transfer::location::{Location, RemoteLocation};
use serde_json::json;

use crate::pool_file::PoolFile;

/// Reads the token, the certificates and the key from the files that the options name.
pub fn read_credentials(args: &AccessArgs) -> Result<Credentials, Failure> {
    let token = match &args.token_file {
        None => None,
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| {
                Failure::new(ErrorKind::Machine, format!("cannot read {}: {error}", path.display()))
            })?;
            let wrong = || {
                Failure::new(
                    ErrorKind::Input,
                    format!("{} contains no token; create one with `godwit token`", path.display()),
                )
            };
            Some(Token::new(text.trim()).ok_or_else(wrong)?)
        }
    };
    let identity = args.client_cert.clone().zip(args.client_key.clone());
    Ok(Credentials { token, ca_certificates: args.ca.clone(), identity, pools: HashMap::new() })
}

/// Opens the pool that a location names; returns `None` if the location is not a pool. If `json` is true, notices of
/// the pool are printed as JSON events.
pub fn open_pool(
    place: &Location,
    args: &AccessArgs,
    credentials: &Credentials,
    json: bool,
) -> Result<Option<Arc<Pool>>, Failure> {
    let Location::Remote(remote) = place else { return Ok(None) };
    if !remote.is_pool {
        return Ok(None);
    }
    let file = read_pool_file(remote, args)?;
    let notify = Arc::new(move |notice: &PoolNotice| match json {
        true => {
            let event = json!({"event": "pool", "code": notice.code(), "message": notice.to_string()});
            log_event(&event.to_string());
        }
        false => log_message(&notice.to_string()),
    });
    let waiting = WaitOptions { timeout: args.wait, notify };
    Ok(Some(Arc::new(Pool::new(&file.name, file.resolve_members(credentials)?, waiting))))
}

fn read_pool_file(remote: &RemoteLocation, args: &AccessArgs) -> Result<PoolFile, Failure> {
    let Some(path) = &args.pool else { return Ok(PoolFile::from_host_name(remote)) };
    let file = PoolFile::read(path)?;
    if file.name == remote.host {
        return Ok(file);
    }
    let problem = format!("{} describes the pool {}, not {}", path.display(), file.name, remote.host);
    Err(Failure::new(ErrorKind::Usage, problem))
}

/// Returns the credentials for access to these locations, and opens the pools among them.
pub fn credentials_for<'p>(
    places: impl IntoIterator<Item = &'p Location>,
    args: &AccessArgs,
    json: bool,
) -> Result<Credentials, Failure> {
    let mut credentials = read_credentials(args)?;
    for place in places {
        if let Some(pool) = open_pool(place, args, &credentials, json)? {
            credentials.pools.insert(pool.name().to_owned(), pool);
        }
    }
    Ok(credentials)
}

/// Connects to the server at a URL, with the credentials that the options name.
pub async fn connect(url: &str, args: &AccessArgs) -> Result<Client, Failure> {
    connect_with(url, args, TransportOptions::default()).await
}

/// Connects to the server at a URL like [`connect`], with these transport options.
pub async fn connect_with(url: &str, args: &AccessArgs, tuning: TransportOptions) -> Result<Client, Failure> {
    let place = Location::parse(url)?;
    let credentials = read_credentials(args)?;
    if let Some(pool) = open_pool(&place, args, &credentials, false)? {
        return Ok(pool.lease(&tuning).await?.client);
    }
    let Location::Remote(remote) = place else {
        let problem = format!("--at {url}: write grpc+tls://HOST:PORT, or --data for a directory");
        return Err(Failure::new(ErrorKind::Usage, problem));
    };
    let access = credentials.server_access(&remote)?;
    let found = remote.resolve().map_err(|error| {
        Failure::new(ErrorKind::Remote, format!("cannot find {}: {error}; check the name", remote.server_uri()))
    });
    Ok(Client::connect(&Address::Tcp(found?), access, tuning).await?)
}

/// Converts an error of a server to a failure. If the server rejects a statement, the exit code is the same as for a
/// local query.
pub fn server_failure(error: FlightError) -> Failure {
    let kind = match &error {
        FlightError::Status { status, .. } => match status.code() {
            Code::InvalidArgument | Code::NotFound | Code::Unimplemented => ErrorKind::Usage,
            Code::DataLoss => ErrorKind::Input,
            _ => ErrorKind::Remote,
        },
        FlightError::Parameter { .. } => ErrorKind::Usage,
        _ => ErrorKind::Remote,
    };
    Failure::new(kind, godwit_model::message_with_causes(&error))
}

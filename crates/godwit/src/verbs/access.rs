//! What a client shows to a server.

use std::collections::HashMap;
use std::sync::Arc;

use godwit_flight::pool::{Pool, PoolNotice, Waiting};
use godwit_flight::{Address, Client, Code, FlightError, Token, Tuning};
use godwit_transfer::Credentials;
use godwit_transfer::place::{Place, Remote};
use serde_json::json;

use crate::cli::AccessArgs;
use crate::failure::{Exit, Failure, log_event, log_message};
use crate::pool_file::PoolFile;

/// The credentials that options name.
pub fn credentials(args: &AccessArgs) -> Result<Credentials, Failure> {
    let token = match &args.token_file {
        None => None,
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure::new(Exit::Machine, format!("cannot read {}: {error}", path.display())))?;
            let wrong =
                || Failure::new(Exit::Input, format!("{} holds no token; `godwit token` makes one", path.display()));
            Some(Token::new(text.trim()).ok_or_else(wrong)?)
        }
    };
    let identity = args.client_cert.clone().zip(args.client_key.clone());
    Ok(Credentials { token, authority: args.ca.clone(), identity, pools: HashMap::new() })
}

/// The pool that a place names, where it names one. `json`: whether what it tells is for programs.
pub fn pool_of(
    place: &Place,
    args: &AccessArgs,
    credentials: &Credentials,
    json: bool,
) -> Result<Option<Arc<Pool>>, Failure> {
    let Place::There(remote) = place else { return Ok(None) };
    if !remote.pool {
        return Ok(None);
    }
    let file = described(remote, args)?;
    let notice = Arc::new(move |notice: &PoolNotice| match json {
        true => {
            let event = json!({"event": "pool", "code": notice.code(), "message": notice.to_string()});
            log_event(&event.to_string());
        }
        false => log_message(&notice.to_string()),
    });
    let waiting = Waiting { most: args.wait, notice };
    Ok(Some(Arc::new(Pool::new(&file.name, file.members(credentials)?, waiting))))
}

fn described(remote: &Remote, args: &AccessArgs) -> Result<PoolFile, Failure> {
    let Some(path) = &args.pool else { return Ok(PoolFile::of_name(remote)) };
    let file = PoolFile::read(path)?;
    if file.name == remote.host {
        return Ok(file);
    }
    let problem = format!("{} describes the pool {}, not {}", path.display(), file.name, remote.host);
    Err(Failure::new(Exit::Usage, problem))
}

/// What lets a client in to these places, with the pools among them.
pub fn credentials_for<'p>(
    places: impl IntoIterator<Item = &'p Place>,
    args: &AccessArgs,
    json: bool,
) -> Result<Credentials, Failure> {
    let mut credentials = credentials(args)?;
    for place in places {
        if let Some(pool) = pool_of(place, args, &credentials, json)? {
            credentials.pools.insert(pool.name().to_owned(), pool);
        }
    }
    Ok(credentials)
}

/// A connection to the server of a URL.
pub async fn connected(url: &str, args: &AccessArgs) -> Result<Client, Failure> {
    connected_with(url, args, Tuning::default()).await
}

/// The same, with other sizes and times.
pub async fn connected_with(url: &str, args: &AccessArgs, tuning: Tuning) -> Result<Client, Failure> {
    let place = Place::parse(url)?;
    let credentials = credentials(args)?;
    if let Some(pool) = pool_of(&place, args, &credentials, false)? {
        return Ok(pool.seat(&tuning).await?.client);
    }
    let Place::There(remote) = place else {
        let problem = format!("--at {url}: write grpc+tls://HOST:PORT, or --data for a directory");
        return Err(Failure::new(Exit::Usage, problem));
    };
    let access = credentials.access(&remote)?;
    let found = remote.address().map_err(|error| {
        Failure::new(Exit::Remote, format!("cannot find {}: {error}; check the name", remote.server()))
    });
    Ok(Client::connect(&Address::Tcp(found?), access, tuning).await?)
}

/// What a server says of a statement that it does not run is the statement's fault, as it would be here.
pub fn of_server(error: FlightError) -> Failure {
    let exit = match &error {
        FlightError::Status { status, .. } => match status.code() {
            Code::InvalidArgument | Code::NotFound | Code::Unimplemented => Exit::Usage,
            Code::DataLoss => Exit::Input,
            _ => Exit::Remote,
        },
        _ => Exit::Remote,
    };
    Failure::new(exit, godwit_formats::with_causes(&error))
}

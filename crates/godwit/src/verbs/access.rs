//! What a client shows to a server.

use godwit_flight::{Address, Client, Code, FlightError, Token, Tuning};
use godwit_transfer::Credentials;
use godwit_transfer::place::Place;

use crate::cli::AccessArgs;
use crate::failure::{Exit, Failure};

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
    Ok(Credentials { token, authority: args.ca.clone(), identity })
}

/// A connection to the server of a URL.
pub async fn connected(url: &str, args: &AccessArgs) -> Result<Client, Failure> {
    connected_with(url, args, Tuning::default()).await
}

/// The same, with other sizes and times.
pub async fn connected_with(url: &str, args: &AccessArgs, tuning: Tuning) -> Result<Client, Failure> {
    let Place::There(remote) = Place::parse(url)? else {
        let problem = format!("--at {url}: write grpc+tls://HOST:PORT, or --data for a directory");
        return Err(Failure::new(Exit::Usage, problem));
    };
    let access = credentials(args)?.access(&remote)?;
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

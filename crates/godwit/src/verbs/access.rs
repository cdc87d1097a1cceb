//! What a client shows to a server.

use godwit_flight::Token;
use godwit_transfer::Credentials;

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

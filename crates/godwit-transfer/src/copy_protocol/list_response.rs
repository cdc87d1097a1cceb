//! The messages with which a server answers the action that lists files.

use bytes::Bytes;

use super::{EntryFailureMessage, ListTrailer, from_json};
use crate::error::TransferError;
use crate::file_listing::{Entry, Listing};

/// Decodes the messages of a listing. Also returns whether the server supports link policies.
pub(crate) fn decode_listing(messages: Vec<Bytes>) -> Result<(Listing, bool), TransferError> {
    let (mut listing, mut knows_links) = (Listing::default(), false);
    for message in messages {
        if is_list_end(&message) {
            let ListTrailer { failures, skipped_links } = from_json(&message)?;
            listing.failures.extend(failures.into_iter().map(EntryFailureMessage::into_failure));
            listing.skipped_links.extend(skipped_links);
            knows_links = true;
        } else {
            listing.entries.extend(from_json::<Vec<Entry>>(&message)?);
        }
    }
    Ok((listing, knows_links))
}

/// Reports whether a message of a listing is the [`ListTrailer`], a JSON object. All other messages are JSON arrays of
/// entries; earlier versions send only arrays.
fn is_list_end(message: &[u8]) -> bool {
    message.starts_with(b"{")
}

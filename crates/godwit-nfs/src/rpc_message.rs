//! Messages of ONC RPC (RFC 5531) over TCP: records made of fragments, the headers of calls, and replies.

use std::io;

use nfs3_types::rpc::{RPC_VERSION_2, accept_stat, auth_stat, fragment_header, msg_type, reject_stat, reply_stat};
use nfs3_types::xdr_codec::Pack;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::arguments::{Arguments, MalformedArguments};

/// Largest size of the data of a read or write, bytes.
pub(crate) const MAX_TRANSFER_BYTES: u32 = 1 << 20;
/// Largest size of a call, bytes: the data of a write, with room for headers, credentials and names.
const MAX_RECORD_BYTES: usize = MAX_TRANSFER_BYTES as usize + (8 << 10);
/// Flavors of credentials that are accepted: AUTH_NONE and AUTH_SYS. Their content is not used, because clients choose
/// it.
const ACCEPTED_FLAVORS: [u32; 2] = [0, 1];

/// A call of a procedure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'m> {
    pub(crate) xid: u32,
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
    pub(crate) arguments: Arguments<'m>,
}

/// The reason why a record is not a call that can be answered by a procedure.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The record is not a call at all.
    NotACall,
    /// The call is rejected with this reply.
    Rejected(Vec<u8>),
}

impl From<MalformedArguments> for CallError {
    fn from(_: MalformedArguments) -> Self {
        Self::NotACall
    }
}

/// Reads the header of a fragment; returns `None` if the client has closed the connection.
///
/// # Errors
/// The I/O error of the connection.
pub(crate) async fn read_fragment_header(input: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<fragment_header>> {
    let mut header = [0; 4];
    match input.read_exact(&mut header).await {
        Ok(_) => Ok(Some(header.into())),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the record that begins with a fragment of this header.
///
/// # Errors
/// The I/O error of the connection; [`io::ErrorKind::InvalidData`] if the record is too large.
pub(crate) async fn read_record(
    mut header: fragment_header,
    input: &mut (impl AsyncRead + Unpin),
) -> io::Result<Vec<u8>> {
    let mut record = Vec::new();
    loop {
        let (start, size) = (record.len(), header.fragment_length() as usize);
        if start + size > MAX_RECORD_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        record.resize(start + size, 0);
        input.read_exact(&mut record[start..]).await?;
        if header.eof() {
            return Ok(record);
        }
        header = read_fragment_header(input).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    }
}

impl<'m> Call<'m> {
    /// Decodes the header of a call.
    ///
    /// # Errors
    /// [`CallError`] if the record is not a call, or if the version of RPC or the credential is not supported.
    pub(crate) fn decode(record: &'m [u8]) -> Result<Self, CallError> {
        let mut rest = Arguments::new(record);
        let (xid, kind, rpc_version) = (rest.u32()?, rest.u32()?, rest.u32()?);
        if kind != msg_type::CALL as u32 {
            return Err(CallError::NotACall);
        }
        if rpc_version != RPC_VERSION_2 {
            let words = [reject_stat::RPC_MISMATCH as u32, RPC_VERSION_2, RPC_VERSION_2];
            return Err(CallError::Rejected(denied(xid, &words)));
        }
        let (program, version, procedure) = (rest.u32()?, rest.u32()?, rest.u32()?);
        let flavor = rest.u32()?;
        let (_credential, _verifier_flavor, _verifier) = (rest.opaque()?, rest.u32()?, rest.opaque()?);
        if !ACCEPTED_FLAVORS.contains(&flavor) {
            return Err(CallError::Rejected(unauthorized(xid, auth_stat::AUTH_REJECTEDCRED)));
        }
        Ok(Self { xid, program, version, procedure, arguments: rest })
    }
}

/// Returns the record of a reply: a header of one fragment, these words, and `rest`.
fn record(words: &[u32], rest: &impl Pack) -> Vec<u8> {
    let size = words.len() * 4 + rest.packed_size();
    let mut reply = Vec::with_capacity(4 + size);
    // The size is below 2^31, because replies have at most `MAX_TRANSFER_BYTES` of data.
    reply.extend(fragment_header::new(size as u32, true).into_xdr_buf());
    reply.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    rest.pack(&mut reply).expect("writing to memory does not fail");
    reply
}

/// The words of an accepted reply up to its status; the verifier is empty.
fn accepted(xid: u32, status: accept_stat) -> [u32; 6] {
    [xid, msg_type::REPLY as u32, reply_stat::MSG_ACCEPTED as u32, 0, 0, status as u32]
}

/// Returns the reply of a call that was carried out.
pub(crate) fn success(xid: u32, result: &impl Pack) -> Vec<u8> {
    record(&accepted(xid, accept_stat::SUCCESS), result)
}

/// Returns the reply of a call that was not carried out.
pub(crate) fn failure(xid: u32, status: accept_stat) -> Vec<u8> {
    record(&accepted(xid, status), &nfs3_types::xdr_codec::Void)
}

/// Returns the reply of a call of another version of a program.
pub(crate) fn version_mismatch(xid: u32, supported: u32) -> Vec<u8> {
    let mut words = accepted(xid, accept_stat::PROG_MISMATCH).to_vec();
    words.extend([supported, supported]);
    record(&words, &nfs3_types::xdr_codec::Void)
}

fn denied(xid: u32, reason: &[u32]) -> Vec<u8> {
    let mut words = vec![xid, msg_type::REPLY as u32, reply_stat::MSG_DENIED as u32];
    words.extend(reason);
    record(&words, &nfs3_types::xdr_codec::Void)
}

/// Returns the reply to a call if the server rejects its client or credential.
pub(crate) fn unauthorized(xid: u32, reason: auth_stat) -> Vec<u8> {
    denied(xid, &[reject_stat::AUTH_ERROR as u32, reason as u32])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[tokio::test]
    async fn records_of_several_fragments_are_joined_and_large_ones_rejected() {
        let mut rest = &[0, 0, 0, 2, 1, 2, 0x80, 0, 0, 1, 3][..];
        let header = read_fragment_header(&mut rest).await.unwrap().unwrap();
        assert_eq!(read_record(header, &mut rest).await.unwrap(), [1, 2, 3]);
        assert_eq!(read_fragment_header(&mut rest).await.unwrap(), None);
        let large = fragment_header::new(MAX_RECORD_BYTES as u32 + 1, true);
        assert_eq!(read_record(large, &mut rest).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn calls_of_other_versions_and_with_other_credentials_are_rejected() {
        let words = [7, 0, 2, 100_003, 3, 0, 1, 0, 0, 0];
        let decoded = call(&words);
        let decoded = Call::decode(&decoded).unwrap();
        assert_eq!((decoded.xid, decoded.program, decoded.version, decoded.procedure), (7, 100_003, 3, 0));
        let reply = |at: usize, value: u32| {
            let mut changed = words;
            changed[at] = value;
            match Call::decode(&call(&changed)) {
                Err(CallError::Rejected(reply)) => Some(reply[4..].to_vec()),
                _ => None,
            }
        };
        assert_eq!(reply(2, 3), Some(call(&[7, 1, 1, 0, 2, 2])));
        assert_eq!(reply(6, 6), Some(call(&[7, 1, 1, 1, 2])));
        assert_eq!(reply(1, 1), None);
        assert!(matches!(Call::decode(&[0; 11]), Err(CallError::NotACall)));
    }
}

//! The header by which a client names the lease of its connection.

/// Identifier of a lease, a random number that the client chooses.
pub type MemberLeaseId = u64;

/// The header in which a client sends the identifier of its lease, as 16 hexadecimal digits.
pub(crate) const MEMBER_LEASE_HEADER: &str = "godwit-grant";

/// Parses the lease identifier in a header value; `None` if it is absent or malformed.
pub(crate) fn parse_lease_header(header: Option<&[u8]>) -> Option<MemberLeaseId> {
    let text = std::str::from_utf8(header?).ok().filter(|text| text.len() == 16)?;
    MemberLeaseId::from_str_radix(text, 16).ok()
}

/// Formats a lease identifier as a header value.
pub(crate) fn format_lease_header(id: MemberLeaseId) -> String {
    format!("{id:016x}")
}

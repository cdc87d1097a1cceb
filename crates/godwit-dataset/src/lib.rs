//! The interface between the data of a server and its protocols: datasets and catalogs, principals, access rules,
//! access logs, and web services. This crate contains no transport and no I/O.
//!
//! A server reads rows through a [`Dataset`], which a [`Catalog`] opens by name. An [`Authorizer`] returns the catalog
//! that a [`Principal`] may see, and an [`AccessLog`] records each access. The module [`web`] describes HTTP requests
//! and responses. Storage formats, access rules, the SQL engine and the Flight protocol are in crates that depend on
//! this one.

mod access_log;
mod authorizer;
mod contig_names;
mod dataset;
mod encoding;
mod piece_reader;
mod principal;
pub mod web;

pub use access_log::{AccessLog, AccessLogFuture, AccessRecord};
pub use authorizer::{ANY_FILE, Authorizer, FileAccess, FileAuthorization};
pub use contig_names::{has_region_contig, region_error_message, suggest_contig};
pub use dataset::{
    BatchReader, Catalog, ContigLine, Dataset, DatasetAccess, DatasetAccessList, DatasetError, DatasetKind,
    DatasetWriter, PutRequest, PutSummary, Scan, ScanPart, TEMPORARY_DIRECTORY, WriteMode, contig_lines,
    read_only_error,
};
pub use encoding::{decode_base64, encode_base64, encode_base64_url, percent_decode, percent_encode_path};
pub use piece_reader::read_pieces;
pub use principal::{AuthError, Principal, Visa};

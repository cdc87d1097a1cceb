//! Fuzz target for the Arrow streams that an aligner program writes to its pipe.

use godwit_engines::aligner::stream_metadata::{self, AlignerInfo, BlockEnd, BlockHeader};
use godwit_engines::stream::StreamReader;

/// Reads consecutive Arrow IPC streams, with their metadata and record batches.
pub(crate) fn pipe(bytes: &[u8]) {
    let mut reader = StreamReader::new(bytes);
    while let Ok(Some(schema)) = reader.next_stream() {
        let metadata = schema.metadata();
        let _ = (
            AlignerInfo::from_metadata(metadata),
            BlockHeader::from_metadata(metadata),
            BlockEnd::from_metadata(metadata),
        );
        let _ = (stream_metadata::parse_block_id(metadata), stream_metadata::stream_kind(metadata));
        while let Ok(Some(batch)) = reader.next_batch() {
            assert_eq!(batch.schema().fields(), schema.fields());
            assert!(batch.columns().iter().all(|column| column.len() == batch.num_rows()));
        }
    }
}

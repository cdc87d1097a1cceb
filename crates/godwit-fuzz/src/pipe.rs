//! What comes through the pipe from an aligner.

use godwit_engines::aligner::protocol::{self, BlockEnd, BlockHeader, Hello};
use godwit_engines::stream::StreamReader;

/// Arrow IPC streams, back to back.
pub(crate) fn pipe(bytes: &[u8]) {
    let mut reader = StreamReader::new(bytes);
    while let Ok(Some(schema)) = reader.next_stream() {
        let metadata = schema.metadata();
        let _ =
            (Hello::from_metadata(metadata), BlockHeader::from_metadata(metadata), BlockEnd::from_metadata(metadata));
        let _ = (protocol::block_id(metadata), protocol::kind(metadata));
        while let Ok(Some(batch)) = reader.next_batch() {
            assert_eq!(batch.schema().fields(), schema.fields());
            assert!(batch.columns().iter().all(|column| column.len() == batch.num_rows()));
        }
    }
}

//! What comes through the pipe from an aligner.

use std::sync::Once;

use godwit_engines::aligner::protocol::{self, BlockEnd, BlockHeader, Hello};
use godwit_engines::stream::StreamReader;

/// Arrow IPC streams, back to back.
pub(crate) fn pipe(bytes: &[u8]) {
    // The reader turns panics of the Arrow decoder into errors; they are neither news nor, under a fuzzer whose hook ends
    // the process, failures. A panic that gets out of here still is one.
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let foreign = panic
                .location()
                .is_some_and(|place| place.file().contains("arrow") || place.file().contains("flatbuffers"));
            if !foreign {
                before(panic);
            }
        }));
    });
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

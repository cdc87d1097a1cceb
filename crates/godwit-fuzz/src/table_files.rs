//! Fuzz targets for Arrow IPC and CSV tables.

use std::sync::Arc;

use godwit_columnar::ArrowFile;
use godwit_columnar::csv::CsvFile;
use godwit_io::random_access::LocalFile;

use crate::input_files::ScratchDirectory;

/// Reads all record batches of an Arrow IPC file or stream, first with all columns, then with only the last column.
pub(crate) fn arrow(bytes: &[u8]) {
    let path = ScratchDirectory::for_this_thread().write("x.arrow", bytes);
    let source = LocalFile::open(&path).expect("it was written");
    let Ok(file) = ArrowFile::open(Arc::new(source)) else { return };
    let columns = file.schema().fields().len();
    for wanted in [None, columns.checked_sub(1).map(|last| vec![last])] {
        let mut batches = file.batches(0..usize::MAX, wanted.as_deref());
        while let Ok(Some(batch)) = batches.next_batch() {
            assert_eq!(batch.num_columns(), wanted.as_ref().map_or(columns, Vec::len));
            assert!(batch.num_rows() > 0);
        }
    }
}

/// Reads a CSV file, uncompressed or compressed. Checks that a scan of all columns and a scan of no columns have the
/// same number of rows.
pub(crate) fn csv(bytes: &[u8]) {
    let path = ScratchDirectory::for_this_thread().write("x.csv", bytes);
    let source = LocalFile::open(&path).expect("it was written");
    let Ok(file) = CsvFile::open(Arc::new(source), b',') else { return };
    let rows = |columns: Option<&[usize]>| {
        let mut batches = file.batches(columns).ok()?;
        let mut rows = 0;
        while let Some(batch) = batches.next_batch().ok()? {
            rows += batch.num_rows();
        }
        Some(rows)
    };
    if let Some(all) = rows(None) {
        assert_eq!(rows(Some(&[])), Some(all));
    }
}

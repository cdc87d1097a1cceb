//! bigWig and bigBed files as datasets. Regions are found by the index that is part of the file.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use godwit_columnar::bbi::{BbiBlock, BbiFile};
use godwit_dataset::{BatchReader, Dataset, DatasetError, DatasetKind, Scan, ScanPart};
use godwit_model::Region;
use parking_lot::Mutex;

use crate::batch_reader::fused_reader;
use crate::file_snapshot::DatasetSnapshot;
use crate::file_store::FileStore;
use crate::read_error::dataset_error;
use crate::unindexed_dataset::project_columns;

/// A dataset of the intervals in a bigWig or bigBed file.
#[derive(Debug)]
pub(crate) struct BbiDataset {
    file: Arc<BbiFile>,
    bytes: u64,
    version: u64,
    /// The blocks of the last scan, so that its parts do not read the index again.
    last_blocks: Mutex<Option<RegionBlocks>>,
}

/// The blocks that may contain rows of some regions, or all blocks without regions.
#[derive(Debug)]
struct RegionBlocks {
    regions: Option<Vec<Region>>,
    blocks: Arc<[BbiBlock]>,
}

impl BbiDataset {
    pub(crate) fn open(store: &FileStore, seen: &DatasetSnapshot) -> Result<Self, DatasetError> {
        let snapshot = seen.single_file()?;
        let file = BbiFile::open(store.open(snapshot)?).map_err(dataset_error)?;
        Ok(Self::new(file, snapshot.bytes, seen.version))
    }

    fn new(file: BbiFile, bytes: u64, version: u64) -> Self {
        Self { file: Arc::new(file), bytes, version, last_blocks: Mutex::default() }
    }

    fn blocks(&self, scan: &Scan) -> Result<Arc<[BbiBlock]>, DatasetError> {
        let last_blocks = || self.last_blocks.lock();
        if let Some(last) = last_blocks().as_ref().filter(|last| last.regions == scan.regions) {
            return Ok(last.blocks.clone());
        }
        let blocks: Arc<[BbiBlock]> = self.file.blocks(scan.regions.as_deref()).map_err(dataset_error)?.into();
        *last_blocks() = Some(RegionBlocks { regions: scan.regions.clone(), blocks: blocks.clone() });
        Ok(blocks)
    }
}

impl Dataset for BbiDataset {
    fn kind(&self) -> DatasetKind {
        DatasetKind::Table
    }

    fn schema(&self) -> SchemaRef {
        self.file.kind().schema()
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn has_regions(&self) -> bool {
        true
    }

    fn has_contig(&self, name: &str) -> Option<bool> {
        Some(self.file.has_contig(name))
    }

    /// Splits the blocks of the scan by their bytes. A range of a part contains the offsets of its blocks.
    fn parts(&self, scan: &Scan, max_parts: usize) -> Result<Vec<ScanPart>, DatasetError> {
        let blocks = self.blocks(scan)?;
        let total: u64 = blocks.iter().map(|block| block.bytes).sum();
        let part_bytes = total.div_ceil(max_parts.max(1) as u64);
        let mut parts: Vec<ScanPart> = Vec::new();
        let (mut start, mut bytes) = (0, 0);
        for (at, block) in blocks.iter().enumerate() {
            bytes += block.bytes;
            let end = blocks.get(at + 1).map(|next| next.offset);
            if bytes >= part_bytes || end.is_none() {
                let end = end.unwrap_or(u64::MAX);
                parts.push(ScanPart { ranges: vec![(start, end)] });
                (start, bytes) = (end, 0);
            }
        }
        Ok(parts)
    }

    fn read(&self, scan: &Scan, part: &ScanPart) -> Result<BatchReader, DatasetError> {
        let in_part = |block: &BbiBlock| part.ranges.iter().any(|(start, end)| (*start..*end).contains(&block.offset));
        let blocks = self.blocks(scan)?.iter().filter(|block| in_part(block)).copied().collect();
        let mut rows = self.file.rows(blocks, scan.regions.as_deref());
        let columns = scan.columns.clone();
        Ok(fused_reader(move || {
            let batch = rows.next_batch().map_err(dataset_error)?;
            batch.map(|batch| project_columns(batch, columns.as_deref())).transpose()
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use godwit_io::random_access::{LocalFile, RandomAccess};

    use super::*;

    /// A file that counts its reads.
    #[derive(Debug)]
    struct CountedFile {
        file: LocalFile,
        reads: Arc<AtomicUsize>,
    }

    impl RandomAccess for CountedFile {
        fn path(&self) -> &Path {
            self.file.path()
        }

        fn byte_len(&self) -> u64 {
            self.file.byte_len()
        }

        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            self.file.read_at(buffer, offset)
        }
    }

    #[test]
    fn parts_of_a_scan_do_not_read_the_index_again() {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/bbi/features.bb");
        let reads = Arc::new(AtomicUsize::new(0));
        let file = CountedFile { file: LocalFile::open(Path::new(golden)).unwrap(), reads: reads.clone() };
        let dataset = BbiDataset::new(BbiFile::open(Arc::new(file)).unwrap(), 0, 0);
        let region = Region { contig: "chr2".to_owned(), start: 0, end: 9000 };
        for regions in [None, Some(vec![region])] {
            let scan = Scan { columns: None, regions };
            let parts = dataset.parts(&scan, 3).unwrap();
            let after_parts = reads.load(Ordering::Relaxed);
            let rows = |part: &ScanPart| -> usize {
                dataset.read(&scan, part).unwrap().map(|batch| batch.unwrap().num_rows()).sum()
            };
            let count: usize = parts.iter().map(rows).sum();
            // Each part reads its blocks at once, because the file is small.
            assert_eq!(reads.load(Ordering::Relaxed), after_parts + parts.len());
            let all = ScanPart { ranges: vec![(0, u64::MAX)] };
            assert_eq!(count, rows(&all));
        }
    }
}

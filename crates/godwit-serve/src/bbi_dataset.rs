//! bigWig and bigBed files as datasets. Regions are found by the index that is part of the file.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use godwit_columnar::bbi::{BbiBlock, BbiFile};
use godwit_dataset::{BatchReader, Dataset, DatasetError, DatasetKind, Scan, ScanPart};

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
}

impl BbiDataset {
    pub(crate) fn open(store: &FileStore, seen: &DatasetSnapshot) -> Result<Self, DatasetError> {
        let snapshot = seen.single_file()?;
        let file = BbiFile::open(store.open(snapshot)?).map_err(dataset_error)?;
        Ok(Self { file: Arc::new(file), bytes: snapshot.bytes, version: seen.version })
    }

    fn blocks(&self, scan: &Scan) -> Result<Vec<BbiBlock>, DatasetError> {
        self.file.blocks(scan.regions.as_deref()).map_err(dataset_error)
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
        let blocks = self.blocks(scan)?.into_iter().filter(in_part).collect();
        let mut rows = self.file.rows(blocks, scan.regions.as_deref());
        let columns = scan.columns.clone();
        Ok(fused_reader(move || {
            let batch = rows.next_batch().map_err(dataset_error)?;
            batch.map(|batch| project_columns(batch, columns.as_deref())).transpose()
        }))
    }
}

//! Numbers of bases by quality: the metrics of Picard 3.4.0 `QualityScoreDistribution`.

use godwit_kernels::qc::Alignment;
use godwit_model::RawRecord;
use serde::{Deserialize, Serialize};

use crate::base_codes::N_CODE;
use crate::count_array;
use crate::metrics_text::{HistogramColumn, MetricsText};
use crate::phred::QUALITY_LETTER_OFFSET;

/// Number of possible qualities.
const QUALITIES: usize = 256;

/// Numbers of bases by quality except N, over all reads that are neither secondary nor supplementary.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct QualityDistribution {
    /// Neighbouring bases are counted in different arrays, so that equal qualities do not wait for each other.
    #[serde(with = "count_array")]
    counts: [u64; 4 * QUALITIES],
    #[serde(with = "count_array")]
    original: [u64; QUALITIES],
}

impl Default for QualityDistribution {
    fn default() -> Self {
        Self { counts: [0; 4 * QUALITIES], original: [0; QUALITIES] }
    }
}

impl QualityDistribution {
    /// Counts the bases of a record, which must be primary.
    pub(crate) fn add(&mut self, record: RawRecord, alignment: &Alignment) {
        let (qualities, codes) = (record.qualities(), alignment.codes);
        if !record.has_qualities() {
            return;
        }
        let ([one, two, three, four], _) = self.counts.as_chunks_mut::<QUALITIES>() else { return };
        let (quality_chunks, code_chunks) = (qualities.chunks_exact(4), codes.chunks_exact(4));
        let (last_qualities, last_codes) = (quality_chunks.remainder(), code_chunks.remainder());
        for (quality, code) in quality_chunks.zip(code_chunks) {
            one[usize::from(quality[0])] += u64::from(code[0] != N_CODE);
            two[usize::from(quality[1])] += u64::from(code[1] != N_CODE);
            three[usize::from(quality[2])] += u64::from(code[2] != N_CODE);
            four[usize::from(quality[3])] += u64::from(code[3] != N_CODE);
        }
        for (quality, code) in last_qualities.iter().zip(last_codes) {
            one[usize::from(*quality)] += u64::from(*code != N_CODE);
        }
        if let Some(letters) = alignment.tags.original_qualities {
            for (letter, code) in letters.iter().zip(codes) {
                let quality = usize::from(letter.saturating_sub(QUALITY_LETTER_OFFSET));
                self.original[quality] += u64::from(*code != N_CODE);
            }
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.original.iter_mut().zip(&other.original).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// Returns the text of the metrics file.
    pub(crate) fn to_text(&self, comment: &str) -> String {
        let bins = |count: &dyn Fn(usize) -> u64| {
            let all = (0..256).map(|quality| (quality as u64, count(quality) as f64));
            all.filter(|(_, count)| *count > 0.0).collect()
        };
        let columns = [
            HistogramColumn {
                name: "COUNT_OF_Q",
                bins: bins(&|quality| self.counts.iter().skip(quality).step_by(QUALITIES).sum::<u64>()),
            },
            HistogramColumn { name: "COUNT_OF_OQ", bins: bins(&|quality| self.original[quality]) },
        ];
        MetricsText::new(comment).finish("java.lang.Byte", "QUALITY", &columns)
    }
}

//! One value for each output file that consists of parts.

use serde::{Deserialize, Serialize};

/// A value for each output file that consists of parts. Numbers are 0, and options `None`, for a file that is not
/// written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PerFile<T> {
    /// Value for the BAM file.
    pub bam: T,
    /// Value for the CRAM file.
    pub cram: T,
}

impl<T> PerFile<T> {
    /// Returns references to both values.
    pub fn as_ref(&self) -> PerFile<&T> {
        PerFile { bam: &self.bam, cram: &self.cram }
    }

    /// Applies a function to both values.
    pub fn map<U>(self, mut convert: impl FnMut(T) -> U) -> PerFile<U> {
        PerFile { bam: convert(self.bam), cram: convert(self.cram) }
    }

    /// Applies a fallible function to both values.
    ///
    /// # Errors
    /// The first error of the function.
    pub fn try_map<U, E>(self, mut convert: impl FnMut(T) -> Result<U, E>) -> Result<PerFile<U>, E> {
        Ok(PerFile { bam: convert(self.bam)?, cram: convert(self.cram)? })
    }

    /// Joins the values for the same file.
    pub fn zip<U>(self, other: PerFile<U>) -> PerFile<(T, U)> {
        PerFile { bam: (self.bam, other.bam), cram: (self.cram, other.cram) }
    }
}

impl PerFile<u64> {
    /// Adds the numbers for the same file.
    pub fn sum(self, other: Self) -> Self {
        self.zip(other).map(|(one, two)| one + two)
    }
}

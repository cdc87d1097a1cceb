//! The score of a call.

use crate::comparison_options::ScoreField;
use crate::record::{MISSING, Record};

/// Scores of FORMAT and INFO that are closer to 0 than this count as 0.
const ZERO_SCORE: f64 = 1e-8;

impl ScoreField {
    /// Returns the score of a record; NaN if it is missing.
    ///
    /// # Errors
    /// The problem of a record whose value is not a number.
    pub(crate) fn of_record(&self, record: &Record, sample: Option<usize>) -> Result<f64, &'static str> {
        let (text, is_quality) = match self {
            Self::Quality => (Some(record.quality), true),
            Self::Info(name) => (record.info_value(name.as_bytes()), false),
            Self::Format(name) => (sample.and_then(|sample| record.sample_value(name.as_bytes(), sample)), false),
        };
        let Some(text) = text.filter(|text| *text != MISSING) else { return Ok(f64::NAN) };
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
        let number = number.ok_or("its score is not a number")?;
        Ok(if !is_quality && number.abs() <= ZERO_SCORE { 0.0 } else { number })
    }
}

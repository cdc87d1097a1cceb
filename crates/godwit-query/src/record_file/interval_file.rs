//! Writes rows with `contig`, `position` and `end_position` as a BED file.

use std::io::Write as _;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int64Type};
use arrow_array::{Array as _, ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, DataType, SchemaRef};
use godwit_flight::Status;

use super::{FileWriter, RowFailure};
use crate::error::StatementError;

/// The columns that a BED file begins with.
const REQUIRED_COLUMNS: [&str; 3] = ["contig", "position", "end_position"];

/// A BED file that is being written: the required columns, then all others in the order of the rows, as text.
pub(super) struct IntervalFile {
    /// Indexes of the columns in a batch, in the order of the file.
    columns: Vec<usize>,
    out: FileWriter,
}

impl IntervalFile {
    pub(super) fn create(schema: &SchemaRef, out: FileWriter) -> Result<Self, StatementError> {
        let invalid = |problem: String| StatementError::from(Status::invalid_argument(problem));
        let mut columns = Vec::new();
        for name in REQUIRED_COLUMNS {
            let missing = |_| invalid(format!("BED needs the column {name}, which is missing; add it to SELECT"));
            columns.push(schema.index_of(name).map_err(missing)?);
        }
        let others = (0..schema.fields().len()).filter(|column| !columns.contains(column)).collect::<Vec<_>>();
        if let Some(nested) = others.iter().find(|column| schema.field(**column).data_type().is_nested()) {
            let name = schema.field(*nested).name();
            return Err(invalid(format!(
                "BED has no field for the list or structure in column {name}; remove the column"
            )));
        }
        columns.extend(others);
        Ok(Self { columns, out })
    }

    /// Writes the rows of a batch; `first_row` is the number of rows before it.
    pub(super) fn write(&mut self, batch: &RecordBatch, first_row: u64) -> Result<(), RowFailure> {
        let rows_failure = |error: ArrowError| RowFailure::Rows(error.to_string());
        let options = FormatOptions::default();
        let formatters = self.columns.iter().map(|column| ArrayFormatter::try_new(batch.column(*column), &options));
        let formatters = formatters.collect::<Result<Vec<_>, _>>().map_err(rows_failure)?;
        // Unlike the validity bitmap, `logical_nulls` also covers dictionaries and columns of the data type Null.
        let nulls: Vec<_> = self.columns.iter().map(|column| batch.column(*column).logical_nulls()).collect();
        let bounds = |column: usize| cast(batch.column(self.columns[column]), &DataType::Int64).map_err(rows_failure);
        let (starts, ends) = (bounds(1)?, bounds(2)?);
        let (starts, ends) = (starts.as_primitive::<Int64Type>(), ends.as_primitive::<Int64Type>());
        let mut line = String::new();
        for row in 0..batch.num_rows() {
            let row_failure = |problem: String| RowFailure::of_row(first_row + row as u64, problem);
            line.clear();
            for (at, (formatter, nulls)) in formatters.iter().zip(&nulls).enumerate() {
                let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
                if is_null && at < REQUIRED_COLUMNS.len() {
                    return Err(row_failure(format!("its {} is null; add a condition to WHERE", REQUIRED_COLUMNS[at])));
                }
                if at > 0 {
                    line.push('\t');
                }
                let start = line.len();
                match is_null {
                    true => line.push('.'),
                    false => {
                        append_value(&mut line, batch.column(self.columns[at]), row, formatter).map_err(rows_failure)?
                    }
                }
                if line[start..].is_empty() || line[start..].contains(['\t', '\n', '\r']) {
                    return Err(row_failure(format!("field {} is empty or has a tab or line end", at + 1)));
                }
            }
            let (start, end) = (starts.value(row), ends.value(row));
            if start < 0 || end < start {
                return Err(row_failure(format!("its interval is [{start}, {end}), which BED cannot represent")));
            }
            line.push('\n');
            self.out.write_all(line.as_bytes())?;
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<FileWriter, RowFailure> {
        Ok(self.out)
    }
}

/// Appends a value as text; a float without a fraction as an integer, because scores of BED are integers.
fn append_value(
    line: &mut String,
    column: &ArrayRef,
    row: usize,
    formatter: &ArrayFormatter,
) -> Result<(), ArrowError> {
    match column.data_type() {
        DataType::Float32 => line.push_str(&column.as_primitive::<Float32Type>().value(row).to_string()),
        DataType::Float64 => line.push_str(&column.as_primitive::<Float64Type>().value(row).to_string()),
        _ => formatter.value(row).write(line)?,
    }
    Ok(())
}

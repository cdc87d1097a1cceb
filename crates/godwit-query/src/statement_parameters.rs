//! Values of the parameters of a statement, which a client has as texts or as a row.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_ipc::reader::StreamReader;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use godwit_flight::{FlightError, ParameterValues};
use godwit_model::message_with_causes;
use godwit_model::panics::catch_panic;

/// The values of the parameters of a statement: texts by the names of the parameters, or a row of typed values.
///
/// # Examples
///
/// ```
/// use arrow_schema::{DataType, Field, Schema};
/// use godwit_query::StatementParameters;
///
/// let values = vec![("contig".to_owned(), "chr1".to_owned()), ("first".to_owned(), "100".to_owned())];
/// let parameters = StatementParameters::new(values);
/// let fields = [("$contig", DataType::Utf8), ("$first", DataType::Int32)];
/// let schema = Schema::new(fields.map(|(name, data_type)| Field::new(name, data_type, true)).to_vec());
/// assert_eq!(parameters.to_row(&schema)?.num_rows(), 1);
/// assert!(StatementParameters::default().to_row(&schema).is_err());
/// # Ok::<(), godwit_query::ParameterError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct StatementParameters {
    texts: Vec<(String, String)>,
    /// The row, which excludes texts.
    row: Option<RecordBatch>,
}

/// A value that does not fit the parameters of a statement.
#[derive(Debug, thiserror::Error)]
pub enum ParameterError {
    /// A parameter of the statement has no value.
    #[error("the parameter {name} of the statement has no value")]
    Missing {
        /// Name of the parameter, with its dollar sign.
        name: String,
    },
    /// The statement does not have a parameter.
    #[error("the statement has no parameter {name}")]
    Unknown {
        /// Name of the parameter, with its dollar sign.
        name: String,
    },
    /// A parameter has several values.
    #[error("the parameter {name} has more than one value")]
    Repeated {
        /// Name of the parameter, with its dollar sign.
        name: String,
    },
    /// The text is not a value of the type of its parameter.
    #[error("the value {text:?} of the parameter {name} is not of the type {data_type}")]
    InvalidValue {
        /// Name of the parameter, with its dollar sign.
        name: String,
        /// The text.
        text: String,
        /// The type that the statement requires.
        data_type: DataType,
        /// The error that the Arrow library returned.
        #[source]
        source: ArrowError,
    },
}

impl StatementParameters {
    /// Creates parameters from pairs of a name and a value. Names have no dollar sign: `contig` for `$contig`, `1` for
    /// `$1`.
    pub fn new(texts: Vec<(String, String)>) -> Self {
        Self { texts, row: None }
    }

    /// Reads a row of typed values from an Arrow IPC stream. Its columns have the names of the parameters, `$contig` or
    /// `$1`.
    ///
    /// # Errors
    /// [`ArrowError`] if the bytes are not an Arrow IPC stream with one row.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    /// use godwit_query::StatementParameters;
    ///
    /// let row = RecordBatch::try_from_iter([("$first", Arc::new(Int64Array::from(vec![100])) as ArrayRef)])?;
    /// let parameters = StatementParameters::from_stream(&godwit_model::ipc::batch_to_bytes(&row)?)?;
    /// assert_eq!(parameters.texts(), [("first".to_owned(), "100".to_owned())]);
    /// # Ok::<(), arrow_schema::ArrowError>(())
    /// ```
    pub fn from_stream(bytes: &[u8]) -> Result<Self, ArrowError> {
        let contradictory = || Err(ArrowError::IpcError("its buffers contradict its header".to_owned()));
        let read = || -> Result<Vec<RecordBatch>, ArrowError> { StreamReader::try_new(bytes, None)?.collect() };
        let mut batches = catch_panic(read).unwrap_or_else(contradictory)?;
        batches.retain(|batch| batch.num_rows() > 0);
        match (batches.pop(), batches.len()) {
            (Some(row), 0) if row.num_rows() == 1 => Ok(Self { texts: Vec::new(), row: Some(row) }),
            _ => Err(ArrowError::InvalidArgumentError("values of parameters are exactly one row".to_owned())),
        }
    }

    /// Returns whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.row.is_none()
    }

    /// Returns pairs of a name without the dollar sign and a value as text, for messages and logs. The text of a null is
    /// `NULL`.
    pub fn texts(&self) -> Vec<(String, String)> {
        let Some(row) = &self.row else { return self.texts.clone() };
        let schema = row.schema();
        let columns = schema.fields().iter().zip(row.columns());
        let options = FormatOptions::new().with_null("NULL");
        let value = |(field, column): (&Arc<Field>, &ArrayRef)| {
            let text = ArrayFormatter::try_new(column, &options).and_then(|column| column.value(0).try_to_string());
            (field.name().trim_start_matches('$').to_owned(), text.unwrap_or_default())
        };
        columns.map(value).collect()
    }

    /// Returns the values for a remote statement; `None` if there are none.
    pub(crate) fn values(&self) -> Option<ParameterValues> {
        let own = self.clone();
        let to_row = move |schema: &Schema| {
            own.to_row(schema).map_err(|error| FlightError::Parameter { problem: message_with_causes(&error) })
        };
        (!self.is_empty()).then(|| Arc::new(to_row) as ParameterValues)
    }

    /// Converts the texts to the types of the parameters of a statement, and returns them as one row. Returns a row of typed
    /// values unchanged.
    ///
    /// # Errors
    /// [`ParameterError`] if the names differ from those of the statement, or a text cannot be converted.
    pub fn to_row(&self, parameters: &Schema) -> Result<RecordBatch, ParameterError> {
        if let Some(row) = &self.row {
            return Ok(row.clone());
        }
        let dollar_name = |name: &str| format!("${name}");
        if let Some((unknown, _)) = self.texts.iter().find(|(name, _)| parameters.index_of(&dollar_name(name)).is_err())
        {
            return Err(ParameterError::Unknown { name: dollar_name(unknown) });
        }
        let column = |field: &Arc<Field>| {
            let name = field.name().clone();
            let mut texts = self.texts.iter().filter(|(own, _)| dollar_name(own) == name).map(|(_, text)| text);
            match (texts.next(), texts.next()) {
                (None, _) => Err(ParameterError::Missing { name }),
                (Some(_), Some(_)) => Err(ParameterError::Repeated { name }),
                (Some(text), None) => value_of_text(text, field),
            }
        };
        let columns = parameters.fields().iter().map(column).collect::<Result<Vec<_>, _>>()?;
        let schema = SchemaRef::new(Schema::new(parameters.fields().clone()));
        let one_row = RecordBatchOptions::new().with_row_count(Some(1));
        let row = RecordBatch::try_new_with_options(schema, columns, &one_row);
        Ok(row.expect("each column has one value of the type of its field"))
    }
}

/// Converts a text to the type of a parameter; returns an array with this value.
///
/// # Errors
/// [`ParameterError::InvalidValue`] if the text is not a value of this type.
pub fn value_of_text(text: &str, parameter: &Field) -> Result<ArrayRef, ParameterError> {
    let array: ArrayRef = Arc::new(StringArray::from(vec![text]));
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(&array, parameter.data_type(), &options).map_err(|source| ParameterError::InvalidValue {
        name: parameter.name().clone(),
        text: text.to_owned(),
        data_type: parameter.data_type().clone(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int64Array, NullArray};

    use super::*;

    #[test]
    fn a_null_is_not_an_empty_text() {
        let columns: [(&str, ArrayRef); 4] = [
            ("$empty", Arc::new(StringArray::from(vec![""]))),
            ("$text", Arc::new(StringArray::from(vec![None::<&str>]))),
            ("$number", Arc::new(Int64Array::from(vec![None]))),
            ("$untyped", Arc::new(NullArray::new(1))),
        ];
        let columns = columns.map(|(name, column)| (name, column, true));
        let row = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let texts = StatementParameters { texts: Vec::new(), row: Some(row) }.texts();
        let texts: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        assert_eq!(texts, [("empty", ""), ("text", "NULL"), ("number", "NULL"), ("untyped", "NULL")]);
    }
}

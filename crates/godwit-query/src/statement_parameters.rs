//! Values of the parameters of a statement, which a client has as texts.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use godwit_flight::{FlightError, ParameterValues};
use godwit_model::message_with_causes;

/// The values of the parameters of a statement as texts, by the names of the parameters.
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
pub struct StatementParameters(Vec<(String, String)>);

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
    pub fn new(values: Vec<(String, String)>) -> Self {
        Self(values)
    }

    /// Returns whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the values for a remote statement; `None` if there are none.
    pub(crate) fn values(&self) -> Option<ParameterValues> {
        let own = self.clone();
        let to_row = move |schema: &Schema| {
            own.to_row(schema).map_err(|error| FlightError::Parameter { problem: message_with_causes(&error) })
        };
        (!self.is_empty()).then(|| Arc::new(to_row) as ParameterValues)
    }

    /// Converts the values to the types of the parameters of a statement, and returns them as one row.
    ///
    /// # Errors
    /// [`ParameterError`] if the names differ from those of the statement, or a text cannot be converted.
    pub fn to_row(&self, parameters: &Schema) -> Result<RecordBatch, ParameterError> {
        let dollar_name = |name: &str| format!("${name}");
        if let Some((unknown, _)) = self.0.iter().find(|(name, _)| parameters.index_of(&dollar_name(name)).is_err()) {
            return Err(ParameterError::Unknown { name: dollar_name(unknown) });
        }
        let column = |field: &Arc<Field>| {
            let name = field.name().clone();
            let mut texts = self.0.iter().filter(|(own, _)| dollar_name(own) == name).map(|(_, text)| text);
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

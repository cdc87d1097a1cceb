//! The SQL function `filter('..')`, which tests rows by a filter expression of samtools or bcftools.
//!
//! Before planning, a call is replaced by a [`FilterFunction`] whose arguments are the columns that the expression
//! needs. A filter therefore sees only the columns and values that the table shows.

use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};

/// Name of the SQL function.
pub(crate) const FUNCTION_NAME: &str = "filter";
/// Maximum length of an expression in an error message.
const MAX_EXCERPT_CHARACTERS: usize = 100;

/// A filter expression that is bound to the columns of a table.
pub(crate) trait RowFilter: Debug + Send + Sync + 'static {
    /// Returns what, together with the text of the expression, determines the result of each row.
    fn binding(&self) -> impl Eq + Hash + '_;

    /// Returns the test of the rows of a batch, by the number of the row. `arrays` are the columns that the expression
    /// needs. The error of the test describes an operation that is not possible.
    fn row_test(&self, arrays: &[ArrayRef]) -> Result<impl Fn(usize) -> Result<bool, String>, ArrowError>;
}

/// Returns the condition that replaces `filter(text)`, with the columns of the filter as arguments.
pub(crate) fn condition(text: &str, filter: impl RowFilter, columns: Vec<Expr>) -> Expr {
    let signature = match columns.len() {
        0 => TypeSignature::Nullary,
        count => TypeSignature::Any(count),
    };
    let signature = Signature::new(signature, Volatility::Immutable);
    ScalarUDF::from(FilterFunction { text: text.to_owned(), filter, signature }).call(columns)
}

/// Returns the error for an expression that cannot be parsed.
pub(crate) fn invalid_expression(text: &str, problem: &str) -> DataFusionError {
    DataFusionError::Plan(format!("{FUNCTION_NAME}(): the expression {} is not valid: {problem}", excerpt(text)))
}

/// Returns the start of an expression, in double quotes, for error messages.
pub(crate) fn excerpt(text: &str) -> String {
    let mut letters = text.chars();
    let start: String = letters.by_ref().take(MAX_EXCERPT_CHARACTERS).collect();
    format!("{start:?}{}", if letters.next().is_some() { ".." } else { "" })
}

/// The SQL function that evaluates one filter expression. Its arguments are the columns of the expression.
#[derive(Debug)]
struct FilterFunction<F> {
    text: String,
    filter: F,
    signature: Signature,
}

impl<F: RowFilter> PartialEq for FilterFunction<F> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.filter.binding() == other.filter.binding()
    }
}

impl<F: RowFilter> Eq for FilterFunction<F> {}

impl<F: RowFilter> Hash for FilterFunction<F> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
        self.filter.binding().hash(state);
    }
}

impl<F: RowFilter> ScalarUDFImpl for FilterFunction<F> {
    fn name(&self) -> &str {
        FUNCTION_NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let passes = self.filter.row_test(&arrays)?;
        // Without columns, all rows have the same result.
        let row_count = if arrays.is_empty() { 1 } else { arguments.number_rows };
        let passed: Result<Vec<bool>, String> = (0..row_count).map(passes).collect();
        let passed = match passed {
            Ok(passed) => BooleanArray::from(passed),
            Err(problem) => {
                let text = excerpt(&self.text);
                return exec_err!("{FUNCTION_NAME}(): the expression {text} cannot be evaluated: {problem}");
            }
        };
        match arrays.is_empty() {
            true => Ok(ColumnarValue::Scalar(ScalarValue::from(passed.value(0)))),
            false => Ok(ColumnarValue::Array(Arc::new(passed))),
        }
    }
}

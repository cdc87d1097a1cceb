//! The SQL function `filter('QUAL>30 && GT="het"')` on tables of variants, which tests them by a filter expression of
//! bcftools.
//!
//! Before planning, a call is replaced by a [`VariantFilterFunction`] whose arguments are the columns that the
//! expression needs. A filter therefore sees only the columns and values that the table shows.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::error::ArrowError;
use datafusion::common::{Column, DataFusionError, Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};

use crate::read_filter::{FUNCTION_NAME, excerpt};
use crate::variant_expression::{VariantExpression, VariantRow};

/// Prefix of the names of the columns of FORMAT fields, which have a list element for each sample.
const FORMAT_PREFIX: &str = "format_";

/// A function that returns the column of a table with a name, and its type; `None` if the table does not have it.
pub(crate) type FindTypedColumn<'f> = dyn Fn(&str) -> Result<Option<(Column, DataType)>> + 'f;

/// Returns whether a table with these columns contains variants, and not reads.
pub(crate) fn has_variant_columns<'n>(names: impl Iterator<Item = &'n str>) -> bool {
    let mut has_variants = false;
    for name in names {
        match name {
            "flags" | "cigar" | "mapping_quality" => return false,
            "reference" | "alternates" | "filters" | "identifiers" | "quality" => has_variants = true,
            name => has_variants |= name.starts_with("info_") || name.starts_with(FORMAT_PREFIX),
        }
    }
    has_variants
}

/// Returns the condition that replaces `filter('..')`. `find_column` returns the column of the table with a name and its
/// type, or `None` if the table does not have it; `find_sample_count` returns the number of samples if it is known.
pub(crate) fn variant_condition(
    text: &str,
    find_column: &FindTypedColumn,
    find_sample_count: &dyn Fn() -> Option<usize>,
) -> Result<Expr> {
    let find_type = |name: &str| match find_column(name) {
        Ok(found) => Ok(found.map(|(_, data_type)| data_type)),
        Err(DataFusionError::Plan(problem)) => Err(problem),
        Err(error) => Err(error.to_string()),
    };
    let expression = match VariantExpression::parse(text, &find_type, find_sample_count) {
        Ok(expression) => expression,
        Err(problem) => {
            return plan_err!("{FUNCTION_NAME}(): the expression {} is not valid: {problem}", excerpt(text));
        }
    };
    let mut arguments = Vec::new();
    for column in expression.columns() {
        arguments.extend(find_column(&column.name)?.map(|(column, _)| Expr::Column(column)));
    }
    let signature = match arguments.len() {
        0 => TypeSignature::Nullary,
        count => TypeSignature::Any(count),
    };
    let signature = Signature::new(signature, Volatility::Immutable);
    let function = VariantFilterFunction { text: text.to_owned(), expression, signature };
    Ok(ScalarUDF::from(function).call(arguments))
}

/// The SQL function that evaluates one filter expression. Its arguments are the columns of the expression.
#[derive(Debug)]
struct VariantFilterFunction {
    text: String,
    expression: VariantExpression,
    signature: Signature,
}

// The text and the columns determine all other fields.
impl PartialEq for VariantFilterFunction {
    fn eq(&self, other: &Self) -> bool {
        (&self.text, self.expression.columns()) == (&other.text, other.expression.columns())
    }
}

impl Eq for VariantFilterFunction {}

impl Hash for VariantFilterFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl ScalarUDFImpl for VariantFilterFunction {
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
        let wanted = self.expression.columns();
        let columns = wanted.iter().zip(&arrays).map(|(column, array)| cast(array, &column.data_type));
        let columns: Vec<ArrayRef> = columns.collect::<Result<_, ArrowError>>()?;
        let formats = wanted.iter().zip(&columns).filter(|(column, _)| column.name.starts_with(FORMAT_PREFIX));
        let longest = formats.map(|(_, lists)| longest_list(lists)).max().unwrap_or_default();
        // Without any value, a condition has the same result for each number of samples.
        let sample_count = longest.max(1);
        let row_count = if columns.is_empty() { 1 } else { arguments.number_rows };
        let mut passed = Vec::with_capacity(row_count);
        for row in 0..row_count {
            match self.expression.matches(VariantRow { columns: &columns, row, sample_count }) {
                Ok(passes) => passed.push(passes),
                Err(problem) => {
                    return exec_err!(
                        "{FUNCTION_NAME}(): the expression {} cannot be evaluated: {problem}",
                        excerpt(&self.text)
                    );
                }
            }
        }
        let passed: ArrayRef = Arc::new(BooleanArray::from(passed));
        match columns.is_empty() {
            true => Ok(ColumnarValue::Scalar(datafusion::common::ScalarValue::try_from_array(&passed, 0)?)),
            false => Ok(ColumnarValue::Array(passed)),
        }
    }
}

/// Returns the number of elements of the longest list.
fn longest_list(lists: &ArrayRef) -> usize {
    lists.as_list_opt::<i32>().map_or(0, |lists| {
        (0..lists.len())
            .filter(|row| lists.is_valid(*row))
            .map(|row| lists.value_length(row) as usize)
            .max()
            .unwrap_or(0)
    })
}

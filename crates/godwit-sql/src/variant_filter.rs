//! The SQL function `filter('QUAL>30 && GT="het"')` on tables of variants, which tests them by a filter expression of
//! bcftools.

use std::hash::Hash;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::error::ArrowError;
use datafusion::common::{Column, DataFusionError, Result};
use datafusion::logical_expr::Expr;

use crate::filter_function::{RowFilter, condition, invalid_expression};
use crate::variant_expression::{FORMAT_PREFIX, VariantExpression, VariantRow};

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
/// type, or `None` if the table does not have it; `find_sample_count` returns the number of samples of the rows from
/// which the column with a name is read, if it is known.
pub(crate) fn variant_condition(
    text: &str,
    find_column: &FindTypedColumn,
    find_sample_count: &dyn Fn(&str) -> Option<usize>,
) -> Result<Expr> {
    let find_type = |name: &str| match find_column(name) {
        Ok(found) => Ok(found.map(|(_, data_type)| data_type)),
        Err(DataFusionError::Plan(problem)) => Err(problem),
        Err(error) => Err(error.to_string()),
    };
    let expression = VariantExpression::parse(text, &find_type, find_sample_count);
    let expression = expression.map_err(|problem| invalid_expression(text, &problem))?;
    let mut arguments = Vec::new();
    for column in expression.columns() {
        arguments.extend(find_column(&column.name)?.map(|(column, _)| Expr::Column(column)));
    }
    Ok(condition(text, expression, arguments))
}

impl RowFilter for VariantExpression {
    fn binding(&self) -> impl Eq + Hash + '_ {
        (self.columns(), self.sample_count())
    }

    fn row_test(&self, arrays: &[ArrayRef]) -> Result<impl Fn(usize) -> Result<bool, String>, ArrowError> {
        let wanted = self.columns();
        let columns = wanted.iter().zip(arrays).map(|(column, array)| cast(array, &column.data_type));
        let columns: Vec<ArrayRef> = columns.collect::<Result<_, _>>()?;
        let formats = wanted.iter().zip(&columns).filter(|(column, _)| column.name.starts_with(FORMAT_PREFIX));
        let formats: Vec<ArrayRef> = formats.map(|(_, lists)| lists.clone()).collect();
        Ok(move |row| {
            let sample_count = self.sample_count().unwrap_or_else(|| sample_count_of_row(&formats, row));
            self.matches(VariantRow { columns: &columns, row, sample_count })
        })
    }
}

/// Returns the number of samples of a row whose table does not determine it: the length of the longest list. Without any
/// value, it is 1. Expressions whose result then depends on the number are rejected when they are parsed.
fn sample_count_of_row(formats: &[ArrayRef], row: usize) -> usize {
    let lists = formats.iter().filter_map(|lists| lists.as_list_opt::<i32>()).filter(|lists| lists.is_valid(row));
    lists.map(|lists| lists.value_length(row) as usize).max().unwrap_or_default().max(1)
}

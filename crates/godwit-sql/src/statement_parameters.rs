//! Parameters of statements: their names and types, and the replacement by their values.
//!
//! A parameter is written `$1` or `$name`. Its value becomes a literal of the plan and is never parsed as SQL.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::logical_expr::LogicalPlan;
use godwit_model::message_with_causes;
use godwit_query::value_of_text;

use crate::error::QueryError;
use crate::parameter_types::parameter_types;

/// First character of the name of a parameter.
const PREFIX: char = '$';

/// Returns the name and the type of each parameter of a plan: first `$1`, `$2` and so on, and then names, sorted. A
/// parameter of unknown type is a text.
pub(crate) fn parameter_fields(plan: &LogicalPlan) -> Result<Vec<Field>, QueryError> {
    let mut parameters: Vec<(usize, String, DataType)> = parameter_types(plan)?
        .into_iter()
        .map(|(name, data_type)| {
            (parameter_number(&name).unwrap_or(usize::MAX), name, data_type.unwrap_or(DataType::Utf8))
        })
        .collect();
    parameters.sort_unstable_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
    Ok(parameters.into_iter().map(|(_, name, data_type)| Field::new(name, data_type, true)).collect())
}

/// Replaces the parameters of a plan by their values, which are one row. If the columns are named like parameters, with
/// the dollar sign, the names assign the values. Otherwise their order does, as clients of ADBC and JDBC expect. A text
/// is converted to the type that the statement expects.
///
/// # Errors
/// [`QueryError::InvalidStatement`] if a parameter has no value, a value has no parameter, or a text cannot be converted.
pub(crate) fn bind_parameters(plan: LogicalPlan, row: Option<&RecordBatch>) -> Result<LogicalPlan, QueryError> {
    let mut values = Vec::new();
    if let Some(row) = row.filter(|row| row.num_rows() > 0) {
        for (field, column) in row.schema().fields().iter().zip(row.columns()) {
            values.push((field.name().clone(), ScalarValue::try_from_array(column, 0)?));
        }
    }
    let fields = parameter_fields(&plan)?;
    let names: Vec<String> = fields.iter().map(|field| field.name().clone()).collect();
    if names.is_empty() && values.is_empty() {
        return Ok(plan);
    }
    let refused = |problem: String| Err(QueryError::InvalidStatement { problem });
    if !values.is_empty() && !values.iter().any(|(name, _)| name.starts_with(PREFIX)) {
        let numbers = names.iter().map(|name| parameter_number(name)).collect::<Option<Vec<usize>>>();
        let count = numbers.map_or(names.len(), |numbers| numbers.last().copied().unwrap_or_default());
        if values.len() != count {
            return refused(format!("the statement has {count} parameter(s), and {} value(s) were sent", values.len()));
        }
        for (at, (name, _)) in values.iter_mut().enumerate() {
            *name = match names.get(at) {
                Some(named) if parameter_number(named).is_none() => named.clone(),
                _ => format!("{PREFIX}{}", at + 1),
            };
        }
    } else if let Some(missing) = names.iter().find(|name| values.iter().all(|(column, _)| column != *name)) {
        return refused(format!("the parameter {missing} of the statement has no value"));
    } else if let Some((unknown, _)) = values.iter().find(|(column, _)| !names.contains(column)) {
        return refused(format!("the statement has no parameter {unknown}"));
    }
    for (name, value) in &mut values {
        if let Some(field) = fields.iter().find(|field| field.name() == name) {
            convert_text(value, field)?;
        }
    }
    let values: Vec<(String, ScalarValue)> =
        values.into_iter().map(|(name, value)| (name.trim_start_matches(PREFIX).to_owned(), value)).collect();
    Ok(plan.with_param_values(ParamValues::from(values))?)
}

/// Converts a value to the type of its parameter if the value is a text and the parameter is not.
fn convert_text(value: &mut ScalarValue, parameter: &Field) -> Result<(), QueryError> {
    let data_type = parameter.data_type();
    *value = match value.try_as_str() {
        Some(Some(text)) if !data_type.is_string() => {
            let converted = value_of_text(text, parameter);
            let converted =
                converted.map_err(|error| QueryError::InvalidStatement { problem: message_with_causes(&error) })?;
            ScalarValue::try_from_array(&converted, 0)?
        }
        Some(None) => ScalarValue::try_from(data_type)?,
        _ => return Ok(()),
    };
    Ok(())
}

/// Returns the number of a parameter `$1`; `None` for `$name`.
fn parameter_number(name: &str) -> Option<usize> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

//! The types that a statement expects of the values of its parameters.
//!
//! DataFusion infers the type of a parameter from the other operand of a comparison or of arithmetic. This module adds
//! the other places where a type is expected: `LIMIT` and `OFFSET`, casts, conditions, lists, `CASE`, and the arguments
//! of functions. A parameter without an expected type accepts any value.

use std::collections::BTreeMap;
use std::fmt::Display;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, plan_err};
use datafusion::logical_expr::expr::{AggregateFunction, InList, Placeholder, WindowFunction};
use datafusion::logical_expr::type_coercion::functions::{UDFCoercionExt, fields_with_udf};
use datafusion::logical_expr::{
    Between, BinaryExpr, Case, Cast, Expr, ExprSchemable as _, LogicalPlan, TryCast, WindowFunctionDefinition,
};

use crate::functions::input_schema;

/// Returns the name and the expected type of each parameter of a plan; the type is `None` if any is accepted.
///
/// # Errors
/// A planning error if two places require different types of a parameter.
pub(crate) fn parameter_types(plan: &LogicalPlan) -> Result<BTreeMap<String, Option<DataType>>> {
    let mut types = ParameterTypes::default();
    plan.apply_with_subqueries(|node| {
        let schema = input_schema(node)?;
        match node {
            LogicalPlan::Limit(limit) => {
                for (rows, clause) in [(&limit.skip, "OFFSET"), (&limit.fetch, "LIMIT")] {
                    rows.iter().try_for_each(|rows| types.add(rows, &DataType::Int64, Need::Required(&clause)))?;
                }
            }
            LogicalPlan::Filter(filter) => types.add(&filter.predicate, &DataType::Boolean, Need::Accepted)?,
            _ => {}
        }
        node.apply_expressions(|whole| {
            whole.apply(|expr| {
                types.add_operands(expr, whole, &schema)?;
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(types.0.into_iter().map(|(name, expected)| (name, expected.data_type())).collect())
}

/// Whether a value of another type is also accepted at a place, because it is converted there.
#[derive(Clone, Copy)]
enum Need<'p> {
    /// No other type is accepted. Contains the place, for messages.
    Required(&'p dyn Display),
    Accepted,
}

/// The types that the places of one parameter expect.
#[derive(Debug, Default)]
struct ExpectedTypes {
    /// The required type, and the first place that requires it.
    required: Option<(DataType, String)>,
    accepted: Vec<DataType>,
}

impl ExpectedTypes {
    fn data_type(self) -> Option<DataType> {
        let accepted = self.accepted.into_iter().map(Some);
        self.required
            .map(|(data_type, _)| data_type)
            .or_else(|| accepted.reduce(|one, other| common_type(&one?, &other?)).flatten())
    }
}

/// The expected types of each parameter, by its name.
#[derive(Debug, Default)]
struct ParameterTypes(BTreeMap<String, ExpectedTypes>);

impl ParameterTypes {
    /// Adds the types that an expression, which is a part of `whole`, expects of those of its operands that are parameters.
    fn add_operands(&mut self, expr: &Expr, whole: &Expr, schema: &DFSchema) -> Result<()> {
        match expr {
            Expr::Placeholder(Placeholder { id, field }) => {
                self.0.entry(id.clone()).or_default();
                let inferred = field.as_ref().map(|field| field.data_type().clone());
                inferred.map_or(Ok(()), |data_type| self.add(expr, &data_type, Need::Required(&whole.human_display())))
            }
            Expr::BinaryExpr(BinaryExpr { left, right, .. }) => self.add_equal_types([&**left, &**right], schema),
            Expr::Between(Between { expr, low, high, .. }) => self.add_equal_types([&**expr, &**low, &**high], schema),
            Expr::InList(InList { expr, list, .. }) => self.add_equal_types([&**expr].into_iter().chain(list), schema),
            Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
                self.add(expr, field.data_type(), Need::Accepted)
            }
            Expr::Not(condition) | Expr::IsTrue(condition) | Expr::IsFalse(condition) => {
                self.add(condition, &DataType::Boolean, Need::Accepted)
            }
            Expr::Case(Case { expr, when_then_expr, else_expr }) => {
                let compared = expr.iter().chain(when_then_expr.iter().map(|(when, _)| when));
                self.add_equal_types(compared.map(|expr| &**expr), schema)?;
                let results = when_then_expr.iter().map(|(_, then)| then).chain(else_expr);
                self.add_equal_types(results.map(|expr| &**expr), schema)
            }
            Expr::ScalarFunction(call) => self.add_arguments(&call.args, &*call.func, schema),
            Expr::AggregateFunction(AggregateFunction { func, params }) => {
                self.add_arguments(&params.args, &**func, schema)
            }
            Expr::WindowFunction(call) => {
                let WindowFunction { fun, params } = &**call;
                match fun {
                    WindowFunctionDefinition::AggregateUDF(function) => {
                        self.add_arguments(&params.args, &**function, schema)
                    }
                    WindowFunctionDefinition::WindowUDF(function) => {
                        self.add_arguments(&params.args, &**function, schema)?;
                        self.add_row_arguments(function.name(), &params.args, schema)
                    }
                }
            }
            _ => Ok(()),
        }
    }

    /// Adds the first known type of these expressions, which are compared or combined, to the parameters among them.
    fn add_equal_types<'e>(&mut self, exprs: impl IntoIterator<Item = &'e Expr>, schema: &DFSchema) -> Result<()> {
        let exprs: Vec<&Expr> = exprs.into_iter().collect();
        let known = exprs.iter().find_map(|expr| expr.get_type(schema).ok().and_then(|found| plain_type(&found)));
        match known {
            Some(data_type) => exprs.iter().try_for_each(|expr| self.add(expr, &data_type, Need::Accepted)),
            None => Ok(()),
        }
    }

    /// Adds the types that a function needs to the parameters among its arguments.
    fn add_arguments(&mut self, arguments: &[Expr], function: &impl UDFCoercionExt, schema: &DFSchema) -> Result<()> {
        let is_parameter = |expr: &Expr| Ok(matches!(expr, Expr::Placeholder(_)));
        if !arguments.iter().any(|argument| argument.exists(is_parameter).unwrap_or_default()) {
            return Ok(());
        }
        let fields =
            arguments.iter().map(|argument| Ok(argument.to_field(schema)?.1)).collect::<Result<Vec<FieldRef>>>();
        // A parameter without a type has the type of nulls, for which functions name the type that they need.
        let Ok(fields) = fields.and_then(|fields| fields_with_udf(&fields, function)) else { return Ok(()) };
        arguments
            .iter()
            .zip(fields)
            .try_for_each(|(argument, field)| self.add(argument, field.data_type(), Need::Accepted))
    }

    /// Adds the types of the arguments of `lag`, `lead` and `nth_value`, whose signatures contain no types: the number of
    /// rows, and the default, which has the type of the values.
    fn add_row_arguments(&mut self, function: &str, arguments: &[Expr], schema: &DFSchema) -> Result<()> {
        let ("lag" | "lead" | "nth_value", [values, rows, default @ ..]) = (function, arguments) else { return Ok(()) };
        self.add(rows, &DataType::Int64, Need::Accepted)?;
        self.add_equal_types(std::iter::once(values).chain(default), schema)
    }

    /// Adds an expected type if an expression is a parameter, or arithmetic with parameters.
    fn add(&mut self, expr: &Expr, data_type: &DataType, need: Need<'_>) -> Result<()> {
        let Some(data_type) = plain_type(data_type) else { return Ok(()) };
        match expr {
            Expr::Placeholder(Placeholder { id, .. }) => {
                let expected = self.0.entry(id.clone()).or_default();
                let Need::Required(place) = need else {
                    expected.accepted.push(data_type);
                    return Ok(());
                };
                let (known, first) = expected.required.get_or_insert_with(|| (data_type.clone(), place.to_string()));
                let Some(common) = common_type(known, &data_type) else {
                    return plan_err!(
                        "the parameter {id} has the type {known} in {first}, but {data_type} in {place}; use two parameters, \
                         or a cast"
                    );
                };
                *known = common;
                Ok(())
            }
            Expr::Negative(operand) => self.add(operand, &data_type, need),
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.is_numerical_operators() => {
                self.add(left, &data_type, need)?;
                self.add(right, &data_type, need)
            }
            _ => Ok(()),
        }
    }
}

/// Returns the type in which clients send values of a type: texts are `Utf8` in all encodings. `None` for the type of nulls
/// and for lists, which no text represents.
fn plain_type(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Null => None,
        DataType::Dictionary(_, values) => plain_type(values),
        data_type if data_type.is_nested() => None,
        data_type if data_type.is_string() => Some(DataType::Utf8),
        data_type => Some(data_type.clone()),
    }
}

/// Returns a type for values that are used as both types.
fn common_type(one: &DataType, other: &DataType) -> Option<DataType> {
    match one == other {
        true => Some(one.clone()),
        false if one.is_integer() && other.is_integer() => Some(DataType::Int64),
        false if one.is_numeric() && other.is_numeric() => Some(DataType::Float64),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    /// Returns the expected type of the parameter `$n` of a statement about a table of names and positions.
    async fn type_in(sql: &str) -> Result<Option<DataType>> {
        let table = "(VALUES ('a', arrow_cast(7, 'Int32'))) AS t(name, position)";
        let plan =
            SessionContext::new().state().create_logical_plan(&sql.replace("FROM t", &format!("FROM {table}"))).await?;
        Ok(parameter_types(&plan)?.remove("$n").expect("the statement has the parameter"))
    }

    #[tokio::test]
    async fn a_parameter_has_the_type_that_its_place_expects() {
        for (sql, expected) in [
            ("SELECT name FROM t WHERE position > $n", Some(DataType::Int32)),
            ("SELECT name FROM t WHERE position > -$n", Some(DataType::Int32)),
            ("SELECT name FROM t WHERE position > $n * $m", Some(DataType::Int32)),
            ("SELECT name FROM t WHERE $n BETWEEN position AND position + 1", Some(DataType::Int32)),
            ("SELECT name FROM t WHERE $n IN (position, 5)", Some(DataType::Int32)),
            ("SELECT name FROM t WHERE $n", Some(DataType::Boolean)),
            ("SELECT name FROM t LIMIT $n", Some(DataType::Int64)),
            ("SELECT name FROM t LIMIT 5 OFFSET ($m - 1) * $n", Some(DataType::Int64)),
            ("SELECT name FROM (SELECT name FROM t LIMIT $n)", Some(DataType::Int64)),
            ("SELECT name FROM t WHERE position > $n LIMIT $n", Some(DataType::Int64)),
            ("SELECT $n::DOUBLE FROM t", Some(DataType::Float64)),
            ("SELECT substr(name, $n) FROM t", Some(DataType::Int64)),
            ("SELECT coalesce(position, $n) FROM t", Some(DataType::Int32)),
            ("SELECT CASE WHEN position > 5 THEN position ELSE $n END FROM t", Some(DataType::Int32)),
            ("SELECT name FROM t WHERE upper($n) = name", Some(DataType::Utf8)),
            ("SELECT name FROM t WHERE array_has(make_array(name), $n)", Some(DataType::Utf8)),
            ("SELECT lag(name, $n) OVER (ORDER BY position) FROM t", Some(DataType::Int64)),
            ("SELECT lead(name, 1 + $n) OVER (ORDER BY position) FROM t", Some(DataType::Int64)),
            ("SELECT lag(position, 1, $n) OVER (ORDER BY position) FROM t", Some(DataType::Int32)),
            ("SELECT nth_value(name, $n) OVER (ORDER BY position) FROM t", Some(DataType::Int64)),
            ("SELECT ntile($n) OVER (ORDER BY position) FROM t", Some(DataType::UInt64)),
            ("SELECT $n AS text FROM t", None),
        ] {
            assert_eq!(type_in(sql).await.unwrap(), expected, "{sql}");
        }
        let error = type_in("SELECT name FROM t WHERE name = $n LIMIT $n").await.unwrap_err().to_string();
        let told =
            "the parameter $n has the type Int64 in LIMIT, but Utf8 in t.name = $n; use two parameters, or a cast";
        assert!(error.contains(told), "{error}");
    }
}

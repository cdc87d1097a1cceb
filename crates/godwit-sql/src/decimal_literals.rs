//! Compares decimal columns with literals exactly.
//!
//! DataFusion 55 parses `64.10` as a floating-point number, and compares a decimal column with it as decimals of 15
//! digits after the point: 64.10 is then 64.099999999999992, and equals no value of the column. In SQL the literal is a
//! decimal number (ISO/IEC 9075-2, exact numeric literal).

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, ExprSchemable as _, LogicalPlan, Operator};
use datafusion::optimizer::analyzer::AnalyzerRule;
use datafusion::prelude::cast;

use crate::functions::rewrite_expressions;

/// Largest number of digits of a decimal number in Arrow.
const MAX_DIGITS: usize = 38;

/// The analyzer rule that makes literals decimal if they are compared with a decimal value. It must run before the type
/// coercion of DataFusion.
#[derive(Debug)]
pub(crate) struct DecimalLiterals;

impl AnalyzerRule for DecimalLiterals {
    fn name(&self) -> &str {
        "godwit_decimal_literals"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(make_literals_decimal).map(|rewritten| rewritten.data)
    }
}

/// Replaces the literals in the expressions of one node of a plan.
fn make_literals_decimal(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let is_float = |expr: &Expr| matches!(expr, Expr::Literal(ScalarValue::Float64(Some(_)), _));
    rewrite_expressions(plan, is_float, |expr, _, schema| Ok(rewrite_comparison(expr, schema)))
}

/// Replaces the literals of a comparison one of whose sides is decimal.
fn rewrite_comparison(mut expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let operands: Vec<&mut Expr> = match &mut expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => vec![left, right],
        Expr::Between(Between { expr, low, high, .. }) => vec![expr, low, high],
        Expr::InList(InList { expr, list, .. }) => std::iter::once(&mut **expr).chain(list).collect(),
        _ => return Transformed::no(expr),
    };
    let is_decimal = |operand: &Expr| operand.get_type(schema).is_ok_and(|data_type| data_type.is_decimal());
    if !operands.iter().any(|operand| is_decimal(operand)) {
        return Transformed::no(expr);
    }
    let literals: Option<Vec<Option<Expr>>> = operands
        .iter()
        .map(|operand| float_literal(operand).map_or(Some(None), |number| decimal_literal(number).map(Some)))
        .collect();
    let mut is_changed = false;
    match literals {
        Some(literals) => {
            for (operand, literal) in operands.into_iter().zip(literals) {
                if let Some(literal) = literal {
                    (*operand, is_changed) = (literal, true);
                }
            }
        }
        // A literal such as 1e300 has more digits than decimal numbers.
        None => {
            for operand in operands {
                if is_decimal(operand) {
                    (*operand, is_changed) = (cast(operand.clone(), DataType::Float64), true);
                }
            }
        }
    }
    Transformed::new_transformed(expr, is_changed)
}

fn is_comparison(operator: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// Returns the value of a floating-point literal, also of a negative one; `None` for other expressions.
fn float_literal(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::Literal(ScalarValue::Float64(number), _) => *number,
        Expr::Negative(inner) => float_literal(inner).map(|number| -number),
        _ => None,
    }
}

/// Returns a decimal literal with the digits that identify a floating-point number, which are those of the statement if
/// there are at most 15; `None` if there are too many digits for decimal numbers.
fn decimal_literal(number: f64) -> Option<Expr> {
    let text = number.to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let digits = format!("{whole}{fraction}");
    let unscaled = digits.parse::<i128>().ok()?;
    let precision = digits.trim_start_matches('-').len();
    (precision <= MAX_DIGITS).then(|| {
        let value = ScalarValue::Decimal128(Some(unscaled), precision as u8, fraction.len() as i8);
        Expr::Literal(value, None)
    })
}

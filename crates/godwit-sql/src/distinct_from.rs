//! Corrects the syntax tree of `IS [NOT] DISTINCT FROM`. sqlparser 0.62 parses everything behind it as its right side, so
//! that `a IS DISTINCT FROM b AND c` becomes `a IS DISTINCT FROM (b AND c)`, although `AND` and `OR` have a lower precedence
//! (PostgreSQL 17, "Operator Precedence").

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Expr, UnaryOperator, Value};

/// Precedences of `OR`, of `AND`, and of all other operators.
const OR: u8 = 1;
const AND: u8 = 2;
const OTHERS: u8 = 3;

/// Corrects all expressions of a statement.
pub(crate) fn correct_distinct_from(statement: &mut ast::Statement) {
    // Operands are visited before their operators.
    let _ = ast::visit_expressions_mut(statement, |expr| {
        let parsed = std::mem::replace(expr, Expr::Value(Value::Null.into()));
        *expr = corrected(parsed);
        ControlFlow::<()>::Continue(())
    });
}

/// Moves `AND` and `OR` out of the right side of an operator of a higher precedence. The parser makes such a right side
/// only where it ends with `IS [NOT] DISTINCT FROM`.
fn corrected(expr: Expr) -> Expr {
    match expr {
        Expr::IsDistinctFrom(left, right) => {
            lift_logical(*right, OTHERS, |right| Expr::IsDistinctFrom(left, Box::new(right)))
        }
        Expr::IsNotDistinctFrom(left, right) => {
            lift_logical(*right, OTHERS, |right| Expr::IsNotDistinctFrom(left, Box::new(right)))
        }
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => {
            lift_logical(*expr, OTHERS, |expr| Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(expr) })
        }
        Expr::BinaryOp { left, op, right } => {
            lift_logical(*right, precedence(&op), |right| Expr::BinaryOp { left, op, right: Box::new(right) })
        }
        expr => expr,
    }
}

/// Applies an operator to the first operand of `right`, below each `AND` and `OR` of `right` whose precedence is at most
/// `limit`. A loop, because generated statements have chains of thousands of conditions.
fn lift_logical(mut right: Expr, limit: u8, operator: impl FnOnce(Expr) -> Expr) -> Expr {
    let is_lifted = |expr: &Expr| match expr {
        Expr::BinaryOp { op, .. } => precedence(op) < OTHERS && precedence(op) <= limit,
        _ => false,
    };
    let mut first = &mut right;
    while is_lifted(first) {
        let Expr::BinaryOp { left, .. } = first else { unreachable!("only binary operators are lifted") };
        first = left;
    }
    let operand = std::mem::replace(first, Expr::Value(Value::Null.into()));
    *first = operator(operand);
    right
}

fn precedence(operator: &BinaryOperator) -> u8 {
    match operator {
        BinaryOperator::Or => OR,
        BinaryOperator::And => AND,
        _ => OTHERS,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::{DFParserBuilder, Statement};

    use super::*;

    fn parsed(condition: &str) -> ast::Statement {
        let sql = format!("SELECT 1 WHERE {condition}");
        let statement = DFParserBuilder::new(&*sql).build().unwrap().parse_statement().unwrap();
        let Statement::Statement(mut statement) = statement else { panic!("{sql}") };
        correct_distinct_from(&mut statement);
        // Parentheses only control the parser.
        let _ = ast::visit_expressions_mut(&mut *statement, |expr| {
            while let Expr::Nested(inner) = expr {
                *expr = std::mem::replace(inner, Expr::Value(Value::Null.into()));
            }
            ControlFlow::<()>::Continue(())
        });
        *statement
    }

    #[test]
    fn logical_operators_behind_a_comparison_of_nulls_are_outside_of_it() {
        for (written, meant) in [
            ("a IS DISTINCT FROM b AND c", "(a IS DISTINCT FROM b) AND c"),
            ("a IS NOT DISTINCT FROM b OR c", "(a IS NOT DISTINCT FROM b) OR c"),
            ("a IS DISTINCT FROM b + 1 AND c", "(a IS DISTINCT FROM (b + 1)) AND c"),
            ("x AND a IS DISTINCT FROM b OR c", "(x AND (a IS DISTINCT FROM b)) OR c"),
            ("x OR a IS DISTINCT FROM b AND c", "x OR ((a IS DISTINCT FROM b) AND c)"),
            ("NOT a IS DISTINCT FROM b AND c OR d", "((NOT (a IS DISTINCT FROM b)) AND c) OR d"),
            ("a IS DISTINCT FROM b AND c OR d AND e", "((a IS DISTINCT FROM b) AND c) OR (d AND e)"),
            (
                "a IS DISTINCT FROM b AND c IS NOT DISTINCT FROM d AND e",
                "((a IS DISTINCT FROM b) AND (c IS NOT DISTINCT FROM d)) AND e",
            ),
            ("a IS DISTINCT FROM (b AND c)", "a IS DISTINCT FROM (b AND c)"),
            ("a OR b AND c OR NOT d AND e = f", "(a OR (b AND c)) OR ((NOT d) AND (e = f))"),
        ] {
            assert_eq!(parsed(written), parsed(meant), "{written}");
        }
    }
}

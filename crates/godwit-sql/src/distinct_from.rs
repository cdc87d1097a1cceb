//! Corrects the syntax tree of `IS [NOT] DISTINCT FROM`. sqlparser 0.62 parses everything behind it as its right side, so
//! that `a IS DISTINCT FROM b AND c` becomes `a IS DISTINCT FROM (b AND c)`, although `AND` and `OR` bind less tightly
//! (the grammar of PostgreSQL 17, "Operator Precedence").

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Expr, UnaryOperator, Value};

/// How tightly operators bind: `OR`, `AND`, all others.
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

/// Moves `AND` and `OR` out of the right side of an operator that binds more tightly. The parser makes such a right side
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
            lift_logical(*right, tightness(&op), |right| Expr::BinaryOp { left, op, right: Box::new(right) })
        }
        expr => expr,
    }
}

/// Applies an operator of a tightness to the first operand of `right`, below each `AND` and `OR` of `right` that does not
/// bind more tightly.
fn lift_logical(right: Expr, limit: u8, operator: impl FnOnce(Expr) -> Expr) -> Expr {
    match right {
        Expr::BinaryOp { left, op, right } if tightness(&op) < OTHERS && tightness(&op) <= limit => {
            Expr::BinaryOp { left: Box::new(lift_logical(*left, limit, operator)), op, right }
        }
        right => operator(right),
    }
}

fn tightness(operator: &BinaryOperator) -> u8 {
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
        // Parentheses only say how to parse.
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

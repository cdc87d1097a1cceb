//! Recognizes direct scans: SQL statements that only request columns of one dataset, or the number of its rows, for the
//! whole dataset or for one region.
//!
//! A server reads the rows of a direct scan from the dataset, without the SQL engine. This module parses the text of a
//! statement before planning, and accepts only statements that are certainly direct scans. DataFusion plans all other
//! statements and reports their errors.

use std::collections::HashSet;
use std::sync::Arc;

use godwit_dataset::{Catalog, DatasetKind, has_region_contig};
use godwit_flight::{DirectScan, DirectScanColumns};
use godwit_model::Region;
use sqlparser::ast;
use sqlparser::dialect::GenericDialect;
use sqlparser::parser::Parser;

use crate::dataset_lookup::find_dataset;

/// The name of the SQL function that selects the rows of a region.
pub const REGION_FUNCTION: &str = "region";

/// The name that DataFusion gives to the column of `SELECT count(*)`.
const COUNT_EXPRESSION: &str = "count(*)";

/// Maximum length of a statement that is examined, bytes.
const MAX_STATEMENT_BYTES: usize = 16 << 10;
/// Maximum nesting of expressions in a statement that is examined.
pub(crate) const MAX_NESTING: usize = 50;

/// A parsed statement that may be a direct scan.
#[derive(Debug, PartialEq)]
struct ScanStatement {
    dataset: String,
    /// The kind that the dataset must have, if the statement uses `reads(..)` or `variants(..)`.
    kind: Option<DatasetKind>,
    columns: SelectList,
    /// The region as written in the statement. How it is parsed depends on the contigs of the dataset.
    region: Option<String>,
}

#[derive(Debug, PartialEq)]
enum SelectList {
    All,
    Names(Vec<String>),
    /// The number of rows, in an output column of this name.
    Count(String),
}

/// Returns the direct scan of a statement; `None` if the SQL engine must run the statement.
pub(crate) fn parse_direct_scan(catalog: Arc<dyn Catalog>, sql: &str) -> Option<DirectScan> {
    let named = parse_scan_statement(sql)?;
    let (name, dataset) = find_dataset(&*catalog, &named.dataset).ok()?;
    if named.kind.is_some_and(|kind| kind != dataset.kind()) {
        return None;
    }
    let schema = dataset.schema();
    let names: HashSet<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let columns: Vec<usize> = match &named.columns {
        SelectList::Names(columns) => {
            columns.iter().map(|column| schema.index_of(column).ok()).collect::<Option<_>>()?
        }
        SelectList::All => (0..schema.fields().len()).collect(),
        SelectList::Count(_) => Vec::new(),
    };
    let each_once: HashSet<&usize> = columns.iter().collect();
    let (is_clear, columns) = match named.columns {
        // If counting would have to read the whole file, let the engine run the statement, because the engine has a
        // time limit.
        SelectList::Count(name) => (named.region.is_some() || dataset.rows().is_some(), DirectScanColumns::Count(name)),
        _ => (
            names.len() == schema.fields().len() && each_once.len() == columns.len() && !columns.is_empty(),
            DirectScanColumns::Projection(columns),
        ),
    };
    let regions = match named.region {
        None => None,
        Some(_) if !dataset.has_regions() => return None,
        Some(text) => Some(vec![Region::parse(&text, |contig| has_region_contig(&*dataset, contig)).ok()?]),
    };
    is_clear.then_some(DirectScan { name, dataset, columns, regions })
}

/// Parses a statement; returns `None` if the statement is not a direct scan.
fn parse_scan_statement(sql: &str) -> Option<ScanStatement> {
    if sql.len() > MAX_STATEMENT_BYTES {
        return None;
    }
    let parser = Parser::new(&GenericDialect {}).with_recursion_limit(MAX_NESTING);
    let statements = parser.try_with_sql(sql).ok()?.parse_statements().ok()?;
    let [ast::Statement::Query(query)] = &statements[..] else { return None };
    let ast::SetExpr::Select(select) = query.body.as_ref() else { return None };
    let [ast::TableWithJoins { relation: ast::TableFactor::Table { name, args, .. }, .. }] = &select.from[..] else {
        return None;
    };
    let [ast::ObjectNamePart::Identifier(table)] = &name.0[..] else { return None };
    let (kind, dataset) = match args {
        None => (None, table.value.clone()),
        Some(args) => {
            (Some(table_function_kind(table)?), text_argument(&args.args).filter(|name| !name.contains(['*', '?']))?)
        }
    };
    let columns = match &select.projection[..] {
        [ast::SelectItem::Wildcard(_)] => SelectList::All,
        [item] if let Some(name) = count_alias(item) => SelectList::Count(name),
        items => SelectList::Names(items.iter().map(column_name).collect::<Option<_>>()?),
    };
    let region = match &select.selection {
        None => None,
        Some(condition) => Some(region_argument(condition)?),
    };
    // Format the parsed parts as SQL again. If the text equals the statement, no other clause was overlooked.
    let again = [
        "SELECT ".to_owned(),
        if columns == SelectList::All { "*".to_owned() } else { join_with_commas(&select.projection) },
        format!(" FROM {table}"),
        args.as_ref().map(|args| format!("({})", join_with_commas(&args.args))).unwrap_or_default(),
        select.selection.as_ref().map(|condition| format!(" WHERE {condition}")).unwrap_or_default(),
    ];
    (query.to_string() == again.concat()).then_some(ScanStatement { dataset, kind, columns, region })
}

fn join_with_commas(items: &[impl ToString]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn table_function_kind(function: &ast::Ident) -> Option<DatasetKind> {
    [DatasetKind::Reads, DatasetKind::Variants].into_iter().find(|kind| kind.name() == function.value)
}

fn column_name(item: &ast::SelectItem) -> Option<String> {
    match item {
        ast::SelectItem::UnnamedExpr(ast::Expr::Identifier(name)) => Some(name.value.clone()),
        _ => None,
    }
}

/// Returns the output column name of `count(*)`: its alias, or [`COUNT_EXPRESSION`] if it has none. `None` for other
/// expressions.
fn count_alias(item: &ast::SelectItem) -> Option<String> {
    let (expr, name) = match item {
        ast::SelectItem::UnnamedExpr(expr) => (expr, COUNT_EXPRESSION),
        ast::SelectItem::ExprWithAlias { expr, alias } => (expr, alias.value.as_str()),
        _ => return None,
    };
    expr.to_string().eq_ignore_ascii_case(COUNT_EXPRESSION).then(|| name.to_owned())
}

/// Returns the argument of a function that has exactly one argument, a text literal; `None` otherwise.
pub(crate) fn text_argument(arguments: &[ast::FunctionArg]) -> Option<String> {
    let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(ast::Expr::Value(value)))] = arguments else {
        return None;
    };
    match &value.value {
        ast::Value::SingleQuotedString(text) => Some(text.clone()),
        _ => None,
    }
}

/// Returns the region string if a condition has the form `region('chr20:1-100')`; `None` otherwise.
fn region_argument(condition: &ast::Expr) -> Option<String> {
    let ast::Expr::Function(function) = condition else { return None };
    let ast::FunctionArguments::List(list) = &function.args else { return None };
    let text = text_argument(&list.args)?;
    let plain = format!("{REGION_FUNCTION}({})", join_with_commas(&list.args));
    (condition.to_string() == plain).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan_statement(
        dataset: &str,
        kind: Option<DatasetKind>,
        columns: Option<&[&str]>,
        region: Option<&str>,
    ) -> ScanStatement {
        let these = |columns: &[&str]| SelectList::Names(columns.iter().map(|&column| column.to_owned()).collect());
        ScanStatement {
            dataset: dataset.to_owned(),
            kind,
            columns: columns.map_or(SelectList::All, these),
            region: region.map(str::to_owned),
        }
    }

    #[test]
    fn row_counts_are_recognized_with_their_alias() {
        for (sql, name, region) in [
            ("SELECT COUNT ( * ) FROM t", "count(*)", None),
            ("SELECT count(*) AS \"how many\" FROM t WHERE region('a:1-2')", "how many", Some("a:1-2")),
            ("SELECT count(*) n FROM t", "n", None),
        ] {
            let columns = SelectList::Count(name.to_owned());
            assert_eq!(
                parse_scan_statement(sql),
                Some(ScanStatement { columns, ..scan_statement("t", None, None, region) }),
                "{sql}"
            );
        }
    }

    #[test]
    fn direct_scans_are_distinguished_from_other_statements() {
        for (sql, expected) in [
            ("SELECT * FROM taxi", scan_statement("taxi", None, None, None)),
            ("select b,\n a from \"x/y.bam\" ;", scan_statement("x/y.bam", None, Some(&["b", "a"]), None)),
            (
                "SELECT \"a b\", position FROM reads('it''s.bam') -- all\n WHERE region('chr20:1-100')",
                scan_statement("it's.bam", Some(DatasetKind::Reads), Some(&["a b", "position"]), Some("chr20:1-100")),
            ),
            (
                "SELECT * FROM variants('v') WHERE region('{a:b}')",
                scan_statement("v", Some(DatasetKind::Variants), None, Some("{a:b}")),
            ),
        ] {
            assert_eq!(parse_scan_statement(sql), Some(expected), "{sql}");
        }
        for sql in [
            "SELECT DISTINCT a FROM t",
            "SELECT a AS b FROM t",
            "SELECT t.a FROM t",
            "SELECT * EXCEPT (a) FROM t",
            "SELECT *, a FROM t",
            "SELECT a + 1 FROM t",
            "SELECT 1 FROM t",
            "SELECT count(a) FROM t",
            "SELECT count(DISTINCT a) FROM t",
            "SELECT count(*), count(*) FROM t",
            "SELECT count(*) + 1 FROM t",
            "SELECT count(*) FILTER (WHERE a > 1) FROM t",
            "SELECT count(*) OVER () FROM t",
            "SELECT \"count\"(*) FROM t",
            "SELECT count(*) FROM t GROUP BY a",
            "SELECT count(*) FROM t LIMIT 0",
            "SELECT count(*) FROM t WHERE a > 1",
            "SELECT a FROM t LIMIT 1",
            "SELECT a FROM t OFFSET 1",
            "SELECT a FROM t ORDER BY a",
            "SELECT a FROM t GROUP BY a",
            "SELECT a FROM t HAVING a > 1",
            "SELECT a FROM t AS u",
            "SELECT a FROM t, u",
            "SELECT a FROM t JOIN u ON t.a = u.a",
            "SELECT a FROM s.t",
            "SELECT a FROM reads('x*.bam')",
            "SELECT a FROM coverage('x.bam')",
            "SELECT a FROM READS('x.bam')",
            "SELECT a FROM reads('x.bam', 'y')",
            "SELECT a FROM reads(x)",
            "SELECT a FROM t WHERE a > 1",
            "SELECT a FROM t WHERE NOT region('a:1-2')",
            "SELECT a FROM t WHERE region('a:1-2') AND a > 1",
            "SELECT a FROM t WHERE region('a:1-2') OR region('a:5-6')",
            "SELECT a FROM t WHERE region(t.contig, 'a:1-2')",
            "SELECT a FROM t WHERE region($1)",
            "SELECT a FROM t WHERE region('a:1-2') FILTER (WHERE true)",
            "SELECT a FROM (SELECT a FROM t)",
            "WITH t AS (SELECT 1 AS a) SELECT a FROM t",
            "SELECT a FROM t UNION ALL SELECT a FROM u",
            "SELECT a FROM t TABLESAMPLE (10)",
            "SELECT a FROM t; SELECT a FROM t",
            "EXPLAIN SELECT a FROM t",
            "TABLE t",
            "",
        ] {
            assert_eq!(parse_scan_statement(sql), None, "{sql}");
        }
    }
}

//! Statements that ask for rows of one dataset as they are: some or all of its columns, or how many there are, everywhere or in
//! a region.
//!
//! A server answers these from the dataset itself. They are told by their text alone, before any plan is made, and only where
//! nothing can be meant but that: everything else is for the engine, also to say what is wrong with it.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use godwit_flight::{Catalog, Kind, PlainColumns, PlainRead};
use godwit_model::Region;

use crate::engine::parse;
use crate::functions::REGION;
use crate::table::Tables;

/// The number of rows, as the engine names it.
const COUNT: &str = "count(*)";

/// Bytes of a statement that is looked at.
const MOST_BYTES: usize = 16 << 10;

/// What the text of such a statement names.
#[derive(Debug, PartialEq)]
struct Named {
    dataset: String,
    /// What it has to hold, where the statement says so.
    kind: Option<Kind>,
    columns: NamedColumns,
    /// As it is written: which region it is depends on the contigs of the dataset.
    region: Option<String>,
}

#[derive(Debug, PartialEq)]
enum NamedColumns {
    All,
    These(Vec<String>),
    /// The number of rows, and what it is called.
    Count(String),
}

/// The dataset that a statement reads, where that is all it does.
pub(crate) fn plain_read(catalog: Arc<dyn Catalog>, sql: &str) -> Option<PlainRead> {
    let named = named_in(sql)?;
    let (name, dataset) = Tables(catalog).find(&named.dataset).ok()?;
    if named.kind.is_some_and(|kind| kind != dataset.kind()) {
        return None;
    }
    let schema = dataset.schema();
    let names: HashSet<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let columns: Vec<usize> = match &named.columns {
        NamedColumns::These(columns) => {
            columns.iter().map(|column| schema.index_of(column).ok()).collect::<Option<_>>()?
        }
        NamedColumns::All => (0..schema.fields().len()).collect(),
        NamedColumns::Count(_) => Vec::new(),
    };
    let each_once: HashSet<&usize> = columns.iter().collect();
    let (is_clear, columns) = match named.columns {
        // A file that has to be read to its end for it is read by a statement, which has a time to end.
        NamedColumns::Count(name) => (named.region.is_some() || dataset.rows().is_some(), PlainColumns::Count(name)),
        _ => (
            names.len() == schema.fields().len() && each_once.len() == columns.len() && !columns.is_empty(),
            PlainColumns::These(columns),
        ),
    };
    let regions = match named.region {
        None => None,
        Some(_) if !dataset.has_regions() => return None,
        Some(text) => Some(vec![Region::parse(&text, |contig| dataset.has_contig(contig)).ok()?]),
    };
    is_clear.then_some(PlainRead { name, dataset, columns, regions })
}

/// What a statement names; `None` where it says anything more.
fn named_in(sql: &str) -> Option<Named> {
    if sql.len() > MOST_BYTES {
        return None;
    }
    let Ok(Statement::Statement(statement)) = parse(sql) else { return None };
    let ast::Statement::Query(query) = *statement else { return None };
    let ast::SetExpr::Select(select) = query.body.as_ref() else { return None };
    let [ast::TableWithJoins { relation: ast::TableFactor::Table { name, args, .. }, .. }] = &select.from[..] else {
        return None;
    };
    let [ast::ObjectNamePart::Identifier(table)] = &name.0[..] else { return None };
    let (kind, dataset) = match args {
        None => (None, table.value.clone()),
        Some(args) => (Some(kind_of(table)?), literal(&args.args).filter(|name| !name.contains(['*', '?']))?),
    };
    let columns = match &select.projection[..] {
        [ast::SelectItem::Wildcard(_)] => NamedColumns::All,
        [item] if let Some(name) = count(item) => NamedColumns::Count(name),
        items => NamedColumns::These(items.iter().map(column).collect::<Option<_>>()?),
    };
    let region = match &select.selection {
        None => None,
        Some(condition) => Some(region(condition)?),
    };
    // Written anew from what was understood of it, it says the same: there is nothing else in it.
    let again = [
        "SELECT ".to_owned(),
        if columns == NamedColumns::All { "*".to_owned() } else { joined(&select.projection) },
        format!(" FROM {table}"),
        args.as_ref().map(|args| format!("({})", joined(&args.args))).unwrap_or_default(),
        select.selection.as_ref().map(|condition| format!(" WHERE {condition}")).unwrap_or_default(),
    ];
    (query.to_string() == again.concat()).then_some(Named { dataset, kind, columns, region })
}

fn joined(items: &[impl ToString]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn kind_of(function: &ast::Ident) -> Option<Kind> {
    [Kind::Reads, Kind::Variants].into_iter().find(|kind| kind.name() == function.value)
}

fn column(item: &ast::SelectItem) -> Option<String> {
    match item {
        ast::SelectItem::UnnamedExpr(ast::Expr::Identifier(name)) => Some(name.value.clone()),
        _ => None,
    }
}

/// What `count(*)` is called, by another name where it has one.
fn count(item: &ast::SelectItem) -> Option<String> {
    let (expr, name) = match item {
        ast::SelectItem::UnnamedExpr(expr) => (expr, COUNT),
        ast::SelectItem::ExprWithAlias { expr, alias } => (expr, alias.value.as_str()),
        _ => return None,
    };
    expr.to_string().eq_ignore_ascii_case(COUNT).then(|| name.to_owned())
}

/// The one argument of a function, where it is text.
fn literal(arguments: &[ast::FunctionArg]) -> Option<String> {
    let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(ast::Expr::Value(value)))] = arguments else {
        return None;
    };
    match &value.value {
        ast::Value::SingleQuotedString(text) => Some(text.clone()),
        _ => None,
    }
}

/// `region('chr20:1-100')`.
fn region(condition: &ast::Expr) -> Option<String> {
    let ast::Expr::Function(function) = condition else { return None };
    let ast::FunctionArguments::List(list) = &function.args else { return None };
    let text = literal(&list.args)?;
    let plain = format!("{REGION}({})", joined(&list.args));
    (condition.to_string() == plain).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(dataset: &str, kind: Option<Kind>, columns: Option<&[&str]>, region: Option<&str>) -> Named {
        let these = |columns: &[&str]| NamedColumns::These(columns.iter().map(|&column| column.to_owned()).collect());
        Named {
            dataset: dataset.to_owned(),
            kind,
            columns: columns.map_or(NamedColumns::All, these),
            region: region.map(str::to_owned),
        }
    }

    #[test]
    fn counts_of_rows_are_told_and_named() {
        for (sql, name, region) in [
            ("SELECT COUNT ( * ) FROM t", "count(*)", None),
            ("SELECT count(*) AS \"how many\" FROM t WHERE region('a:1-2')", "how many", Some("a:1-2")),
            ("SELECT count(*) n FROM t", "n", None),
        ] {
            let columns = NamedColumns::Count(name.to_owned());
            assert_eq!(named_in(sql), Some(Named { columns, ..named("t", None, None, region) }), "{sql}");
        }
    }

    #[test]
    fn statements_that_only_read_are_told_from_all_others() {
        for (sql, expected) in [
            ("SELECT * FROM taxi", named("taxi", None, None, None)),
            ("select b,\n a from \"x/y.bam\" ;", named("x/y.bam", None, Some(&["b", "a"]), None)),
            (
                "SELECT \"a b\", position FROM reads('it''s.bam') -- all\n WHERE region('chr20:1-100')",
                named("it's.bam", Some(Kind::Reads), Some(&["a b", "position"]), Some("chr20:1-100")),
            ),
            (
                "SELECT * FROM variants('v') WHERE region('{a:b}')",
                named("v", Some(Kind::Variants), None, Some("{a:b}")),
            ),
        ] {
            assert_eq!(named_in(sql), Some(expected), "{sql}");
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
            assert_eq!(named_in(sql), None, "{sql}");
        }
    }
}

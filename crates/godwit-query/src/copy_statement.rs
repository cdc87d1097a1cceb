//! Parses `COPY (SELECT ..) TO 'FILE'`, which writes the rows of a query to a file of records.
//!
//! The SQL engine only runs the query; the process of the user writes the file. Servers do not accept the statement.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use godwit_flight::Status;
use sqlparser::ast::{self, Visit as _, Visitor};
use sqlparser::dialect::GenericDialect;
use sqlparser::parser::Parser;

use crate::direct_scan::{MAX_NESTING, text_argument};
use crate::error::StatementError;

/// A file format of records that `COPY` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFormat {
    /// BAM, with an index if the header has `SO:coordinate`.
    Bam,
    /// VCF compressed as BGZF, with a tabix index.
    VcfGz,
    /// BCF, with a `.csi` index.
    Bcf,
    /// BED as text.
    Bed,
    /// A Parquet file.
    Parquet,
}

impl RecordFormat {
    /// Returns the format that the ending of a file name means.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::path::Path;
    ///
    /// use godwit_query::RecordFormat;
    ///
    /// assert_eq!(RecordFormat::from_path(Path::new("calls.vcf.gz")), Some(RecordFormat::VcfGz));
    /// assert_eq!(RecordFormat::from_path(Path::new("calls.vcf")), None);
    /// ```
    pub fn from_path(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let endings = [
            (".bam", Self::Bam),
            (".vcf.gz", Self::VcfGz),
            (".bcf", Self::Bcf),
            (".bed", Self::Bed),
            (".parquet", Self::Parquet),
        ];
        endings.into_iter().find(|(ending, _)| name.ends_with(ending)).map(|(_, format)| format)
    }
}

/// A `COPY` statement.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_query::{CopyStatement, RecordFormat};
///
/// let sql = "COPY (SELECT * FROM reads('S.bam') WHERE region('chr1:1-1000')) TO 'part.bam'";
/// let copy = CopyStatement::parse(sql)?.ok_or("it is a COPY statement")?;
/// assert_eq!((copy.format, copy.path.to_str()), (RecordFormat::Bam, Some("part.bam")));
/// assert_eq!(copy.tables, ["S.bam"]);
/// assert!(CopyStatement::parse("SELECT 1")?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyStatement {
    /// The query whose rows are written.
    pub query: String,
    /// The path of the file.
    pub path: PathBuf,
    /// The format of the file.
    pub format: RecordFormat,
    /// Names in the query that may be datasets: tables, and the text arguments of table functions.
    pub tables: Vec<String>,
}

impl CopyStatement {
    /// Parses a statement; returns `None` if it is not a `COPY` statement.
    ///
    /// # Errors
    /// [`StatementError::Failed`] with the code `InvalidArgument` if the `COPY` statement is invalid.
    pub fn parse(sql: &str) -> Result<Option<Self>, StatementError> {
        let starts_with_copy = sql.trim_start().get(..4).is_some_and(|word| word.eq_ignore_ascii_case("copy"));
        if !starts_with_copy {
            return Ok(None);
        }
        let parser = Parser::new(&GenericDialect {}).with_recursion_limit(MAX_NESTING);
        let statements = parser.try_with_sql(sql).and_then(|mut parser| parser.parse_statements());
        let statements = statements.map_err(|error| invalid(format!("the COPY statement is invalid: {error}")))?;
        let [ast::Statement::Copy { source, to: true, target, options, legacy_options, .. }] = &statements[..] else {
            return Err(invalid("write one statement of the form COPY (SELECT ..) TO 'FILE'"));
        };
        let ast::CopyTarget::File { filename } = target else {
            return Err(invalid("COPY writes to a file: COPY (SELECT ..) TO 'FILE'"));
        };
        if !options.is_empty() || !legacy_options.is_empty() {
            return Err(invalid("COPY has no options; the ending of the file name selects the format"));
        }
        let path = PathBuf::from(filename);
        let Some(format) = RecordFormat::from_path(&path) else {
            return Err(invalid(format!(
                "COPY cannot select a format for {filename:?}; end the name with .bam, .vcf.gz, .bcf, .bed or .parquet"
            )));
        };
        let (query, tables) = match source {
            ast::CopySource::Query(query) => {
                let mut names = TableNames::default();
                // The visitor never breaks, so its result is not needed.
                let _ = query.visit(&mut names);
                (query.to_string(), names.0)
            }
            ast::CopySource::Table { table_name, columns } => {
                let listed = columns.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                let listed = if columns.is_empty() { "*".to_owned() } else { listed };
                (format!("SELECT {listed} FROM {table_name}"), dataset_name(table_name).into_iter().collect())
            }
        };
        Ok(Some(Self { query, path, format, tables }))
    }
}

/// Returns the names in a statement that may be datasets: tables, and the text arguments of table functions. Returns
/// none for a statement that cannot be parsed; the SQL engine rejects it.
///
/// # Examples
///
/// ```
/// use godwit_query::statement_tables;
///
/// let sql = "SELECT r.name FROM reads('S.bam') r JOIN \"genes.bed\" g ON r.contig = g.contig";
/// assert_eq!(statement_tables(sql), ["S.bam", "genes.bed"]);
/// ```
pub fn statement_tables(sql: &str) -> Vec<String> {
    let parser = Parser::new(&GenericDialect {}).with_recursion_limit(MAX_NESTING);
    let statements = parser.try_with_sql(sql).and_then(|mut parser| parser.parse_statements());
    let mut names = TableNames::default();
    // The visitor never breaks, so its result is not needed.
    let _ = statements.unwrap_or_default().visit(&mut names);
    names.0
}

fn invalid(problem: impl Into<String>) -> StatementError {
    Status::invalid_argument(problem.into()).into()
}

/// Returns the name of a table, which may be a dataset, without its catalog and schema.
fn dataset_name(name: &ast::ObjectName) -> Option<String> {
    match name.0.last() {
        Some(ast::ObjectNamePart::Identifier(table)) => Some(table.value.clone()),
        _ => None,
    }
}

/// Collects the names of tables, also of `DESCRIBE`, and the text arguments of table functions.
#[derive(Default)]
struct TableNames(Vec<String>);

impl Visitor for TableNames {
    type Break = ();

    fn pre_visit_statement(&mut self, statement: &ast::Statement) -> ControlFlow<()> {
        if let ast::Statement::ExplainTable { table_name, .. } = statement {
            self.0.extend(dataset_name(table_name));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &ast::TableFactor) -> ControlFlow<()> {
        if let ast::TableFactor::Table { name, args, .. } = factor {
            match args {
                None => self.0.extend(dataset_name(name)),
                Some(args) => {
                    self.0
                        .extend(args.args.iter().filter_map(|argument| text_argument(std::slice::from_ref(argument))));
                }
            }
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_subqueries_and_functions_are_found() {
        let sql = "copy (WITH w AS (SELECT * FROM \"a b.bam\") SELECT w.* FROM w JOIN overlaps('x.vcf.gz', 'y.bed') o \
                   ON w.name = o.name WHERE w.position IN (SELECT position FROM z)) TO 'out.bed';";
        let copy = CopyStatement::parse(sql).unwrap().unwrap();
        let mut tables = copy.tables;
        tables.sort();
        assert_eq!(tables, ["a b.bam", "w", "x.vcf.gz", "y.bed", "z"]);
        assert_eq!(copy.format, RecordFormat::Bed);
        let table = CopyStatement::parse("COPY \"S.bam\" TO 'x.bam'").unwrap().unwrap();
        assert_eq!((table.query.as_str(), &table.tables[..]), ("SELECT * FROM \"S.bam\"", &["S.bam".to_owned()][..]));
    }

    #[test]
    fn the_tables_of_other_statements_are_found() {
        assert_eq!(statement_tables("SELECT * FROM 's.vcf' WHERE region('1:1-100')"), ["s.vcf"]);
        assert_eq!(statement_tables("SELECT count(*) FROM variants('*.vcf.gz') LIMIT 1"), ["*.vcf.gz"]);
        assert_eq!(statement_tables("SELECT * FROM godwit.datasets.\"s.vcf\""), ["s.vcf"]);
        assert_eq!(statement_tables("DESCRIBE \"s.vcf\""), ["s.vcf"]);
        assert!(statement_tables("SELEC * FROM a").is_empty());
    }

    #[test]
    fn invalid_copy_statements_say_what_is_wrong() {
        for (sql, expected) in [
            ("COPY (SELECT 1) TO 'x.txt'", ".bam, .vcf.gz"),
            ("COPY (SELECT 1) TO STDOUT", "to a file"),
            ("COPY t FROM 'x.bam'", "of the form"),
            ("COPY (SELECT 1) TO 'x.bam' (FORMAT csv)", "no options"),
            ("COPY (SELECT 1) TO 'x.bam'; SELECT 1", "one statement"),
            ("COPY (SELECT", "is invalid"),
        ] {
            let error = CopyStatement::parse(sql).unwrap_err().to_string();
            assert!(error.contains(expected), "{sql}: {error}");
        }
    }
}

//! Parses, plans and runs SQL statements by DataFusion.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{CatalogProviderList, MemoryCatalogProviderList};
use datafusion::common::config::ConfigNonZeroUsize;
use datafusion::common::tree_node::TreeNode as _;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::object_store::ObjectStoreUrl;
use datafusion::error::DataFusionError;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SendableRecordBatchStream, SessionStateBuilder};
use datafusion::logical_expr::registry::FunctionRegistry as _;
use datafusion::logical_expr::{Explain, LogicalPlan};
use datafusion::object_store::ObjectStore;
use datafusion::optimizer::analyzer::{Analyzer, AnalyzerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast;
use futures_util::StreamExt as _;
use godwit_dataset::{Catalog, DatasetAccess, DatasetAccessList, DatasetError, DatasetKind};
use godwit_flight::{SQL_CATALOG, SQL_SCHEMA};
use godwit_model::did_you_mean;
use godwit_process::LockedDirectory;

use crate::coverage::COVERAGE;
use crate::coverage_windows::{self, CoverageWindowsFunction};
use crate::dataset_table::TableCatalog;
use crate::decimal_literals::DecimalLiterals;
use crate::distinct_from::correct_distinct_from;
use crate::error::QueryError;
use crate::error_messages::name_list;
use crate::functions;
use crate::genotypes::{self, GenotypeFunction};
use crate::gff_attributes::gff_attributes_function;
use crate::insert_sizes::{self, InsertSizeFunction};
use crate::interval_functions::{IntervalPairFunction, PairKind};
use crate::interval_join_rule::{self, IntervalJoinRule};
use crate::liftover::{self, LiftoverFunction};
use crate::mismatches::MISMATCHES;
use crate::pileup::PILEUP;
use crate::read_sweep::SweepFunction;
use crate::scan_progress::ScanProgress;
use crate::table_functions::DatasetFunction;

/// Memory, threads and scratch space that a statement may use.
#[derive(Clone, Debug)]
pub struct QueryResources {
    /// Memory limit of sorting, grouping and joining, bytes. Above the limit they spill to scratch files, or the
    /// statement fails.
    pub memory_bytes: usize,
    /// Number of threads that compute rows.
    pub threads: usize,
    /// Directory for scratch files; `None` disables scratch files.
    pub scratch_directory: Option<PathBuf>,
}

/// Number of rows per batch in statements that group rows. Larger batches make grouping faster, up to this size.
/// Grouping 10 million rows into 70,000 groups took 179 ms instead of 223 ms with batches of 8,192 rows.
const GROUPING_BATCH_ROWS: usize = 65_536;

/// First part of the name of the directory for the spilled data of an engine.
const SCRATCH_DIRECTORY_PREFIX: &str = "godwit-spill-";

/// Maximum number of operators that an error message about memory lists.
const MAX_CONSUMERS_SHOWN: usize = 3;

/// An SQL engine over the datasets of a catalog.
///
/// # Examples
///
/// A statement with a parameter, as a Flight SQL server runs it:
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # use godwit_dataset::{Catalog, Dataset, DatasetError};
/// # use godwit_sql::QueryResources;
/// use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
/// use futures_util::TryStreamExt as _;
/// use godwit_dataset::Principal;
/// use godwit_flight::{SqlEngine as _, StatementProgress};
/// use godwit_sql::QueryEngine;
///
/// # #[derive(Debug)]
/// # struct NoDatasets;
/// # impl Catalog for NoDatasets {
/// #     fn names(&self) -> Result<Vec<String>, DatasetError> {
/// #         Ok(Vec::new())
/// #     }
/// #     fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
/// #         Err(DatasetError::NotFound { name: name.to_owned() })
/// #     }
/// # }
/// # let limits = QueryResources { memory_bytes: 64 << 20, threads: 1, scratch_directory: None };
/// # let engine = QueryEngine::new(Arc::new(NoDatasets), &limits)?;
/// let sql = "SELECT name FROM (VALUES ('A', 100), ('B', 300)) AS genes(name, position) WHERE position < $1";
/// let description = engine.describe_statement(&Principal::default(), sql.to_owned(), None).await?;
/// assert_eq!(description.parameters.field(0).name(), "$1");
///
/// let limit: ArrayRef = Arc::new(Int64Array::from(vec![200]));
/// let parameters = RecordBatch::try_from_iter([("$1", limit)])?;
/// let result = engine.execute(&Principal::default(), sql.to_owned(), Some(parameters), StatementProgress::default()).await?;
/// let batches: Vec<_> = result.download.batches.try_collect().await?;
/// assert_eq!(batches.iter().map(|(batch, _)| batch.num_rows()).sum::<usize>(), 1);
/// # Ok(())
/// # }
/// ```
pub struct QueryEngine {
    context: SessionContext,
    tables: TableCatalog,
    dataset_accesses: DatasetAccessList,
    /// The directory for the spilled data of the engine. DataFusion removes its own directory only when its last thread
    /// ends, and the process may exit earlier.
    scratch_directory: Option<Arc<LockedDirectory>>,
    /// True if the rows of `execute` have the schema of the plan, and not the one that is advertised to SQL clients.
    pub(crate) keeps_plan_schema: bool,
}

impl std::fmt::Debug for QueryEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueryEngine").finish_non_exhaustive()
    }
}

/// The rows of a statement, which are computed while they are read.
///
/// # Examples
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # use godwit_dataset::{Catalog, Dataset, DatasetError};
/// use godwit_sql::{QueryEngine, QueryResources};
///
/// # #[derive(Debug)]
/// # struct NoDatasets;
/// # impl Catalog for NoDatasets {
/// #     fn names(&self) -> Result<Vec<String>, DatasetError> {
/// #         Ok(Vec::new())
/// #     }
/// #     fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
/// #         Err(DatasetError::NotFound { name: name.to_owned() })
/// #     }
/// # }
/// # let limits = QueryResources { memory_bytes: 64 << 20, threads: 1, scratch_directory: None };
/// # let engine = QueryEngine::new(Arc::new(NoDatasets), &limits)?;
/// let sql = "SELECT contig, position FROM (VALUES ('chr1', 100), ('chr2', 300)) AS sites(contig, position)";
/// let mut rows = engine.query(sql).await?;
/// assert_eq!(rows.schema().field(1).name(), "position");
/// let mut count = 0;
/// while let Some(batch) = rows.next().await? {
///     count += batch.num_rows();
/// }
/// assert_eq!(count, 2);
/// # Ok(())
/// # }
/// ```
pub struct Rows {
    schema: SchemaRef,
    batches: SendableRecordBatchStream,
    pub(crate) progress: Arc<ScanProgress>,
    /// The directory of spilled data, which must exist until the rows are dropped.
    _scratch: Option<Arc<LockedDirectory>>,
}

impl Rows {
    /// Returns the schema of the rows.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the next batch; `None` at the end.
    ///
    /// # Errors
    /// [`QueryError`] if computing the rows fails.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, QueryError> {
        Ok(self.batches.next().await.transpose()?)
    }
}

impl QueryEngine {
    /// Creates an engine over a catalog.
    ///
    /// # Errors
    /// [`QueryError::Execution`] if the scratch directory cannot be created.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::sync::Arc;
    /// # use godwit_dataset::{Catalog, Dataset, DatasetError};
    /// use godwit_query::{RowFormat, RowWriter};
    /// use godwit_sql::{QueryEngine, QueryResources};
    ///
    /// # #[derive(Debug)]
    /// # struct NoDatasets;
    /// # impl Catalog for NoDatasets {
    /// #     fn names(&self) -> Result<Vec<String>, DatasetError> {
    /// #         Ok(Vec::new())
    /// #     }
    /// #     fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
    /// #         Err(DatasetError::NotFound { name: name.to_owned() })
    /// #     }
    /// # }
    /// let scratch = tempfile::tempdir()?;
    /// let limits = QueryResources {
    ///     memory_bytes: 256 << 20,
    ///     threads: 2,
    ///     scratch_directory: Some(scratch.path().to_owned()),
    /// };
    /// let engine = QueryEngine::new(Arc::new(NoDatasets), &limits)?;
    /// let sql = "SELECT contig, count(*) AS reads FROM (VALUES ('chr1'), ('chr2'), ('chr1')) AS alignments(contig) \
    ///            GROUP BY contig ORDER BY contig";
    /// let mut rows = engine.query(sql).await?;
    /// let mut csv = RowWriter::new(RowFormat::Csv, rows.schema(), Vec::new())?;
    /// while let Some(batch) = rows.next().await? {
    ///     csv.write(batch)?;
    /// }
    /// assert_eq!(String::from_utf8(csv.finish()?)?, "contig,reads\nchr1,2\nchr2,1\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(catalog: Arc<dyn Catalog>, limits: &QueryResources) -> Result<Self, QueryError> {
        let tables = TableCatalog(catalog);
        let catalogs = Arc::new(MemoryCatalogProviderList::new());
        catalogs.register_catalog(SQL_CATALOG.to_owned(), Arc::new(tables.clone()));
        let mut config = SessionConfig::new()
            .with_target_partitions(limits.threads.max(1))
            .with_default_catalog_and_schema(SQL_CATALOG, SQL_SCHEMA)
            .with_create_default_catalog_and_schema(false);
        let options = config.options_mut();
        options.execution.use_row_number_estimates_to_optimize_partitioning = true;
        // Names of columns and files are case-sensitive, such as tag_NM, info_DP and NA12878.
        options.sql_parser.enable_ident_normalization = false;
        options.execution.parquet.pushdown_filters = true;
        // Send strings in the data types of the Parquet files. Only some clients support Arrow view types.
        options.execution.parquet.schema_force_view_types = false;
        options.sql_parser.map_string_types_to_utf8view = false;
        let make = |parent: &PathBuf| LockedDirectory::create(parent, SCRATCH_DIRECTORY_PREFIX).map(Arc::new);
        let scratch_directory =
            limits.scratch_directory.as_ref().map(make).transpose().map_err(DataFusionError::IoError)?;
        let disk = scratch_directory.as_ref().map_or(DiskManagerMode::Disabled, |directory| {
            DiskManagerMode::Directories(vec![directory.path().to_owned()])
        });
        let pool = FairSpillPool::new(limits.memory_bytes);
        let pool = TrackConsumersPool::new(pool, const { std::num::NonZeroUsize::new(MAX_CONSUMERS_SHOWN).unwrap() });
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(pool))
            .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(disk))
            .build_arc()?;
        let memory_pool = runtime.memory_pool.clone();
        let mut state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(runtime)
            .with_catalog_list(catalogs)
            .with_default_features()
            .with_analyzer_rules(analyzer_rules())
            .with_physical_optimizer_rules(optimizer_rules())
            .build();
        for function in functions::scalar_functions().into_iter().chain([gff_attributes_function()]) {
            state.register_udf(Arc::new(function))?;
        }
        for kind in [DatasetKind::Reads, DatasetKind::Variants] {
            state.register_udtf(kind.name(), Arc::new(DatasetFunction { kind, tables: tables.clone() }));
        }
        for pair_kind in [PairKind::Overlaps, PairKind::Nearest] {
            state.register_udtf(pair_kind.name(), Arc::new(IntervalPairFunction { pair_kind, tables: tables.clone() }));
        }
        state.register_udtf(genotypes::FUNCTION_NAME, Arc::new(GenotypeFunction { tables: tables.clone() }));
        state.register_udtf(insert_sizes::FUNCTION_NAME, Arc::new(InsertSizeFunction { tables: tables.clone() }));
        let lift = LiftoverFunction { tables: tables.clone(), memory_pool };
        state.register_udtf(liftover::FUNCTION_NAME, Arc::new(lift));
        let windows = CoverageWindowsFunction { tables: tables.clone() };
        state.register_udtf(coverage_windows::FUNCTION_NAME, Arc::new(windows));
        for kind in [&COVERAGE, &PILEUP, &MISMATCHES] {
            state.register_udtf(kind.name, Arc::new(SweepFunction { kind, tables: tables.clone() }));
        }
        Ok(Self {
            context: SessionContext::new_with_state(state),
            tables,
            dataset_accesses: DatasetAccessList::default(),
            scratch_directory,
            keeps_plan_schema: false,
        })
    }

    /// Sets the list to which the catalog adds each dataset that it opens. `QueryEngine::take_dataset_accesses` reads
    /// this list.
    #[must_use]
    pub fn with_dataset_accesses(self, dataset_accesses: DatasetAccessList) -> Self {
        Self { dataset_accesses, ..self }
    }

    /// Makes the rows of `SqlEngine::execute` have the schema of the plan, with the nullability of each column. By default
    /// they have the schema that is advertised to SQL clients.
    #[must_use]
    pub fn with_plan_schema(self) -> Self {
        Self { keeps_plan_schema: true, ..self }
    }

    /// Returns the datasets that statements have opened since the last call; empty without access rules.
    pub(crate) fn take_dataset_accesses(&self) -> Vec<DatasetAccess> {
        self.dataset_accesses.drain()
    }

    /// Sets the object store that reads URLs that begin with `start`. `None` leaves the engine without an object store.
    ///
    /// # Errors
    /// [`QueryError::Execution`] if `start` is not the start of a URL.
    pub fn with_object_store(self, objects: Option<(&str, Arc<dyn ObjectStore>)>) -> Result<Self, QueryError> {
        if let Some((start, store)) = objects {
            let start = ObjectStoreUrl::parse(start)?;
            self.context.runtime_env().register_object_store(start.as_ref(), store);
        }
        Ok(self)
    }

    /// Runs a query. Other statements, such as INSERT, are rejected.
    ///
    /// # Errors
    /// [`QueryError`] if the statement is not a query, or cannot be planned or started.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::path::PathBuf;
    /// # use datafusion::arrow::datatypes::SchemaRef;
    /// # use godwit_dataset::{BatchReader, Catalog, Dataset, DatasetError, DatasetKind, Scan, ScanPart};
    /// # use godwit_columnar::csv::{CsvError, CsvFile};
    /// # use godwit_io::random_access::LocalFile;
    /// use std::fs;
    /// use std::sync::Arc;
    ///
    /// use godwit_query::{RowFormat, RowWriter};
    /// use godwit_sql::{QueryEngine, QueryResources};
    ///
    /// # #[derive(Debug)]
    /// # struct Table(CsvFile);
    /// # impl Dataset for Table {
    /// #     fn kind(&self) -> DatasetKind {
    /// #         DatasetKind::Table
    /// #     }
    /// #     fn schema(&self) -> SchemaRef {
    /// #         self.0.schema().clone()
    /// #     }
    /// #     fn bytes(&self) -> u64 {
    /// #         0
    /// #     }
    /// #     fn version(&self) -> u64 {
    /// #         0
    /// #     }
    /// #     fn has_regions(&self) -> bool {
    /// #         false
    /// #     }
    /// #     fn parts(&self, _: &Scan, _: usize) -> Result<Vec<ScanPart>, DatasetError> {
    /// #         Ok(vec![ScanPart::default()])
    /// #     }
    /// #     fn read(&self, scan: &Scan, _: &ScanPart) -> Result<BatchReader, DatasetError> {
    /// #         let failed = |error: CsvError| DatasetError::Data(error.into());
    /// #         let mut rows = self.0.batches(scan.columns.as_deref()).map_err(failed)?;
    /// #         Ok(Box::new(std::iter::from_fn(move || rows.next_batch().map_err(failed).transpose())))
    /// #     }
    /// # }
    /// # #[derive(Debug)]
    /// # struct CsvDirectory(PathBuf);
    /// # impl Catalog for CsvDirectory {
    /// #     fn names(&self) -> Result<Vec<String>, DatasetError> {
    /// #         let mut names = Vec::new();
    /// #         for entry in fs::read_dir(&self.0).map_err(|error| DatasetError::Local(error.into()))? {
    /// #             let entry = entry.map_err(|error| DatasetError::Local(error.into()))?;
    /// #             names.push(entry.file_name().to_string_lossy().into_owned());
    /// #         }
    /// #         names.sort();
    /// #         Ok(names)
    /// #     }
    /// #     fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
    /// #         let file = LocalFile::open(&self.0.join(name));
    /// #         let file = file.map_err(|_| DatasetError::NotFound { name: name.to_owned() })?;
    /// #         let file = CsvFile::open(Arc::new(file), b',').map_err(|error| DatasetError::Data(error.into()))?;
    /// #         Ok(Arc::new(Table(file)))
    /// #     }
    /// # }
    /// # let limits = QueryResources { memory_bytes: 64 << 20, threads: 1, scratch_directory: None };
    /// let directory = tempfile::tempdir()?;
    /// let genes = "name,contig,position,end_position\nA,chr1,100,200\nB,chr1,300,400\n";
    /// fs::write(directory.path().join("genes.csv"), genes)?;
    /// let engine = QueryEngine::new(Arc::new(CsvDirectory(directory.path().to_owned())), &limits)?;
    /// let mut rows = engine.query("SELECT name FROM genes WHERE region('chr1:151-250')").await?;
    /// let mut csv = RowWriter::new(RowFormat::Csv, rows.schema(), Vec::new())?;
    /// while let Some(batch) = rows.next().await? {
    ///     csv.write(batch)?;
    /// }
    /// assert_eq!(String::from_utf8(csv.finish()?)?, "name\nA\n");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn query(&self, sql: &str) -> Result<Rows, QueryError> {
        let plan = self.plan(sql).await?;
        self.execute_plan(plan).await
    }

    pub(crate) async fn execute_plan(&self, plan: LogicalPlan) -> Result<Rows, QueryError> {
        let mut state = self.context.state();
        if has_grouping(&plan) {
            state.config_mut().options_mut().execution.batch_size = ConfigNonZeroUsize::try_new(GROUPING_BATCH_ROWS)?;
        }
        let frame = DataFrame::new(state, plan);
        let context = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await?;
        let progress = ScanProgress::new(&plan);
        let batches = execute_stream(plan, context)?;
        Ok(Rows {
            schema: batches.schema(),
            batches,
            progress: Arc::new(progress),
            _scratch: self.scratch_directory.clone(),
        })
    }

    /// Adds the names of existing tables to an error about a missing table. Returns other errors unchanged.
    fn name_known_tables(&self, error: QueryError) -> QueryError {
        let name = match error {
            QueryError::TableNotFound { name, .. } | QueryError::Dataset(DatasetError::NotFound { name }) => name,
            error => return error,
        };
        let names = self.tables.0.names().unwrap_or_default();
        let nearest = did_you_mean(&name, names.iter().map(String::as_str));
        let listed = match names.is_empty() {
            true => "; there are no tables".to_owned(),
            false => format!(
                "{} the tables are {}",
                if nearest.is_empty() { ";" } else { "" },
                name_list(names.iter().map(String::as_str))
            ),
        };
        QueryError::TableNotFound { name, hint: format!("{nearest}{listed}") }
    }

    pub(crate) async fn plan(&self, sql: &str) -> Result<LogicalPlan, QueryError> {
        let statement = parse_query(sql)?;
        let plan = self.context.state().statement_to_plan(statement).await;
        let plan = plan.map_err(|error| self.name_known_tables(error.into()))?;
        match plan {
            LogicalPlan::Ddl(_) | LogicalPlan::Dml(_) | LogicalPlan::Copy(_) | LogicalPlan::Statement(_) => {
                Err(QueryError::NotAQuery { statement: "this".to_owned() })
            }
            LogicalPlan::Explain(Explain { .. }) | LogicalPlan::Analyze(_) => Ok(plan),
            plan => Ok(plan),
        }
    }
}

/// Returns whether a plan contains a grouping of rows.
fn has_grouping(plan: &LogicalPlan) -> bool {
    let is_grouping = |node: &LogicalPlan| Ok(matches!(node, LogicalPlan::Aggregate(of) if !of.group_expr.is_empty()));
    plan.exists(is_grouping).unwrap_or_default()
}

/// Returns the analyzer rules: [`MacroExpander`](crate::functions::MacroExpander) and [`DecimalLiterals`], followed by
/// the default rules of DataFusion.
fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>> =
        vec![Arc::new(functions::MacroExpander), Arc::new(DecimalLiterals)];
    rules.extend(Analyzer::new().rules);
    rules
}

/// Returns the physical optimizer rules of DataFusion, with [`IntervalJoinRule`] inserted.
fn optimizer_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = PhysicalOptimizer::new().rules;
    let behind =
        rules.iter().position(|rule| rule.name() == interval_join_rule::PREDECESSOR_RULE).map_or(0, |at| at + 1);
    rules.insert(behind, Arc::new(IntervalJoinRule));
    rules
}

/// Parses a text that must contain exactly one query.
pub(crate) fn parse_query(sql: &str) -> Result<Statement, QueryError> {
    let mut statements = DFParserBuilder::new(sql).build()?.parse_statements()?;
    let problem = match statements.len() {
        1 => None,
        0 => Some("the statement is empty; send a SELECT"),
        _ => Some("there is more than one statement; send one statement per call"),
    };
    if let Some(problem) = problem {
        return Err(QueryError::InvalidStatement { problem: problem.to_owned() });
    }
    let mut statement =
        statements.pop_front().ok_or_else(|| QueryError::InvalidStatement { problem: String::new() })?;
    if is_query(&statement) {
        if let Statement::Statement(statement) = &mut statement {
            correct_distinct_from(statement);
            number_placeholders(statement);
        }
        return Ok(statement);
    }
    let text = statement.to_string();
    let words: Vec<&str> = text.split_whitespace().take(2).collect();
    Err(QueryError::NotAQuery { statement: words.join(" ") })
}

/// Replaces each parameter `?`, as JDBC and ODBC clients write it, by `$1`, `$2` and so on, as DataFusion expects.
fn number_placeholders(statement: &mut ast::Statement) {
    let mut last = 0;
    let _ = ast::visit_expressions_mut(statement, |expr| {
        if let ast::Expr::Value(value) = expr
            && let ast::Value::Placeholder(name) = &mut value.value
            && name == "?"
        {
            last += 1;
            *name = format!("${last}");
        }
        ControlFlow::<()>::Continue(())
    });
}

fn is_query(statement: &Statement) -> bool {
    match statement {
        Statement::Statement(statement) => is_query_statement(statement),
        Statement::Explain(explain) => is_query(&explain.statement),
        _ => false,
    }
}

fn is_query_statement(statement: &ast::Statement) -> bool {
    match statement {
        ast::Statement::Query(query) => is_read_only_query(query),
        ast::Statement::ExplainTable { .. } => true,
        ast::Statement::Explain { statement, .. } => is_query_statement(statement),
        _ => false,
    }
}

/// Returns whether a query only reads data. The SQL parser accepts `INSERT` and similar statements within a query.
fn is_read_only_query(query: &ast::Query) -> bool {
    fn is_read_only(body: &ast::SetExpr) -> bool {
        match body {
            ast::SetExpr::Select(select) => select.into.is_none(),
            ast::SetExpr::Query(query) => is_read_only_query(query),
            ast::SetExpr::SetOperation { left, right, .. } => is_read_only(left) && is_read_only(right),
            ast::SetExpr::Values(_) | ast::SetExpr::Table(_) => true,
            _ => false,
        }
    }
    is_read_only(&query.body)
}

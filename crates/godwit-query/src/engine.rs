//! Execution of SQL statements: from text to rows.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{CatalogProviderList, MemoryCatalogProviderList};
use datafusion::common::config::ConfigNonZeroUsize;
use datafusion::common::tree_node::TreeNode as _;
use datafusion::common::{ParamValues, ScalarValue};
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
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast;
use futures_util::StreamExt as _;
use godwit_flight::{Catalog, DatasetAccess, DatasetAccessList, DatasetError, DatasetKind, SQL_CATALOG, SQL_SCHEMA};
use godwit_model::did_you_mean;
use godwit_process::TemporaryItem;

use crate::coverage::{self, CoverageFunction};
use crate::dataset_table::TableCatalog;
use crate::error::QueryError;
use crate::error_messages::name_list;
use crate::functions;
use crate::interval_functions::{IntervalPairFunction, PairKind};
use crate::interval_join_rule::{self, IntervalJoinRule};
use crate::table_functions::DatasetFunction;

/// Limits of a statement.
#[derive(Clone, Debug)]
pub struct QueryResources {
    /// Bytes that sorting, grouping and joining may hold before they spill to scratch space or fail.
    pub memory_bytes: usize,
    /// Threads.
    pub threads: usize,
    /// Directory for scratch files; `None` disables them.
    pub scratch_directory: Option<PathBuf>,
}

/// Rows of a batch where rows are grouped: the cost of grouping a row falls with the size of the batch, up to this size
/// (70,000 groups of 10 million rows: 223 ms by batches of 8,192, 179 ms by these; no better beyond).
const GROUPING_BATCH_ROWS: usize = 65_536;

/// Consumers of memory that an error message names.
const MAX_CONSUMERS_SHOWN: usize = 3;

/// An SQL engine over the datasets of a catalog.
pub struct QueryEngine {
    context: SessionContext,
    tables: TableCatalog,
    dataset_accesses: DatasetAccessList,
    scratch_directory: Option<Arc<ScratchDirectory>>,
}

/// A directory of this engine for spilled data. DataFusion removes its own only when its last thread has ended, and a
/// process may end before that.
type ScratchDirectory = TemporaryItem<tempfile::TempDir>;

impl std::fmt::Debug for QueryEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueryEngine").finish_non_exhaustive()
    }
}

/// The rows of a statement, computed as they are read.
pub struct Rows {
    schema: SchemaRef,
    batches: SendableRecordBatchStream,
    /// Keeps the directory of spilled data until the rows are dropped.
    _scratch: Option<Arc<ScratchDirectory>>,
}

impl Rows {
    /// Returns the columns of the rows.
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
        // Names of columns and files keep their case: tag_NM, info_DP, NA12878.
        options.sql_parser.enable_ident_normalization = false;
        options.execution.parquet.pushdown_filters = true;
        // Clients receive the types that files have, not view types, which only some clients know.
        options.execution.parquet.schema_force_view_types = false;
        options.sql_parser.map_string_types_to_utf8view = false;
        let make = |parent: &PathBuf| {
            ScratchDirectory::create(|| tempfile::Builder::new().prefix("godwit-query-").tempdir_in(parent))
                .map(Arc::new)
        };
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
        let mut state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(runtime)
            .with_catalog_list(catalogs)
            .with_default_features()
            .with_analyzer_rules(analyzer_rules())
            .with_physical_optimizer_rules(optimizer_rules())
            .build();
        for function in functions::scalar_functions() {
            state.register_udf(Arc::new(function))?;
        }
        for kind in [DatasetKind::Reads, DatasetKind::Variants] {
            state.register_udtf(kind.name(), Arc::new(DatasetFunction { kind, tables: tables.clone() }));
        }
        for pair_kind in [PairKind::Overlaps, PairKind::Nearest] {
            state.register_udtf(pair_kind.name(), Arc::new(IntervalPairFunction { pair_kind, tables: tables.clone() }));
        }
        state.register_udtf(coverage::FUNCTION_NAME, Arc::new(CoverageFunction { tables: tables.clone() }));
        Ok(Self {
            context: SessionContext::new_with_state(state),
            tables,
            dataset_accesses: DatasetAccessList::default(),
            scratch_directory,
        })
    }

    /// Sets the list to which the catalog adds each opened dataset, for [`QueryEngine::take_dataset_accesses`].
    #[must_use]
    pub fn with_dataset_accesses(self, dataset_accesses: DatasetAccessList) -> Self {
        Self { dataset_accesses, ..self }
    }

    /// Returns the datasets opened since the last call; empty without a policy.
    pub(crate) fn take_dataset_accesses(&self) -> Vec<DatasetAccess> {
        self.dataset_accesses.drain()
    }

    /// Sets the object store for URLs that begin with `start`; without one, no objects are read.
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

    /// Runs a statement. Only queries run.
    ///
    /// # Errors
    /// [`QueryError`] if the statement is not a query, or cannot be planned or started.
    pub async fn query(&self, sql: &str) -> Result<Rows, QueryError> {
        let plan = self.plan(sql).await?;
        self.execute_plan(plan).await
    }

    pub(crate) async fn execute_plan(&self, plan: LogicalPlan) -> Result<Rows, QueryError> {
        let mut state = self.context.state();
        if has_grouping(&plan) {
            state.config_mut().options_mut().execution.batch_size = ConfigNonZeroUsize::try_new(GROUPING_BATCH_ROWS)?;
        }
        let batches = DataFrame::new(state, plan).execute_stream().await?;
        Ok(Rows { schema: batches.schema(), batches, _scratch: self.scratch_directory.clone() })
    }

    /// Plans a statement, with values for its parameters, `$1` and so on.
    pub(crate) async fn plan_with_parameters(
        &self,
        sql: &str,
        values: Vec<ScalarValue>,
    ) -> Result<LogicalPlan, QueryError> {
        let plan = self.plan(sql).await?;
        if values.is_empty() { Ok(plan) } else { Ok(plan.with_param_values(ParamValues::from(values))?) }
    }

    /// Adds the names of the existing tables to the error about a missing table.
    fn name_known_tables(&self, error: QueryError) -> QueryError {
        let name = match error {
            QueryError::TableNotFound { name, .. } | QueryError::Dataset(DatasetError::NotFound { name }) => name,
            error => return error,
        };
        let names = self.tables.0.names().unwrap_or_default();
        let nearest = did_you_mean(&name, names.iter().map(String::as_str));
        let listed = match names.is_empty() {
            true => "; there are none here".to_owned(),
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

/// Reports whether a plan groups rows anywhere.
fn has_grouping(plan: &LogicalPlan) -> bool {
    let is_grouping = |node: &LogicalPlan| Ok(matches!(node, LogicalPlan::Aggregate(of) if !of.group_expr.is_empty()));
    plan.exists(is_grouping).unwrap_or_default()
}

/// Returns the rule that rewrites functions, followed by DataFusion's own rules.
fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>> = vec![Arc::new(functions::MacroExpander)];
    rules.extend(Analyzer::new().rules);
    rules
}

/// Returns DataFusion's own rules, with [`IntervalJoinRule`] inserted.
fn optimizer_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = PhysicalOptimizer::new().rules;
    let behind =
        rules.iter().position(|rule| rule.name() == interval_join_rule::PREDECESSOR_RULE).map_or(0, |at| at + 1);
    rules.insert(behind, Arc::new(IntervalJoinRule));
    rules
}

/// Parses a text that holds exactly one query.
pub(crate) fn parse_query(sql: &str) -> Result<Statement, QueryError> {
    let mut statements = DFParserBuilder::new(sql).build()?.parse_statements()?;
    let problem = match statements.len() {
        1 => None,
        0 => Some("the statement is empty; ask with SELECT"),
        _ => Some("there is more than one statement; send them one by one"),
    };
    if let Some(problem) = problem {
        return Err(QueryError::InvalidStatement { problem: problem.to_owned() });
    }
    let mut statement =
        statements.pop_front().ok_or_else(|| QueryError::InvalidStatement { problem: String::new() })?;
    if is_query(&statement) {
        if let Statement::Statement(statement) = &mut statement {
            number_placeholders(statement);
        }
        return Ok(statement);
    }
    let text = statement.to_string();
    let words: Vec<&str> = text.split_whitespace().take(2).collect();
    Err(QueryError::NotAQuery { statement: words.join(" ") })
}

/// Replaces each `?`, which JDBC and ODBC write for a parameter, by `$1` and so on, which DataFusion knows.
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

/// Reports whether a query only reads. A query may hold an `INSERT` or similar in the position of a `SELECT`.
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

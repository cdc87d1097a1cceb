//! Statements, from text to rows.

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
use godwit_flight::{Catalog, DatasetError, Kind, SQL_CATALOG, SQL_SCHEMA, Touched, Touches};
use godwit_model::suggestion;
use godwit_process::Temporary;

use crate::coverage::{self, CoverageOf};
use crate::error::QueryError;
use crate::functions;
use crate::interval_functions::{Pairing, PairsOf};
use crate::messages::listed;
use crate::overlap_rule::{self, OverlapJoins};
use crate::table::Tables;
use crate::table_functions::DatasetsOf;

/// What a statement may have.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes that sorting, grouping and joining hold, before they go to scratch space or give up.
    pub memory_bytes: usize,
    /// Threads.
    pub threads: usize,
    /// Where scratch files go; `None`: there are none.
    pub scratch: Option<PathBuf>,
}

/// Rows of a batch where rows are grouped: finding the groups of a batch costs less a row the more rows there are, up to this many
/// (70,000 groups of 10 million rows: 223 ms by batches of 8,192, 179 ms by these; no better beyond).
const GROUPED_ROWS: usize = 65_536;

/// Consumers of memory that an error names.
const CONSUMERS_NAMED: usize = 3;

/// Runs statements over the datasets of a catalog.
pub struct Engine {
    context: SessionContext,
    tables: Tables,
    touches: Touches,
    scratch: Option<Arc<ScratchDirectory>>,
}

/// A directory of this engine for spilled data. The SQL engine removes its own only when its last thread has ended, and a
/// process may end before that.
type ScratchDirectory = Temporary<tempfile::TempDir>;

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

/// The rows of a statement, as they are computed.
pub struct Rows {
    schema: SchemaRef,
    batches: SendableRecordBatchStream,
    /// Kept for data that the statement spills.
    _scratch: Option<Arc<ScratchDirectory>>,
}

impl Rows {
    /// Their columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next batch.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, QueryError> {
        Ok(self.batches.next().await.transpose()?)
    }
}

impl Engine {
    /// An engine.
    ///
    /// # Errors
    /// [`QueryError::Execution`] where scratch space cannot be had.
    pub fn new(catalog: Arc<dyn Catalog>, limits: &Limits) -> Result<Self, QueryError> {
        let tables = Tables(catalog);
        let catalogs = Arc::new(MemoryCatalogProviderList::new());
        catalogs.register_catalog(SQL_CATALOG.to_owned(), Arc::new(tables.clone()));
        let mut config = SessionConfig::new()
            .with_target_partitions(limits.threads.max(1))
            .with_default_catalog_and_schema(SQL_CATALOG, SQL_SCHEMA)
            .with_create_default_catalog_and_schema(false);
        let options = config.options_mut();
        options.execution.use_row_number_estimates_to_optimize_partitioning = true;
        // Names of columns and files are what they are: tag_NM, info_DP, NA12878.
        options.sql_parser.enable_ident_normalization = false;
        options.execution.parquet.pushdown_filters = true;
        // What clients get is what files say, not a type that only some of them know.
        options.execution.parquet.schema_force_view_types = false;
        options.sql_parser.map_string_types_to_utf8view = false;
        let make = |parent: &PathBuf| {
            ScratchDirectory::create(|| tempfile::Builder::new().prefix("godwit-query-").tempdir_in(parent))
                .map(Arc::new)
        };
        let scratch = limits.scratch.as_ref().map(make).transpose().map_err(DataFusionError::IoError)?;
        let disk = scratch.as_ref().map_or(DiskManagerMode::Disabled, |directory| {
            DiskManagerMode::Directories(vec![directory.path().to_owned()])
        });
        let pool = FairSpillPool::new(limits.memory_bytes);
        let pool = TrackConsumersPool::new(pool, const { std::num::NonZeroUsize::new(CONSUMERS_NAMED).unwrap() });
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
        for function in functions::all() {
            state.register_udf(Arc::new(function))?;
        }
        for kind in [Kind::Reads, Kind::Variants] {
            state.register_udtf(kind.name(), Arc::new(DatasetsOf { kind, tables: tables.clone() }));
        }
        for pairing in [Pairing::Overlaps, Pairing::Nearest] {
            state.register_udtf(pairing.name(), Arc::new(PairsOf { pairing, tables: tables.clone() }));
        }
        state.register_udtf(coverage::NAME, Arc::new(CoverageOf { tables: tables.clone() }));
        Ok(Self { context: SessionContext::new_with_state(state), tables, touches: Touches::default(), scratch })
    }

    /// With the list of what the catalog adds of the datasets that were opened, for [`Engine::touched`].
    #[must_use]
    pub fn with_touches(self, touches: Touches) -> Self {
        Self { touches, ..self }
    }

    /// What was opened since this was last asked, where there are rules.
    pub(crate) fn touched(&self) -> Vec<Touched> {
        self.touches.take()
    }

    /// With what files are read through whose addresses begin with `start`; where there is nothing of the kind, none are.
    ///
    /// # Errors
    /// [`QueryError::Execution`] where that is no start of an address.
    pub fn with_objects(self, objects: Option<(&str, Arc<dyn ObjectStore>)>) -> Result<Self, QueryError> {
        if let Some((start, store)) = objects {
            let start = ObjectStoreUrl::parse(start)?;
            self.context.runtime_env().register_object_store(start.as_ref(), store);
        }
        Ok(self)
    }

    /// Runs a statement. Nothing but a query is run.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn query(&self, sql: &str) -> Result<Rows, QueryError> {
        let plan = self.plan(sql).await?;
        self.rows(plan).await
    }

    pub(crate) async fn rows(&self, plan: LogicalPlan) -> Result<Rows, QueryError> {
        let mut state = self.context.state();
        if groups(&plan) {
            state.config_mut().options_mut().execution.batch_size = ConfigNonZeroUsize::try_new(GROUPED_ROWS)?;
        }
        let batches = DataFrame::new(state, plan).execute_stream().await?;
        Ok(Rows { schema: batches.schema(), batches, _scratch: self.scratch.clone() })
    }

    /// The plan of a statement, with values for its parameters, `$1` and so on.
    pub(crate) async fn plan_with(&self, sql: &str, values: Vec<ScalarValue>) -> Result<LogicalPlan, QueryError> {
        let plan = self.plan(sql).await?;
        if values.is_empty() { Ok(plan) } else { Ok(plan.with_param_values(ParamValues::from(values))?) }
    }

    /// Says which tables there are where a statement names one that does not exist.
    fn with_tables(&self, error: QueryError) -> QueryError {
        let name = match error {
            QueryError::NoTable { name, .. } | QueryError::Dataset(DatasetError::NotFound { name }) => name,
            error => return error,
        };
        let names = self.tables.0.names().unwrap_or_default();
        let nearest = suggestion(&name, names.iter().map(String::as_str));
        let listed = match names.is_empty() {
            true => "; there are none here".to_owned(),
            false => format!(
                "{} the tables are {}",
                if nearest.is_empty() { ";" } else { "" },
                listed(names.iter().map(String::as_str))
            ),
        };
        QueryError::NoTable { name, known: format!("{nearest}{listed}") }
    }

    pub(crate) async fn plan(&self, sql: &str) -> Result<LogicalPlan, QueryError> {
        let statement = parse(sql)?;
        let plan = self.context.state().statement_to_plan(statement).await;
        let plan = plan.map_err(|error| self.with_tables(error.into()))?;
        match plan {
            LogicalPlan::Ddl(_) | LogicalPlan::Dml(_) | LogicalPlan::Copy(_) | LogicalPlan::Statement(_) => {
                Err(QueryError::Refused { what: "this".to_owned() })
            }
            LogicalPlan::Explain(Explain { .. }) | LogicalPlan::Analyze(_) => Ok(plan),
            plan => Ok(plan),
        }
    }
}

/// Whether rows are grouped anywhere in a plan.
fn groups(plan: &LogicalPlan) -> bool {
    let is_grouping = |node: &LogicalPlan| Ok(matches!(node, LogicalPlan::Aggregate(of) if !of.group_expr.is_empty()));
    plan.exists(is_grouping).unwrap_or_default()
}

/// The rule that rewrites functions, and behind it the engine's own.
fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>> = vec![Arc::new(functions::Rewriter)];
    rules.extend(Analyzer::new().rules);
    rules
}

/// The engine's own rules, and that which finds joins of intervals.
fn optimizer_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = PhysicalOptimizer::new().rules;
    let behind = rules.iter().position(|rule| rule.name() == overlap_rule::BEHIND).map_or(0, |at| at + 1);
    rules.insert(behind, Arc::new(OverlapJoins));
    rules
}

/// The one query of a text.
pub(crate) fn parse(sql: &str) -> Result<Statement, QueryError> {
    let mut statements = DFParserBuilder::new(sql).build()?.parse_statements()?;
    let problem = match statements.len() {
        1 => None,
        0 => Some("the statement is empty; ask with SELECT"),
        _ => Some("there is more than one statement; send them one by one"),
    };
    if let Some(problem) = problem {
        return Err(QueryError::Statement { problem: problem.to_owned() });
    }
    let mut statement = statements.pop_front().ok_or_else(|| QueryError::Statement { problem: String::new() })?;
    if is_query(&statement) {
        if let Statement::Statement(statement) = &mut statement {
            number_placeholders(statement);
        }
        return Ok(statement);
    }
    let text = statement.to_string();
    let words: Vec<&str> = text.split_whitespace().take(2).collect();
    Err(QueryError::Refused { what: words.join(" ") })
}

/// JDBC and ODBC write `?` for each parameter, the engine knows `$1` and so on.
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
        Statement::Statement(statement) => is_plain_query(statement),
        Statement::Explain(explain) => is_query(&explain.statement),
        _ => false,
    }
}

fn is_plain_query(statement: &ast::Statement) -> bool {
    match statement {
        ast::Statement::Query(query) => query_reads_only(query),
        ast::Statement::ExplainTable { .. } => true,
        ast::Statement::Explain { statement, .. } => is_plain_query(statement),
        _ => false,
    }
}

/// A query may have an `INSERT` or its like where a `SELECT` would be.
fn query_reads_only(query: &ast::Query) -> bool {
    fn reads_only(body: &ast::SetExpr) -> bool {
        match body {
            ast::SetExpr::Select(select) => select.into.is_none(),
            ast::SetExpr::Query(query) => query_reads_only(query),
            ast::SetExpr::SetOperation { left, right, .. } => reads_only(left) && reads_only(right),
            ast::SetExpr::Values(_) | ast::SetExpr::Table(_) => true,
            _ => false,
        }
    }
    reads_only(&query.body)
}

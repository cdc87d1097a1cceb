//! The SQL table functions `reads('x.bam')` and `variants('x.vcf.gz')`, which return a dataset by its name. If the name
//! is a pattern, they return all matching datasets as one table.

use std::sync::Arc;

use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, col, lit};
use godwit_dataset::{Dataset, DatasetError, DatasetKind};
use godwit_model::GlobPattern;

use crate::dataset_table::{TableCatalog, table_provider};

/// The column with the sample of each row, if a table consists of several datasets.
const SAMPLE_COLUMN: &str = "sample";
/// The end of messages about the arguments of a table function whose rows have positions, but which takes no region.
pub(crate) const REGION_ADVICE: &str = "a condition selects a region: WHERE region('chr20:1-1000')";

/// A table function that returns datasets of one kind.
#[derive(Debug)]
pub(crate) struct DatasetFunction {
    pub(crate) kind: DatasetKind,
    pub(crate) tables: TableCatalog,
}

impl TableFunctionImpl for DatasetFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let function = self.kind.name();
        let name = match args.exprs() {
            [name] => literal_text(name),
            _ => None,
        };
        let Some(name) = name else {
            return plan_err!(
                "{function}() takes the name of a dataset, or a pattern, in single quotes; {REGION_ADVICE}"
            );
        };
        if name.contains(['*', '?']) {
            return union_of_matches(&self.tables, self.kind, name, Self::plan_with_sample);
        }
        let (name, dataset) = self.tables.find_dataset(name).map_err(to_datafusion_error)?;
        self.check_kind(&name, &*dataset)?;
        table_provider(&name, dataset)
    }
}

/// Returns the text if an argument is a text literal; `None` otherwise.
pub(crate) fn literal_text(argument: &Expr) -> Option<&str> {
    match argument {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

pub(crate) fn to_datafusion_error(error: DatasetError) -> DataFusionError {
    DataFusionError::External(error.into())
}

impl DatasetFunction {
    fn check_kind(&self, name: &str, dataset: &dyn Dataset) -> Result<()> {
        if dataset.kind() == self.kind {
            return Ok(());
        }
        plan_err!("{name} is not a dataset of {}; query it as \"{name}\"", self.kind.name())
    }

    /// Creates a plan with the rows of a dataset, and a column with their sample.
    fn plan_with_sample(name: &str, dataset: Arc<dyn Dataset>) -> Result<LogicalPlanBuilder> {
        let sample = dataset.sample().map_or_else(|| ScalarValue::from(name), ScalarValue::from);
        let columns: Vec<Expr> = dataset.schema().fields().iter().map(|field| exact_column(field.name())).collect();
        let source = provider_as_source(table_provider(name, dataset)?);
        let table = LogicalPlanBuilder::scan("one", source, None)?;
        table.project([lit(sample).alias(SAMPLE_COLUMN)].into_iter().chain(columns))
    }
}

/// Returns the union of the plans that `plan_dataset` creates for all datasets of a kind that match a pattern. The
/// union has the columns of all datasets.
pub(crate) fn union_of_matches(
    tables: &TableCatalog,
    kind: DatasetKind,
    pattern: &str,
    plan_dataset: impl Fn(&str, Arc<dyn Dataset>) -> Result<LogicalPlanBuilder>,
) -> Result<Arc<dyn TableProvider>> {
    let names = tables.0.names().map_err(to_datafusion_error)?;
    let fitting = GlobPattern::for_dataset_names(pattern);
    let mut whole: Option<LogicalPlanBuilder> = None;
    for name in names.iter().filter(|name| fitting.matches(name)) {
        let dataset = tables.0.open(name).map_err(to_datafusion_error)?;
        if dataset.kind() != kind {
            continue;
        }
        let one = plan_dataset(name, dataset)?;
        whole = Some(match whole {
            Some(whole) => whole.union_by_name(one.build()?)?,
            None => one,
        });
    }
    match whole {
        Some(whole) => Ok(Arc::new(ViewTable::new(whole.build()?, None))),
        None => plan_err!("no dataset of {} matches {pattern:?}", kind.name()),
    }
}

/// Returns an expression for a column with this case-sensitive name.
pub(crate) fn exact_column(name: &str) -> Expr {
    col(datafusion::common::Column::from_name(name))
}

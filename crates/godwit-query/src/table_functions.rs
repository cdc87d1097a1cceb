//! `reads('x.bam')` and `variants('x.vcf.gz')`: datasets by name, and several as one table by a pattern.

use std::sync::Arc;

use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, col, lit};
use godwit_flight::{Dataset, DatasetError, Kind};
use godwit_model::Pattern;

use crate::table::{Tables, provider};

/// The column that tells the files of a pattern apart.
const SAMPLE: &str = "sample";

/// A function that gives a table of datasets of one kind.
#[derive(Debug)]
pub(crate) struct DatasetsOf {
    pub(crate) kind: Kind,
    pub(crate) tables: Tables,
}

impl TableFunctionImpl for DatasetsOf {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let function = self.kind.name();
        let name = match args.exprs() {
            [name] => literal_text(name),
            _ => None,
        };
        let Some(name) = name else {
            return plan_err!("{function}() takes the name of a dataset, or a pattern, in single quotes");
        };
        if name.contains(['*', '?']) {
            return self.several(name);
        }
        let (name, dataset) = self.tables.find(name).map_err(external)?;
        self.check(&name, &*dataset)?;
        provider(&name, dataset)
    }
}

/// The text of an argument that is one.
pub(crate) fn literal_text(argument: &Expr) -> Option<&str> {
    match argument {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

pub(crate) fn external(error: DatasetError) -> DataFusionError {
    DataFusionError::External(error.into())
}

impl DatasetsOf {
    fn check(&self, name: &str, dataset: &dyn Dataset) -> Result<()> {
        if dataset.kind() == self.kind {
            return Ok(());
        }
        plan_err!("{name} holds no {}; ask it as \"{name}\"", self.kind.name())
    }

    /// All datasets that a pattern fits, one below the other, each row with its sample. Columns are those of all of them.
    fn several(&self, pattern: &str) -> Result<Arc<dyn TableProvider>> {
        let names = self.tables.0.names().map_err(external)?;
        let fitting = Pattern::of_names(pattern);
        let mut whole: Option<LogicalPlanBuilder> = None;
        for name in names.iter().filter(|name| fitting.matches(name)) {
            let dataset = self.tables.0.open(name).map_err(external)?;
            if dataset.kind() != self.kind {
                continue;
            }
            let sample = dataset.sample().map_or_else(|| ScalarValue::from(name.as_str()), ScalarValue::from);
            let columns: Vec<Expr> = dataset.schema().fields().iter().map(|field| quoted(field.name())).collect();
            let source = provider_as_source(provider(name, dataset)?);
            let table = LogicalPlanBuilder::scan("one", source, None)?;
            let one = table.project([lit(sample).alias(SAMPLE)].into_iter().chain(columns))?;
            whole = Some(match whole {
                Some(whole) => whole.union_by_name(one.build()?)?,
                None => one,
            });
        }
        match whole {
            Some(whole) => Ok(Arc::new(ViewTable::new(whole.build()?, None))),
            None => plan_err!("no dataset of {} fits {pattern:?}", self.kind.name()),
        }
    }
}

/// A column whose name is taken as it is.
fn quoted(name: &str) -> Expr {
    col(datafusion::common::Column::from_name(name))
}

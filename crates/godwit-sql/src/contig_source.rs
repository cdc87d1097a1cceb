//! Finds the datasets from which a column of a plan is read. The contigs of these datasets determine how a region
//! string is parsed, and their samples how a filter expression is evaluated.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, LogicalPlan};
use godwit_dataset::{Dataset, has_region_contig, region_error_message};
use godwit_model::RegionError;

use crate::dataset_table::dataset_of_table;
use crate::genotypes::variants_of_table;
use crate::interval_functions::source_table_of_column;

/// The datasets from which a column is read.
#[derive(Debug, Default)]
pub(crate) struct ContigSource {
    datasets: Vec<Arc<dyn Dataset>>,
    /// True if the column may also contain values that are not read from these datasets, such as literals.
    is_partial: bool,
}

impl ContigSource {
    /// Finds the datasets from which a plan takes a column that its expressions name.
    pub(crate) fn from_plan(plan: &LogicalPlan, column: &Column) -> Self {
        let mut source = Self::default();
        match plan {
            // The filters of a scan refer to columns of the scanned table itself, not to those of an input plan.
            LogicalPlan::TableScan(_) => source.follow_column(plan, column),
            _ => source.follow_column_into_inputs(plan, column),
        }
        source
    }

    /// Returns whether the datasets have the contig that a region names; `None` if this is not known.
    pub(crate) fn has_contig(&self, name: &str) -> Option<bool> {
        let known: Vec<_> = self.datasets.iter().map(|dataset| has_region_contig(&**dataset, name)).collect();
        match known.contains(&Some(true)) {
            true => Some(true),
            false if self.is_partial || known.is_empty() || known.contains(&None) => None,
            false => Some(false),
        }
    }

    /// Returns the message of a region error, with a suggestion if one of the datasets has the contig under another name.
    pub(crate) fn region_error_message(&self, error: &RegionError) -> String {
        let messages = self.datasets.iter().map(|dataset| region_error_message(error, &**dataset));
        messages.max_by_key(String::len).unwrap_or_else(|| error.to_string())
    }

    /// Returns the dataset from which all values of the column are read; `None` if there is not exactly one.
    pub(crate) fn single_dataset(&self) -> Option<Arc<dyn Dataset>> {
        match &self.datasets[..] {
            [dataset] if !self.is_partial => Some(dataset.clone()),
            _ => None,
        }
    }

    /// Returns the number of samples of each row; `None` if it is unknown, or not the same in all datasets.
    pub(crate) fn sample_count(&self) -> Option<usize> {
        let mut counts = self.datasets.iter().map(|dataset| Some(dataset.samples()?.len()));
        let first = counts.next()??;
        (!self.is_partial && counts.all(|count| count == Some(first))).then_some(first)
    }

    fn follow_column_into_inputs(&mut self, plan: &LogicalPlan, column: &Column) {
        match plan.inputs().into_iter().find(|input| input.schema().has_column(column)) {
            Some(input) => self.follow_column(input, column),
            None => self.is_partial = true,
        }
    }

    /// Follows an output column of a plan down to the tables from which it is read, and adds their datasets.
    fn follow_column(&mut self, plan: &LogicalPlan, column: &Column) {
        let at = plan.schema().maybe_index_of_column(column);
        let input_column = |input: &LogicalPlan| Some(Column::from(input.schema().qualified_field(at?)));
        match plan {
            LogicalPlan::TableScan(scan) => {
                let table = source_as_provider(&scan.source).ok();
                let table = table.map(|table| source_table_of_column(&table, &column.name).unwrap_or(table));
                let dataset =
                    table.as_deref().and_then(|table| dataset_of_table(table).or_else(|| variants_of_table(table)));
                match dataset {
                    Some(dataset) => self.datasets.push(dataset.clone()),
                    None => self.is_partial = true,
                }
            }
            LogicalPlan::SubqueryAlias(_) | LogicalPlan::Union(_) => {
                for input in plan.inputs() {
                    match input_column(input) {
                        Some(column) => self.follow_column(input, &column),
                        None => self.is_partial = true,
                    }
                }
            }
            LogicalPlan::Projection(projection) => {
                match at.and_then(|at| projection.expr.get(at)).map(|expr| expr.clone().unalias_nested().data) {
                    Some(Expr::Column(column)) => self.follow_column(&projection.input, &column),
                    _ => self.is_partial = true,
                }
            }
            _ => self.follow_column_into_inputs(plan, column),
        }
    }
}

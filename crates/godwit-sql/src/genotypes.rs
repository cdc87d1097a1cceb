//! The SQL table function `genotypes('x.vcf.gz')`, which returns a row for each sample of each variant. If the name is
//! a pattern, it returns the rows of all matching datasets.
//!
//! Conditions on positions select regions, and conditions on the column `sample` select list elements, so that only
//! the rows of these samples are built. [`GenotypeDataset`] builds the rows.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, plan_err};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{
    BinaryExpr, Expr, LogicalPlanBuilder, Operator, TableProviderFilterPushDown, TableType,
};
use datafusion::physical_plan::ExecutionPlan;
use godwit_dataset::{Dataset, DatasetKind};

use crate::dataset_table::{DatasetTable, TableCatalog};
use crate::genotype_dataset::{GenotypeDataset, SAMPLE_COLUMN};
use crate::region_pushdown::{column_name, constrains_region, literal_value, text_value};
use crate::table_functions::{REGION_ADVICE, literal_text, to_datafusion_error, union_of_matches};

/// Name of the SQL table function.
pub(crate) const FUNCTION_NAME: &str = "genotypes";

/// The table function `genotypes`.
#[derive(Debug)]
pub(crate) struct GenotypeFunction {
    pub(crate) tables: TableCatalog,
}

impl TableFunctionImpl for GenotypeFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let name = match args.exprs() {
            [name] => literal_text(name),
            _ => None,
        };
        let Some(name) = name else {
            return plan_err!(
                "{FUNCTION_NAME}() takes the name of a dataset of variants, or a pattern, in single quotes; {REGION_ADVICE}"
            );
        };
        if name.contains(['*', '?']) {
            return union_of_matches(&self.tables, DatasetKind::Variants, name, |name, variants| {
                let source = provider_as_source(Arc::new(GenotypeTable::new(name, variants)?));
                LogicalPlanBuilder::scan("one", source, None)
            });
        }
        let (name, variants) = self.tables.find_dataset(name).map_err(to_datafusion_error)?;
        Ok(Arc::new(GenotypeTable::new(&name, variants)?))
    }
}

/// A table with a row for each sample of each variant of a dataset.
#[derive(Debug)]
struct GenotypeTable {
    name: String,
    variants: Arc<dyn Dataset>,
    samples: Vec<String>,
    schema: SchemaRef,
}

impl GenotypeTable {
    fn new(name: &str, variants: Arc<dyn Dataset>) -> Result<Self> {
        if variants.kind() != DatasetKind::Variants {
            return plan_err!("{name} is not a dataset of variants, so it has no genotypes");
        }
        let Some(samples) = variants.samples() else {
            return plan_err!(
                "the names of the samples of {name} are unknown or hidden, so {FUNCTION_NAME}() cannot return their \
                 genotypes; variants() returns the values as lists"
            );
        };
        let schema = GenotypeDataset::new(variants.clone(), &samples, None).schema();
        Ok(Self { name: name.to_owned(), variants, samples, schema })
    }
}

/// Returns the dataset of variants whose genotypes a table contains; `None` if the table is not a [`GenotypeTable`].
pub(crate) fn variants_of_table<'t>(table: &'t (dyn TableProvider + 'static)) -> Option<&'t Arc<dyn Dataset>> {
    table.downcast_ref::<GenotypeTable>().map(|table| &table.variants)
}

#[async_trait]
impl TableProvider for GenotypeTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let selected = samples_of_filters(filters);
        let rows = GenotypeDataset::new(self.variants.clone(), &self.samples, selected.as_ref());
        let name = format!("{FUNCTION_NAME}({})", self.name);
        let table = DatasetTable { name, dataset: Arc::new(rows), schema: self.schema.clone() };
        table.scan(session, projection, filters, limit).await
    }

    /// DataFusion still applies all conditions, as for the regions of other datasets.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| {
            let is_region = self.variants.has_regions() && constrains_region(filter);
            match is_region || allowed_samples(filter).is_some() {
                true => TableProviderFilterPushDown::Inexact,
                false => TableProviderFilterPushDown::Unsupported,
            }
        };
        Ok(filters.iter().map(support).collect())
    }
}

/// Returns the names of the samples that all conditions allow; `None` if the conditions do not restrict samples.
fn samples_of_filters(filters: &[Expr]) -> Option<BTreeSet<String>> {
    filters.iter().filter_map(allowed_samples).reduce(|some, others| &some & &others)
}

/// Returns the names of the samples that a condition allows; `None` if it does not restrict samples.
fn allowed_samples(condition: &Expr) -> Option<BTreeSet<String>> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            match (allowed_samples(left), allowed_samples(right)) {
                (Some(some), Some(others)) => Some(&some & &others),
                (some, others) => some.or(others),
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            Some(&allowed_samples(left)? | &allowed_samples(right)?)
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            let value = match (column_name(left), column_name(right)) {
                (Some(SAMPLE_COLUMN), None) => literal_value(right),
                (None, Some(SAMPLE_COLUMN)) => literal_value(left),
                _ => None,
            };
            Some([text_value(value?)?].into())
        }
        Expr::InList(InList { expr, list, negated: false }) if column_name(expr) == Some(SAMPLE_COLUMN) => {
            list.iter().map(|item| literal_value(item).and_then(text_value)).collect()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::{col, lit};

    use super::*;

    fn allowed(condition: Expr) -> Option<Vec<String>> {
        samples_of_filters(&[condition]).map(|samples| samples.into_iter().collect())
    }

    #[test]
    fn conditions_become_samples() {
        let is = |name: &str| col("sample").eq(lit(name));
        assert_eq!(allowed(is("a").or(lit("b").eq(col("sample")))).unwrap(), ["a", "b"]);
        assert_eq!(allowed(is("a").and(col("position").gt(lit(5)))).unwrap(), ["a"]);
        assert_eq!(allowed(is("a").and(is("b"))).unwrap(), [""; 0]);
        assert_eq!(allowed(col("sample").in_list(vec![lit("b"), lit("a")], false)).unwrap(), ["a", "b"]);
        assert_eq!(allowed(is("a").or(col("position").gt(lit(5)))), None);
        assert_eq!(allowed(col("sample").in_list(vec![lit("b")], true)), None);
        assert_eq!(allowed(col("sample").not_eq(lit("a"))), None);
    }
}

//! The SQL table function `insert_sizes('x.bam')`, which counts the pairs of reads by insert size and orientation.
//!
//! The counts are those of the histogram of Picard CollectInsertSizeMetrics (3.4.0) before it is cut at its ends: of each
//! pair the read that is not the first, if both are mapped and TLEN is not 0, and without duplicates and secondary and
//! supplementary alignments. The orientation is that of htsjdk's `SamPairUtil.getPairOrientation`. The
//! rows are computed by a plan over the reads, so any order of the reads is accepted.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, plan_err};
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, Operator, binary_expr, cast, col, lit, when};
use godwit_dataset::DatasetKind;
use godwit_model::flags;

use crate::dataset_table::{TableCatalog, table_provider};
use crate::table_functions::{literal_text, to_datafusion_error};

/// Name of the SQL table function.
pub(crate) const FUNCTION_NAME: &str = "insert_sizes";
/// FLAG bits of reads that do not count. Of each pair, the second read counts.
const EXCLUDED_FLAGS: u16 =
    flags::UNMAPPED | flags::MATE_UNMAPPED | flags::FIRST | flags::SECONDARY | flags::SUPPLEMENTARY | flags::DUPLICATE;

/// The table function `insert_sizes`.
#[derive(Debug)]
pub(crate) struct InsertSizeFunction {
    pub(crate) tables: TableCatalog,
}

impl TableFunctionImpl for InsertSizeFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let name = match args.exprs() {
            [name] => literal_text(name),
            _ => None,
        };
        let Some(name) = name else {
            return plan_err!("{FUNCTION_NAME}() takes the name of a table of reads in single quotes");
        };
        let (name, reads) = self.tables.find_dataset(name).map_err(to_datafusion_error)?;
        if reads.kind() != DatasetKind::Reads {
            return plan_err!("{name} is not a dataset of reads, so {FUNCTION_NAME}() cannot be computed");
        }
        let source = provider_as_source(table_provider(&name, reads)?);
        let has_flags = |mask: u16| bit_and(flags_column(), mask).not_eq(lit(0i64));
        let counts = bit_and(flags_column(), EXCLUDED_FLAGS | flags::PAIRED).eq(lit(i64::from(flags::PAIRED)));
        let is_tandem = has_flags(flags::REVERSE).eq(has_flags(flags::MATE_REVERSE));
        // The 5' ends of both reads, 1-based.
        let start = || integer("position") + lit(1i64);
        let forward_end = when(has_flags(flags::REVERSE), integer("mate_position") + lit(1i64)).otherwise(start())?;
        let reverse_end =
            when(has_flags(flags::REVERSE), integer("end_position")).otherwise(start() + integer("template_length"))?;
        let mut orientation = when(is_tandem, lit("TANDEM")).when(forward_end.lt(reverse_end), lit("FR"));
        let size = when(integer("template_length").lt(lit(0i64)), lit(0i64) - integer("template_length"))
            .otherwise(integer("template_length"))?;
        let plan = LogicalPlanBuilder::scan("reads", source, None)?
            .filter(counts.and(integer("template_length").not_eq(lit(0i64))))?
            .project([size.alias("insert_size"), orientation.otherwise(lit("RF"))?.alias("orientation")])?
            .aggregate([col("insert_size"), col("orientation")], [count(lit(1i64)).alias("pairs")])?
            .build()?;
        Ok(Arc::new(ViewTable::new(plan, None)))
    }
}

fn integer(column: &str) -> Expr {
    cast(col(column), DataType::Int64)
}

fn flags_column() -> Expr {
    integer("flags")
}

fn bit_and(number: Expr, mask: u16) -> Expr {
    binary_expr(number, Operator::BitwiseAnd, lit(i64::from(mask)))
}

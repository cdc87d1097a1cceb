//! The SQL table function `liftover('x.bed', 'old-to-new.chain')`, which adds to each row of a table its interval in
//! another assembly. [`ChainIndex`] lifts the intervals.
//!
//! The table is a view: a projection of the table with a scalar function, which reads the chain file when it is called
//! first. Conditions on the columns of the table are therefore applied before rows are lifted.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::builder::{Int32Builder, StringBuilder};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StructArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{DataType, Field, Fields, Int64Type};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use datafusion::functions::core::expr_fn::get_field;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlanBuilder, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, cast,
};
use godwit_dataset::Dataset;
use parking_lot::Mutex;

use crate::chain_index::{CHAIN_COLUMNS, ChainIndex};
use crate::dataset_table::TableCatalog;
use crate::interval_functions::{INTERVAL_COLUMNS, interval_table};
use crate::table_functions::{exact_column, literal_text, to_datafusion_error};

/// Name of the SQL table function.
pub(crate) const FUNCTION_NAME: &str = "liftover";
/// Minimum fraction of the bases of an interval that a chain must align, as in UCSC liftOver.
const DEFAULT_MIN_MATCH: f64 = 0.95;
/// Columns that the function adds.
const LIFTED_COLUMNS: [&str; 4] = ["lifted_contig", "lifted_position", "lifted_end_position", "lifted_strand"];
/// Column of the view with the values of [`LIFTED_COLUMNS`].
const LIFTED: &str = "__godwit_lifted";

/// The table function `liftover`.
#[derive(Debug)]
pub(crate) struct LiftoverFunction {
    pub(crate) tables: TableCatalog,
    /// The memory of the statement, from which the blocks of chain files are taken.
    pub(crate) memory_pool: Arc<dyn MemoryPool>,
}

impl TableFunctionImpl for LiftoverFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let (names, min_match) = match args.exprs() {
            [table, chains] => ([table, chains], Some(DEFAULT_MIN_MATCH)),
            [table, chains, min_match] => ([table, chains], literal_fraction(min_match)),
            _ => return usage_error(),
        };
        let ([Some(table), Some(chains)], Some(min_match)) = (names.map(literal_text), min_match) else {
            return usage_error();
        };
        let table = interval_table(&self.tables, table, FUNCTION_NAME)?;
        let (chain_name, chains) = self.tables.find_dataset(chains).map_err(to_datafusion_error)?;
        if CHAIN_COLUMNS.iter().any(|column| chains.schema().index_of(column).is_err()) {
            return plan_err!("{chain_name} is not a chain file, which {FUNCTION_NAME}() takes as its second argument");
        }
        let schema = table.schema();
        if let Some(column) = LIFTED_COLUMNS.iter().find(|column| schema.index_of(column).is_ok()) {
            return plan_err!("the table already has a column {column}, which {FUNCTION_NAME}() adds");
        }
        let function = ScalarUDF::from(LiftFunction {
            chains: LazyChainIndex {
                version: chains.version(),
                name: chain_name,
                dataset: chains,
                memory_pool: self.memory_pool.clone(),
                index: Mutex::default(),
            },
            min_match_bits: min_match.to_bits(),
            signature: Signature::exact(vec![DataType::Utf8, DataType::Int64, DataType::Int64], Volatility::Immutable),
        });
        let [contig, start, end] = INTERVAL_COLUMNS.map(exact_column);
        let arguments = vec![cast(contig, DataType::Utf8), cast(start, DataType::Int64), cast(end, DataType::Int64)];
        let columns = || schema.fields().iter().map(|field| exact_column(field.name()));
        let lifted = LIFTED_COLUMNS.map(|column| get_field(exact_column(LIFTED), column).alias(column));
        let plan = LogicalPlanBuilder::scan("intervals", provider_as_source(table.clone()), None)?
            .project(columns().chain([function.call(arguments).alias(LIFTED)]))?
            .project(columns().chain(lifted))?
            .build()?;
        Ok(Arc::new(ViewTable::new(plan, None)))
    }
}

fn usage_error<T>() -> Result<T> {
    plan_err!(
        "{FUNCTION_NAME}() takes the names of a table and of a chain file, each in single quotes, and optionally the \
         minimum fraction of the bases that must be aligned, from 0 to 1"
    )
}

/// Returns the value of a literal from 0 to 1; `None` for other expressions.
fn literal_fraction(argument: &Expr) -> Option<f64> {
    let Expr::Literal(value, _) = argument else { return None };
    match value.cast_to(&DataType::Float64).ok()? {
        ScalarValue::Float64(number) => number.filter(|number| (0.0..=1.0).contains(number)),
        _ => None,
    }
}

/// A dataset of chains, whose index is read when it is needed first.
#[derive(Debug)]
struct LazyChainIndex {
    name: String,
    version: u64,
    dataset: Arc<dyn Dataset>,
    memory_pool: Arc<dyn MemoryPool>,
    /// The outcome of reading the chain file.
    index: Mutex<Option<Result<Arc<ChainIndex>, Arc<DataFusionError>>>>,
}

impl LazyChainIndex {
    fn get(&self) -> Result<Arc<ChainIndex>> {
        let mut index = self.index.lock();
        let read = || {
            let reservation = MemoryConsumer::new(format!("the blocks of {}", self.name)).register(&self.memory_pool);
            ChainIndex::read(&self.name, &*self.dataset, reservation).map(Arc::new).map_err(Arc::new)
        };
        index.get_or_insert_with(read).clone().map_err(DataFusionError::Shared)
    }
}

/// The scalar function that returns contig, start, end and strand of a lifted interval.
#[derive(Debug)]
struct LiftFunction {
    chains: LazyChainIndex,
    min_match_bits: u64,
    signature: Signature,
}

impl LiftFunction {
    fn identity(&self) -> (&str, u64, u64) {
        (&self.chains.name, self.chains.version, self.min_match_bits)
    }
}

impl PartialEq for LiftFunction {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for LiftFunction {}

impl Hash for LiftFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

fn lifted_fields() -> Fields {
    let types = [DataType::Utf8, DataType::Int32, DataType::Int32, DataType::Utf8];
    LIFTED_COLUMNS.into_iter().zip(types).map(|(name, data_type)| Field::new(name, data_type, true)).collect()
}

impl ScalarUDFImpl for LiftFunction {
    fn name(&self) -> &str {
        FUNCTION_NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Struct(lifted_fields()))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [contigs, starts, ends] = &arguments.args[..] else {
            return exec_err!("{FUNCTION_NAME}() takes a contig, a start and an end");
        };
        let rows = arguments.number_rows;
        let (contigs, starts, ends) = (contigs.to_array(rows)?, starts.to_array(rows)?, ends.to_array(rows)?);
        let contigs = contigs.as_string::<i32>();
        let (starts, ends) = (starts.as_primitive::<Int64Type>(), ends.as_primitive::<Int64Type>());
        let index = self.chains.get()?;
        let min_match = f64::from_bits(self.min_match_bits);
        let (mut names, mut strands) = (StringBuilder::new(), StringBuilder::new());
        let (mut lifted_starts, mut lifted_ends) = (Int32Builder::new(), Int32Builder::new());
        let mut chain_rows = Vec::new();
        for row in 0..rows {
            let is_valid = contigs.is_valid(row) && starts.is_valid(row) && ends.is_valid(row);
            let lifted = match is_valid {
                true => index.lift(contigs.value(row), starts.value(row), ends.value(row), min_match, &mut chain_rows),
                false => None,
            };
            names.append_option(lifted.map(|lifted| lifted.contig));
            // `ChainIndex` limits positions to 32 bits.
            lifted_starts.append_option(lifted.map(|lifted| lifted.start as i32));
            lifted_ends.append_option(lifted.map(|lifted| lifted.end as i32));
            strands.append_option(lifted.map(|lifted| if lifted.is_reverse { "-" } else { "+" }));
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(names.finish()),
            Arc::new(lifted_starts.finish()),
            Arc::new(lifted_ends.finish()),
            Arc::new(strands.finish()),
        ];
        let lifted = StructArray::try_new(lifted_fields(), columns, None::<NullBuffer>)?;
        Ok(ColumnarValue::Array(Arc::new(lifted)))
    }
}

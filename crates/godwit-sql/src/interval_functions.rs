//! The SQL table functions `overlaps('a.bed', 'b.bed')` and `nearest('a.bed', 'b.bed')`, which join two tables of
//! intervals.
//!
//! In the joined table, columns of the first table keep their names, and columns of the second table have the suffix
//! `_2`.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Column, JoinType, Result, plan_err};
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, TableType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column as InputColumn, cast};
use datafusion::physical_plan::ExecutionPlan;

use crate::dataset_table::{TableCatalog, table_provider};
use crate::interval_join::{IntervalJoin, IntervalJoinExec, IntervalJoinType, JoinColumn, SideExpressions};
use crate::table_functions::{REGION_ADVICE, literal_text, to_datafusion_error};

/// Columns that contain the interval of a row.
pub(crate) const INTERVAL_COLUMNS: [&str; 3] = ["contig", "position", "end_position"];
/// Suffix of the names of columns that come from the second table.
const SECOND_TABLE_SUFFIX: &str = "_2";
/// Column of [`PairKind::Nearest`] with the distance between the two intervals, in bases.
const DISTANCE_COLUMN: &str = "distance";

/// The condition by which rows of two tables are paired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PairKind {
    /// Pairs of rows whose intervals have at least one common base.
    Overlaps,
    /// Each row of the first table, paired with the nearest rows of the second table.
    Nearest,
}

impl PairKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Overlaps => "overlaps",
            Self::Nearest => "nearest",
        }
    }
}

/// A table function that returns pairs of rows of two tables.
#[derive(Debug)]
pub(crate) struct IntervalPairFunction {
    pub(crate) pair_kind: PairKind,
    pub(crate) tables: TableCatalog,
}

impl TableFunctionImpl for IntervalPairFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let names: Option<Vec<&str>> = args.exprs().iter().map(literal_text).collect();
        let Some([first, second]) = names.as_deref() else {
            let function = self.pair_kind.name();
            return plan_err!("{function}() takes the names of two tables, each in single quotes; {REGION_ADVICE}");
        };
        let table = |name| interval_table(&self.tables, name, self.pair_kind.name());
        let (first, second) = (table(first)?, table(second)?);
        match self.pair_kind {
            PairKind::Overlaps => overlap_view(first, second),
            PairKind::Nearest => Ok(Arc::new(NearestTable::new(first, second))),
        }
    }
}

/// Returns the table of a dataset that has [`INTERVAL_COLUMNS`]. `function` is the name of the table function that needs
/// them.
pub(crate) fn interval_table(tables: &TableCatalog, name: &str, function: &str) -> Result<Arc<dyn TableProvider>> {
    let (name, dataset) = tables.find_dataset(name).map_err(to_datafusion_error)?;
    let schema = dataset.schema();
    for (at, column) in INTERVAL_COLUMNS.iter().enumerate() {
        let fits = |field: &Field| match field.data_type() {
            DataType::Int32 | DataType::Int64 => at > 0,
            DataType::Dictionary(_, values) => at == 0 && values.is_string(),
            data_type => at == 0 && data_type.is_string(),
        };
        if !schema.field_with_name(column).is_ok_and(fits) {
            return plan_err!(
                "{function}() is for tables with the columns contig, a text, and position and end_position, whole numbers; {name} \
                 has no such {column}"
            );
        }
    }
    table_provider(&name, dataset)
}

/// Returns the name that a column of the second table has in the joined table.
fn second_column_name(field: &Field) -> String {
    format!("{}{SECOND_TABLE_SUFFIX}", field.name())
}

/// Creates a view with an ordinary join on overlap, as a user could write it in SQL. [`crate::interval_join_rule`]
/// replaces it by an interval join.
fn overlap_view(first: Arc<dyn TableProvider>, second: Arc<dyn TableProvider>) -> Result<Arc<dyn TableProvider>> {
    const TABLE_ALIASES: [&str; 2] = ["first", "second"];
    let column = |table: usize, name: &str| Expr::Column(Column::new(Some(TABLE_ALIASES[table]), name));
    let place = |table: usize| INTERVAL_COLUMNS.map(|name| column(table, name));
    let ([contig, start, end], [contig_2, start_2, end_2]) = (place(0), place(1));
    let conditions = vec![contig.eq(contig_2), start.lt(end_2), start_2.lt(end)];
    let of_first: Vec<Expr> = first.schema().fields().iter().map(|field| column(0, field.name())).collect();
    let named = |field: &Arc<Field>| column(1, field.name()).alias(second_column_name(field));
    let of_second: Vec<Expr> = second.schema().fields().iter().map(named).collect();
    let second = LogicalPlanBuilder::scan(TABLE_ALIASES[1], provider_as_source(second), None)?.build()?;
    let joined = LogicalPlanBuilder::scan(TABLE_ALIASES[0], provider_as_source(first), None)?
        .join_on(second, JoinType::Inner, conditions)?
        .project(of_first.into_iter().chain(of_second))?;
    Ok(Arc::new(ViewTable::new(joined.build()?, None)))
}

/// A table that pairs each row of one table with the nearest rows of another.
#[derive(Debug)]
struct NearestTable {
    first: Arc<dyn TableProvider>,
    second: Arc<dyn TableProvider>,
    columns: Vec<JoinColumn>,
    schema: SchemaRef,
}

impl NearestTable {
    fn new(first: Arc<dyn TableProvider>, second: Arc<dyn TableProvider>) -> Self {
        let (of_first, of_second) = (first.schema(), second.schema());
        // Columns of the second table are nullable: they are null if the second table has no row on the contig.
        let second_field =
            |field: &Arc<Field>| field.as_ref().clone().with_name(second_column_name(field)).with_nullable(true);
        let mut fields: Vec<Field> = of_first.fields().iter().map(|field| field.as_ref().clone()).collect();
        fields.extend(of_second.fields().iter().map(second_field));
        fields.push(Field::new(DISTANCE_COLUMN, DataType::Int64, true));
        let columns = (0..of_first.fields().len()).map(JoinColumn::Probe);
        let columns =
            columns.chain((0..of_second.fields().len()).map(JoinColumn::Build)).chain([JoinColumn::Distance]).collect();
        Self { first, second, columns, schema: Arc::new(Schema::new(fields)) }
    }
}

/// Returns the table from which a column of a [`NearestTable`] comes; `None` if `table` is not a [`NearestTable`].
pub(crate) fn source_table_of_column(table: &Arc<dyn TableProvider>, column: &str) -> Option<Arc<dyn TableProvider>> {
    let nearest = table.downcast_ref::<NearestTable>()?;
    Some(if nearest.first.schema().index_of(column).is_ok() { nearest.first.clone() } else { nearest.second.clone() })
}

/// Ascending indexes of the columns that are read from one of the two tables: the requested columns and
/// [`INTERVAL_COLUMNS`].
struct SideProjection(Vec<usize>);

impl SideProjection {
    fn new(schema: &Schema, wanted: impl Iterator<Item = usize>) -> Result<Self> {
        let place = INTERVAL_COLUMNS.into_iter().map(|name| Ok(schema.index_of(name)?));
        let mut columns = place.chain(wanted.map(Ok)).collect::<Result<Vec<usize>>>()?;
        columns.sort_unstable();
        columns.dedup();
        Ok(Self(columns))
    }

    /// Returns the index of a column of the table among the columns that are read.
    fn index_of(&self, column: usize) -> usize {
        self.0.binary_search(&column).unwrap_or_default()
    }

    fn side_expressions(&self, schema: &Schema) -> Result<SideExpressions> {
        let column = |name: &str| -> Result<Arc<dyn PhysicalExpr>> {
            Ok(Arc::new(InputColumn::new(name, self.index_of(schema.index_of(name)?))))
        };
        let [contig, start, end] = INTERVAL_COLUMNS;
        // Cast the contig names to plain text, because in some tables they are dictionary-encoded.
        let contig = cast(column(contig)?, &schema.project(&self.0)?, DataType::Utf8)?;
        Ok(SideExpressions { keys: vec![contig], low: column(start)?, high: column(end)?, bound_offsets: (0, 0) })
    }
}

#[async_trait]
impl TableProvider for NearestTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        let wanted = projection.unwrap_or(&all);
        let columns: Vec<JoinColumn> = wanted.iter().map(|at| self.columns[*at]).collect();
        let of_first =
            columns.iter().filter_map(|column| if let JoinColumn::Probe(at) = column { Some(*at) } else { None });
        let of_second =
            columns.iter().filter_map(|column| if let JoinColumn::Build(at) = column { Some(*at) } else { None });
        let first = SideProjection::new(&self.first.schema(), of_first)?;
        let second = SideProjection::new(&self.second.schema(), of_second)?;
        let columns = columns.iter().map(|column| match *column {
            JoinColumn::Probe(at) => JoinColumn::Probe(first.index_of(at)),
            JoinColumn::Build(at) => JoinColumn::Build(second.index_of(at)),
            JoinColumn::Distance => JoinColumn::Distance,
        });
        let columns = columns.collect();
        let passing = self.first.scan(session, Some(&first.0), &[], None).await?;
        let held = self.second.scan(session, Some(&second.0), &[], None).await?;
        let schema = Arc::new(self.schema.project(wanted)?);
        let (first, second) =
            (first.side_expressions(&self.first.schema())?, second.side_expressions(&self.second.schema())?);
        let join = IntervalJoin {
            build: second,
            probe: first,
            residual_filter: None,
            join_type: IntervalJoinType::Nearest,
            columns,
            schema,
        };
        Ok(Arc::new(IntervalJoinExec::new(Arc::new(join), held, passing)))
    }
}

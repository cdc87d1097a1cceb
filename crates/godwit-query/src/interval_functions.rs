//! `overlaps('a.bed', 'b.bed')` and `nearest('a.bed', 'b.bed')`: two tables with places as one.
//!
//! Columns of the first are as they are; those of the second have `_2` behind their names.

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

use crate::interval_join::{Emit, From, IntervalJoin, IntervalJoinExec, Side};
use crate::table::{Tables, provider};
use crate::table_functions::{external, literal_text};

/// What says where a row is.
const PLACE: [&str; 3] = ["contig", "position", "end_position"];
/// What names of the second table's columns end with.
const SECOND: &str = "_2";
/// The column that says how far the two rows of [`Pairing::Nearest`] are from each other.
const DISTANCE: &str = "distance";

/// Which rows of two tables belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pairing {
    /// Those that share a base.
    Overlaps,
    /// Each row of the first table, and those of the second that are nearest to it.
    Nearest,
}

impl Pairing {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Overlaps => "overlaps",
            Self::Nearest => "nearest",
        }
    }
}

/// A function that gives a table of pairs of rows.
#[derive(Debug)]
pub(crate) struct PairsOf {
    pub(crate) pairing: Pairing,
    pub(crate) tables: Tables,
}

impl TableFunctionImpl for PairsOf {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let names: Option<Vec<&str>> = args.exprs().iter().map(literal_text).collect();
        let Some([first, second]) = names.as_deref() else {
            return plan_err!("{}() takes the names of two tables, each in single quotes", self.pairing.name());
        };
        let (first, second) = (self.table(first)?, self.table(second)?);
        match self.pairing {
            Pairing::Overlaps => overlapping(first, second),
            Pairing::Nearest => Ok(Arc::new(NearestTable::new(first, second))),
        }
    }
}

impl PairsOf {
    fn table(&self, name: &str) -> Result<Arc<dyn TableProvider>> {
        let (name, dataset) = self.tables.find(name).map_err(external)?;
        let schema = dataset.schema();
        for (at, column) in PLACE.iter().enumerate() {
            let fits = |field: &Field| match field.data_type() {
                DataType::Utf8 => at == 0,
                DataType::Dictionary(_, values) => at == 0 && **values == DataType::Utf8,
                DataType::Int32 | DataType::Int64 => at > 0,
                _ => false,
            };
            if !schema.field_with_name(column).is_ok_and(fits) {
                return plan_err!(
                    "{}() is for tables with the columns contig, a text, and position and end_position, whole numbers; {name} \
                     has no such {column}",
                    self.pairing.name()
                );
            }
        }
        provider(&name, dataset)
    }
}

/// The name of a column of the second table.
fn name_in_pair(field: &Field) -> String {
    format!("{}{SECOND}", field.name())
}

/// A join as users write it, of which [`crate::overlap_rule`] makes one of intervals.
fn overlapping(first: Arc<dyn TableProvider>, second: Arc<dyn TableProvider>) -> Result<Arc<dyn TableProvider>> {
    const NAMES: [&str; 2] = ["first", "second"];
    let column = |table: usize, name: &str| Expr::Column(Column::new(Some(NAMES[table]), name));
    let place = |table: usize| PLACE.map(|name| column(table, name));
    let ([contig, start, end], [contig_2, start_2, end_2]) = (place(0), place(1));
    let conditions = vec![contig.eq(contig_2), start.lt(end_2), start_2.lt(end)];
    let of_first: Vec<Expr> = first.schema().fields().iter().map(|field| column(0, field.name())).collect();
    let named = |field: &Arc<Field>| column(1, field.name()).alias(name_in_pair(field));
    let of_second: Vec<Expr> = second.schema().fields().iter().map(named).collect();
    let second = LogicalPlanBuilder::scan(NAMES[1], provider_as_source(second), None)?.build()?;
    let joined = LogicalPlanBuilder::scan(NAMES[0], provider_as_source(first), None)?
        .join_on(second, JoinType::Inner, conditions)?
        .project(of_first.into_iter().chain(of_second))?;
    Ok(Arc::new(ViewTable::new(joined.build()?, None)))
}

/// Each row of one table with the nearest ones of another.
#[derive(Debug)]
struct NearestTable {
    first: Arc<dyn TableProvider>,
    second: Arc<dyn TableProvider>,
    columns: Vec<From>,
    schema: SchemaRef,
}

impl NearestTable {
    fn new(first: Arc<dyn TableProvider>, second: Arc<dyn TableProvider>) -> Self {
        let (of_first, of_second) = (first.schema(), second.schema());
        // Where nothing is near there is no second row.
        let second_field =
            |field: &Arc<Field>| field.as_ref().clone().with_name(name_in_pair(field)).with_nullable(true);
        let mut fields: Vec<Field> = of_first.fields().iter().map(|field| field.as_ref().clone()).collect();
        fields.extend(of_second.fields().iter().map(second_field));
        fields.push(Field::new(DISTANCE, DataType::Int64, true));
        let columns = (0..of_first.fields().len()).map(From::Passing);
        let columns = columns.chain((0..of_second.fields().len()).map(From::Held)).chain([From::Distance]).collect();
        Self { first, second, columns, schema: Arc::new(Schema::new(fields)) }
    }
}

/// The table of a pair of nearest rows that a column is of; `None` for other tables.
pub(crate) fn table_of_pair(table: &Arc<dyn TableProvider>, column: &str) -> Option<Arc<dyn TableProvider>> {
    let nearest = table.downcast_ref::<NearestTable>()?;
    Some(if nearest.first.schema().index_of(column).is_ok() { nearest.first.clone() } else { nearest.second.clone() })
}

/// What is read of a table, ascending: columns that are wanted of it, and its place.
struct Reading(Vec<usize>);

impl Reading {
    fn new(schema: &Schema, wanted: impl Iterator<Item = usize>) -> Result<Self> {
        let place = PLACE.into_iter().map(|name| Ok(schema.index_of(name)?));
        let mut columns = place.chain(wanted.map(Ok)).collect::<Result<Vec<usize>>>()?;
        columns.sort_unstable();
        columns.dedup();
        Ok(Self(columns))
    }

    /// Where a column is among those that are read.
    fn at(&self, column: usize) -> usize {
        self.0.binary_search(&column).unwrap_or_default()
    }

    fn side(&self, schema: &Schema) -> Result<Side> {
        let column = |name: &str| -> Result<Arc<dyn PhysicalExpr>> {
            Ok(Arc::new(InputColumn::new(name, self.at(schema.index_of(name)?))))
        };
        let [contig, start, end] = PLACE;
        // Some tables have dictionaries of names.
        let contig = cast(column(contig)?, &schema.project(&self.0)?, DataType::Utf8)?;
        Ok(Side { keys: vec![contig], low: column(start)?, high: column(end)?, shift: (0, 0) })
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
        let columns: Vec<From> = wanted.iter().map(|at| self.columns[*at]).collect();
        let of_first =
            columns.iter().filter_map(|column| if let From::Passing(at) = column { Some(*at) } else { None });
        let of_second = columns.iter().filter_map(|column| if let From::Held(at) = column { Some(*at) } else { None });
        let first = Reading::new(&self.first.schema(), of_first)?;
        let second = Reading::new(&self.second.schema(), of_second)?;
        let columns = columns.iter().map(|column| match *column {
            From::Passing(at) => From::Passing(first.at(at)),
            From::Held(at) => From::Held(second.at(at)),
            From::Distance => From::Distance,
        });
        let columns = columns.collect();
        let passing = self.first.scan(session, Some(&first.0), &[], None).await?;
        let held = self.second.scan(session, Some(&second.0), &[], None).await?;
        let schema = Arc::new(self.schema.project(wanted)?);
        let (first, second) = (first.side(&self.first.schema())?, second.side(&self.second.schema())?);
        let join = IntervalJoin { held: second, passing: first, condition: None, emit: Emit::Nearest, columns, schema };
        Ok(Arc::new(IntervalJoinExec::new(Arc::new(join), held, passing)))
    }
}

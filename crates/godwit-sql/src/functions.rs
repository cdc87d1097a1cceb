//! SQL functions for genomics, which test regions and FLAG bits and read tags.
//!
//! Before planning, `region(..)` and the FLAG tests are replaced by comparisons of columns. DataFusion then optimizes
//! these, and datasets use their index, as if the user had written comparisons. Functions for tags decode the tags from
//! their BAM encoding.

use std::sync::Arc;

use datafusion::arrow::array::builder::{Float64Builder, Int64Builder, StringBuilder};
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, ScalarValue, exec_err, plan_err};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility, binary_expr, lit,
};
use datafusion::optimizer::analyzer::AnalyzerRule;
use godwit_model::{Region, flags};
use godwit_query::REGION_FUNCTION;

use crate::contig_source::ContigSource;
use crate::filter_function;
use crate::read_filter::filter_condition;
use crate::variant_filter::{has_variant_columns, variant_condition};

/// Functions that test FLAG bits (SAMv1 §1.4), with the tested bits.
const FLAG_TESTS: [(&str, u16); 12] = [
    ("is_paired", flags::PAIRED),
    ("is_proper_pair", flags::PROPER_PAIR),
    ("is_unmapped", flags::UNMAPPED),
    ("is_mate_unmapped", flags::MATE_UNMAPPED),
    ("is_reverse", flags::REVERSE),
    ("is_mate_reverse", flags::MATE_REVERSE),
    ("is_first", flags::FIRST),
    ("is_last", flags::LAST),
    ("is_secondary", flags::SECONDARY),
    ("is_qc_fail", flags::QC_FAIL),
    ("is_duplicate", flags::DUPLICATE),
    ("is_supplementary", flags::SUPPLEMENTARY),
];
/// The column `duplicate` of reads in an unfinished job. Its values are null, because duplicates are not yet
/// determined.
const DUPLICATE_COLUMN: &str = "duplicate";

/// Returns all scalar SQL functions of this module.
pub(crate) fn scalar_functions() -> Vec<ScalarUDF> {
    let rewritten = |name: &'static str, signature| ScalarUDF::from(MacroFunction { name, signature });
    let texts = TypeSignature::OneOf(vec![TypeSignature::Exact(vec![DataType::Utf8]), TypeSignature::Any(2)]);
    let mut functions = vec![
        rewritten(REGION_FUNCTION, Signature::new(texts.clone(), Volatility::Immutable)),
        rewritten(filter_function::FUNCTION_NAME, Signature::new(texts, Volatility::Immutable)),
    ];
    for (name, _) in FLAG_TESTS {
        let signature = TypeSignature::OneOf(vec![TypeSignature::Nullary, TypeSignature::Any(1)]);
        functions.push(rewritten(name, Signature::new(signature, Volatility::Immutable)));
    }
    for kind in [TagKind::Text, TagKind::Integer, TagKind::Float] {
        let signature = Signature::exact(vec![DataType::Binary, DataType::Utf8], Volatility::Immutable);
        functions.push(ScalarUDF::from(TagFunction { kind, signature }));
    }
    functions
}

/// An SQL function that [`MacroExpander`] replaces by comparisons before a plan runs.
#[derive(Debug, PartialEq, Eq, Hash)]
struct MacroFunction {
    name: &'static str,
    signature: Signature,
}

impl ScalarUDFImpl for MacroFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("{}() is a condition on the rows of a table; use it in WHERE", self.name)
    }
}

/// The analyzer rule that replaces [`MacroFunction`] calls by comparisons. It must run before the type coercion of
/// DataFusion.
#[derive(Debug)]
pub(crate) struct MacroExpander;

impl AnalyzerRule for MacroExpander {
    fn name(&self) -> &str {
        "godwit_functions"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(expand_plan).map(|rewritten| rewritten.data)
    }
}

/// Replaces the calls in the expressions of one node of a plan.
fn expand_plan(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let is_call = |expr: &Expr| matches!(expr, Expr::ScalarFunction(of) if of.func.inner().is::<MacroFunction>());
    rewrite_expressions(plan, is_call, expand_call)
}

/// Rewrites the expressions of one node of a plan from the inside out, if one of them satisfies `is_candidate`. Output
/// columns keep their names. `rewrite` also gets the node, and the columns that its expressions may name.
pub(crate) fn rewrite_expressions(
    plan: LogicalPlan,
    is_candidate: impl Fn(&Expr) -> bool,
    rewrite: impl Fn(Expr, &LogicalPlan, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let mut has_candidate = false;
    plan.apply_expressions(|expr| {
        has_candidate |= expr.exists(|expr| Ok(is_candidate(expr)))?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    if !has_candidate {
        return Ok(Transformed::no(plan));
    }
    let (schema, names, before) = (input_schema(&plan)?, NamePreserver::new(&plan), plan.clone());
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let rewritten = expr.transform_up(|expr| rewrite(expr, &before, &schema))?;
        Ok(rewritten.update_data(|expr| name.restore(expr)))
    })
}

/// Returns the columns that the expressions of a node of a plan may name.
pub(crate) fn input_schema(plan: &LogicalPlan) -> Result<DFSchema> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())
        }
        plan => Ok(merge_schema(&plan.inputs())),
    }
}

fn expand_call(expr: Expr, plan: &LogicalPlan, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = &expr else { return Ok(Transformed::no(expr)) };
    if func.name() == REGION_FUNCTION {
        return region_condition(args, plan, schema).map(Transformed::yes);
    }
    if func.name() == filter_function::FUNCTION_NAME {
        return expand_filter(args, plan, schema).map(Transformed::yes);
    }
    match FLAG_TESTS.iter().find(|(name, _)| *name == func.name()) {
        Some((name, mask)) => flag_condition(name, *mask, args, schema).map(Transformed::yes),
        None => Ok(Transformed::no(expr)),
    }
}

/// Returns the condition that replaces `region('chr20:1-100')`. If several tables have positions, the first argument
/// selects the table: `region(x.contig, 'chr20:1-100')`.
fn region_condition(arguments: &[Expr], plan: &LogicalPlan, schema: &DFSchema) -> Result<Expr> {
    let (table, text) = match arguments {
        [Expr::Literal(text, _)] => (None, text),
        [Expr::Column(column), Expr::Literal(text, _)] => (column.relation.clone(), text),
        _ => return plan_err!("region() takes a region in single quotes, such as 'chr20:1-100'"),
    };
    let text = text.try_as_str().flatten().unwrap_or_default();
    let column = |name: &str| match &table {
        Some(table) => Ok(Column::new(Some(table.clone()), name)),
        None => unique_column(name, REGION_FUNCTION, schema),
    };
    let contig = column("contig")?;
    let contigs = ContigSource::from_plan(plan, &contig);
    let region = Region::parse(text, |name| contigs.has_contig(name));
    let region = region.map_err(|error| DataFusionError::Plan(contigs.region_error_message(&error)))?;
    if region.is_unplaced() {
        return Ok(Expr::Column(contig).is_null());
    }
    let column = |name: &str| column(name).map(Expr::Column);
    let before_end = column("position")?.lt(lit(region.end as i32));
    let overlapping = Expr::Column(contig).eq(lit(region.contig)).and(before_end);
    if region.start == 0 {
        // A VCF record before the first base (telomere) has the position -1.
        return Ok(overlapping);
    }
    // An interval without bases ends where it begins.
    let start = lit(region.start as i32);
    let after_start = column("end_position")?.gt(start.clone()).or(column("position")?.gt_eq(start));
    Ok(overlapping.and(after_start))
}

/// Returns the condition that replaces `filter('mapq > 30')` or `filter('QUAL > 30')`. If a statement has several
/// tables, the first argument selects the table, as for `region`.
fn expand_filter(arguments: &[Expr], plan: &LogicalPlan, schema: &DFSchema) -> Result<Expr> {
    let function = filter_function::FUNCTION_NAME;
    let (table, text) = match arguments {
        [Expr::Literal(text, _)] => (None, text.try_as_str().flatten()),
        [Expr::Column(column), Expr::Literal(text, _)] => (column.relation.clone(), text.try_as_str().flatten()),
        _ => (None, None),
    };
    let Some(text) = text else {
        return plan_err!(
            "{function}() takes a filter expression of samtools or bcftools in single quotes, such as 'mapq > 30'"
        );
    };
    let find_column = |name: &str| match &table {
        Some(table) => {
            let column = Column::new(Some(table.clone()), name);
            Ok(schema.has_column(&column).then_some(column))
        }
        None if schema.qualified_fields_with_unqualified_name(name).is_empty() => Ok(None),
        None => unique_column(name, function, schema).map(Some),
    };
    let find_dataset = || ContigSource::from_plan(plan, &find_column("contig").ok()??).single_dataset();
    let fields = schema.iter().filter(|(relation, _)| table.is_none() || *relation == table.as_ref());
    if !has_variant_columns(fields.map(|(_, field)| field.name().as_str())) {
        return filter_condition(text, find_column, find_dataset);
    }
    let find_typed_column = |name: &str| {
        let Some(column) = find_column(name)? else { return Ok(None) };
        let data_type = schema.qualified_field_from_column(&column)?.1.data_type().clone();
        Ok(Some((column, data_type)))
    };
    let find_sample_count = |name: &str| ContigSource::from_plan(plan, &find_column(name).ok()??).sample_count();
    variant_condition(text, &find_typed_column, &find_sample_count)
}

/// Returns the column with this name. Fails if no table or more than one table has such a column.
fn unique_column(name: &str, function: &str, schema: &DFSchema) -> Result<Column> {
    match schema.qualified_fields_with_unqualified_name(name)[..] {
        [(table, field)] => Ok(Column::new(table.cloned(), field.name())),
        [] => plan_err!("{function}() is for tables with positions on a genome; this table has no column {name}"),
        _ => {
            plan_err!(
                "{function}() is ambiguous between several tables; name the table of the column, as in \
                 {function}(x.{name}, ..)"
            )
        }
    }
}

fn flag_condition(function: &str, mask: u16, arguments: &[Expr], schema: &DFSchema) -> Result<Expr> {
    let column = match arguments {
        [] => Expr::Column(unique_column("flags", function, schema)?),
        [column] => column.clone(),
        _ => return plan_err!("{function}() takes the column flags"),
    };
    if mask == flags::DUPLICATE
        && let Expr::Column(flags) = &column
        && schema.has_column(&Column::new(flags.relation.clone(), DUPLICATE_COLUMN))
    {
        return Ok(Expr::Column(Column::new(flags.relation.clone(), DUPLICATE_COLUMN)));
    }
    let masked = binary_expr(column, datafusion::logical_expr::Operator::BitwiseAnd, lit(i64::from(mask)));
    Ok(masked.not_eq(lit(0i64)))
}

/// The data type that a tag function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum TagKind {
    Text,
    Integer,
    Float,
}

/// An SQL function such as `tag_text(other_tags, 'BX')`, which returns the value of a tag that has no column of its
/// own; null if the tag is absent.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TagFunction {
    kind: TagKind,
    signature: Signature,
}

impl ScalarUDFImpl for TagFunction {
    fn name(&self) -> &str {
        match self.kind {
            TagKind::Text => "tag_text",
            TagKind::Integer => "tag_integer",
            TagKind::Float => "tag_float",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(match self.kind {
            TagKind::Text => DataType::Utf8,
            TagKind::Integer => DataType::Int64,
            TagKind::Float => DataType::Float64,
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [tags, ColumnarValue::Scalar(ScalarValue::Utf8(Some(name)))] = &arguments.args[..] else {
            return exec_err!("{}() takes the column other_tags and the two letters of a tag", self.name());
        };
        let Ok(name) = <[u8; 2]>::try_from(name.as_bytes()) else {
            return exec_err!("{name:?} is not a tag: a tag has two characters");
        };
        let tags = tags.to_array(arguments.number_rows)?;
        let tags = tags.as_binary::<i32>();
        let found = (0..tags.len()).map(|row| {
            let packed = if tags.is_null(row) { &[][..] } else { tags.value(row) };
            godwit_model::iter_packed_tags(packed).find(|tag| tag.name == name)
        });
        let array: ArrayRef = match self.kind {
            TagKind::Text => {
                let mut values = StringBuilder::new();
                found.for_each(|tag| values.append_option(tag.and_then(|tag| tag.text())));
                Arc::new(values.finish())
            }
            TagKind::Integer => {
                let mut values = Int64Builder::new();
                found.for_each(|tag| values.append_option(tag.and_then(|tag| tag.integer())));
                Arc::new(values.finish())
            }
            TagKind::Float => {
                let mut values = Float64Builder::new();
                found.for_each(|tag| values.append_option(tag.and_then(|tag| tag.float())));
                Arc::new(values.finish())
            }
        };
        Ok(ColumnarValue::Array(array))
    }
}

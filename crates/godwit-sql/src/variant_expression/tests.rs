//! Expressions that are parsed, and those that are rejected.

use super::*;
use std::sync::Arc;

use datafusion::arrow::datatypes::Field as ColumnField;

fn column_type(name: &str) -> Option<DataType> {
    let list = |of: DataType| DataType::List(Arc::new(ColumnField::new("item", of, true)));
    Some(match name {
        "contig" | "reference" => DataType::Utf8,
        "alternates" | "filters" | "identifiers" | "format_GT" => list(DataType::Utf8),
        "position" | "info_DP" => DataType::Int32,
        "quality" => DataType::Float32,
        "info_AC" | "format_GQ" => list(DataType::Int32),
        "format_DP" => list(DataType::Int32),
        "format_AD" => list(list(DataType::Int32)),
        "format_FT" => list(DataType::Utf8),
        _ => return None,
    })
}

fn parse(text: &str) -> Result<VariantExpression, String> {
    VariantExpression::parse(text, &|name| Ok(column_type(name)), &|| Some(3))
}

#[test]
fn expressions_need_the_columns_of_their_fields() {
    let needed = |text: &str| -> Vec<String> {
        let expression = parse(text).unwrap_or_else(|problem| panic!("{text}: {problem}"));
        expression.columns().iter().map(|column| column.name.clone()).collect()
    };
    assert_eq!(needed("QUAL>30 && INFO/DP>10 && GT=\"het\""), ["quality", "info_DP", "format_GT"]);
    assert_eq!(needed("FILTER=\"PASS\" || ID!=\".\""), ["filters", "identifiers"]);
    assert_eq!(needed("TYPE~\"snp\" & REF=\"A\""), ["reference", "alternates"]);
    assert_eq!(needed("AD[:1]/sum(FMT/AD[0:*]) > 0.5"), ["format_AD"]);
    assert_eq!(needed("N_PASS(GQ<20)==1 && binom(AD) > 1e-5"), ["format_GQ", "format_AD", "format_GT"]);
    assert_eq!(needed("2 > 1"), [""; 0]);
}

#[test]
fn invalid_expressions_are_rejected() {
    let many = "1+".repeat(10_000) + "1";
    for text in [
        "",
        "QUAL >",
        "(QUAL > 1",
        "QUAL > 1)",
        "QUAL 1",
        "!(QUAL > 1)",
        "none > 1",
        "DP > 1",
        "INFO/GQ > 1",
        "\"open",
        "REF + 1 > 2",
        "REF > \"A\"",
        "REF = 1",
        "REF ~ QUAL",
        "REF ~ \"[\"",
        "REF ~ \"\\\\(a\\\\)\\\\1\"",
        "GT = REF",
        "GT + 1 > 1",
        "FILTER > 1",
        "FILTER = \"q10;.\"",
        "TYPE = \"other_type\"",
        "ID = @names.txt",
        "perl.f(QUAL) > 1",
        "FMT/AD[0] > 1",
        "AD[0:x] > 1",
        "AD[0:5-2] > 1",
        "AD[0:99999999999] > 1",
        "N_PASS(QUAL > 1) > 1",
        "phred(QUAL) > 1",
        "binom(AD, QUAL, QUAL) > 1",
        "binom(AD[:0], QUAL) > 1",
        "COUNT(FT) > 1",
        "FT = FT",
        "MAX(REF) > 1",
        &many,
    ] {
        assert!(parse(text).is_err(), "{}", text.get(..40).unwrap_or(text));
    }
}

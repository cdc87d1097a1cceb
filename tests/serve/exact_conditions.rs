//! Conditions on values that are easily compared wrongly: NaN, decimal numbers, nulls, and rows without a base.

use std::fs;
use std::path::Path;

use godwit_tests::binary::run_query;
use godwit_tests::scratch;

/// Returns the rows of a statement as CSV, without the names of the columns.
fn rows(data: &Path, sql: &str) -> Vec<String> {
    let output = run_query(data, sql, &["--format", "csv"]);
    assert!(output.status.success(), "{sql}: {}", output.describe());
    output.stdout.lines().skip(1).map(str::to_owned).collect()
}

fn write_table(data: &Path, select: &str, format: &str, name: &str) {
    let path = data.join(name);
    let words = ["--format", format, "--out", path.to_str().expect("scratch paths are text")];
    let output = run_query(data, select, &words);
    assert!(output.status.success(), "{}", output.describe());
}

/// Compares Parquet, whose bounds of columns ignore NaN, with Arrow, which has no bounds.
#[test]
fn nan_in_parquet_is_a_value_like_others() {
    let data = scratch::directory("exact-nan");
    let nan = "CAST('NaN' AS DOUBLE)";
    let values = format!(
        "SELECT * FROM (VALUES (0, 1.0::DOUBLE, 0.5::DOUBLE), (1, {nan}, {nan}), (2, 1.0::DOUBLE, 0.9::DOUBLE)) AS t(id, same, other)"
    );
    for format in ["parquet", "arrow"] {
        write_table(&data, &values, format, &format!("nan.{format}"));
    }
    for (asked, expected) in [
        ("SELECT same FROM TABLE ORDER BY id", "1.0 NaN 1.0"),
        ("SELECT id FROM TABLE WHERE same = 1 ORDER BY id", "0 2"),
        ("SELECT id FROM TABLE WHERE same <> 1", "1"),
        ("SELECT id FROM TABLE WHERE same < 2 ORDER BY id", "0 2"),
        ("SELECT id FROM TABLE WHERE other > 0.95", "1"),
        ("SELECT max(other) AS top FROM TABLE", "NaN"),
        ("SELECT count(*) AS n FROM TABLE WHERE isnan(same)", "1"),
        ("SELECT sum(same) AS n FROM TABLE", "NaN"),
        ("SELECT same FROM TABLE GROUP BY same ORDER BY same", "1.0 NaN"),
    ] {
        for format in ["parquet", "arrow"] {
            let sql = asked.replace("TABLE", &format!("\"nan.{format}\""));
            assert_eq!(rows(&data, &sql).join(" "), expected, "{sql}");
        }
    }
}

#[test]
fn decimal_columns_equal_the_literals_that_are_written() {
    let data = scratch::directory("exact-decimals");
    let values = "SELECT CAST(price AS DECIMAL(10,2)) AS price FROM \
                  (VALUES ('19.99'), ('0.10'), ('64.10'), ('-64.10'), ('99999.99'), ('3')) AS t(price)";
    write_table(&data, values, "parquet", "prices.parquet");
    for (condition, expected) in [
        ("price = 64.10", "64.10"),
        ("price = -64.1", "-64.10"),
        ("price = 99999.99", "99999.99"),
        ("price > 64.10", "99999.99"),
        ("price >= 64.10 AND price < 99999.99", "64.10"),
        ("price IN (19.99, 64.10)", "19.99 64.10"),
        ("price BETWEEN 64.1 AND 64.2", "64.10"),
        ("price = 64.105", ""),
        ("price < 0.1e0 AND price > -1e300", "-64.10"),
        ("price = 3", "3.00"),
    ] {
        let sql = format!("SELECT price FROM prices WHERE {condition} ORDER BY price");
        assert_eq!(rows(&data, &sql).join(" "), expected, "{condition}");
    }
    // Arithmetic with literals stays that of floating-point numbers.
    assert_eq!(rows(&data, "SELECT 1.0 / 3 AS third"), ["0.3333333333333333"]);
}

#[test]
fn conditions_behind_a_comparison_of_nulls_count() {
    let data = scratch::directory("exact-nulls");
    let table = "(VALUES (1, true), (2, false), (3, NULL)) AS t(id, b)";
    let asked =
        |condition: &str| rows(&data, &format!("SELECT id FROM {table} WHERE {condition} ORDER BY id")).join(" ");
    assert_eq!(asked("b IS DISTINCT FROM true AND id < 3"), "2");
    assert_eq!(asked("b IS NOT DISTINCT FROM true OR id = 3"), "1 3");
}

#[test]
fn rows_without_a_base_are_found_by_positions_and_regions() {
    let data = scratch::directory("exact-positions");
    fs::write(data.join("z.bed"), "chr1\t0\t5\ta1\nchr1\t5\t5\tz5\nchr1\t5\t10\tb\nX\t0\t5\tx\n1\t0\t5\tn\n").unwrap();
    let vcf = "##fileformat=VCFv4.2\n##contig=<ID=chr1,length=100>\n##contig=<ID=chr2,length=100>\n\
               #CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n\
               chr1\t0\ttelomere\tN\t<DEL>\t.\t.\t.\nchr1\t7\tseven\tA\tC\t.\t.\t.\n";
    fs::write(data.join("t.vcf"), vcf).unwrap();
    for (table, condition, expected) in [
        ("z", "contig = 'chr1' AND end_position = 5", "a1 z5"),
        ("z", "contig = 'chr1' AND end_position <= 5", "a1 z5"),
        ("z", "contig = 'chr1' AND end_position BETWEEN 3 AND 5", "a1 z5"),
        ("z", "TRY_CAST(contig AS INT) IS NULL AND end_position > 5", "b"),
        ("z", "TRY_CAST(contig AS INT) IS NULL AND contig <> 'chr1'", "x"),
        // The base behind the interval without a base finds it.
        ("z", "region('chr1:6-6')", "b z5"),
        ("z", "region('chr1:5-5')", "a1"),
        ("z", "region('chr1')", "a1 b z5"),
        ("t", "region('chr1')", "seven telomere"),
        ("t", "region('chr1:1-3')", "telomere"),
        ("t", "region('chr1:2-10')", "seven"),
    ] {
        let name = if table == "z" { "name" } else { "array_to_string(identifiers, ',')" };
        let sql = format!("SELECT {name} AS name FROM {table} WHERE {condition} ORDER BY name");
        assert_eq!(rows(&data, &sql).join(" "), expected, "{sql}");
        // A count is a direct scan, without the engine.
        let sql = format!("SELECT count(*) AS n FROM {table} WHERE {condition}");
        assert_eq!(rows(&data, &sql), [expected.split_whitespace().count().to_string()], "{sql}");
    }
}

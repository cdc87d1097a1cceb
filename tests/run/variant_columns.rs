//! VCF as columns, read by other programs, against `bcftools query`.

use std::path::{Path, PathBuf};

use godwit_tests::binary::godwit;
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{needs, scratch, skip};

use super::formats::{aligned_sample, assert_same_lines, run_python, to_lines};
use super::picard::shared_data_directory;

/// Returns what `tests/tools/columns/variants.py` prints of a file, with values from bcftools.
fn bcftools_columns(vcf: &Path, columns: &[&str]) -> String {
    let field = |prefix: &'static str| columns.iter().filter_map(move |column| column.strip_prefix(prefix));
    let info: String = field("info_").map(|name| format!("\\t%INFO/{name}")).collect();
    let formats: String = field("format_").map(|name| format!("\\t%{name}")).collect();
    let format = format!("%CHROM\\t%POS0\\t%END\\t%ID\\t%REF\\t%ALT\\t%QUAL\\t%FILTER{info}[{formats}]\\n");
    let output = run_checked(Tool::require("bcftools").command().args(["query", "-f", &format]).arg(vcf));
    String::from_utf8(output.stdout).expect("bcftools prints text")
}

/// Checks both formats of a file, read by pyarrow, polars and DuckDB.
fn assert_columns_are(vcf: &Path, columns: &[&str]) {
    let expected = bcftools_columns(vcf, columns);
    assert!(!expected.is_empty());
    let directory = scratch::directory("variants");
    for ending in ["parquet", "arrow"] {
        let out = directory.join(format!("calls.{ending}"));
        let told = godwit().arg("variants").arg(vcf).arg("--out").arg(&out).run_ok().stdout;
        assert!(told.starts_with(&format!("wrote {} variants to ", expected.lines().count())), "{told}");
        let found = run_python("variants.py", &out, columns);
        assert_same_lines(&to_lines(&found), &to_lines(&expected), ending);
    }
    assert_eq!(scratch::entry_names(&directory), ["calls.arrow", "calls.parquet"]);
}

fn write_vcf(text: &str) -> PathBuf {
    let path = scratch::directory("variants-in").join("in.vcf");
    std::fs::write(&path, text).expect("it can be written");
    path
}

const VCF_HEADER: &str = "##fileformat=VCFv4.2
##FILTER=<ID=q10,Description=\"x\">
##FILTER=<ID=s50,Description=\"x\">
##contig=<ID=chr2,length=100000>
##contig=<ID=chr1,length=100000>
##INFO=<ID=DP,Number=1,Type=Integer,Description=\"x\">
##INFO=<ID=AF,Number=A,Type=Float,Description=\"x\">
##INFO=<ID=DB,Number=0,Type=Flag,Description=\"x\">
##INFO=<ID=END,Number=1,Type=Integer,Description=\"x\">
##INFO=<ID=ANN,Number=.,Type=String,Description=\"x\">
##FORMAT=<ID=GT,Number=1,Type=String,Description=\"x\">
##FORMAT=<ID=DP,Number=1,Type=Integer,Description=\"x\">
##FORMAT=<ID=AD,Number=R,Type=Integer,Description=\"x\">
##FORMAT=<ID=GL,Number=G,Type=Float,Description=\"x\">
##FORMAT=<ID=FT,Number=1,Type=String,Description=\"x\">
#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\tone\ttwo\tthree
";

const VARIANT_COLUMNS: [&str; 10] = [
    "info_DP",
    "info_AF",
    "info_DB",
    "info_END",
    "info_ANN",
    "format_GT",
    "format_DP",
    "format_AD",
    "format_GL",
    "format_FT",
];

#[test]
fn every_kind_of_field_is_what_bcftools_prints() {
    needs!("bcftools", "python3");
    let records = "chr2\t10\trs1;rs2\tA\tC,AT\t50.5\tPASS\tDP=7;AF=0.25,1e-05;DB;ANN=a|b,c\tGT:DP:AD:GL:FT\t0/1:5:3,2,0:-1.5,0,-3,.,-2,-9:PASS\t1|2:7\t./.
chr1\t1\t.\tACGT\t.\t.\t.\t.\tGT\t0\t1\t.
chr1\t20\t.\tN\t<DEL>\t0\tq10;s50\tEND=2000;DP=-3\tDP:AD\t1:2,3\t.\t4:.,5
chr1\t30\tx\tG\tT,*\t12345.7\ts50\tAF=.,0.5\tGT:FT\t1|0|2:q10\t.|1:.\t2/2:s50
";
    assert_columns_are(&write_vcf(&format!("{VCF_HEADER}{records}")), &VARIANT_COLUMNS);
}

#[test]
fn many_records_of_a_cohort_are_read_in_their_order() {
    needs!("bcftools", "python3", "bgzip");
    let mut text = VCF_HEADER.to_owned();
    for at in 1..=20_000 {
        let genotype = ["0/0", "0/1", "1|1", "./."][at % 4];
        text += &format!("chr1\t{at}\t.\tA\tC\t{}\tPASS\tDP={at}\tGT:AD\t{genotype}:{at},1\t0/1:2,{at}\t.\n", at % 97);
    }
    let plain = write_vcf(&text);
    run_checked(Tool::require("bgzip").command().arg(&plain));
    assert_columns_are(&plain.with_extension("vcf.gz"), &VARIANT_COLUMNS);
}

#[test]
fn calls_of_bcftools_come_out_as_it_prints_them() {
    needs!("bwa", "samtools", "bcftools", "python3");
    let (sample, out) = aligned_sample();
    let directory = scratch::directory("variants-called");
    let (piled, calls) = (directory.join("piled.bcf"), directory.join("calls.vcf.gz"));
    let bcftools = Tool::require("bcftools");
    let reference = sample.godwit_indexed_reference();
    let pile = bcftools
        .command()
        .args(["mpileup", "-a", "AD,DP,SP", "-Ob", "-o"])
        .arg(&piled)
        .arg("-f")
        .arg(reference)
        .arg(out.join("sample.bam"))
        .output();
    assert!(pile.is_ok_and(|output| output.status.success()));
    run_checked(bcftools.command().args(["call", "-m", "-Oz", "-o"]).arg(&calls).arg(&piled));
    let columns = [
        "info_DP",
        "info_DP4",
        "info_MQ",
        "info_AC",
        "info_INDEL",
        "info_SGB",
        "format_GT",
        "format_PL",
        "format_AD",
        "format_SP",
    ];
    assert_columns_are(&calls, &columns);
}

#[test]
fn a_truth_set_of_giab_comes_out_as_bcftools_prints_it() {
    needs!("bcftools", "python3");
    let Some(data) = shared_data_directory() else { skip!("shared-data", "no shared/data beside the repository") };
    let truth = data.join("human/test_nist.b37_chr20_100kbp_at_10mb.vcf.gz");
    assert_columns_are(&truth, &["info_platforms", "info_callsetnames", "format_GT"]);
}

#[test]
fn files_that_are_broken_leave_nothing() {
    let directory = scratch::directory("variants-broken");
    let out = directory.join("out.parquet");
    let convert = |text: &str| {
        let input = write_vcf(text);
        godwit().arg("variants").arg(&input).arg("--out").arg(&out).run()
    };
    convert(&format!("{VCF_HEADER}chr1\t1\t.\tA\tC\t.\t.\t.\tGT\t0/1\n"))
        .assert_rejected(&[3], &["in.vcf", "line 17", "samples"]);
    convert(&format!("{VCF_HEADER}chr1\tx\t.\tA\tC\t.\t.\t.\tGT\t0/1\t.\t.\n"))
        .assert_rejected(&[3], &["line 17", "POS"]);
    convert("@HD\tVN:1.6\n").assert_rejected(&[3], &["in.vcf", "not VCF"]);
    convert(VCF_HEADER.trim_end().rsplit_once('\n').expect("lines").0).assert_rejected(&[3], &["#CHROM"]);
    godwit()
        .arg("variants")
        .arg(write_vcf(VCF_HEADER))
        .arg("--out")
        .arg(directory.join("out.txt"))
        .run()
        .assert_rejected(&[2], &[".parquet"]);
    let nowhere = directory.join("none/out.parquet");
    godwit()
        .arg("variants")
        .arg(write_vcf(VCF_HEADER))
        .arg("--out")
        .arg(nowhere)
        .run()
        .assert_rejected(&[4], &["out.parquet"]);
    assert!(scratch::entry_names(&directory).is_empty());
    godwit().arg("variants").arg(write_vcf(VCF_HEADER)).arg("--out").arg(&out).run_ok();
    assert_eq!(scratch::entry_names(&directory), ["out.parquet"]);
}

#[test]
fn a_truncated_file_is_refused() {
    needs!("bgzip");
    let mut text = VCF_HEADER.to_owned();
    (1..=5000).for_each(|at| text += &format!("chr1\t{at}\t.\tA\tC\t.\t.\tDP={at}\tGT\t0/1\t.\t.\n"));
    let plain = write_vcf(&text);
    run_checked(Tool::require("bgzip").command().arg(&plain));
    let packed = plain.with_extension("vcf.gz");
    let bytes = std::fs::read(&packed).expect("it can be read");
    let out = packed.with_file_name("out.arrow");
    for cut in [28, 29, bytes.len() / 2] {
        std::fs::write(&packed, &bytes[..bytes.len() - cut]).expect("it can be written");
        godwit()
            .arg("variants")
            .arg(&packed)
            .arg("--out")
            .arg(&out)
            .run()
            .assert_rejected(&[3], &["truncated", "in.vcf.gz"]);
        assert!(!out.exists());
    }
}

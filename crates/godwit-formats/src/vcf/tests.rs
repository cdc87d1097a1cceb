use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int32Type};
use arrow_array::{Array, RecordBatch};
use godwit_io::bgzf;

use super::*;

const COLUMN_NAMES: &str = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO";
const META_LINES: &str = "##fileformat=VCFv4.2
##contig=<ID=chr2,length=200>
##contig=<ID=chr1,length=100,assembly=\"a, b\">
##contig=<ID=chr1,length=7>
##INFO=<ID=DP,Number=1,Type=Integer,Description=\"Depth, of \\\"all\\\" reads > 0\">
##INFO=<ID=AF,Number=A,Type=Float,Description=\"Frequency\">
##INFO=<ID=DB,Number=0,Type=Flag,Description=\"In dbSNP\">
##INFO=<Description=\"ID comes last, ID=wrong\",Number=.,Type=String,ID=ANN>
##FORMAT=<ID=GT,Number=1,Type=String,Description=\"Genotype\">
##FORMAT=<ID=DP,Number=1,Type=Integer,Description=\"Depth\">
##FORMAT=<ID=AD,Number=R,Type=Integer,Description=\"Depths\">
##something that is no structure
";

fn open(text: &str) -> Result<Reader, VcfError> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    Reader::new(bgzf::Reader::from_file(Path::new("a.vcf"), file, 1).unwrap())
}

/// Returns the text of a VCF file with these records of two samples.
fn with_samples(records: &[&str]) -> String {
    format!("{META_LINES}{COLUMN_NAMES}\tFORMAT\tone\ttwo\n{}\n", records.join("\n"))
}

fn batch(text: &str) -> RecordBatch {
    let layout = VariantLayout::new(open(text).unwrap().header()).unwrap();
    batch_with(text, VariantBatchBuilder::new(&layout))
}

fn batch_with(text: &str, mut columns: VariantBatchBuilder) -> RecordBatch {
    let mut reader = open(text).unwrap();
    while let Some(record) = reader.next_record().unwrap() {
        columns.push(&record).unwrap();
    }
    columns.take_batch().unwrap()
}

fn texts(array: &dyn Array) -> Vec<Option<String>> {
    array.as_string::<i32>().iter().map(|value| value.map(str::to_owned)).collect()
}

/// Returns the message of the error in reading this VCF text.
fn read_error_text(text: &str) -> String {
    let read = || {
        let mut reader = open(text)?;
        let layout = VariantLayout::new(reader.header())?;
        let mut columns = VariantBatchBuilder::new(&layout);
        while let Some(record) = reader.next_record()? {
            if let Err(problem) = columns.push(&record) {
                return Err(reader.record_error(problem));
            }
        }
        Ok(())
    };
    read().unwrap_err().to_string()
}

#[test]
fn the_header_is_read_whatever_stands_in_quotes_or_twice() {
    let reader = open(&with_samples(&[])).unwrap();
    let header = reader.header();
    let contigs: Vec<_> = header.contigs().iter().map(|contig| (contig.name.as_str(), contig.length)).collect();
    assert_eq!(contigs, [("chr2", Some(200)), ("chr1", Some(100))]);
    assert_eq!(header.info().iter().map(|field| field.id.as_str()).collect::<Vec<_>>(), ["DP", "AF", "DB", "ANN"]);
    assert_eq!(header.samples(), ["one", "two"]);
    assert!(header.text().starts_with(META_LINES) && header.text().ends_with("\ttwo\n"));
}

#[test]
fn columns_have_the_types_of_the_header() {
    let batch = batch(&with_samples(&[
        "chr1\t10\trs1;rs2\tA\tC,AT\t50.5\tPASS\tDP=7;AF=0.25,.;DB\tGT:DP:AD\t0/1:5:3,2,0\t1|2",
        "chrX\t1\t.\tAC\t.\t.\t.\t.\tGT\t.\t./.",
        "chr2\t5\t.\tN\t<DEL>\t0\tq10;s50\tEND=9;ANN=x%2Cy,z\tDP\t1\t2",
    ]));
    let column = |name: &str| batch.column_by_name(name).unwrap_or_else(|| panic!("{name}")).clone();
    let ints = |name: &str| column(name).as_primitive::<Int32Type>().iter().collect::<Vec<_>>();
    assert_eq!(ints("contig_id"), [Some(1), None, Some(0)]);
    assert_eq!(ints("position"), [Some(9), Some(0), Some(4)]);
    assert_eq!(ints("end_position"), [Some(10), Some(2), Some(9)]);
    assert_eq!(ints("info_DP"), [Some(7), None, None]);
    assert_eq!(
        column("quality").as_primitive::<Float32Type>().iter().collect::<Vec<_>>(),
        [Some(50.5), None, Some(0.0)]
    );
    let alternates = column("alternates");
    assert_eq!(texts(&alternates.as_list::<i32>().value(0)), [Some("C".into()), Some("AT".into())]);
    assert_eq!(alternates.as_list::<i32>().value(1).len(), 0);
    let filters = column("filters");
    assert_eq!(texts(&filters.as_list::<i32>().value(2)), [Some("q10".into()), Some("s50".into())]);
    assert!(filters.is_null(1) && column("identifiers").is_null(2));
    let frequencies = column("info_AF").as_list::<i32>().value(0);
    assert_eq!(frequencies.as_primitive::<Float32Type>().iter().collect::<Vec<_>>(), [Some(0.25), None]);
    assert_eq!(column("info_DB").as_boolean().iter().collect::<Vec<_>>(), [Some(true), Some(false), Some(false)]);
    assert_eq!(texts(&column("info_ANN").as_list::<i32>().value(2)), [Some("x%2Cy".into()), Some("z".into())]);
    assert_eq!(texts(&column("other_info")), [None, None, Some("END=9".into())]);
}

#[test]
fn samples_are_lists_in_the_order_of_the_header() {
    let batch = batch(&with_samples(&[
        "chr1\t10\t.\tA\tC,AT\t.\t.\t.\tGT:DP:AD\t0/1:5:3,2,0\t1|.",
        "chr1\t11\t.\tA\tC\t.\t.\t.\tDP\t1\t.",
        "chr1\t12\t.\tA\tC\t.\t.\t.\tGT\t1\tx",
    ]));
    let row = |name: &str, row: usize| batch.column_by_name(name).unwrap().as_list::<i32>().value(row);
    let alleles = row("genotype_alleles", 0);
    let of = |sample: usize| {
        let alleles = alleles.as_list::<i32>().value(sample);
        alleles.as_primitive::<Int32Type>().iter().collect::<Vec<_>>()
    };
    assert_eq!((of(0), of(1)), (vec![Some(0), Some(1)], vec![Some(1), None]));
    assert_eq!(row("genotype_phased", 0).as_boolean().iter().collect::<Vec<_>>(), [Some(false), Some(true)]);
    assert!(batch.column_by_name("genotype_alleles").unwrap().is_null(1));
    assert!(row("genotype_alleles", 2).is_null(1), "x is no genotype");
    assert_eq!(texts(&row("format_GT", 2)), [Some("1".into()), Some("x".into())]);
    assert_eq!(row("format_DP", 0).as_primitive::<Int32Type>().iter().collect::<Vec<_>>(), [Some(5), None]);
    let depths = row("format_AD", 0);
    assert_eq!(depths.as_list::<i32>().value(0).as_primitive::<Int32Type>().values(), &[3, 2, 0]);
    assert!(depths.is_null(1) && batch.column_by_name("format_AD").unwrap().is_null(1));
}

#[test]
fn what_does_not_fit_its_column_is_kept_as_text() {
    let batch = batch(&with_samples(&[
        "chr1\t10\t.\tA\tC\t.\t.\tDP=99999999999;DP=4;AF=a,1;DB=1;XX=1;YY\tGT:DP:ZZ:DP\t0/1:1.5:q:8\t0/1:3:.:.",
        "chr1\t10\t.\tA\tC\t.\t.\tDP=5;DP=6\tGT\t0/1\t0/1:7",
    ]));
    let column = |name: &str| batch.column_by_name(name).unwrap().clone();
    // The second `DP` of the record sets the value, because the first has none.
    assert_eq!(column("info_DP").as_primitive::<Int32Type>().values(), &[4, 5]);
    assert!(column("info_AF").is_null(0));
    let others = texts(&column("other_info"));
    assert_eq!(others, [Some("DP=99999999999;AF=a,1;XX=1;YY".into()), Some("DP=6".into())]);
    let others = column("other_formats");
    assert_eq!(texts(&others.as_list::<i32>().value(0)), [Some("DP=1.5:ZZ=q:DP=8".into()), None]);
    assert_eq!(texts(&others.as_list::<i32>().value(1)), [None, Some("=7".into())]);
}

#[test]
fn files_that_are_no_vcf_are_named() {
    assert!(read_error_text("BCF\x02\x02").contains("ends within its header"));
    assert!(read_error_text("").contains("is empty"));
    for text in ["chr1\t1\t2\n", "##FORMAT=<ID=GT>\n"] {
        assert!(read_error_text(text).contains("is not VCF"), "{text:?}");
    }
    assert!(read_error_text(META_LINES).contains("#CHROM"));
    assert!(read_error_text(&format!("{META_LINES}chr1\t1\t.\tA\tC\t.\t.\t.\n")).contains("line 13"));
    assert!(read_error_text(&format!("{META_LINES}{}\n", COLUMN_NAMES.replace('\t', " "))).contains("tabs"));
    assert!(
        read_error_text(&format!("{META_LINES}{COLUMN_NAMES}\tFORMAT\ta\ta\n"))
            .contains("two samples have the name \"a\"")
    );
}

#[test]
fn broken_records_are_named_by_line() {
    for (record, expected) in [
        ("chr1\t10\t.\tA\tC\t.\t.", "7 fields"),
        ("chr1\t10\t.\tA\tC\t.\t.\t.", "no FORMAT"),
        ("chr1\t10\t.\tA\tC\t.\t.\t.\tGT\t0/1", "1 fields of samples"),
        ("chr1\t10\t.\tA\tC\t.\t.\t.\tGT\t0/1\t0/1\t0/1", "3 fields of samples"),
        ("chr1\tten\t.\tA\tC\t.\t.\t.\tGT\t0/1\t0/1", "POS"),
        ("chr1\t-1\t.\tA\tC\t.\t.\t.\tGT\t0/1\t0/1", "POS"),
        ("chr1\t2147483648\t.\tA\tC\t.\t.\t.\tGT\t0/1\t0/1", "POS"),
        ("chr1\t2147483647\t.\tAAA\tC\t.\t.\t.\tGT\t0/1\t0/1", "beyond"),
        ("chr1\t1\t.\t\tC\t.\t.\t.\tGT\t0/1\t0/1", "REF is empty"),
        ("chr1\t1\t.\tA\tC\thigh\t.\t.\tGT\t0/1\t0/1", "QUAL"),
    ] {
        let found = read_error_text(&with_samples(&[record]));
        assert!(found.starts_with("a.vcf, line 14: ") && found.contains(expected), "{record:?}: {found}");
    }
}

#[test]
fn line_ends_of_any_kind_are_taken() {
    let text = with_samples(&["chr1\t10\t.\tA\tC\t.\t.\tDP=7\tGT\t0/1\t0/1"]);
    let expected = batch(&text);
    let dos = batch(&text.replace('\n', "\r\n"));
    assert_eq!(dos, expected);
    assert_eq!(batch(text.trim_end()), expected);
}

#[test]
fn blank_lines_comments_and_signs_are_taken_as_bcftools_takes_them() {
    let record = "chr1\t10\t.\tA\tC\t.\t.\tDP=7";
    let expected = batch(&format!("{META_LINES}{COLUMN_NAMES}\n{record}\n{record}\n"));
    for text in [
        format!("{META_LINES}{COLUMN_NAMES}\n{record}\n\n{record}\n\n\n"),
        format!("{META_LINES}{COLUMN_NAMES}\n# a comment\n{record}\n##late=meta\n{record}\n"),
        format!("{META_LINES}{COLUMN_NAMES}\n{record}\t\n{}\n", record.replace("\t10\t", "\t+0010\t")),
    ] {
        assert_eq!(batch(&text).columns(), expected.columns(), "{text}");
    }
    let blank = batch(&format!("{META_LINES}\n{COLUMN_NAMES}\n{record}\n{record}\n"));
    assert_eq!(blank.columns(), expected.columns());
    let signed = with_samples(&["chr1\t+10\t.\tA\tC\t.\t.\tDP=7\tGT\t/0|1\t|1"]);
    assert_eq!(batch(&signed).num_rows(), 1);
}

#[test]
fn files_without_samples_have_no_columns_of_them() {
    let batch = batch(&format!("{META_LINES}{COLUMN_NAMES}\nchr1\t10\t.\tA\tC\t.\t.\tDP=7\n"));
    assert!(batch.column_by_name("info_DP").is_some() && batch.column_by_name("format_GT").is_none());
}

#[test]
fn lines_that_a_caller_may_write_are_read() {
    let bases = "A".repeat(129 << 20);
    let text = format!("##fileformat=VCFv4.2\n{COLUMN_NAMES}\nchr1\t7\t.\tC\t{bases}\t.\t.\t.\n");
    let mut written = lines::Reader::new(text.as_bytes()).unwrap();
    assert!(written.next_record().is_ok_and(|record| record.is_some()));
    let mut read = open(&text).unwrap();
    assert!(read.next_record().is_ok_and(|record| record.is_some()));
}

#[test]
fn every_projection_has_the_columns_of_the_whole_batch() {
    let text = with_samples(&[
        "chr1\t5\trs1;rs2\tA\tC,G\t50.5\tPASS\tDP=3;DP=4;AF=0.5,.;DB;ANN=a|b,c;NEW=1\tGT:DP:AD\t0/1:3:1,2\t./.:.:.",
        "chr2\t7\t.\tAT\t.\t.\tq10;s50\tDP=many;DP=8;DB=0;END=90\tGT:XX\t1|1:z\t0",
        "chrX\t9\t.\tN\t<DEL>\t1e2\t.\tEND=12;=5;AF=.,x\tDP\t4\t.",
        "chr2\t11\t.\tG\tT\t3\t.\t.\t.\t.\t.",
    ]);
    let (whole, layout) = (batch(&text), VariantLayout::new(open(&text).unwrap().header()).unwrap());
    let count = whole.num_columns();
    assert_eq!(count, layout.schema.fields().len());
    let pairs = (0..count).flat_map(|one| (one..count).map(move |other| vec![one, other]));
    for mut columns in pairs.chain([Vec::new()]) {
        columns.dedup();
        let projected = batch_with(&text, VariantBatchBuilder::with_projection(&layout, &columns));
        assert_eq!(projected.num_rows(), whole.num_rows());
        let expected = whole.project(&columns).unwrap();
        assert_eq!(projected.columns(), expected.columns(), "{columns:?}");
    }
}

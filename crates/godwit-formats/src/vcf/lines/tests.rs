use proptest::prelude::*;

use super::*;

const HEADER_TEXT: &str =
    "##fileformat=VCFv4.2\n##INFO=<ID=DP,Number=1>\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\ts\n";

fn header(text: &str) -> Header {
    Reader::new(text.as_bytes()).unwrap().header().clone()
}

fn read_records(body: &str) -> Result<Vec<(String, i64, i64)>, String> {
    let text = format!("{HEADER_TEXT}{body}");
    let mut reader = Reader::new(text.as_bytes()).map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    while let Some(record) = reader.next_record().map_err(|error| error.to_string())? {
        assert_eq!(Record::from_line(record.line).as_ref(), Some(&record));
        found.push((record.contig.to_owned(), record.start, record.end));
    }
    Ok(found)
}

#[test]
fn positions_and_lengths_are_read() {
    let body = "c\t5\t.\tACG\tA\t3.5\t.\tDP=3\tGT\t0/1\nc\t9\t.\tN\t<*>\t.\tPASS\tDP=1;END=20;X=1\tGT\t0/0\nc\t0\t.\tA\t.\t1e-5\t.\t.\tGT\t.\r\n";
    let expected = [("c", 4, 7), ("c", 8, 20), ("c", -1, 0)].map(|(name, start, end)| (name.to_owned(), start, end));
    assert_eq!(read_records(body).unwrap(), expected);
    // An END before the start of the record is ignored.
    assert_eq!(read_records("c\t9\t.\tN\tA\t.\t.\tEND=2\tGT\t1\n").unwrap()[0].2, 9);
}

#[test]
fn wrong_records_are_named_by_line() {
    for (body, problem) in [
        ("c\t5\t.\tA\tC\t.\t.\tDP=3\tGT\n", "columns"),
        ("c\tfive\t.\tA\tC\t.\t.\tDP=3\tGT\t1\n", "position"),
        ("c\t99999999999999999999\t.\tA\tC\t.\t.\tDP=3\tGT\t1\n", "position"),
        ("c\t-5\t.\tA\tC\t.\t.\tDP=3\tGT\t1\n", "position"),
        ("c\t5\t.\t\tC\t.\t.\tDP=3\tGT\t1\n", "reference allele"),
        ("\t5\t.\tA\tC\t.\t.\tDP=3\tGT\t1\n", "contig"),
        ("c\t5\t.\tA\tC\tgood\t.\tDP=3\tGT\t1\n", "quality"),
        ("c\t5\t.\tA\tC\t.\t.\tEND=x\tGT\t1\n", "END"),
        ("c\t5\t.\tA\tC\t.\t.\tDP=3\tGT\t1", "truncated"),
        ("#comment\n", "columns"),
        ("\n", "columns"),
    ] {
        let error = read_records(body).unwrap_err();
        assert!(error.contains(problem) && error.contains("line 4"), "{body:?}: {error}");
    }
}

#[test]
fn what_is_no_vcf_is_refused() {
    for (text, problem) in [
        ("", "empty"),
        ("BAM\u{1}\n", "not VCF"),
        ("##fileformat=VCFv4.2\n", "no #CHROM line"),
        ("##fileformat=VCFv4.2\nc\t1\t.\n", "no #CHROM line before line 2"),
        ("##fileformat=VCFv4.2\n#CHROM\tPOS\n", "8 columns"),
        ("##fileformat=VCFv4.2", "truncated"),
    ] {
        let error = Reader::new(text.as_bytes()).map(drop).unwrap_err().to_string();
        assert!(error.contains(problem), "{text:?}: {error}");
    }
}

#[test]
fn lines_of_one_process_go() {
    let of_process = [
        "##bcftoolsCommand=mpileup -r x",
        "##bcftools_callCommand=call; Date=x",
        "##fileDate=20260101",
        "##commandline=\"freebayes\"",
        "##GATKCommandLine=<ID=HaplotypeCaller>",
        "##cmdline=x",
        "##startTime=x",
    ];
    assert!(of_process.iter().all(|line| is_volatile(line.as_bytes())));
    let others = [
        "##fileformat=VCFv4.2",
        "##reference=file://a.fa",
        "##source=freeBayes v1.3.6",
        "##INFO=<ID=Command>",
        "#CHROM",
    ];
    assert!(!others.iter().any(|line| is_volatile(line.as_bytes())));
    let mut with = header(&HEADER_TEXT.replace("##INFO", "##fileDate=1\n##INFO"));
    with.remove_volatile();
    assert_eq!(with, header(HEADER_TEXT));
}

#[test]
fn headers_are_put_together_by_kind() {
    let mut whole = header(HEADER_TEXT);
    let more = "##fileformat=VCFv4.2\n##INFO=<ID=AF,Number=A>\n##contig=<ID=c>\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\ts\n";
    whole.merge(&header(more)).unwrap();
    whole.merge(&header(HEADER_TEXT)).unwrap();
    let text = String::from_utf8(whole.text()).unwrap();
    let expected = "##fileformat=VCFv4.2\n##INFO=<ID=DP,Number=1>\n##INFO=<ID=AF,Number=A>\n##contig=<ID=c>\n#CHROM";
    assert!(text.starts_with(expected), "{text}");
    whole.merge(&header(&HEADER_TEXT.replace("##INFO", "##region=c:2-3\n##INFO"))).unwrap();
    whole.merge(&header(&HEADER_TEXT.replace("##INFO", "##region=c:4-5\n##INFO"))).unwrap();
    assert!(String::from_utf8(whole.text()).unwrap().contains("##region=c:2-3\n#CHROM"));
    assert!(whole.has_kind("contig") && !whole.has_kind("FILTER"));
    for other in [
        HEADER_TEXT.replace("Number=1", "Number=2"),
        HEADER_TEXT.replace("\ts\n", "\tt\n"),
        HEADER_TEXT.replace("v4.2", "v4.3"),
    ] {
        assert!(matches!(whole.merge(&header(&other)), Err(VcfLinesError::Conflict { .. })), "{other}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(body in prop::collection::vec(prop::sample::select(&b"\tc51.A;END=#\n\r\xff"[..]), 0..120)) {
        let text = [HEADER_TEXT.as_bytes(), &body].concat();
        let mut reader = Reader::new(&text[..]).unwrap();
        while let Ok(Some(record)) = reader.next_record() {
            prop_assert!(record.start < record.end);
        }
        let _ = Reader::new(&body[..]).map(drop);
    }
}

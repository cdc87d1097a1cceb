//! Tests of the conversion of records into templates, and of the records that are rejected.

use std::io::Write as _;

use godwit_io::bgzf;

use super::*;
use crate::sam;

const HEADER: &str = "@HD\tVN:1.6\tSO:unsorted\n@SQ\tSN:c\tLN:1000\n@RG\tID:x\n@RG\tID:y\n";

/// Returns all templates of a SAM file that contains these records.
fn read_templates(
    records: &str,
    read_groups: ReadGroupFilter,
    tags: &[[u8; 2]],
) -> Result<Vec<Vec<Read>>, UnalignedError> {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(format!("{HEADER}{records}").as_bytes()).expect("it can be written to");
    let input = bgzf::Reader::open_any(file.path(), 1, false).expect("it can be opened");
    let reader = sam::Reader::new(input)?;
    let mut reader = Reader::from_sam(reader, Selection { read_groups, tags: tags.to_vec() })?;
    let mut templates = Vec::new();
    loop {
        let mut template = Vec::new();
        match reader.next_template(|read| template.push(read.clone()))? {
            0 => return Ok(templates),
            reads => assert_eq!(reads, template.len() as u64),
        }
        templates.push(template);
    }
}

fn read(name: &str, comment: &str, sequence: &str, quality: &str) -> Read {
    let [name, comment, sequence, quality] = [name, comment, sequence, quality].map(|text| text.as_bytes().to_vec());
    Read { name, comment, sequence, quality }
}

/// Returns the SAM line of an unmapped record.
fn unmapped_line(name: &str, flag: u16, sequence: &str, quality: &str) -> String {
    format!("{name}\t{flag}\t*\t0\t0\t*\t*\t0\t0\t{sequence}\t{quality}\n")
}

fn problem(records: &str, take: ReadGroupFilter) -> (u64, String, ReadProblem) {
    match read_templates(records, take, &[*b"XF"]) {
        Err(UnalignedError::Record { record, name, problem, .. }) => (record, name, problem),
        other => panic!("{other:?}"),
    }
}

#[test]
fn read_1_comes_first_whatever_the_order_of_the_file() {
    let records = [
        unmapped_line("a", 141, "CC", "II"),
        unmapped_line("a", 77, "GG", "##"),
        unmapped_line("b", 77, "A", "I"),
        unmapped_line("b", 141, "T", "I"),
    ];
    let [a1, a2] = [read("a", "", "GG", "##"), read("a", "", "CC", "II")];
    let [b1, b2] = [read("b", "", "A", "I"), read("b", "", "T", "I")];
    assert_eq!(read_templates(&records.concat(), ReadGroupFilter::All, &[]).unwrap(), [vec![a1, a2], vec![b1, b2]]);
}

#[test]
fn reads_are_those_of_the_sequencer() {
    let records = [
        "r\t16\tc\t5\t60\t4M\t*\t0\t0\tAACR\t!#%I\n".to_owned(),
        "r\t272\tc\t9\t0\t4M\t*\t0\t0\t*\t*\n".to_owned(),
        "r\t2064\tc\t9\t0\t2H2M\t*\t0\t0\tCR\t%I\n".to_owned(),
        unmapped_line("missing/1", 4, "ACG", "*"),
        unmapped_line("none", 4, "*", "*"),
    ];
    let expected = [
        vec![read("r", "", "YGTT", "I%#!")],
        // `samtools fastq` 1.16.1 writes `B` for missing qualities.
        vec![read("missing", "", "ACG", "BBB")],
        vec![read("none", "", "", "")],
    ];
    assert_eq!(read_templates(&records.concat(), ReadGroupFilter::All, &[]).unwrap(), expected);
}

#[test]
fn tags_that_are_asked_for_are_kept_in_the_order_of_the_record() {
    let tagged = unmapped_line("r", 4, "A", "I").trim().to_owned() + "\tXZ:Z:no\tBC:Z:AC GT\tXI:i:-7\tRX:A:x\n";
    let found = read_templates(&tagged, ReadGroupFilter::All, &[*b"RX", *b"BC", *b"XI"]).unwrap();
    assert_eq!(found[0][0].comment, b"BC:Z:AC GT\tXI:i:-7\tRX:A:x");
    let float = unmapped_line("r", 4, "A", "I").trim().to_owned() + "\tXF:f:1.5\n";
    assert_eq!(problem(&float, ReadGroupFilter::All).2, ReadProblem::Tag { tag: "XF".into() });
}

#[test]
fn mates_that_are_not_neighbours_are_refused_by_record_and_name() {
    let (a, b) = (unmapped_line("a", 77, "A", "I"), unmapped_line("b", 77, "A", "I"));
    let mate = unmapped_line("a", 141, "A", "I");
    assert_eq!(problem(&format!("{a}{mate}{b}"), ReadGroupFilter::All), (3, "b".into(), ReadProblem::NoMate));
    assert_eq!(problem(&format!("{a}{b}{mate}"), ReadGroupFilter::All), (1, "a".into(), ReadProblem::NoMate));
    let twice = ReadProblem::NotReadOneAndTwo { first: 77, second: 77 };
    assert_eq!(problem(&format!("{a}{a}"), ReadGroupFilter::All), (1, "a".into(), twice));
}

#[test]
fn pairs_and_single_reads_do_not_mix() {
    let pair = unmapped_line("a", 77, "A", "I") + &unmapped_line("a", 141, "A", "I");
    let single = unmapped_line("s", 4, "A", "I");
    let mixed = |paired| ReadProblem::Mixed { paired };
    assert_eq!(problem(&format!("{pair}{single}"), ReadGroupFilter::All), (3, "s".into(), mixed(false)));
    assert_eq!(problem(&format!("{single}{pair}"), ReadGroupFilter::All), (2, "a".into(), mixed(true)));
}

#[test]
fn one_read_group_of_several_is_taken_and_unknown_ones_are_refused() {
    let of =
        |name: &str, group: &str| unmapped_line(name, 4, "A", "I").trim().to_owned() + &format!("\tRG:Z:{group}\n");
    let both = of("a", "x") + &of("b", "y") + &of("c", "x");
    let all = vec![b"x".to_vec(), b"y".to_vec()];
    let group = |id: &str| ReadGroupFilter::OneOf { id: id.into(), known_ids: all.clone() };
    let names = |take| -> Vec<Vec<u8>> {
        read_templates(&both, take, &[]).unwrap().into_iter().map(|mut reads| reads.remove(0).name).collect()
    };
    assert_eq!(names(group("x")), [b"a", b"c"]);
    assert_eq!(names(group("y")), [b"b"]);
    assert!(names(group("z")).is_empty());
    assert_eq!(names(ReadGroupFilter::All).len(), 3);
    let unknown = |found: Option<&str>| ReadProblem::ReadGroup { found: found.map(str::to_owned) };
    assert_eq!(problem(&both, ReadGroupFilter::Single(b"x".to_vec())), (2, "b".into(), unknown(Some("y"))));
    assert_eq!(problem(&(both.clone() + &of("d", "z")), group("x")), (4, "d".into(), unknown(Some("z"))));
    assert_eq!(problem(&(both.clone() + &unmapped_line("d", 4, "A", "I")), group("x")), (4, "d".into(), unknown(None)));
}

#[test]
fn a_file_without_reads_is_empty() {
    let secondary = "r\t256\tc\t9\t0\t4M\t*\t0\t0\t*\t*\n";
    for records in ["", secondary] {
        assert!(
            matches!(read_templates(records, ReadGroupFilter::All, &[]), Err(UnalignedError::Empty { .. })),
            "{records:?}"
        );
    }
}

#[test]
fn what_fastq_cannot_say_is_refused() {
    assert_eq!(problem(&unmapped_line("r", 4, "A=", "II"), ReadGroupFilter::All).2, ReadProblem::Base { base: 2 });
}

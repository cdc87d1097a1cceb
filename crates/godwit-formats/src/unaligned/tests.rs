//! What becomes of records, and which of them are refused.

use std::io::Write as _;

use super::*;
use crate::bgzf;
use crate::sam;

const HEADER: &str = "@HD\tVN:1.6\tSO:unsorted\n@SQ\tSN:c\tLN:1000\n@RG\tID:x\n@RG\tID:y\n";

/// Everything that a SAM file of these records gives.
fn templates(records: &str, take: Take, tags: &[[u8; 2]]) -> Result<Vec<Vec<Read>>, UnalignedError> {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(format!("{HEADER}{records}").as_bytes()).expect("it can be written to");
    let input = bgzf::Reader::open_any(file.path(), 1, false).expect("it can be opened");
    let reader = sam::Reader::new(input)?;
    let mut reader = Reader::from_sam(reader, Selection { take, tags: tags.to_vec() })?;
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

/// An unmapped record.
fn line(name: &str, flag: u16, sequence: &str, quality: &str) -> String {
    format!("{name}\t{flag}\t*\t0\t0\t*\t*\t0\t0\t{sequence}\t{quality}\n")
}

fn problem(records: &str, take: Take) -> (u64, String, ReadProblem) {
    match templates(records, take, &[*b"XF"]) {
        Err(UnalignedError::Record { record, name, problem, .. }) => (record, name, problem),
        other => panic!("{other:?}"),
    }
}

#[test]
fn read_1_comes_first_whatever_the_order_of_the_file() {
    let records =
        [line("a", 141, "CC", "II"), line("a", 77, "GG", "##"), line("b", 77, "A", "I"), line("b", 141, "T", "I")];
    let [a1, a2] = [read("a", "", "GG", "##"), read("a", "", "CC", "II")];
    let [b1, b2] = [read("b", "", "A", "I"), read("b", "", "T", "I")];
    assert_eq!(templates(&records.concat(), Take::All, &[]).unwrap(), [vec![a1, a2], vec![b1, b2]]);
}

#[test]
fn reads_are_those_of_the_sequencer() {
    let records = [
        "r\t16\tc\t5\t60\t4M\t*\t0\t0\tAACR\t!#%I\n".to_owned(),
        "r\t272\tc\t9\t0\t4M\t*\t0\t0\t*\t*\n".to_owned(),
        "r\t2064\tc\t9\t0\t2H2M\t*\t0\t0\tCR\t%I\n".to_owned(),
        line("missing/1", 4, "ACG", "*"),
        line("none", 4, "*", "*"),
    ];
    let expected = [
        vec![read("r", "", "YGTT", "I%#!")],
        vec![read("missing", "", "ACG", "\"\"\"")],
        vec![read("none", "", "", "")],
    ];
    assert_eq!(templates(&records.concat(), Take::All, &[]).unwrap(), expected);
}

#[test]
fn tags_that_are_asked_for_are_kept_in_the_order_of_the_record() {
    let tagged = line("r", 4, "A", "I").trim().to_owned() + "\tXZ:Z:no\tBC:Z:AC GT\tXI:i:-7\tRX:A:x\n";
    let found = templates(&tagged, Take::All, &[*b"RX", *b"BC", *b"XI"]).unwrap();
    assert_eq!(found[0][0].comment, b"BC:Z:AC GT\tXI:i:-7\tRX:A:x");
    let float = line("r", 4, "A", "I").trim().to_owned() + "\tXF:f:1.5\n";
    assert_eq!(problem(&float, Take::All).2, ReadProblem::Tag { tag: "XF".into() });
}

#[test]
fn mates_that_are_not_neighbours_are_refused_by_record_and_name() {
    let (a, b) = (line("a", 77, "A", "I"), line("b", 77, "A", "I"));
    let mate = line("a", 141, "A", "I");
    assert_eq!(problem(&format!("{a}{mate}{b}"), Take::All), (3, "b".into(), ReadProblem::NoMate));
    assert_eq!(problem(&format!("{a}{b}{mate}"), Take::All), (1, "a".into(), ReadProblem::NoMate));
    let twice = ReadProblem::NotReadOneAndTwo { first: 77, second: 77 };
    assert_eq!(problem(&format!("{a}{a}"), Take::All), (1, "a".into(), twice));
}

#[test]
fn pairs_and_single_reads_do_not_mix() {
    let pair = line("a", 77, "A", "I") + &line("a", 141, "A", "I");
    let single = line("s", 4, "A", "I");
    let mixed = |paired| ReadProblem::Mixed { paired };
    assert_eq!(problem(&format!("{pair}{single}"), Take::All), (3, "s".into(), mixed(false)));
    assert_eq!(problem(&format!("{single}{pair}"), Take::All), (2, "a".into(), mixed(true)));
}

#[test]
fn one_read_group_of_several_is_taken_and_unknown_ones_are_refused() {
    let of = |name: &str, group: &str| line(name, 4, "A", "I").trim().to_owned() + &format!("\tRG:Z:{group}\n");
    let both = of("a", "x") + &of("b", "y") + &of("c", "x");
    let all = vec![b"x".to_vec(), b"y".to_vec()];
    let group = |id: &str| Take::Group { id: id.into(), all: all.clone() };
    let names = |take| -> Vec<Vec<u8>> {
        templates(&both, take, &[]).unwrap().into_iter().map(|mut reads| reads.remove(0).name).collect()
    };
    assert_eq!(names(group("x")), [b"a", b"c"]);
    assert_eq!(names(group("y")), [b"b"]);
    assert!(names(group("z")).is_empty());
    assert_eq!(names(Take::All).len(), 3);
    let unknown = |found: Option<&str>| ReadProblem::ReadGroup { found: found.map(str::to_owned) };
    assert_eq!(problem(&both, Take::Only(b"x".to_vec())), (2, "b".into(), unknown(Some("y"))));
    assert_eq!(problem(&(both.clone() + &of("d", "z")), group("x")), (4, "d".into(), unknown(Some("z"))));
    assert_eq!(problem(&(both.clone() + &line("d", 4, "A", "I")), group("x")), (4, "d".into(), unknown(None)));
}

#[test]
fn a_file_without_reads_is_empty() {
    let secondary = "r\t256\tc\t9\t0\t4M\t*\t0\t0\t*\t*\n";
    for records in ["", secondary] {
        assert!(matches!(templates(records, Take::All, &[]), Err(UnalignedError::Empty { .. })), "{records:?}");
    }
}

#[test]
fn what_fastq_cannot_say_is_refused() {
    assert_eq!(problem(&line("r", 4, "A=", "II"), Take::All).2, ReadProblem::Base { base: 2 });
}

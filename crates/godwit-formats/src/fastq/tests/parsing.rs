//! Tests of the reads that valid records give.

use super::*;

#[test]
fn the_name_ends_at_white_space_and_the_comment_is_the_rest() {
    let text = "@a BC:Z:x\tCC:Z:y  \nA\n+\nI\n@b\tt\nC\n+\nI\n@c  two\nG\n+\nI\n@d \nT\n+\nI\n@e\x0bv\nT\n+\nI\n@f\x0c\nT\n+\nI\n";
    let expected = [
        new_read("a", Some("BC:Z:x\tCC:Z:y  "), "A", Some("I")),
        new_read("b", Some("t"), "C", Some("I")),
        new_read("c", Some(" two"), "G", Some("I")),
        new_read("d", None, "T", Some("I")),
        new_read("e", Some("v"), "T", Some("I")),
        new_read("f", None, "T", Some("I")),
    ];
    assert_eq!(parse_reads(text), expected);
}

#[test]
fn a_slash_and_one_digit_are_no_part_of_the_name() {
    let names = ["a/1", "b/2", "c/9 x", "d/12", "e/x", "/1", "x/1/2", "f/"];
    let text: String = names.iter().map(|name| format!("@{name}\nA\n+\nI\n")).collect();
    let trimmed: Vec<String> = parse_reads(text).into_iter().map(|read| read.name).collect();
    assert_eq!(trimmed, ["a", "b", "c", "d/12", "e/x", "/1", "x/1", "f/"]);
}

#[test]
fn carriage_returns_before_line_feeds_are_no_part_of_a_line() {
    let unix = "@a/1 c d\nACGT\n+\nII+@\n@b\nAC\n+b\n@>\n@c \nG\n+c \nI\n@z\n\n+\n\n@w\nAC\nG\n+\nI\nII\n";
    assert_eq!(parse_reads(unix.replace('\n', "\r\n")), parse_reads(unix));
}

#[test]
fn the_plus_line_may_repeat_the_title() {
    let text = "@a/1 c\nAC\n+a/1 c\nII\n@b\nAC\n+b\nII\n";
    assert_eq!(parse_reads(text), [new_read("a", Some("c"), "AC", Some("II")), new_read("b", None, "AC", Some("II"))]);
}

#[test]
fn a_wrapped_record_is_joined() {
    let text = "@a\nACGT\nACG\nT\n+a\n@III\n+II\nI\n@b\nACGT\n+\n@@@@\n@c\nAC\nGT\n+\nIIII\n";
    let expected = [
        new_read("a", None, "ACGTACGT", Some("@III+III")),
        new_read("b", None, "ACGT", Some("@@@@")),
        new_read("c", None, "ACGT", Some("IIII")),
    ];
    assert_eq!(parse_reads(text), expected);
}

#[test]
fn qualities_may_be_wrapped_where_the_sequence_is_not() {
    let text = "@a\nACGTACGT\n+a\n@II\n+II\nII\n@b\nACGT\n+\nII\n@I\n";
    let expected = [new_read("a", None, "ACGTACGT", Some("@II+IIII")), new_read("b", None, "ACGT", Some("II@I"))];
    for end in ["", "\n", "\n\n"] {
        assert_eq!(parse_reads(format!("{}{end}", text.trim_end())), expected, "{end:?}");
    }
    assert_eq!(parse_reads(text.replace('\n', "\r\n")), expected);
}

#[test]
fn fasta_has_no_qualities() {
    let text = ">a/1 c\nACGT\nAC\n>b\nGG\n>empty\n>blank\n\n>last\nT";
    let expected = [
        new_read("a", Some("c"), "ACGTAC", None),
        new_read("b", None, "GG", None),
        new_read("empty", None, "", None),
        new_read("blank", None, "", None),
        new_read("last", None, "T", None),
    ];
    assert_eq!(parse_reads(text), expected);
    assert_eq!(parse_reads(text.replace('\n', "\r\n") + "\r\n\r\n"), expected);
}

#[test]
fn a_read_without_bases_has_no_qualities() {
    let expected = [new_read("z", None, "", None), new_read("y", None, "", None), new_read("a", None, "A", Some("I"))];
    assert_eq!(parse_reads("@z\n\n+\n\n@y\n\n+\n\n@a\nA\n+\nI\n"), expected);
    assert_eq!(parse_reads("@z\n+\n\n@y\n\n+y\n\n@a\nA\n+\nI"), expected);
    assert_eq!(parse_reads("@z\n\n+"), expected[..1]);
}

#[test]
fn the_last_line_needs_no_line_feed_and_blank_lines_may_follow_it() {
    let text = "@a\nACGT\n+\nIIII";
    for end in ["", "\n", "\r\n", "\n\n", "\n\r\n\n"] {
        assert_eq!(parse_reads(format!("{text}{end}")), [new_read("a", None, "ACGT", Some("IIII"))], "{end:?}");
    }
}

#[test]
fn letters_points_and_stars_are_bases_and_kept_as_they_are() {
    let text = "@a\nACGTNacgtnRYKM.*U\n+\n!\"#$%&'()*+,-./}~\n";
    assert_eq!(parse_reads(text), [new_read("a", None, "ACGTNacgtnRYKM.*U", Some("!\"#$%&'()*+,-./}~"))]);
}

#[test]
fn comments_may_hold_any_text() {
    let text = "@a \u{fc}ml\u{e4}ut \u{1f9ec}\nA\n+\nI\n";
    assert_eq!(parse_reads(text), [new_read("a", Some("\u{fc}ml\u{e4}ut \u{1f9ec}"), "A", Some("I"))]);
}

#[test]
fn a_name_of_254_bytes_after_trimming_is_accepted() {
    let name = "n".repeat(254);
    assert_eq!(parse_reads(format!("@{name}/1\nA\n+\nI\n"))[0].name, name);
}

#[test]
fn a_read_longer_than_several_chunks_is_one_read() {
    let long = fastq_text(1, &[3_500_000]);
    let text = [fastq_text(3, &[10]), long.clone(), fastq_text(3, &[7])].concat();
    let reads = parse_reads(&text);
    assert_eq!(reads.len(), 7);
    assert_eq!(reads[3], parse_reads(long)[0]);
    let wrapped =
        format!("@w\n{}\n+\n{}\n", "ACGTACGTAC\n".repeat(300_000).trim(), "IIIIIIIIII\n".repeat(300_000).trim());
    assert_eq!(
        parse_reads(wrapped),
        [new_read("w", None, &"ACGTACGTAC".repeat(300_000), Some(&"I".repeat(3_000_000)))]
    );
}

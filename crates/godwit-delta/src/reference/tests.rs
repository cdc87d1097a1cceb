use super::*;

#[test]
fn digests_are_those_of_refget() {
    // GA4GH refget v2.0.0 and VRS, "Truncated Digest": the digest of ACGT and of the empty sequence.
    assert_eq!(Digest::compute(b"ACGT").to_string(), "aKF498dAxcJAqme6QYQ7EZ07-fiw8Kw2");
    assert_eq!(Digest::compute(b"").to_string(), "z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXc");
}

#[test]
fn case_line_lengths_and_names_do_not_change_digests() {
    let directory = tempfile::tempdir().unwrap();
    let open = |text: &str| {
        let path = directory.path().join("r.fa");
        std::fs::write(&path, text).unwrap();
        Reference::open(&path, ReferenceCachePolicy::Disabled, 1).unwrap()
    };
    let one = open(">a\nACGT\nAC\n>b\nNNAC\n");
    let two = open(">x\nacgTAC\n>y z\nnnAC\n");
    assert_eq!(one.digest(), two.digest());
    assert_eq!(one.contigs()[0].digest, two.contigs()[0].digest);
    assert_eq!(one.contigs()[0].case_checksum, 0);
    assert_ne!(two.contigs()[0].case_checksum, 0);
    assert_ne!(open(">b\nNNAC\n>a\nACGTAC\n").digest(), one.digest(), "the order counts");
}

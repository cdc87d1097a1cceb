use super::delta_message::{DeltaMessage, DeltaTrailer};
use super::may_be_genome;

#[test]
fn pieces_come_as_they_were_sent() {
    let last = DeltaTrailer::Complete { bytes: 5, blake3: "00".to_owned() };
    for trailer in [None, Some(last), Some(DeltaTrailer::Unsuitable { reason: "so".to_owned() })] {
        let piece = DeltaMessage { packed: vec![1, 2], block_specs: vec![3], trailer };
        let (batch, said) = piece.to_batch().unwrap();
        assert_eq!(DeltaMessage::from_batch(&batch, &said).unwrap(), piece);
    }
    let (batch, _) = DeltaMessage::default().to_batch().unwrap();
    assert!(
        DeltaMessage::from_batch(&batch.slice(0, 0), &[]).is_err() && DeltaMessage::from_batch(&batch, b"?").is_err()
    );
}

#[test]
fn genomes_are_known_by_their_names() {
    for name in ["a/b.fa", "x.FASTA.gz", "y.fna.bgz", "z.fsa"] {
        assert!(may_be_genome(name, 1 << 20), "{name}");
        assert!(!may_be_genome(name, 1 << 10), "{name} is short");
    }
    for name in ["fa", "fa.gz", "a.bam", "a.fq.gz", "a.fa.fai", "a.fa.zst"] {
        assert!(!may_be_genome(name, 1 << 20), "{name}");
    }
}

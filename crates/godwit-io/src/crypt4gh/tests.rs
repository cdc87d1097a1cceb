use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;

use super::header::encode_header;
use super::*;
use crate::random_access::RandomAccess;

#[derive(Debug)]
struct InMemory(Vec<u8>);

impl RandomAccess for InMemory {
    fn path(&self) -> &Path {
        Path::new("file.c4gh")
    }

    fn byte_len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, space: &mut [u8], offset: u64) -> std::io::Result<usize> {
        let rest = &self.0[(offset as usize).min(self.0.len())..];
        let count = rest.len().min(space.len());
        space[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

fn sample_text(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn encrypt(text: &[u8], readers: &[PublicKey]) -> Vec<u8> {
    let mut encryptor = Encryptor::new(Vec::new(), readers).unwrap();
    encryptor.write_all(text).unwrap();
    encryptor.finish().unwrap()
}

fn open_with_key(file: &[u8], secret: &SecretKey) -> std::io::Result<DecryptedFile> {
    DecryptedFile::open(Arc::new(InMemory(file.to_vec())), std::slice::from_ref(secret))
}

fn read_all(file: &DecryptedFile) -> std::io::Result<Vec<u8>> {
    let mut found = vec![0; file.byte_len() as usize + 1];
    let count = file.read_at(&mut found, 0)?;
    found.truncate(count);
    Ok(found)
}

fn into_crypt4gh_error(error: std::io::Error) -> Crypt4ghError {
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    error.downcast().unwrap()
}

#[test]
fn a_file_for_several_keys_is_read_with_each_and_with_no_other() {
    let keys = [(); 3].map(|()| SecretKey::random().unwrap());
    let file = encrypt(b"reads", &[keys[0].public_key(), keys[1].public_key()]);
    for key in &keys[..2] {
        assert_eq!(read_all(&open_with_key(&file, key).unwrap()).unwrap(), b"reads");
    }
    assert!(matches!(into_crypt4gh_error(open_with_key(&file, &keys[2]).unwrap_err()), Crypt4ghError::NoMatchingKey));
    let none = DecryptedFile::open(Arc::new(InMemory(file)), &[]).unwrap_err();
    assert!(matches!(into_crypt4gh_error(none), Crypt4ghError::NoKey));
    assert!(matches!(
        into_crypt4gh_error(open_with_key(b"@r1\nACGT\n", &keys[0]).unwrap_err()),
        Crypt4ghError::NotEncrypted
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_range_of_any_text_is_what_was_written(
        bytes in prop_oneof![0..200_usize, 60_000..70_000_usize, 130_000..400_000_usize],
        stretches in prop::collection::vec((0.0..1.1_f64, 0..200_000_usize), 1..6),
    ) {
        let (text, key) = (sample_text(bytes), SecretKey::random().unwrap());
        let file = open_with_key(&encrypt(&text, &[key.public_key()]), &key).unwrap();
        prop_assert_eq!(file.byte_len(), bytes as u64);
        for (at, wanted) in stretches {
            let at = (at * bytes as f64) as usize;
            let mut space = vec![0; wanted];
            let count = file.read_at(&mut space, at as u64).unwrap();
            let from = at.min(bytes);
            prop_assert_eq!(&space[..count], &text[from..(from + wanted).min(bytes)]);
        }
    }
}

#[test]
fn no_byte_can_be_changed_unseen_and_none_be_missing_within_a_segment() {
    let key = SecretKey::random().unwrap();
    let text = sample_text(SEGMENT_BYTES + 1000);
    let file = encrypt(&text, &[key.public_key()]);
    let header = encode_header(&[0; 32], &[key.public_key()]).unwrap().len();
    let places = (0..header).chain((header..file.len()).step_by(3001)).chain([file.len() - 1]);
    for at in places {
        let mut changed = file.clone();
        changed[at] ^= 1;
        let found = open_with_key(&changed, &key).and_then(|opened| read_all(&opened));
        assert!(found.is_err(), "byte {at} of {} can be changed", file.len());
    }
    let segment = SEGMENT_BYTES + SEGMENT_OVERHEAD_BYTES;
    for missing in [1, SEGMENT_OVERHEAD_BYTES, 500, 1000, 1000 + SEGMENT_OVERHEAD_BYTES - 1] {
        let found = open_with_key(&file[..file.len() - missing], &key).and_then(|opened| read_all(&opened));
        assert!(found.is_err(), "{missing} bytes can be missing");
    }
    // A missing segment at the end cannot be detected, because the format does not record the number of segments.
    assert_eq!(read_all(&open_with_key(&file[..header + segment], &key).unwrap()).unwrap(), text[..SEGMENT_BYTES]);
    for length in 0..header {
        assert!(open_with_key(&file[..length], &key).is_err(), "a header of {length} bytes is read");
    }
}

/// Returns an encrypted file whose edit list makes only ranges of the data visible.
fn encrypt_with_edits(text: &[u8], key: &SecretKey, edits: &[u64]) -> Vec<u8> {
    let file = encrypt(text, &[key.public_key()]);
    let plain = encode_header(&[7; 32], &[key.public_key()]).unwrap().len();
    let mut edit_list = 1_u32.to_le_bytes().to_vec();
    edit_list.extend_from_slice(&(edits.len() as u32).to_le_bytes());
    edit_list.extend(edits.iter().flat_map(|length| length.to_le_bytes()));
    let writer = SecretKey::random().unwrap();
    let mut packet = 0_u32.to_le_bytes().to_vec();
    packet.extend_from_slice(&writer.public_key().0);
    seal(&cipher_for_key(&writer.session_key_for_reader(&key.public_key()).unwrap()), &edit_list, &mut packet).unwrap();
    let mut edited_file = file[..plain].to_vec();
    edited_file[12] += 1;
    edited_file.extend_from_slice(&(packet.len() as u32 + 4).to_le_bytes());
    edited_file.extend_from_slice(&packet);
    edited_file.extend_from_slice(&file[plain..]);
    edited_file
}

#[test]
fn edits_show_the_parts_that_they_name_at_any_offset() {
    let (text, key) = (sample_text(3 * SEGMENT_BYTES), SecretKey::random().unwrap());
    let at = SEGMENT_BYTES as u64;
    let to_the_end = 10..text.len();
    for (edits, shown) in [
        (vec![10], vec![to_the_end]),
        (vec![0, 5, 3, 4], vec![0..5, 8..12]),
        (vec![at - 3, 10, at], vec![SEGMENT_BYTES - 3..SEGMENT_BYTES + 7, 2 * SEGMENT_BYTES + 7..text.len()]),
        (vec![3 * at], vec![]),
    ] {
        let wanted: Vec<u8> = shown.into_iter().flat_map(|range| text[range].to_vec()).collect();
        let file = open_with_key(&encrypt_with_edits(&text, &key, &edits), &key).unwrap();
        assert_eq!(read_all(&file).unwrap(), wanted, "{edits:?}");
        for offset in 0..wanted.len().min(20) {
            let mut space = [0; 9];
            let count = file.read_at(&mut space, offset as u64).unwrap();
            assert_eq!(space[..count], wanted[offset..(offset + 9).min(wanted.len())], "{edits:?} at {offset}");
        }
    }
    for edits in [vec![], vec![3 * at + 1], vec![1, 3 * at], vec![u64::MAX, 1]] {
        assert!(open_with_key(&encrypt_with_edits(&text, &key, &edits), &key).is_err(), "{edits:?}");
    }
}

fn key_file(name: &str, lines: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    std::fs::write(&path, lines.join("\n")).unwrap();
    (directory, path)
}

#[test]
fn what_is_no_key_is_refused_with_what_to_do() {
    let lines = ["-----BEGIN CRYPT4GH PRIVATE KEY-----", "AAAA", "-----END CRYPT4GH PRIVATE KEY-----"];
    let (_kept, path) = key_file("key", &lines);
    assert!(matches!(SecretKey::read(&path, None), Err(KeyError::NotAKey { expected: "secret", .. })));
    assert!(matches!(PublicKey::read(&path), Err(KeyError::NotAKey { expected: "public", .. })));
    assert!(matches!(SecretKey::read(&path.join("none"), None), Err(KeyError::Read { .. })));
    // A key file with the content: c4gh-v1, bcrypt, 100 rounds.
    let locked = "YzRnaC12MQAGYmNyeXB0ABQAAABkAAAAAAAAAAAAAAAAAAAAAAARY2hhY2hhMjBfcG9seTEzMDUAPAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==";
    let (_kept, path) = key_file("key", &[lines[0], locked, lines[2]]);
    match SecretKey::read(&path, Some(b"x")) {
        Err(KeyError::Method { method, .. }) => assert_eq!(method, "bcrypt"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_key_is_not_shown_by_debugging() {
    assert_eq!(format!("{:?}", SecretKey::random().unwrap()), "SecretKey(..)");
}

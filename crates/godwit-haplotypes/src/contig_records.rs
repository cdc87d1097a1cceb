//! The records of one side on one contig, in the order of vcfeval.

use crate::record::Record;

/// The text of the records of one contig.
#[derive(Debug, Default)]
pub(crate) struct ContigRecords {
    text: Vec<u8>,
    /// Offset and length of each line.
    lines: Vec<(usize, u32)>,
    /// Ends of the records with the same start as the last record.
    last_start: i32,
    last_ends: Vec<i32>,
}

impl ContigRecords {
    /// Appends a record. Its start must not be before that of the previous record.
    pub(crate) fn push(&mut self, line: &[u8], record: &Record) {
        if record.start != self.last_start {
            self.finish_start();
            self.last_start = record.start;
        }
        self.last_ends.push(record.end());
        self.lines.push((self.text.len(), line.len() as u32));
        self.text.extend_from_slice(line);
    }

    /// Sorts the records that have the last start. Must be called after the last record.
    pub(crate) fn finish_start(&mut self) {
        if self.last_ends.len() > 1 {
            let first = self.lines.len() - self.last_ends.len();
            let lines = self.lines.split_off(first);
            self.lines.extend(poll_order(&self.last_ends).into_iter().map(|index| lines[index]));
        }
        self.last_ends.clear();
    }

    /// Returns the number of records.
    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Returns the size of the text in bytes.
    pub(crate) fn text_bytes(&self) -> usize {
        self.text.len()
    }

    /// Returns a record by its number.
    pub(crate) fn record(&self, number: usize) -> Record<'_> {
        let (offset, bytes) = self.lines[number];
        Record::parse(&self.text[offset..][..bytes as usize]).expect("a record is parsed before it is stored")
    }
}

/// Returns the order in which a binary heap returns records with the given ends after all were added.
///
/// vcfeval orders the records of one start by `java.util.PriorityQueue`, which is not stable, and numbers them in that
/// order. The order decides which records of equal span are joined in the combined outputs.
fn poll_order(ends: &[i32]) -> Vec<usize> {
    let mut heap: Vec<usize> = Vec::with_capacity(ends.len());
    for index in 0..ends.len() {
        heap.push(index);
        let mut at = heap.len() - 1;
        while at > 0 && ends[index] < ends[heap[(at - 1) / 2]] {
            heap[at] = heap[(at - 1) / 2];
            at = (at - 1) / 2;
        }
        heap[at] = index;
    }
    let mut order = Vec::with_capacity(ends.len());
    while let Some(last) = heap.pop() {
        let Some(first) = heap.first().copied() else {
            order.push(last);
            break;
        };
        order.push(first);
        let mut at = 0;
        while 2 * at + 1 < heap.len() {
            let mut child = 2 * at + 1;
            if child + 1 < heap.len() && ends[heap[child]] > ends[heap[child + 1]] {
                child += 1;
            }
            if ends[last] <= ends[heap[child]] {
                break;
            }
            heap[at] = heap[child];
            at = child;
        }
        heap[at] = last;
    }
    order
}

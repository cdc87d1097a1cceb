//! Local matches (`BK=lm`): a false call near a variant of the truth, or a missed variant near a call.
//!
//! vcfeval compares each record with two candidates only while records pass through a buffer: with the last candidate
//! when the record enters, and with the first one when it leaves.

use std::collections::VecDeque;

use crate::search::{CALLS, TRUTH};

/// A record of the output mode `ga4gh` before it is written.
#[derive(Debug, Default)]
pub(super) struct JudgedRecord {
    pub(super) start: i32,
    pub(super) end: i32,
    /// Text of the columns from the contig to FILTER.
    pub(super) columns: Vec<u8>,
    /// Sync sections, for the INFO field BS.
    pub(super) sections: Vec<i32>,
    /// Keys and values of FORMAT, by side; an empty value is missing.
    fields: Vec<(&'static str, [String; 2])>,
}

impl JudgedRecord {
    /// Sets a FORMAT field of a side.
    pub(super) fn set(&mut self, key: &'static str, side: usize, value: &str) {
        let index = self.fields.iter().position(|(found, _)| *found == key).unwrap_or_else(|| {
            self.fields.push((key, [".".to_owned(), ".".to_owned()]));
            self.fields.len() - 1
        });
        self.fields[index].1[side] = value.to_owned();
    }

    /// Sets the decision and the kind of match of a side.
    pub(super) fn set_decision(&mut self, side: usize, decision: &str, kind: &str) {
        self.set("BD", side, decision);
        self.set("BK", side, kind);
    }

    /// Sets the decision of a file whose record was not compared, and the reason.
    pub(super) fn set_extra(&mut self, side: usize, reason: &str) {
        self.set("BD", side, "N");
        self.set("BI", side, reason);
    }

    fn value(&self, key: &str, side: usize) -> Option<&str> {
        self.fields.iter().find(|(found, _)| *found == key).map(|(_, values)| values[side].as_str())
    }

    /// Returns whether the record of a side is false or missed without a match.
    fn is_unmatched(&self, side: usize) -> bool {
        let decision = if side == CALLS { "FP" } else { "FN" };
        self.value("BD", side) == Some(decision) && self.value("BK", side) == Some(".")
    }

    /// Returns whether the record of a side was judged.
    fn is_judged(&self, side: usize) -> bool {
        matches!((side, self.value("BD", side)), (_, Some("TP")) | (CALLS, Some("FP")) | (TRUTH, Some("FN")))
    }

    fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.columns);
        out.push(b'\t');
        match self.sections.is_empty() {
            true => out.push(b'.'),
            false => {
                let sections: Vec<String> = self.sections.iter().map(i32::to_string).collect();
                out.extend_from_slice(format!("BS={}", sections.join(",")).as_bytes());
            }
        }
        out.push(b'\t');
        let keys: Vec<&str> = self.fields.iter().map(|(key, _)| *key).collect();
        out.extend_from_slice(keys.join(":").as_bytes());
        for side in [TRUTH, CALLS] {
            let values: Vec<&str> = self.fields.iter().map(|(_, values)| values[side].as_str()).collect();
            let last = values.iter().rposition(|value| *value != ".").unwrap_or(0);
            out.push(b'\t');
            out.extend_from_slice(values[..=last].join(":").as_bytes());
        }
        out.push(b'\n');
    }
}

/// The records of a contig on their way to the file.
#[derive(Debug)]
pub(super) struct LocalMatches {
    /// Distance in bases; `None` to write records as they are.
    distance: Option<i32>,
    buffer: VecDeque<JudgedRecord>,
    /// Intervals of the judged records of each side that later or earlier records may be near to.
    judged: [VecDeque<(i32, i32)>; 2],
}

impl LocalMatches {
    pub(super) fn new(distance: Option<i32>) -> Self {
        Self { distance, buffer: VecDeque::new(), judged: [VecDeque::new(), VecDeque::new()] }
    }

    /// Adds the next record, and writes those that are too far before it.
    pub(super) fn push(&mut self, mut record: JudgedRecord, out: &mut Vec<u8>) {
        let Some(distance) = self.distance else {
            record.write_to(out);
            return;
        };
        while self.buffer.front().is_some_and(|first| first.end < record.start - distance) {
            self.write_first(distance, out);
        }
        for side in [CALLS, TRUTH] {
            let is_near = self.judged[1 - side].back().is_some_and(|(_, end)| record.start < end + distance);
            if is_near && record.is_unmatched(side) {
                record.set("BK", side, "lm");
            }
        }
        for side in [CALLS, TRUTH] {
            if record.is_judged(side) {
                self.judged[side].push_back((record.start, record.end));
            }
        }
        self.buffer.push_back(record);
    }

    /// Writes the remaining records.
    pub(super) fn finish(mut self, out: &mut Vec<u8>) {
        while let Some(distance) = self.distance.filter(|_| !self.buffer.is_empty()) {
            self.write_first(distance, out);
        }
    }

    fn write_first(&mut self, distance: i32, out: &mut Vec<u8>) {
        let Some(mut record) = self.buffer.pop_front() else { return };
        for judged in &mut self.judged {
            while judged.front().is_some_and(|(_, end)| *end <= record.start) {
                judged.pop_front();
            }
        }
        for side in [CALLS, TRUTH] {
            let is_near = self.judged[1 - side].front().is_some_and(|(start, _)| start - distance < record.end);
            if is_near && record.is_unmatched(side) {
                record.set("BK", side, "lm");
            }
        }
        record.write_to(out);
    }
}

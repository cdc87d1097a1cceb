//! A builder of columns of bytes or text, and the conversion of packed bases and CIGARs into text.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, StringArray};
use arrow_buffer::{Buffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;
use godwit_model::{BASE_LETTERS, CigarOp};

/// The two base letters for each packed byte of SEQ.
const BASE_PAIRS: [[u8; 2]; 256] = {
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [BASE_LETTERS[byte >> 4], BASE_LETTERS[byte & 15]];
        byte += 1;
    }
    pairs
};

/// A builder of a column of bytes or text.
#[derive(Debug)]
pub(super) struct BytesBuilder {
    pub(super) data: Vec<u8>,
    offsets: Vec<i32>,
    validity: NullBufferBuilder,
}

impl Default for BytesBuilder {
    fn default() -> Self {
        Self { data: Vec::new(), offsets: vec![0], validity: NullBufferBuilder::new(0) }
    }
}

impl BytesBuilder {
    /// Ends a value whose bytes the caller has appended to `data`.
    #[inline]
    pub(super) fn end_value(&mut self) {
        self.offsets.push(self.data.len() as i32);
        self.validity.append_non_null();
    }

    #[inline]
    pub(super) fn push(&mut self, value: &[u8]) {
        self.data.extend_from_slice(value);
        self.end_value();
    }

    #[inline]
    pub(super) fn push_null(&mut self) {
        self.offsets.push(self.data.len() as i32);
        self.validity.append_null();
    }

    #[inline]
    pub(super) fn push_option(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => self.push(value),
            None => self.push_null(),
        }
    }

    /// Returns the buffers of the column, and leaves empty ones with the same capacity.
    fn finish_parts(&mut self) -> (OffsetBuffer<i32>, Buffer, Option<arrow_buffer::NullBuffer>) {
        let fresh = Vec::with_capacity(self.data.capacity());
        let data = std::mem::replace(&mut self.data, fresh);
        let mut offsets = Vec::with_capacity(self.offsets.capacity());
        offsets.push(0);
        let offsets = std::mem::replace(&mut self.offsets, offsets);
        (OffsetBuffer::new(ScalarBuffer::from(offsets)), Buffer::from_vec(data), self.validity.finish())
    }

    /// Takes the memory of the values of a used column for the next column.
    pub(super) fn recycle(&mut self, values: Buffer) {
        if let Ok(mut values) = values.into_vec::<u8>()
            && self.data.is_empty()
            && values.capacity() >= self.data.capacity()
        {
            values.clear();
            self.data = values;
        }
    }

    /// Returns the column as an array of text.
    ///
    /// # Errors
    /// [`ArrowError`] if a value is not UTF-8.
    pub(super) fn finish_text(&mut self) -> Result<ArrayRef, ArrowError> {
        let (offsets, data, validity) = self.finish_parts();
        Ok(Arc::new(StringArray::try_new(offsets, data, validity)?))
    }

    pub(super) fn finish_binary(&mut self) -> Result<ArrayRef, ArrowError> {
        let (offsets, data, validity) = self.finish_parts();
        Ok(Arc::new(BinaryArray::try_new(offsets, data, validity)?))
    }
}

/// Converts `bases` packed bases into letters and appends them to `out`.
#[inline]
pub(super) fn unpack_bases(packed: &[u8], bases: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + 2 * packed.len(), 0);
    for (pair, byte) in out[start..].as_chunks_mut::<2>().0.iter_mut().zip(packed) {
        *pair = BASE_PAIRS[usize::from(*byte)];
    }
    out.truncate(start + bases);
}

/// Appends the text of a CIGAR in the form of SAM.
pub(super) fn append_cigar_text(ops: impl Iterator<Item = CigarOp>, out: &mut Vec<u8>) {
    for op in ops {
        append_decimal(op.bases(), out);
        out.push(b"MIDNSHP=X???????"[usize::from(op.code())]);
    }
}

/// Appends a number in decimal digits.
pub(super) fn append_decimal(mut number: u32, out: &mut Vec<u8>) {
    let mut digits = [0; 10];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

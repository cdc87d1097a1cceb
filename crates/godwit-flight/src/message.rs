//! Flight messages on the wire: gRPC's prefix, the `FlightData` message of `Flight.proto`, and an Arrow IPC message in it.
//!
//! [`frame`] puts the bytes before each buffer and hands the buffers on as they are. [`Assembler`] takes bytes as they come
//! and copies a body once, to where Arrow wants it. Other messages of the protocol are left to prost.

use arrow_buffer::{Buffer, MutableBuffer};
use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::error::FlightError;
use crate::segments::Segments;

/// Flag and length before each gRPC message (gRPC over HTTP/2, "Length-Prefixed-Message").
pub(crate) const PREFIX_BYTES: usize = 5;
/// Buffers up to this are copied behind each other: a system call takes 64 pieces at most.
const COPY_BELOW_BYTES: usize = 4096;

/// Fields of `FlightData` (Flight.proto).
const DESCRIPTOR: u32 = 1;
const HEADER: u32 = 2;
const APP_METADATA: u32 = 3;
const BODY: u32 = 1000;

/// Wire types (Protocol Buffers, "Encoding").
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const DELIMITED: u32 = 2;
const FIXED32: u32 = 5;

/// A `FlightData` message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    /// `FlightDescriptor`, encoded; the first message of an upload has one.
    pub(crate) descriptor: Vec<u8>,
    /// Arrow IPC message: a flatbuffer. Empty where only metadata is sent.
    pub(crate) header: Vec<u8>,
    /// What the application says beside the batch.
    pub(crate) app_metadata: Vec<u8>,
    /// Buffers of the IPC message, each padded to 64 bytes; starts at a multiple of 64 when it was received.
    pub(crate) body: Buffer,
}

/// A message for sending: as [`Message`], with the body in pieces.
#[derive(Debug, Default)]
pub(crate) struct Outgoing<'m> {
    pub(crate) descriptor: &'m [u8],
    pub(crate) header: &'m [u8],
    pub(crate) app_metadata: &'m [u8],
    pub(crate) body: Vec<Buffer>,
}

/// The bytes of a gRPC message; large buffers are not copied.
pub(crate) fn frame(message: Outgoing) -> Segments {
    let body_bytes: usize = message.body.iter().map(Buffer::len).sum();
    let small = message.descriptor.len() + message.header.len() + message.app_metadata.len();
    let mut head = BytesMut::with_capacity(PREFIX_BYTES + small + 64);
    head.put_bytes(0, PREFIX_BYTES);
    for (field, bytes) in
        [(DESCRIPTOR, message.descriptor), (HEADER, message.header), (APP_METADATA, message.app_metadata)]
    {
        if !bytes.is_empty() {
            put_delimiter(&mut head, field, bytes.len());
            head.put_slice(bytes);
        }
    }
    put_delimiter(&mut head, BODY, body_bytes);
    let message_bytes = head.len() - PREFIX_BYTES + body_bytes;
    head[1..PREFIX_BYTES].copy_from_slice(&(message_bytes as u32).to_be_bytes());
    let mut segments = Segments::default();
    for buffer in message.body {
        if buffer.len() <= COPY_BELOW_BYTES {
            head.put_slice(buffer.as_slice());
        } else {
            segments.push(head.split().freeze());
            segments.push_buffer(buffer);
        }
    }
    segments.push(head.freeze());
    segments
}

/// Bytes of a gRPC message that prost encodes.
pub(crate) fn frame_encoded(message: &impl prost::Message) -> Segments {
    let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + message.encoded_len());
    bytes.put_u8(0);
    bytes.put_u32(message.encoded_len() as u32);
    message.encode_raw(&mut bytes);
    bytes.freeze().into()
}

fn put_delimiter(bytes: &mut BytesMut, field: u32, length: usize) {
    put_varint(bytes, u64::from(field << 3 | DELIMITED));
    put_varint(bytes, length as u64);
}

fn put_varint(bytes: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        bytes.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.put_u8(value as u8);
}

/// Makes messages of bytes that come in pieces of any size.
#[derive(Debug)]
pub(crate) struct Assembler {
    limit_bytes: u64,
    state: State,
    /// Bytes left of the gRPC message.
    left: usize,
    message: Message,
    body: MutableBuffer,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// In the prefix of a gRPC message, of which so many bytes were seen.
    Prefix { seen: usize, length: u32 },
    /// In a varint.
    Varint { value: u64, shift: u32, then: Then },
    /// In the bytes of a field.
    Field { field: u32, left: usize },
}

/// What a varint is.
#[derive(Clone, Copy, Debug)]
enum Then {
    Tag,
    Length { field: u32 },
    Nothing,
}

const TAG: State = State::Varint { value: 0, shift: 0, then: Then::Tag };

impl Assembler {
    /// Takes messages of at most `limit_bytes`.
    pub(crate) fn new(limit_bytes: u64) -> Self {
        let state = State::Prefix { seen: 0, length: 0 };
        Self { limit_bytes, state, left: 0, message: Message::default(), body: MutableBuffer::new(0) }
    }

    /// True between two messages.
    pub(crate) fn is_between_messages(&self) -> bool {
        matches!(self.state, State::Prefix { seen: 0, .. })
    }

    /// Takes bytes off `chunk` until a message is whole or nothing is left; call again while it returns messages.
    ///
    /// # Errors
    /// [`FlightError::Malformed`], [`FlightError::TooLarge`]. The stream cannot be read on then.
    pub(crate) fn push(&mut self, chunk: &mut Bytes) -> Result<Option<Message>, FlightError> {
        while !chunk.is_empty() {
            match self.state {
                State::Prefix { seen, length } => self.prefix(seen, length, chunk.get_u8())?,
                State::Varint { value, shift, then } => {
                    self.spend(1)?;
                    self.varint(value, shift, then, chunk.get_u8())?;
                }
                State::Field { field, left } => {
                    let bytes = chunk.split_to(left.min(chunk.len()));
                    self.spend(bytes.len())?;
                    self.take_field(field, left, &bytes);
                }
            }
            if self.left == 0 && !matches!(self.state, State::Prefix { seen: 1.., .. }) {
                return self.finish().map(Some);
            }
        }
        Ok(None)
    }

    fn prefix(&mut self, seen: usize, length: u32, byte: u8) -> Result<(), FlightError> {
        if seen == 0 && byte != 0 {
            return Err(FlightError::Malformed { problem: "it is compressed, which was not agreed upon" });
        }
        let length = length << 8 | u32::from(byte);
        if seen + 1 < PREFIX_BYTES {
            self.state = State::Prefix { seen: seen + 1, length };
            return Ok(());
        }
        if u64::from(length) > self.limit_bytes {
            return Err(FlightError::TooLarge { bytes: length.into(), limit_bytes: self.limit_bytes });
        }
        self.left = length as usize;
        self.state = TAG;
        Ok(())
    }

    fn spend(&mut self, bytes: usize) -> Result<(), FlightError> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or(FlightError::Malformed { problem: "a field is longer than its message" })?;
        Ok(())
    }

    fn varint(&mut self, value: u64, shift: u32, then: Then, byte: u8) -> Result<(), FlightError> {
        if shift > 63 {
            return Err(FlightError::Malformed { problem: "a number has more than 64 bits" });
        }
        let value = value | u64::from(byte & 0x7f) << shift;
        if byte & 0x80 != 0 {
            self.state = State::Varint { value, shift: shift + 7, then };
            return Ok(());
        }
        self.state = match then {
            Then::Nothing => TAG,
            Then::Tag => {
                let field = u32::try_from(value >> 3);
                let field = field.map_err(|_| FlightError::Malformed { problem: "a field's number is too large" })?;
                match value as u32 & 7 {
                    VARINT => State::Varint { value: 0, shift: 0, then: Then::Nothing },
                    DELIMITED => State::Varint { value: 0, shift: 0, then: Then::Length { field } },
                    // Field 0 is nobody's: what it holds is passed over.
                    FIXED64 => self.field(0, 8)?,
                    FIXED32 => self.field(0, 4)?,
                    _ => return Err(FlightError::Malformed { problem: "a field is of no known type" }),
                }
            }
            Then::Length { field } => self.field(field, value)?,
        };
        Ok(())
    }

    fn field(&mut self, field: u32, length: u64) -> Result<State, FlightError> {
        if length > self.left as u64 {
            return Err(FlightError::Malformed { problem: "a field is longer than its message" });
        }
        if field == BODY {
            // Memory that nothing is written to costs nothing, so a length that lies does no harm.
            self.body = MutableBuffer::with_capacity(length as usize);
        }
        Ok(if length == 0 { TAG } else { State::Field { field, left: length as usize } })
    }

    fn take_field(&mut self, field: u32, left: usize, bytes: &[u8]) {
        match field {
            DESCRIPTOR => self.message.descriptor.extend_from_slice(bytes),
            HEADER => self.message.header.extend_from_slice(bytes),
            APP_METADATA => self.message.app_metadata.extend_from_slice(bytes),
            BODY => self.body.extend_from_slice(bytes),
            _ => {}
        }
        let left = left - bytes.len();
        self.state = if left == 0 { TAG } else { State::Field { field, left } };
    }

    fn finish(&mut self) -> Result<Message, FlightError> {
        let between_fields = matches!(self.state, State::Varint { shift: 0, then: Then::Tag, .. });
        if !between_fields {
            return Err(FlightError::Malformed { problem: "it ends within a field" });
        }
        self.state = State::Prefix { seen: 0, length: 0 };
        let mut message = std::mem::take(&mut self.message);
        message.body = std::mem::replace(&mut self.body, MutableBuffer::new(0)).into();
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn assemble(bytes: &[u8], piece: usize) -> Result<Vec<Message>, FlightError> {
        let mut assembler = Assembler::new(1 << 20);
        let mut messages = Vec::new();
        for chunk in bytes.chunks(piece) {
            let mut chunk = Bytes::copy_from_slice(chunk);
            while let Some(message) = assembler.push(&mut chunk)? {
                messages.push(message);
            }
        }
        assert!(assembler.is_between_messages());
        Ok(messages)
    }

    proptest! {
        #[test]
        fn what_is_framed_is_assembled_however_it_is_cut(
            header in proptest::collection::vec(any::<u8>(), 0..300),
            metadata in proptest::collection::vec(any::<u8>(), 0..20),
            sizes in proptest::collection::vec(0usize..10_000, 0..4),
            piece in 1usize..5000,
        ) {
            let body: Vec<Buffer> = sizes.iter().map(|bytes| vec![*bytes as u8; *bytes].into()).collect();
            let whole: Vec<u8> = body.iter().flat_map(|buffer| buffer.to_vec()).collect();
            let outgoing = || Outgoing { descriptor: b"d", header: &header, app_metadata: &metadata, body: body.clone() };
            let mut segments = frame(outgoing());
            segments.append(frame(outgoing()));
            let bytes = segments.copy_to_bytes(segments.remaining());
            let messages = assemble(&bytes, piece).unwrap();
            prop_assert_eq!(messages.len(), 2);
            for message in messages {
                prop_assert_eq!(&message.header, &header);
                prop_assert_eq!(&message.app_metadata, &metadata);
                prop_assert_eq!(message.body.as_slice(), &whole[..]);
                prop_assert_eq!(message.body.as_ptr() as usize % 64, 0);
            }
        }

        #[test]
        fn any_bytes_are_messages_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..500)) {
            let mut assembler = Assembler::new(1 << 20);
            let mut chunk = Bytes::from(bytes);
            while let Ok(Some(_)) = assembler.push(&mut chunk) {}
        }
    }

    #[test]
    fn prost_reads_what_is_framed() {
        let body = vec![Buffer::from(vec![7u8; 100]), Buffer::from(vec![8u8; 9000])];
        let outgoing = Outgoing { descriptor: &[], header: b"header", app_metadata: b"more", body };
        let mut segments = frame(outgoing);
        let bytes = segments.copy_to_bytes(segments.remaining());
        let found: arrow_flight::FlightData = prost::Message::decode(&bytes[PREFIX_BYTES..]).unwrap();
        assert_eq!((&found.data_header[..], &found.app_metadata[..]), (&b"header"[..], &b"more"[..]));
        assert_eq!(found.data_body.len(), 9100);
    }

    #[test]
    fn unknown_fields_are_passed_over() {
        // Field 7 as a number, field 9 as eight bytes, field 10 as text, then a header.
        let fields =
            [&[0x38, 0x96, 1][..], &[0x49, 1, 2, 3, 4, 5, 6, 7, 8], &[0x52, 2, b'x', b'y'], &[0x12, 1, b'h']].concat();
        let bytes = [&[0, 0, 0, 0, fields.len() as u8][..], &fields].concat();
        let messages = assemble(&bytes, 3).unwrap();
        assert_eq!((messages.len(), &messages[0].header[..]), (1, &b"h"[..]));
    }

    #[test]
    fn lengths_that_lie_and_sizes_over_the_limit_are_refused() {
        assert!(matches!(assemble(&[0, 0, 0, 0, 3, 0x12, 9, 1], 8), Err(FlightError::Malformed { .. })));
        assert!(matches!(assemble(&[0, 0xff, 0, 0, 0], 8), Err(FlightError::TooLarge { .. })));
        assert!(matches!(assemble(&[1, 0, 0, 0, 0], 8), Err(FlightError::Malformed { .. })));
        assert!(matches!(assemble(&[0, 0, 0, 0, 1, 0x80], 8), Err(FlightError::Malformed { .. })));
    }
}

//! The wire format of Flight messages: the gRPC prefix and a `FlightData` message (`Flight.proto`) with an Arrow IPC
//! message.
//!
//! [`encode_message`] encodes a message without copying large Arrow buffers. [`MessageAssembler`] decodes messages from
//! received bytes and copies each body once, into aligned memory. prost encodes the other messages of the protocol.

use arrow_buffer::{Buffer, MutableBuffer};
use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::error::FlightError;
use crate::segments::Segments;

/// Size of the prefix of a gRPC message, which consists of a compression flag and the length (gRPC over HTTP/2,
/// "Length-Prefixed-Message").
pub(crate) const GRPC_PREFIX_BYTES: usize = 5;
/// Arrow buffers up to this size are copied into one contiguous piece: a vectored write accepts only 64 pieces per
/// system call.
const COPY_THRESHOLD_BYTES: usize = 4096;

/// Numbers of the fields of the message `FlightData` (Flight.proto): this constant and the next three.
const DESCRIPTOR_FIELD: u32 = 1;
const HEADER_FIELD: u32 = 2;
const APP_METADATA_FIELD: u32 = 3;
const BODY_FIELD: u32 = 1000;

/// Protobuf wire types (Protocol Buffers, "Encoding"): this constant and the next three.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const DELIMITED: u32 = 2;
const FIXED32: u32 = 5;

/// A received `FlightData` message.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlightDataMessage {
    /// Protobuf encoding of `FlightDescriptor`; empty except in the first message of an upload or an exchange.
    pub(crate) descriptor: Vec<u8>,
    /// Arrow IPC message as a flatbuffer; empty if the message contains only application metadata.
    pub(crate) header: Vec<u8>,
    /// Application metadata of the batch, or alone.
    pub(crate) app_metadata: Vec<u8>,
    /// Body of the IPC message. It contains the Arrow buffers and starts at an address that is a multiple of 64 bytes.
    pub(crate) body: Buffer,
}

/// A `FlightData` message to send, whose body is a list of Arrow buffers.
#[derive(Debug, Default)]
pub(crate) struct OutgoingMessage<'m> {
    pub(crate) descriptor: &'m [u8],
    pub(crate) header: &'m [u8],
    pub(crate) app_metadata: &'m [u8],
    pub(crate) body: Vec<Buffer>,
}

/// Encodes a `FlightData` message with its gRPC prefix. Buffers over [`COPY_THRESHOLD_BYTES`] are not copied.
pub(crate) fn encode_message(message: OutgoingMessage) -> Segments {
    let body_bytes: usize = message.body.iter().map(Buffer::len).sum();
    let small = message.descriptor.len() + message.header.len() + message.app_metadata.len();
    let mut head = BytesMut::with_capacity(GRPC_PREFIX_BYTES + small + 64);
    head.put_bytes(0, GRPC_PREFIX_BYTES);
    for (field, bytes) in [
        (DESCRIPTOR_FIELD, message.descriptor),
        (HEADER_FIELD, message.header),
        (APP_METADATA_FIELD, message.app_metadata),
    ] {
        if !bytes.is_empty() {
            put_length_delimited(&mut head, field, bytes.len());
            head.put_slice(bytes);
        }
    }
    put_length_delimited(&mut head, BODY_FIELD, body_bytes);
    let message_bytes = head.len() - GRPC_PREFIX_BYTES + body_bytes;
    head[1..GRPC_PREFIX_BYTES].copy_from_slice(&(message_bytes as u32).to_be_bytes());
    let mut segments = Segments::default();
    for buffer in message.body {
        if buffer.len() <= COPY_THRESHOLD_BYTES {
            head.put_slice(buffer.as_slice());
        } else {
            segments.push(head.split().freeze());
            segments.push_buffer(buffer);
        }
    }
    segments.push(head.freeze());
    segments
}

/// Encodes any protobuf message by prost, with its gRPC prefix.
pub(crate) fn encode_protobuf(message: &impl prost::Message) -> Segments {
    let mut bytes = BytesMut::with_capacity(GRPC_PREFIX_BYTES + message.encoded_len());
    bytes.put_u8(0);
    bytes.put_u32(message.encoded_len() as u32);
    message.encode_raw(&mut bytes);
    bytes.freeze().into()
}

fn put_length_delimited(bytes: &mut BytesMut, field: u32, length: usize) {
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

/// An assembler of `FlightData` messages from received chunks of any size.
#[derive(Debug)]
pub(crate) struct MessageAssembler {
    limit_bytes: u64,
    state: AssemblyState,
    /// Bytes of the current gRPC message that are not yet received.
    remaining_bytes: usize,
    message: FlightDataMessage,
    body: MutableBuffer,
}

#[derive(Clone, Copy, Debug)]
enum AssemblyState {
    /// Within the prefix of a gRPC message. `seen` bytes of the prefix were read; `length` has the length bytes among
    /// them.
    Prefix { seen: usize, length: u32 },
    /// Within a protobuf varint. `shift` is the number of bits read so far.
    Varint { value: u64, shift: u32, then: VarintRole },
    /// Within the bytes of a protobuf field, of which `left` bytes are not yet received.
    Field { field: u32, left: usize },
}

/// The meaning of a protobuf varint within a message.
#[derive(Clone, Copy, Debug)]
enum VarintRole {
    Tag,
    Length { field: u32 },
    Ignored,
}

const TAG_STATE: AssemblyState = AssemblyState::Varint { value: 0, shift: 0, then: VarintRole::Tag };

impl MessageAssembler {
    /// Creates an assembler that rejects messages of more than `limit_bytes`.
    pub(crate) fn new(limit_bytes: u64) -> Self {
        let state = AssemblyState::Prefix { seen: 0, length: 0 };
        Self {
            limit_bytes,
            state,
            remaining_bytes: 0,
            message: FlightDataMessage::default(),
            body: MutableBuffer::new(0),
        }
    }

    /// Returns whether all received messages are complete.
    pub(crate) fn is_between_messages(&self) -> bool {
        matches!(self.state, AssemblyState::Prefix { seen: 0, .. })
    }

    /// Consumes bytes of `chunk` until a message is complete or `chunk` is empty. The caller must repeat the call until
    /// it returns `None`.
    ///
    /// # Errors
    /// [`FlightError::Malformed`] or [`FlightError::TooLarge`]. After an error the assembler cannot be used any more.
    pub(crate) fn push(&mut self, chunk: &mut Bytes) -> Result<Option<FlightDataMessage>, FlightError> {
        while !chunk.is_empty() {
            match self.state {
                AssemblyState::Prefix { seen, length } => self.read_prefix(seen, length, chunk.get_u8())?,
                AssemblyState::Varint { value, shift, then } => {
                    self.consume(1)?;
                    self.read_varint(value, shift, then, chunk.get_u8())?;
                }
                AssemblyState::Field { field, left } => {
                    let bytes = chunk.split_to(left.min(chunk.len()));
                    self.consume(bytes.len())?;
                    self.append_to_field(field, left, &bytes);
                }
            }
            if self.remaining_bytes == 0 && !matches!(self.state, AssemblyState::Prefix { seen: 1.., .. }) {
                return self.finish_message().map(Some);
            }
        }
        Ok(None)
    }

    fn read_prefix(&mut self, seen: usize, length: u32, byte: u8) -> Result<(), FlightError> {
        if seen == 0 && byte != 0 {
            return Err(FlightError::Malformed {
                problem: "the message is compressed, although no compression was negotiated",
            });
        }
        let length = length << 8 | u32::from(byte);
        if seen + 1 < GRPC_PREFIX_BYTES {
            self.state = AssemblyState::Prefix { seen: seen + 1, length };
            return Ok(());
        }
        if u64::from(length) > self.limit_bytes {
            return Err(FlightError::TooLarge { bytes: length.into(), limit_bytes: self.limit_bytes });
        }
        self.remaining_bytes = length as usize;
        self.state = TAG_STATE;
        Ok(())
    }

    fn consume(&mut self, bytes: usize) -> Result<(), FlightError> {
        let left = self.remaining_bytes.checked_sub(bytes);
        self.remaining_bytes = left.ok_or(FlightError::Malformed { problem: "a field is longer than its message" })?;
        Ok(())
    }

    fn read_varint(&mut self, value: u64, shift: u32, then: VarintRole, byte: u8) -> Result<(), FlightError> {
        if shift > 63 {
            return Err(FlightError::Malformed { problem: "a number has more than 64 bits" });
        }
        let value = value | u64::from(byte & 0x7f) << shift;
        if byte & 0x80 != 0 {
            self.state = AssemblyState::Varint { value, shift: shift + 7, then };
            return Ok(());
        }
        self.state = match then {
            VarintRole::Ignored => TAG_STATE,
            VarintRole::Tag => {
                let field = u32::try_from(value >> 3);
                let field = field.map_err(|_| FlightError::Malformed { problem: "a field's number is too large" })?;
                match value as u32 & 7 {
                    VARINT => AssemblyState::Varint { value: 0, shift: 0, then: VarintRole::Ignored },
                    DELIMITED => AssemblyState::Varint { value: 0, shift: 0, then: VarintRole::Length { field } },
                    // Skip the eight bytes by treating them as field 0, which protobuf does not use.
                    FIXED64 => self.start_field(0, 8)?,
                    FIXED32 => self.start_field(0, 4)?,
                    _ => return Err(FlightError::Malformed { problem: "a field has an unknown wire type" }),
                }
            }
            VarintRole::Length { field } => self.start_field(field, value)?,
        };
        Ok(())
    }

    fn start_field(&mut self, field: u32, length: u64) -> Result<AssemblyState, FlightError> {
        if length > self.remaining_bytes as u64 {
            return Err(FlightError::Malformed { problem: "a field is longer than its message" });
        }
        if field == BODY_FIELD {
            // The kernel provides memory only when it is written, so a wrong length wastes no memory.
            self.body = MutableBuffer::with_capacity(length as usize);
        }
        Ok(if length == 0 { TAG_STATE } else { AssemblyState::Field { field, left: length as usize } })
    }

    fn append_to_field(&mut self, field: u32, left: usize, bytes: &[u8]) {
        match field {
            DESCRIPTOR_FIELD => self.message.descriptor.extend_from_slice(bytes),
            HEADER_FIELD => self.message.header.extend_from_slice(bytes),
            APP_METADATA_FIELD => self.message.app_metadata.extend_from_slice(bytes),
            BODY_FIELD => self.body.extend_from_slice(bytes),
            _ => {}
        }
        let left = left - bytes.len();
        self.state = if left == 0 { TAG_STATE } else { AssemblyState::Field { field, left } };
    }

    fn finish_message(&mut self) -> Result<FlightDataMessage, FlightError> {
        let between_fields = matches!(self.state, AssemblyState::Varint { shift: 0, then: VarintRole::Tag, .. });
        if !between_fields {
            return Err(FlightError::Malformed { problem: "the message ends in the middle of a field" });
        }
        self.state = AssemblyState::Prefix { seen: 0, length: 0 };
        let mut message = std::mem::take(&mut self.message);
        message.body = std::mem::replace(&mut self.body, MutableBuffer::new(0)).into();
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn assemble(bytes: &[u8], piece: usize) -> Result<Vec<FlightDataMessage>, FlightError> {
        let mut assembler = MessageAssembler::new(1 << 20);
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
        fn encoded_messages_are_decoded_in_any_segmentation(
            header in proptest::collection::vec(any::<u8>(), 0..300),
            metadata in proptest::collection::vec(any::<u8>(), 0..20),
            sizes in proptest::collection::vec(0usize..10_000, 0..4),
            piece in 1usize..5000,
        ) {
            let body: Vec<Buffer> = sizes.iter().map(|bytes| vec![*bytes as u8; *bytes].into()).collect();
            let whole: Vec<u8> = body.iter().flat_map(|buffer| buffer.to_vec()).collect();
            let outgoing = || OutgoingMessage { descriptor: b"d", header: &header, app_metadata: &metadata, body: body.clone() };
            let mut segments = encode_message(outgoing());
            segments.append(encode_message(outgoing()));
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
            let mut assembler = MessageAssembler::new(1 << 20);
            let mut chunk = Bytes::from(bytes);
            while let Ok(Some(_)) = assembler.push(&mut chunk) {}
        }
    }

    #[test]
    fn prost_decodes_encoded_messages() {
        let body = vec![Buffer::from(vec![7u8; 100]), Buffer::from(vec![8u8; 9000])];
        let outgoing = OutgoingMessage { descriptor: &[], header: b"header", app_metadata: b"more", body };
        let mut segments = encode_message(outgoing);
        let bytes = segments.copy_to_bytes(segments.remaining());
        let found: arrow_flight::FlightData = prost::Message::decode(&bytes[GRPC_PREFIX_BYTES..]).unwrap();
        assert_eq!((&found.data_header[..], &found.app_metadata[..]), (&b"header"[..], &b"more"[..]));
        assert_eq!(found.data_body.len(), 9100);
    }

    #[test]
    fn unknown_fields_are_passed_over() {
        // Unknown fields (7 as varint, 9 as fixed64, 10 as bytes), followed by a known field, the header.
        let fields =
            [&[0x38, 0x96, 1][..], &[0x49, 1, 2, 3, 4, 5, 6, 7, 8], &[0x52, 2, b'x', b'y'], &[0x12, 1, b'h']].concat();
        let bytes = [&[0, 0, 0, 0, fields.len() as u8][..], &fields].concat();
        let messages = assemble(&bytes, 3).unwrap();
        assert_eq!((messages.len(), &messages[0].header[..]), (1, &b"h"[..]));
    }

    #[test]
    fn wrong_lengths_and_sizes_over_the_limit_are_rejected() {
        assert!(matches!(assemble(&[0, 0, 0, 0, 3, 0x12, 9, 1], 8), Err(FlightError::Malformed { .. })));
        assert!(matches!(assemble(&[0, 0xff, 0, 0, 0], 8), Err(FlightError::TooLarge { .. })));
        assert!(matches!(assemble(&[1, 0, 0, 0, 0], 8), Err(FlightError::Malformed { .. })));
        assert!(matches!(assemble(&[0, 0, 0, 0, 1, 0x80], 8), Err(FlightError::Malformed { .. })));
    }
}

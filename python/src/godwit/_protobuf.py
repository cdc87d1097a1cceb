"""The few forms of protobuf messages that Flight SQL and the details of a status need: fields of bytes, texts and messages.

pyarrow has no messages of Flight SQL and does not expose its protobuf library, and this package requires only pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterator


def encode_field(number: int, value: bytes) -> bytes:
    """Returns a length-delimited field. The number is at most 15."""
    length, size = b"", len(value)
    while size > 0x7F:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + value


def decode_fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields numbers and values of the length-delimited fields of a message. Varint fields are skipped.

    Raises `ValueError` or `IndexError` if the message is invalid, or has fields of other types.
    """
    at = 0
    while at < len(message):
        key, at = _decode_number(message, at)
        value, at = _decode_number(message, at)
        if key & 7 == 2:
            if at + value > len(message):
                raise ValueError("a field is longer than its message")
            yield key >> 3, message[at : at + value]
            at += value
        elif key & 7 != 0:
            raise ValueError("a field of another type")


def decode_field(message: bytes, number: int) -> bytes:
    """Returns a length-delimited field of a message; empty if the message does not have it."""
    return dict(decode_fields(message)).get(number, b"")


def _decode_number(message: bytes, at: int) -> tuple[int, int]:
    """Returns a varint, and the position behind it."""
    value = shift = 0
    while shift < 64:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("a number has more than 64 bits")

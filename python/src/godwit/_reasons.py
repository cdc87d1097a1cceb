"""Machine-readable reasons of failed calls. Programs decide by the reason, not by the message.

A server sends a `google.rpc.Status` in the details of a status, with a `google.rpc.ErrorInfo` whose domain is ``godwit``. pyarrow omits
the details from its exceptions for most codes, but passes them to a middleware of the client.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from pyarrow import flight

HEADER = "grpc-status-details-bin"
DOMAIN = b"godwit"
ERROR_INFO = b"type.googleapis.com/google.rpc.ErrorInfo"


def _number(message: bytes, at: int) -> tuple[int, int]:
    """Returns a varint of a protobuf message, and the position behind it."""
    value = shift = 0
    while shift < 64:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("a number has more than 64 bits")


def _texts(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields numbers and values of the length-delimited fields of a protobuf message. Varint fields are skipped; other types are errors."""
    at = 0
    while at < len(message):
        key, at = _number(message, at)
        value, at = _number(message, at)
        if key & 7 == 2:
            if at + value > len(message):
                raise ValueError("a field is longer than its message")
            yield key >> 3, message[at : at + value]
            at += value
        elif key & 7 != 0:
            raise ValueError("a field of another type")


def reason_in(details: bytes) -> str | None:
    """Returns the reason in the details of a status, for example ``DATASET_CHANGED``; None if there is none of godwit."""
    try:
        for number, detail in _texts(details):
            fields = dict(_texts(detail)) if number == 3 else {}
            info = dict(_texts(fields.get(2, b""))) if fields.get(1) == ERROR_INFO else {}
            if info.get(2) == DOMAIN:
                return info.get(1, b"").decode()
    except (ValueError, IndexError):
        # Details of another program.
        return None
    return None


# The reason of the last call that this thread made or read: its error is raised in the same thread.
_last = threading.local()


class _Reader(flight.ClientMiddleware):  # type: ignore[misc]
    def received_headers(self, headers: Mapping[str, Any]) -> None:
        for details in headers.get(HEADER, ()):
            _last.reason = reason_in(details)


class ReasonReader(flight.ClientMiddlewareFactory):  # type: ignore[misc]
    """The middleware that records the reasons of a client's calls for `reason_of`."""

    def start_call(self, info: object) -> flight.ClientMiddleware:
        _last.reason = None
        return _Reader()


def reason_of(error: BaseException) -> str | None:
    """Returns the reason of an error that a call of a client with a `ReasonReader` has just raised; None if it has none."""
    last: str | None = getattr(_last, "reason", None)
    _last.reason = None
    details = getattr(error, "extra_info", None)
    return last or (reason_in(bytes(details)) if details else None)

"""Machine-readable reasons of failed calls. Programs decide by the reason, not by the message.

A server sends a `google.rpc.Status` in the details of a status, with a `google.rpc.ErrorInfo` whose domain is ``godwit``. pyarrow omits
the details from its exceptions for most codes, but passes them to a middleware of the client.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from pyarrow import flight

from ._protobuf import decode_fields

HEADER = "grpc-status-details-bin"
DOMAIN = b"godwit"
ERROR_INFO = b"type.googleapis.com/google.rpc.ErrorInfo"


def reason_in(details: bytes) -> str | None:
    """Returns the reason in the details of a status, for example ``DATASET_CHANGED``; None if there is none of godwit."""
    try:
        for number, detail in decode_fields(details):
            fields = dict(decode_fields(detail)) if number == 3 else {}
            info = dict(decode_fields(fields.get(2, b""))) if fields.get(1) == ERROR_INFO else {}
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

"""What servers of the package have in common: where they listen, who is let in, how they say what is wrong, and how they end."""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import flight

from ._errors import GodwitError, MachineError, UsageError

Own = TypeVar("Own", bound="Serving")
Server = TypeVar("Server", bound=flight.FlightServerBase)


@contextlib.contextmanager
def in_words_of_flight() -> Iterator[None]:
    """What is wrong with what was asked, as clients of any kind tell it: INVALID_ARGUMENT, NOT_FOUND."""
    try:
        yield
    # pyarrow sends a traceback along with errors that are not its own: without a cause, it is a short one.
    except KeyError as error:
        raise pa.ArrowKeyError(error.args[0]) from None
    except UsageError as error:
        raise pa.ArrowInvalid(str(error)) from None
    except GodwitError as error:
        raise flight.FlightServerError(str(error)) from None


class _Token(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets in who shows the token."""

    def __init__(self, token: str):
        self._expected = f"Bearer {token}".encode()

    def start_call(self, info: Any, headers: dict[str, list[str | bytes]]) -> None:
        for name, values in headers.items():
            if name.lower() == "authorization":
                for value in values:
                    shown = value.encode() if isinstance(value, str) else value
                    if hmac.compare_digest(shown, self._expected):
                        return
        raise flight.FlightUnauthenticatedError("the token is missing or wrong")


class Serving:
    """A server at work, on threads of its own. Ends with ``stop()``, or at the end of a ``with``.

    ``url`` is where it is.
    """

    def __init__(self, server: flight.FlightServerBase, url: str):
        self._server = server
        self.url = url

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<{type(self).__module__.removesuffix('._service')}.{type(self).__name__} at {self.url}>"

    def wait(self) -> None:
        """Returns once it was stopped."""
        self._server.wait()

    def stop(self) -> None:
        """Lets nobody new in, and returns when calls that are open have ended."""
        self._server.shutdown()
        self._server.wait()


class Place:
    """Where a server is to listen, and whom it lets in.

    Raises `UsageError` where other machines would be let in unguarded.
    """

    def __init__(
        self, listen: str, token: str | None, tls_cert: str | os.PathLike[str] | None, tls_key: str | os.PathLike[str] | None, insecure: bool
    ):
        host, self._port = _address(listen)
        if (tls_cert is None) != (tls_key is None):
            raise UsageError("tls_cert and tls_key belong together")
        if not (insecure or (token and tls_cert) or _is_loopback(host)):
            raise UsageError(f"{listen} is reached by other machines: give token, tls_cert and tls_key, or insecure=True")
        self._listen = listen
        self._options: dict[str, Any] = {}
        if tls_cert is not None and tls_key is not None:
            self._options["tls_certificates"] = [(_read(tls_cert), _read(tls_key))]
        if token:
            self._options["middleware"] = {"token": _Token(token)}
        self._url = f"{'grpc+tls' if tls_cert else 'grpc+tcp'}://{f'[{host}]' if ':' in host else host}"

    def start(self, make: Callable[..., Server]) -> tuple[Server, str]:
        """A server that ``make`` makes of a location and options, and its URL. Raises `MachineError` where the port is taken."""
        try:
            server = make(f"{self._url}:{self._port}", **self._options)
        except (OSError, pa.ArrowException) as error:
            raise MachineError(f"cannot listen on {self._listen}: {error}; choose another address, or stop what uses it") from error
        return server, f"{self._url}:{server.port}"


def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{listen!r} is no address; write HOST:PORT, with port 0 for any")
    return host.strip("[]"), int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read(path: str | os.PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise MachineError(f"cannot read {path}: {error.strerror}") from error

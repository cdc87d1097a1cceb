"""Common parts of the Flight servers of the package: listening, authentication, error translation and shutdown."""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import flight

from ._errors import GodwitError, MachineError, UsageError
from ._flight_client import read_file, strip_token

HandleT = TypeVar("HandleT", bound="ServerHandle")
ServerT = TypeVar("ServerT", bound=flight.FlightServerBase)


@contextlib.contextmanager
def translate_errors_to_flight() -> Iterator[None]:
    """Translates errors into the status codes that every Flight client knows: INVALID_ARGUMENT, NOT_FOUND."""
    try:
        yield
    # pyarrow sends a traceback with errors of other types; without a cause it is short.
    except KeyError as error:
        raise pa.ArrowKeyError(error.args[0]) from None
    except UsageError as error:
        raise pa.ArrowInvalid(str(error)) from None
    except GodwitError as error:
        raise flight.FlightServerError(str(error)) from None


class _TokenAuthentication(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Authenticates clients by a bearer token."""

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


class ServerHandle:
    """A running server, which has its own threads. Stops with ``stop()``, or at the end of a ``with`` block.

    ``url`` is its address.
    """

    def __init__(self, server: flight.FlightServerBase, url: str):
        self._server = server
        self.url = url

    def __enter__(self: HandleT) -> HandleT:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<{type(self).__module__.removesuffix('._service')}.{type(self).__name__} at {self.url}>"

    def wait(self) -> None:
        """Waits until the server has stopped."""
        self._server.wait()

    def stop(self) -> None:
        """Rejects new calls, waits for open calls, and stops the server."""
        self._server.shutdown()
        self._server.wait()


class ListenOptions:
    """The address on which a server listens, its TLS certificate and its token.

    Raises `UsageError` if other machines could connect without TLS and a token, unless ``insecure`` is true.
    """

    def __init__(
        self, listen: str, token: str | None, tls_cert: str | os.PathLike[str] | None, tls_key: str | os.PathLike[str] | None, insecure: bool
    ):
        host, self._port = _parse_address(listen)
        token = strip_token(token)
        if (tls_cert is None) != (tls_key is None):
            raise UsageError("tls_cert and tls_key require each other")
        if not (insecure or (token and tls_cert) or _is_loopback(host)):
            raise UsageError(f"{listen} is reached by other machines: set token, tls_cert and tls_key, or insecure=True")
        self._listen = listen
        self._options: dict[str, Any] = {}
        if tls_cert is not None and tls_key is not None:
            self._options["tls_certificates"] = [(read_file(tls_cert), read_file(tls_key))]
        if token:
            self._options["middleware"] = {"token": _TokenAuthentication(token)}
        self._url = f"{'grpc+tls' if tls_cert else 'grpc+tcp'}://{f'[{host}]' if ':' in host else host}"

    def start_server(self, make: Callable[..., ServerT]) -> tuple[ServerT, str]:
        """Starts a server that ``make`` creates from a location and options; returns it and its URL. Raises `MachineError` if the port is in use."""
        try:
            server = make(f"{self._url}:{self._port}", **self._options)
        except (OSError, pa.ArrowException) as error:
            raise MachineError(f"cannot listen on {self._listen}: {error}; choose another address, or stop the process that uses it") from error
        return server, f"{self._url}:{server.port}"


def _parse_address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{listen!r} is not an address; write HOST:PORT, with port 0 for any free port")
    return host.strip("[]"), int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

"""Federated training: rows stay on their servers, and only parameters of a model are transferred, as Arrow batches.

On each server::

    server = godwit.federated.serve(train, "10.0.0.7:8817", token=..., tls_cert=..., tls_key=...)

where ``train`` takes the parameters of a round, a list of arrays, and returns the parameters after training on its own rows, and the number of these
rows. On one client::

    parameters = godwit.federated.average(["grpc+tls://10.0.0.7:8817", ...], parameters, rounds=20, token=..., ca=...)

which is federated averaging (McMahan et al. 2017, arXiv:1602.05629): the parameters of a round are the mean of those of the servers, weighted by
rows. An exchange with each server stays open for all rounds. Parameters are sent unmodified: a client of a server can infer from them what
they reveal about the rows.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import flight

from ._errors import GodwitError, InputError, RemoteError, UsageError
from ._flight_client import Connection
from ._flight_server import ListenOptions, ServerHandle, translate_errors_to_flight

Parameters = Sequence[npt.NDArray[Any]]
Train = Callable[[list[npt.NDArray[Any]]], tuple[Parameters, int]]
# Descriptor path of the only exchange of a training server.
FLIGHT_PATH = "federated"
PARAMETERS_COLUMN = "parameters"


def _pack_parameters(parameters: Parameters) -> tuple[pa.Schema, pa.RecordBatch]:
    """Packs all parameters into one column, with their shapes in the metadata; a single array is not copied."""
    arrays = [np.ascontiguousarray(array) for array in parameters]
    kinds = {array.dtype for array in arrays}
    if len(kinds) != 1 or next(iter(kinds)).kind not in "fiu":
        raise UsageError(f"parameters must be arrays of numbers of one type, not of {', '.join(sorted(map(str, kinds))) or 'none'}")
    flat = arrays[0].reshape(-1) if len(arrays) == 1 else np.concatenate([array.reshape(-1) for array in arrays])
    column = pa.array(flat)
    schema = pa.schema([pa.field(PARAMETERS_COLUMN, column.type, nullable=False)], {"shapes": json.dumps([array.shape for array in arrays])})
    return schema, pa.record_batch([column], schema=schema)


def _unpack_parameters(shapes: list[tuple[int, ...]], batch: pa.RecordBatch) -> list[npt.NDArray[Any]]:
    """Unpacks arrays of the given shapes, which share the memory of the batch."""
    flat = batch.column(0).to_numpy()
    counts = [int(np.prod(shape)) for shape in shapes]
    if sum(counts) != len(flat):
        raise InputError(f"received {len(flat)} parameters, but their shapes require {sum(counts)}")
    return [part.reshape(shape) for part, shape in zip(np.split(flat, np.cumsum(counts)[:-1]), shapes, strict=True)]


def _read_shapes(schema: pa.Schema) -> list[tuple[int, ...]]:
    if schema.names != [PARAMETERS_COLUMN] or b"shapes" not in (schema.metadata or {}):
        raise UsageError("this schema is not one of parameters")
    return [tuple(shape) for shape in json.loads(schema.metadata[b"shapes"])]


class _TrainingServer(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(self, train: Train, location: str, **options: Any):
        self._train = train
        super().__init__(location, **options)

    def do_exchange(self, context: Any, descriptor: flight.FlightDescriptor, reader: Any, writer: Any) -> None:
        """Responds to each batch of parameters with the trained parameters, and with the number of rows in the metadata."""
        with translate_errors_to_flight():
            if descriptor.path != [FLIGHT_PATH.encode()]:
                raise UsageError(f"training requires an exchange with the path {FLIGHT_PATH}")
            shapes = _read_shapes(reader.schema)
            writer.begin(reader.schema)
            while True:
                try:
                    chunk = reader.read_chunk()
                except StopIteration:
                    return
                trained, rows = self._train(_unpack_parameters(shapes, chunk.data))
                if [array.shape for array in trained] != shapes:
                    raise InputError("training returned parameters of other shapes than it received")
                _, batch = _pack_parameters([array.astype(chunk.data.column(0).type.to_pandas_dtype(), copy=False) for array in trained])
                writer.write_with_metadata(batch, str(int(rows)).encode())


def serve(
    train: Train,
    listen: str,
    *,
    token: str | None = None,
    tls_cert: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    insecure: bool = False,
) -> ServerHandle:
    """Starts a server that trains models of clients on the local rows, and returns immediately.

    Args:
        train: Takes parameters and returns the trained parameters and the number of rows. Called on one thread for each connected client.
        listen: HOST:PORT; port 0 chooses a free port.
        token: Token that clients must send.
        tls_cert: Certificate and its chain, PEM.
        tls_key: Key of the certificate, PEM.
        insecure: Whether to accept other machines without TLS, or without a token.
    """
    options = ListenOptions(listen, token, tls_cert, tls_key, insecure)
    return ServerHandle(*options.start_server(lambda location, **options: _TrainingServer(train, location, **options)))


def average(
    urls: Sequence[str],
    parameters: Parameters,
    rounds: int,
    *,
    token: str | None = None,
    ca: str | os.PathLike[str] | None = None,
    after_round: Callable[[int, list[npt.NDArray[Any]]], None] | None = None,
) -> list[npt.NDArray[Any]]:
    """Trains by federated averaging.

    Args:
        urls: Addresses of the servers.
        parameters: Initial parameters.
        rounds: Number of rounds.
        token: Token for the servers.
        ca: File of trusted certificates, PEM: of servers, or of authorities that signed theirs.
        after_round: Called after each round with its number, from 1, and its parameters.

    Raises:
        RemoteError: A server cannot be reached, or stopped; parameters of completed rounds are lost unless ``after_round`` stored them.
        InputError: Training failed on a server.
    """
    if not urls:
        raise UsageError("there is no server to train on")
    authority = None if ca is None else Path(ca).read_bytes()
    current = [np.array(array) for array in parameters]
    _pack_parameters(current)
    with contextlib.ExitStack() as stack:
        exchanges = [stack.enter_context(contextlib.closing(_TrainingExchange(Connection(url, token, authority)))) for url in urls]
        pool = stack.enter_context(ThreadPoolExecutor(len(exchanges)))
        for number in range(1, rounds + 1):
            schema, batch = _pack_parameters(current)
            results = list(pool.map(lambda exchange, schema=schema, batch=batch: exchange.train_round(schema, batch), exchanges))
            total = sum(rows for _, rows in results)
            if total == 0:
                raise InputError("no server has rows to train on")
            # Sums are computed in double precision, in the order of the servers, so the result does not depend on the order of responses.
            mean = sum((np.asarray(flat, np.float64) * (rows / total) for flat, rows in results), np.zeros(1))
            flat = np.asarray(mean, batch.column(0).type.to_pandas_dtype())
            shapes = [array.shape for array in current]
            current = [array.copy() for array in _unpack_parameters(shapes, pa.record_batch([pa.array(flat)], [PARAMETERS_COLUMN]))]
            if after_round is not None:
                after_round(number, current)
    return current


class _TrainingExchange:
    """An exchange with a server, for all rounds."""

    def __init__(self, connection: Connection):
        self._connection = connection
        descriptor = flight.FlightDescriptor.for_path(FLIGHT_PATH)
        self._writer, self._reader = connection.call(lambda: connection.client.do_exchange(descriptor, connection.options))
        self._started = False

    def train_round(self, schema: pa.Schema, batch: pa.RecordBatch) -> tuple[npt.NDArray[Any], int]:
        """Returns the parameters of a server after a round, and the number of rows it trained on."""

        def exchange_batch() -> Any:
            if not self._started:
                self._writer.begin(schema)
                self._started = True
            self._writer.write_batch(batch)
            return self._reader.read_chunk()

        try:
            chunk = self._connection.call(exchange_batch)
        except StopIteration:
            raise RemoteError(f"{self._connection.url} closed the exchange before the round was complete") from None
        except GodwitError as error:
            raise type(error)(f"{self._connection.url}: {error}") from error
        if len(chunk.data) != len(batch):
            raise InputError(f"{self._connection.url} returned {len(chunk.data)} parameters for {len(batch)}")
        return chunk.data.column(0).to_numpy(), int(chunk.app_metadata.to_pybytes())

    def close(self) -> None:
        self._reader.cancel()
        with contextlib.suppress(flight.FlightError, pa.ArrowException, OSError):
            self._writer.close()
        self._connection.close()

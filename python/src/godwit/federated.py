"""Training where the data are: rows stay on their nodes, and only parameters of a model travel, as Arrow batches.

On each node::

    node = godwit.federated.serve(train, "10.0.0.7:8817", token=..., tls_cert=..., tls_key=...)

where ``train`` takes the parameters of a round, a list of arrays, and gives those that it made of them with its own rows, and how many rows these
were. In one place::

    parameters = godwit.federated.average(["grpc+tls://10.0.0.7:8817", ...], parameters, rounds=20, token=..., ca=...)

which is federated averaging (McMahan et al. 2017, arXiv:1602.05629): parameters of a round are those of the nodes, weighted by their rows.
An exchange with each node stays open over all rounds. Parameters are told as they are: who can ask a node learns what can be learnt from them.
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
from ._flight import Connection
from ._serving import Place, Serving, in_words_of_flight

Parameters = Sequence[npt.NDArray[Any]]
Train = Callable[[list[npt.NDArray[Any]]], tuple[Parameters, int]]
# The one exchange that a node knows.
PATH = "federated"
COLUMN = "parameters"


def _packed(parameters: Parameters) -> tuple[pa.Schema, pa.RecordBatch]:
    """All numbers in one column, and in the metadata what they belong to; a single array is not copied."""
    arrays = [np.ascontiguousarray(array) for array in parameters]
    kinds = {array.dtype for array in arrays}
    if len(kinds) != 1 or next(iter(kinds)).kind not in "fiu":
        raise UsageError(f"parameters are arrays of numbers of one type, not of {', '.join(sorted(map(str, kinds))) or 'none'}")
    flat = arrays[0].reshape(-1) if len(arrays) == 1 else np.concatenate([array.reshape(-1) for array in arrays])
    column = pa.array(flat)
    schema = pa.schema([pa.field(COLUMN, column.type, nullable=False)], {"shapes": json.dumps([array.shape for array in arrays])})
    return schema, pa.record_batch([column], schema=schema)


def _unpacked(shapes: list[tuple[int, ...]], batch: pa.RecordBatch) -> list[npt.NDArray[Any]]:
    """Arrays of those shapes, which share the memory of the batch."""
    flat = batch.column(0).to_numpy()
    counts = [int(np.prod(shape)) for shape in shapes]
    if sum(counts) != len(flat):
        raise InputError(f"{len(flat)} parameters came, and their shapes want {sum(counts)}")
    return [part.reshape(shape) for part, shape in zip(np.split(flat, np.cumsum(counts)[:-1]), shapes, strict=True)]


def _shapes(schema: pa.Schema) -> list[tuple[int, ...]]:
    if schema.names != [COLUMN] or b"shapes" not in (schema.metadata or {}):
        raise UsageError("these are no parameters")
    return [tuple(shape) for shape in json.loads(schema.metadata[b"shapes"])]


class _Node(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(self, train: Train, location: str, **options: Any):
        self._train = train
        super().__init__(location, **options)

    def do_exchange(self, context: Any, descriptor: flight.FlightDescriptor, reader: Any, writer: Any) -> None:
        """For each batch of parameters those that were made of them; their number of rows is said beside."""
        with in_words_of_flight():
            if descriptor.path != [PATH.encode()]:
                raise UsageError(f"a node trains by an exchange with the path {PATH}")
            shapes = _shapes(reader.schema)
            writer.begin(reader.schema)
            while True:
                try:
                    chunk = reader.read_chunk()
                except StopIteration:
                    return
                trained, rows = self._train(_unpacked(shapes, chunk.data))
                if [array.shape for array in trained] != shapes:
                    raise InputError("training gave parameters of other shapes than it got")
                _, batch = _packed([array.astype(chunk.data.column(0).type.to_pandas_dtype(), copy=False) for array in trained])
                writer.write_with_metadata(batch, str(int(rows)).encode())


def serve(
    train: Train,
    listen: str,
    *,
    token: str | None = None,
    tls_cert: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    insecure: bool = False,
) -> Serving:
    """Lets those in who have a model trained on the rows of this node, and returns at once.

    Args:
        train: Takes parameters and gives those it made of them, with the number of its rows. Is called by one thread for each that trains here.
        listen: HOST:PORT; port 0 takes any.
        token: What they have to show.
        tls_cert: Certificate and its chain, PEM.
        tls_key: Its key, PEM.
        insecure: Whether other machines are let in without TLS, or without a token.
    """
    place = Place(listen, token, tls_cert, tls_key, insecure)
    return Serving(*place.start(lambda location, **options: _Node(train, location, **options)))


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
        urls: The nodes.
        parameters: Those to begin with.
        rounds: How many.
        token: What nodes ask for.
        ca: Trust nodes whose certificate is in this file, or signed by one in it, PEM.
        after_round: Is told of each round, its number from 1 and its parameters.

    Raises:
        RemoteError: A node cannot be reached, or ended; what was reached by then is lost unless ``after_round`` kept it.
        InputError: Training failed at a node.
    """
    if not urls:
        raise UsageError("there is no node to train at")
    authority = None if ca is None else Path(ca).read_bytes()
    current = [np.array(array) for array in parameters]
    _packed(current)
    with contextlib.ExitStack() as open_ones:
        nodes = [open_ones.enter_context(contextlib.closing(_Exchange(Connection(url, token, authority)))) for url in urls]
        pool = open_ones.enter_context(ThreadPoolExecutor(len(nodes)))
        for number in range(1, rounds + 1):
            schema, batch = _packed(current)
            answers = list(pool.map(lambda node, schema=schema, batch=batch: node.trained(schema, batch), nodes))
            total = sum(rows for _, rows in answers)
            if total == 0:
                raise InputError("no node has rows to train on")
            # Sums are made in double precision, in the order of the nodes: the same whoever answers first.
            mean = sum((np.asarray(flat, np.float64) * (rows / total) for flat, rows in answers), np.zeros(1))
            flat = np.asarray(mean, batch.column(0).type.to_pandas_dtype())
            shapes = [array.shape for array in current]
            current = [array.copy() for array in _unpacked(shapes, pa.record_batch([pa.array(flat)], [COLUMN]))]
            if after_round is not None:
                after_round(number, current)
    return current


class _Exchange:
    """An exchange with a node, for all rounds."""

    def __init__(self, connection: Connection):
        self._connection = connection
        descriptor = flight.FlightDescriptor.for_path(PATH)
        self._writer, self._reader = connection.asked(lambda: connection.client.do_exchange(descriptor, connection.options))
        self._begun = False

    def trained(self, schema: pa.Schema, batch: pa.RecordBatch) -> tuple[npt.NDArray[Any], int]:
        """Parameters of a node after its round, and the rows it trained on."""

        def ask() -> Any:
            if not self._begun:
                self._writer.begin(schema)
                self._begun = True
            self._writer.write_batch(batch)
            return self._reader.read_chunk()

        try:
            chunk = self._connection.asked(ask)
        except StopIteration:
            raise RemoteError(f"{self._connection.url} ended before the round was over") from None
        except GodwitError as error:
            raise type(error)(f"{self._connection.url}: {error}") from error
        if len(chunk.data) != len(batch):
            raise InputError(f"{self._connection.url} gave {len(chunk.data)} parameters for {len(batch)}")
        return chunk.data.column(0).to_numpy(), int(chunk.app_metadata.to_pybytes())

    def close(self) -> None:
        self._reader.cancel()
        with contextlib.suppress(flight.FlightError, pa.ArrowException, OSError):
            self._writer.close()
        self._connection.close()

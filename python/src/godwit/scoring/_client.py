"""The asking end."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import flight

from .._errors import GodwitError, RemoteError, UsageError
from .._flight import Connection, as_reader
from ._models import Matrix

# Rows of a batch on its way: more gain nothing, and fewer cost more each.
BATCH_ROWS = 16_384

# Bytes of scores that may wait to be taken, and about what a batch costs beside its columns. An exchange is written and read by one
# thread, and that cannot hang while the service can send them all, taken or not: the window of a stream is well above them.
UNTAKEN_BYTES = 1 << 20
BATCH_BYTES = 1 << 10
WINDOW = {"grpc.http2.lookahead_bytes": 4 * UNTAKEN_BYTES, "grpc.http2.bdp_probe": 0}

# Seconds a source may take for a batch before the scores of those before it are given first.
SOURCE_PATIENCE = 0.05


def connect(
    url: str, model: str | None = None, *, version: str | None = None, token: str | None = None, ca: str | os.PathLike[str] | None = None
) -> Scorer:
    """A model of a service that is there.

    Args:
        url: ``grpc+tls://HOST:PORT``, or ``grpc+tcp://..`` without encryption.
        model: Its name; need not be said where there is one.
        version: The last where nothing is said, at the time of each call.
        token: What the service asks for.
        ca: Trust services whose certificate is in this file, or signed by one in it, PEM.

    Raises:
        RemoteError: Nobody is there, or does not let us in.
        UsageError: There is no such model.
    """
    return Scorer(Connection(url, token, None if ca is None else Path(ca).read_bytes(), WINDOW), model, version)


class Scorer:
    """One model of a service. Ends with ``close()``, or at the end of a ``with``."""

    def __init__(self, connection: Connection, model: str | None, version: str | None):
        self._connection = connection
        if model is None:
            names = sorted({one["model"] for one in self.models()})
            if len(names) != 1:
                raise UsageError(f"which model? There are {', '.join(names)}")
            model = names[0]
        self._asked = {"model": model} | ({} if version is None else {"version": version})
        self.described()

    def __enter__(self) -> Scorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<godwit.scoring.Scorer of {'/'.join(self._asked.values())} at {self._connection.url}>"

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def models(self) -> list[dict[str, Any]]:
        """What the service has: name, version, kind, features and scores of each."""
        listed: list[dict[str, Any]] = self._told("ListModels", b"")
        return listed

    def described(self) -> dict[str, Any]:
        """The same of this model."""
        told: dict[str, Any] = self._told("DescribeModel", json.dumps(self._asked).encode())
        return told

    def reload(self) -> dict[str, Any]:
        """Has the service take models whose files are new or changed."""
        told: dict[str, Any] = self._told("ReloadModels", b"")
        return told

    def metrics(self) -> str:
        """Counts of the service, as Prometheus reads them."""
        return b"".join(self._connection.action("Metrics", b"")).decode()

    def score(self, data: Any, *, keep: Sequence[str] = (), batch_rows: int = BATCH_ROWS) -> pa.Table:
        """Scores of all rows, in their order, beside columns of the data that are kept.

        Args:
            data: A table or a batch of pyarrow, a frame, a reader, a `godwit.Query`: anything with the Arrow stream interface, or
                batches. Only the features are sent.
            keep: Columns to give back beside the scores.
            batch_rows: Rows of a batch on its way.
        """
        return self.score_stream(data, keep=keep, batch_rows=batch_rows).read_all()

    def score_stream(self, data: Any, *, keep: Sequence[str] = (), batch_rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """The same as a stream: a few batches are under way, whatever the size of the data."""
        reader = as_reader(pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data)
        described = self.described()
        features = _present(described, reader.schema)
        lacking = [name for name in keep if name not in reader.schema.names]
        if lacking:
            raise UsageError(f"there is no column {', '.join(lacking)} to keep")
        kept = [reader.schema.field(name) for name in keep]
        scores = [pa.field(one["name"], pa.type_for_alias(one["type"])) for one in described["scores"]]
        schema = pa.schema([*kept, *scores])
        sent = _sent(described, [reader.schema.field(at) for at in features])
        return pa.RecordBatchReader.from_batches(schema, _scored(self._exchange(), reader, features, sent, schema, len(kept), batch_rows))

    def stream(self) -> Stream:
        """An exchange that stays open, for callers of one row or a few: each call is one way there and back."""
        return Stream(self._exchange(), self.described())

    def _exchange(self) -> _Exchange:
        return _Exchange(self._connection, json.dumps(self._asked).encode())

    def _told(self, action: str, body: bytes) -> Any:
        return json.loads(b"".join(self._connection.action(action, body)))


def _present(described: Mapping[str, Any], schema: pa.Schema) -> list[int]:
    """Where the features are in a table; a model that knows no names takes columns as they stand."""
    names: list[str] = described["features"]
    missing = [name for name in names if name not in schema.names]
    if not missing:
        return [schema.get_field_index(name) for name in names]
    if described["by_position"] and len(missing) == len(names) == len(schema.names):
        return list(range(len(names)))
    raise UsageError(f"model {described['model']} wants the columns {', '.join(names)}; there is no {', '.join(missing)}")


def _sent(described: Mapping[str, Any], features: Sequence[pa.Field]) -> pa.Schema:
    """The features as they travel: doubles as floats where the model makes floats of them, rounded as it would, in half of the bytes."""
    narrow = described.get("feature_type") == str(pa.float32())
    return pa.schema([field.with_type(pa.float32()) if narrow and field.type == pa.float64() else field for field in features])


class _Exchange:
    """Both ends of a call that is open, for one thread: a read that fails ends the call, and gRPC aborts if a write is under way then."""

    def __init__(self, connection: Connection, command: bytes):
        self._connection = connection
        self.url = connection.url
        descriptor = flight.FlightDescriptor.for_command(command)
        self._writer, self._reader = connection.asked(lambda: connection.client.do_exchange(descriptor, connection.options))

    def begin(self, schema: pa.Schema) -> None:
        self._connection.asked(lambda: self._writer.begin(schema))

    def send(self, batch: pa.RecordBatch) -> None:
        self._connection.asked(lambda: self._writer.write_batch(batch))

    def done(self) -> None:
        self._connection.asked(self._writer.done_writing)

    def take(self) -> pa.RecordBatch:
        """The scores of a batch; raises `StopIteration` at the end."""
        while True:
            chunk = self._connection.asked(self._reader.read_chunk)
            if chunk.data is not None:
                return chunk.data

    def end(self) -> None:
        """After all was sent, and all scores were taken."""
        with contextlib.suppress(StopIteration):
            self.take()
            raise RemoteError(f"{self.url} gave scores for rows that were not sent")
        self.close()

    def close(self) -> None:
        self._connection.asked(self._writer.close)

    def abandon(self) -> None:
        """Has both ends give up, whatever its state."""
        with contextlib.suppress(flight.FlightError, pa.ArrowException):
            self._reader.cancel()
        with contextlib.suppress(flight.FlightError, pa.ArrowException, OSError):
            self._writer.close()


def _scored(
    exchange: _Exchange, reader: pa.RecordBatchReader, features: list[int], features_sent: pa.Schema, schema: pa.Schema, kept: int, rows: int
) -> Iterator[pa.RecordBatch]:
    """Rows with their scores. Batches are sent ahead of those that are taken, for the service to have work while this end works."""
    waiting: deque[pa.RecordBatch] = deque()
    untaken = 0
    names = [schema.field(at).name for at in range(kept)]
    row_bytes = sum(schema.field(at).type.bit_width // 8 for at in range(kept, len(schema)))

    def weight(batch: pa.RecordBatch) -> int:
        return int(batch.num_rows * row_bytes + BATCH_BYTES)

    def taken() -> pa.RecordBatch:
        nonlocal untaken
        try:
            scores = exchange.take()
        except StopIteration:
            raise RemoteError(f"{exchange.url} ended before all rows were scored; is it a service for scoring?") from None
        batch = waiting.popleft()
        untaken -= weight(batch)
        return pa.record_batch([*batch.columns, *scores.columns], schema=schema)

    def sent(send: Callable[[], None]) -> None:
        try:
            send()
        except GodwitError:
            # What the service says tells more than that it could not be sent to.
            while waiting:
                taken()
            raise

    whole = False
    try:
        sent(lambda: exchange.begin(features_sent))
        asked = time.monotonic()
        for batch in reader:
            if time.monotonic() - asked > SOURCE_PATIENCE:
                while waiting:
                    yield taken()
            for at in range(0, batch.num_rows, rows):
                piece = batch.slice(at, rows)
                while waiting and untaken + weight(piece) > UNTAKEN_BYTES:
                    yield taken()
                waiting.append(piece.select(names))
                untaken += weight(piece)
                sent(lambda piece=piece: exchange.send(piece.select(features).cast(features_sent, safe=False)))  # type: ignore[misc]
            asked = time.monotonic()
        sent(exchange.done)
        while waiting:
            yield taken()
        exchange.end()
        whole = True
    finally:
        if not whole:
            exchange.abandon()


class Stream:
    """An open exchange with a model, for one caller at a time. Ends with ``close()``, or at the end of a ``with``."""

    def __init__(self, exchange: _Exchange, described: Mapping[str, Any]):
        self._exchange = exchange
        self._described = described
        self._schema: pa.Schema | None = None
        self._ended = False

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Whoever forgets to close it leaves no call open.
        if not self._ended:
            self._exchange.abandon()

    def score(self, rows: pa.RecordBatch | Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> Matrix:
        """Scores of a batch, or of a row or rows as dictionaries, with a column for each score where there are several.

        All batches of a stream have the types of the first; numbers of dictionaries are floats of 64 bits.
        """
        batch = self._batch(rows)
        if self._schema is None:
            self._exchange.begin(batch.schema)
            self._schema = batch.schema
        if batch.schema != self._schema:
            raise UsageError(f"batches of a stream have one schema: it began with {self._schema}, and this is {batch.schema}")
        try:
            # Where it cannot be sent, the answer says why.
            with contextlib.suppress(GodwitError):
                self._exchange.send(batch)
            scores = self._exchange.take()
        except StopIteration:
            self._ended = True
            raise RemoteError(f"{self._exchange.url} ended the exchange") from None
        except BaseException:
            self._ended = True
            self._exchange.abandon()
            raise
        found = [column.to_numpy() for column in scores.columns]
        if len(found) == 1:
            return found[0]  # type: ignore[no-any-return]
        import numpy as np

        return np.column_stack(found)

    def _batch(self, rows: pa.RecordBatch | Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
        if isinstance(rows, pa.RecordBatch):
            return rows.select(_present(self._described, rows.schema))
        listed = [rows] if isinstance(rows, Mapping) else list(rows)
        names: list[str] = self._described["features"]
        for row in listed:
            lacking = [name for name in names if name not in row]
            if lacking:
                raise UsageError(f"a row lacks {', '.join(lacking)}; write None for a value that is missing")
        return pa.record_batch([pa.array([row[name] for row in listed], pa.float64()) for name in names], names)

    def close(self) -> None:
        """Ends the exchange."""
        ended, self._ended = self._ended, True
        if ended or self._schema is None:
            self._exchange.abandon()
            return
        self._exchange.done()
        self._exchange.close()

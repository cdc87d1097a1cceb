"""The client of a scoring service."""

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
from .._flight_client import Connection, to_batch_reader
from ._models import Matrix

# Rows of a batch that is sent: larger batches are not faster, and smaller ones cost more for each row.
DEFAULT_BATCH_ROWS = 16_384

# Maximum bytes of scores that are not read yet, and the approximate overhead of a batch. One thread writes and reads an exchange; it cannot
# deadlock as long as the service can send all scores without a read, so the flow-control window of the stream is larger than this maximum.
MAX_PENDING_SCORE_BYTES = 1 << 20
BATCH_OVERHEAD_BYTES = 1 << 10
FLOW_CONTROL_OPTIONS = {"grpc.http2.lookahead_bytes": 4 * MAX_PENDING_SCORE_BYTES, "grpc.http2.bdp_probe": 0}

# Time that the source may take for a batch before the pending scores are yielded first.
SOURCE_TIMEOUT_S = 0.05


def connect(
    url: str, model: str | None = None, *, version: str | None = None, token: str | None = None, ca: str | os.PathLike[str] | None = None
) -> Scorer:
    """Connects to a model of a running service.

    Args:
        url: ``grpc+tls://HOST:PORT``, or ``grpc+tcp://..`` without encryption.
        model: Name of the model (default: the only model of the service).
        version: Version of the model (default: the latest at the time of each call).
        token: Token for the service.
        ca: File of trusted certificates, PEM: of services, or of authorities that signed theirs.

    Raises:
        RemoteError: The service cannot be reached, or rejects the token.
        UsageError: The model does not exist.
    """
    return Scorer(Connection(url, token, None if ca is None else Path(ca).read_bytes(), FLOW_CONTROL_OPTIONS), model, version)


class Scorer:
    """One model of a service. Closed by ``close()``, or at the end of a ``with`` block."""

    def __init__(self, connection: Connection, model: str | None, version: str | None):
        self._connection = connection
        if model is None:
            names = sorted({one["model"] for one in self.models()})
            if len(names) != 1:
                raise UsageError(f"which model? There are {', '.join(names)}")
            model = names[0]
        self._model_request = {"model": model} | ({} if version is None else {"version": version})
        self.described()

    def __enter__(self) -> Scorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<godwit.scoring.Scorer of {'/'.join(self._model_request.values())} at {self._connection.url}>"

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def models(self) -> list[dict[str, Any]]:
        """Lists the models of the service: name, version, kind, features and scores of each."""
        listed: list[dict[str, Any]] = self._action_json("ListModels", b"")
        return listed

    def described(self) -> dict[str, Any]:
        """Describes this model: name, version, kind, features and scores."""
        description: dict[str, Any] = self._action_json("DescribeModel", json.dumps(self._model_request).encode())
        return description

    def reload(self) -> dict[str, Any]:
        """Makes the service load models whose files are new or changed."""
        outcome: dict[str, Any] = self._action_json("ReloadModels", b"")
        return outcome

    def metrics(self) -> str:
        """Returns the metrics of the service in the text format of Prometheus."""
        return b"".join(self._connection.do_action("Metrics", b"")).decode()

    def score(self, data: Any, *, keep: Sequence[str] = (), batch_rows: int = DEFAULT_BATCH_ROWS) -> pa.Table:
        """Returns the scores of all rows, in their order, and the columns in ``keep``.

        Args:
            data: A table or a batch of pyarrow, a data frame, a reader, a `godwit.Query`: any object with the Arrow stream interface, or
                batches. Only the features are sent.
            keep: Columns of the data to return with the scores.
            batch_rows: Rows of a batch that is sent.
        """
        return self.score_stream(data, keep=keep, batch_rows=batch_rows).read_all()

    def score_stream(self, data: Any, *, keep: Sequence[str] = (), batch_rows: int = DEFAULT_BATCH_ROWS) -> pa.RecordBatchReader:
        """Like `score`, but returns a reader: only a few batches are in memory, independent of the size of the data."""
        reader = to_batch_reader(pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data)
        description = self.described()
        features = _feature_columns(description, reader.schema)
        missing = [name for name in keep if name not in reader.schema.names]
        if missing:
            raise UsageError(f"there is no column {', '.join(missing)} to keep")
        kept_columns = [reader.schema.field(name) for name in keep]
        scores = [pa.field(one["name"], pa.type_for_alias(one["type"])) for one in description["scores"]]
        schema = pa.schema([*kept_columns, *scores])
        wire_schema = _wire_schema(description, [reader.schema.field(at) for at in features])
        return pa.RecordBatchReader.from_batches(
            schema, _score_batches(self._exchange(), reader, features, wire_schema, schema, len(kept_columns), batch_rows)
        )

    def stream(self) -> Stream:
        """Opens an exchange that stays open, for scoring one row or a few at a time: each call takes one round trip."""
        return Stream(self._exchange(), self.described())

    def _exchange(self) -> _ScoringExchange:
        return _ScoringExchange(self._connection, json.dumps(self._model_request).encode())

    def _action_json(self, action: str, body: bytes) -> Any:
        return json.loads(b"".join(self._connection.do_action(action, body)))


def _feature_columns(description: Mapping[str, Any], schema: pa.Schema) -> list[int]:
    """Returns the positions of the features in a table; a model without feature names takes the columns in their order."""
    names: list[str] = description["features"]
    missing = [name for name in names if name not in schema.names]
    if not missing:
        return [schema.get_field_index(name) for name in names]
    if description["by_position"] and len(missing) == len(names) == len(schema.names):
        return list(range(len(names)))
    raise UsageError(f"model {description['model']} requires the columns {', '.join(names)}; there is no {', '.join(missing)}")


def _wire_schema(description: Mapping[str, Any], features: Sequence[pa.Field]) -> pa.Schema:
    """Returns the schema of the sent features: float64 becomes float32 if the model rounds to float32 itself, which halves the bytes."""
    narrow = description.get("feature_type") == str(pa.float32())
    return pa.schema([field.with_type(pa.float32()) if narrow and field.type == pa.float64() else field for field in features])


class _ScoringExchange:
    """An open DoExchange call, for one thread: a failed read ends the call, and gRPC aborts the process if a write is in progress then."""

    def __init__(self, connection: Connection, command: bytes):
        self._connection = connection
        self.url = connection.url
        descriptor = flight.FlightDescriptor.for_command(command)
        self._writer, self._reader = connection.call(lambda: connection.client.do_exchange(descriptor, connection.options))

    def begin(self, schema: pa.Schema) -> None:
        self._connection.call(lambda: self._writer.begin(schema))

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._connection.call(lambda: self._writer.write_batch(batch))

    def done_writing(self) -> None:
        self._connection.call(self._writer.done_writing)

    def read_scores(self) -> pa.RecordBatch:
        """Reads the scores of a batch; raises `StopIteration` at the end."""
        while True:
            chunk = self._connection.call(self._reader.read_chunk)
            if chunk.data is not None:
                return chunk.data

    def finish(self) -> None:
        """Closes the exchange after all rows were sent and all scores were read."""
        with contextlib.suppress(StopIteration):
            self.read_scores()
            raise RemoteError(f"{self.url} returned scores for rows that were not sent")
        self.close()

    def close(self) -> None:
        self._connection.call(self._writer.close)

    def cancel(self) -> None:
        """Cancels the call, in any state."""
        with contextlib.suppress(flight.FlightError, pa.ArrowException):
            self._reader.cancel()
        with contextlib.suppress(flight.FlightError, pa.ArrowException, OSError):
            self._writer.close()


def _score_batches(
    exchange: _ScoringExchange,
    reader: pa.RecordBatchReader,
    features: list[int],
    wire_schema: pa.Schema,
    schema: pa.Schema,
    kept_columns: int,
    rows: int,
) -> Iterator[pa.RecordBatch]:
    """Yields rows with their scores.

    Batches are sent before the scores of earlier ones are read, so that the service and the client work concurrently.
    """
    pending: deque[pa.RecordBatch] = deque()
    unread_bytes = 0
    names = [schema.field(at).name for at in range(kept_columns)]
    row_bytes = sum(schema.field(at).type.bit_width // 8 for at in range(kept_columns, len(schema)))

    def pending_bytes(batch: pa.RecordBatch) -> int:
        return int(batch.num_rows * row_bytes + BATCH_OVERHEAD_BYTES)

    def next_scored_batch() -> pa.RecordBatch:
        nonlocal unread_bytes
        try:
            scores = exchange.read_scores()
        except StopIteration:
            raise RemoteError(f"{exchange.url} closed the exchange before all rows were scored; is it a scoring service?") from None
        batch = pending.popleft()
        unread_bytes -= pending_bytes(batch)
        return pa.record_batch([*batch.columns, *scores.columns], schema=schema)

    def send_or_explain(send: Callable[[], None]) -> None:
        try:
            send()
        except GodwitError:
            # The error of the service is more specific than the error of the write.
            while pending:
                next_scored_batch()
            raise

    is_complete = False
    try:
        send_or_explain(lambda: exchange.begin(wire_schema))
        requested_at = time.monotonic()
        for batch in reader:
            if time.monotonic() - requested_at > SOURCE_TIMEOUT_S:
                while pending:
                    yield next_scored_batch()
            for at in range(0, batch.num_rows, rows):
                piece = batch.slice(at, rows)
                while pending and unread_bytes + pending_bytes(piece) > MAX_PENDING_SCORE_BYTES:
                    yield next_scored_batch()
                pending.append(piece.select(names))
                unread_bytes += pending_bytes(piece)
                send_or_explain(lambda piece=piece: exchange.write_batch(piece.select(features).cast(wire_schema, safe=False)))  # type: ignore[misc]
            requested_at = time.monotonic()
        send_or_explain(exchange.done_writing)
        while pending:
            yield next_scored_batch()
        exchange.finish()
        is_complete = True
    finally:
        if not is_complete:
            exchange.cancel()


class Stream:
    """An open exchange with a model, for one thread at a time. Closed by ``close()``, or at the end of a ``with`` block."""

    def __init__(self, exchange: _ScoringExchange, description: Mapping[str, Any]):
        self._exchange = exchange
        self._described = description
        self._schema: pa.Schema | None = None
        self._ended = False

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Cancels the call if the stream is never closed.
        if not self._ended:
            self._exchange.cancel()

    def score(self, rows: pa.RecordBatch | Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> Matrix:
        """Returns the scores of a batch, or of rows as dictionaries; several scores are the columns of a matrix.

        All batches of a stream must have the schema of the first; numbers of dictionaries become float64.
        """
        batch = self._to_batch(rows)
        if self._schema is None:
            self._exchange.begin(batch.schema)
            self._schema = batch.schema
        if batch.schema != self._schema:
            raise UsageError(f"batches of a stream must have one schema: the first has {self._schema}, and this one {batch.schema}")
        try:
            # If the write fails, the read raises the error of the service.
            with contextlib.suppress(GodwitError):
                self._exchange.write_batch(batch)
            scores = self._exchange.read_scores()
        except StopIteration:
            self._ended = True
            raise RemoteError(f"{self._exchange.url} ended the exchange") from None
        except BaseException:
            self._ended = True
            self._exchange.cancel()
            raise
        found = [column.to_numpy() for column in scores.columns]
        if len(found) == 1:
            return found[0]  # type: ignore[no-any-return]
        import numpy as np

        return np.column_stack(found)

    def _to_batch(self, rows: pa.RecordBatch | Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
        if isinstance(rows, pa.RecordBatch):
            return rows.select(_feature_columns(self._described, rows.schema))
        listed = [rows] if isinstance(rows, Mapping) else list(rows)
        names: list[str] = self._described["features"]
        for row in listed:
            missing = [name for name in names if name not in row]
            if missing:
                raise UsageError(f"a row lacks {', '.join(missing)}; use None for a missing value")
        return pa.record_batch([pa.array([row[name] for row in listed], pa.float64()) for name in names], names)

    def close(self) -> None:
        """Closes the exchange."""
        ended, self._ended = self._ended, True
        if ended or self._schema is None:
            self._exchange.cancel()
            return
        self._exchange.done_writing()
        self._exchange.close()

"""The scoring service: an Arrow Flight server whose exchanges take batches and return their scores."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import flight

from .._errors import UsageError
from .._flight_server import ListenOptions, ServerHandle, translate_errors_to_flight
from ._metrics import prometheus_text
from ._micro_batching import MAX_MICRO_BATCH_ROWS
from ._registry import Registry, ServedModel

DEFAULT_LISTEN = "127.0.0.1:8816"
# Maximum open exchanges: each occupies a thread.
MAX_EXCHANGES = 256

DESCRIBE, LIST, RELOAD, METRICS = "DescribeModel", "ListModels", "ReloadModels", "Metrics"
ACTIONS = {
    DESCRIBE: 'Features and scores of a model: {"model": .., "version": ..} in JSON (default: the latest version).',
    LIST: "Features and scores of all models, as a list.",
    RELOAD: "Loads models whose files are new or changed, and returns their names.",
    METRICS: "Metrics in the text format of Prometheus.",
}


class _ScoringServer(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(self, registry: Registry, location: str, **options: Any):
        self._registry = registry
        self._exchanges = threading.BoundedSemaphore(MAX_EXCHANGES)
        super().__init__(location, **options)

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[flight.FlightInfo]:
        for served in self._registry.all_versions():
            yield _info(served)

    def get_flight_info(self, context: Any, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        return _info(self._model_for_descriptor(descriptor))

    def get_schema(self, context: Any, descriptor: flight.FlightDescriptor) -> flight.SchemaResult:
        return flight.SchemaResult(_schema(self._model_for_descriptor(descriptor)))

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return list(ACTIONS.items())

    def do_action(self, context: Any, action: flight.Action) -> list[bytes]:
        with translate_errors_to_flight():
            if action.type == DESCRIBE:
                return [json.dumps(self._model_for_command(action.body.to_pybytes()).describe()).encode()]
            if action.type == LIST:
                return [json.dumps([served.describe() for served in self._registry.all_versions()]).encode()]
            if action.type == RELOAD:
                return [json.dumps(self._registry.reload()).encode()]
            if action.type == METRICS:
                return [prometheus_text((served.name, served.version, served.metrics) for served in self._registry.all_versions()).encode()]
        raise NotImplementedError(f"there is no action {action.type!r}; there are {', '.join(ACTIONS)}")

    def do_exchange(self, context: Any, descriptor: flight.FlightDescriptor, reader: Any, writer: Any) -> None:
        served = self._model_for_descriptor(descriptor)
        if not self._exchanges.acquire(blocking=False):
            raise flight.FlightUnavailableError(f"{MAX_EXCHANGES} exchanges are open; try again")
        served.metrics.record_open_exchanges(1)
        try:
            with translate_errors_to_flight():
                _score_exchange(served, reader, writer)
        except BaseException:
            served.metrics.record_failure()
            raise
        finally:
            served.metrics.record_open_exchanges(-1)
            self._exchanges.release()

    def _model_for_descriptor(self, descriptor: flight.FlightDescriptor) -> ServedModel:
        path = [part.decode() for part in descriptor.path or []]
        with translate_errors_to_flight():
            if descriptor.descriptor_type == flight.DescriptorType.CMD:
                return self._model_for_command(descriptor.command)
            if len(path) not in (1, 2):
                raise UsageError("a model is named by a path, NAME or NAME and VERSION, or by a command in JSON")
            return self._registry.find_version(*path)

    def _model_for_command(self, command: bytes) -> ServedModel:
        try:
            request = json.loads(command)
            name, version = request["model"], request.get("version")
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError('a model is named by {"model": "NAME"}, with "version" if it is not the latest') from error
        return self._registry.find_version(str(name), None if version is None else str(version))


def _schema(served: ServedModel) -> pa.Schema:
    return served.model.schema.with_metadata({"godwit.model": json.dumps(served.describe())})


def _info(served: ServedModel) -> flight.FlightInfo:
    return flight.FlightInfo(_schema(served), flight.FlightDescriptor.for_path(served.name, served.version), [], -1, -1)


def _score_exchange(served: ServedModel, reader: Any, writer: Any) -> None:
    """Returns a batch of scores for each batch, in their order; the metadata of a batch are returned with its scores."""
    try:
        schema = reader.schema
    except OSError:
        # The client closed the exchange without a schema.
        return
    columns = served.model.columns(schema)
    writer.begin(served.model.score_schema)
    for batch, app_metadata in _read_chunks(reader):
        if batch is None:
            if app_metadata is not None:
                writer.write_metadata(app_metadata)
            continue
        started = time.perf_counter()
        if 0 < batch.num_rows <= MAX_MICRO_BATCH_ROWS:
            scores = served.model.score_batch(served.micro_batcher.score(served.model.matrix(batch, columns)))
        else:
            scores = served.model.score(batch, columns)
        if app_metadata is None:
            writer.write_batch(scores)
        else:
            writer.write_with_metadata(scores, app_metadata)
        served.metrics.record_scored(batch.num_rows, time.perf_counter() - started)


def _read_chunks(reader: Any) -> Iterator[tuple[pa.RecordBatch | None, pa.Buffer | None]]:
    """Yields batches and their metadata.

    Nothing is prefetched: otherwise a call that fails while its client waits for a response could not end before the client sends more. Data
    that the client sends meanwhile stay in the buffers of the connection.
    """
    while True:
        try:
            chunk = reader.read_chunk()
        except StopIteration:
            return
        yield chunk.data, chunk.app_metadata


class Service(ServerHandle):
    """A running service, which has its own threads. Stops with ``stop()``, or at the end of a ``with`` block.

    ``url`` is its address.
    """

    def __init__(self, registry: Registry, server: _ScoringServer, url: str):
        super().__init__(server, url)
        self._registry = registry

    @property
    def models(self) -> list[dict[str, Any]]:
        """Served models: name, version, kind, features and scores of each."""
        return [served.describe() for served in self._registry.all_versions()]

    def reload(self) -> dict[str, Any]:
        """Loads models whose files are new or changed; returns those ``loaded``, ``removed`` and ``failed``, as NAME/VERSION."""
        return self._registry.reload()


def serve(
    models: Any,
    listen: str = DEFAULT_LISTEN,
    *,
    token: str | None = None,
    tls_cert: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    trust_pickles: bool = False,
    insecure: bool = False,
) -> Service:
    """Starts a service for scoring, and returns immediately.

    Args:
        models: A model; or its path; or models by name, ``{"filter": booster}``; or several versions of each,
            ``{"filter": {"1": old, "2": "filter-2.onnx"}}``; or a directory with files NAME.ubj or NAME/VERSION.ubj (also .json, .txt,
            .onnx, .joblib and .pkl), which `Service.reload` checks for changes.
        listen: HOST:PORT; port 0 chooses a free port.
        token: Token that clients must send.
        tls_cert: Certificate and its chain, PEM.
        tls_key: Key of the certificate, PEM.
        threads: Threads of each model's library (default: chosen by the library).
        trust_pickles: Whether to read models that are pickles, which can run any code when they are read.
        insecure: Whether to accept other machines without TLS, or without a token.

    Raises:
        UsageError: A model or the address is invalid, or other machines could connect without TLS and a token.
        MachineError: A library or a file is missing, or the port is in use.
        InputError: A file is not a model.
    """
    listen_options = ListenOptions(listen, token, tls_cert, tls_key, insecure)
    registry = Registry(models, threads, trust_pickles)
    server, url = listen_options.start_server(lambda location, **options: _ScoringServer(registry, location, **options))
    return Service(registry, server, url)

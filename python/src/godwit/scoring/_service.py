"""The service: Arrow Flight, whose exchanges take batches and give their scores."""

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
from .._serving import Place, Serving, in_words_of_flight
from ._metrics import text
from ._micro import FEW_ROWS
from ._registry import Registry, Served

DEFAULT_LISTEN = "127.0.0.1:8816"
# Exchanges at a time: each has a thread.
MOST_EXCHANGES = 256

DESCRIBE, LIST, RELOAD, METRICS = "DescribeModel", "ListModels", "ReloadModels", "Metrics"
ACTIONS = {
    DESCRIBE: 'What a model takes and gives: {"model": .., "version": ..} in JSON, the last version where none is named.',
    LIST: "The same of all models, as a list.",
    RELOAD: "Takes models whose files are new or changed, and says which.",
    METRICS: "Counts, as Prometheus reads them.",
}


class _Server(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(self, registry: Registry, location: str, **options: Any):
        self._registry = registry
        self._exchanges = threading.BoundedSemaphore(MOST_EXCHANGES)
        super().__init__(location, **options)

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[flight.FlightInfo]:
        for served in self._registry.all():
            yield _info(served)

    def get_flight_info(self, context: Any, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        return _info(self._found(descriptor))

    def get_schema(self, context: Any, descriptor: flight.FlightDescriptor) -> flight.SchemaResult:
        return flight.SchemaResult(_schema(self._found(descriptor)))

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return list(ACTIONS.items())

    def do_action(self, context: Any, action: flight.Action) -> list[bytes]:
        with in_words_of_flight():
            if action.type == DESCRIBE:
                return [json.dumps(self._asked(action.body.to_pybytes()).described()).encode()]
            if action.type == LIST:
                return [json.dumps([served.described() for served in self._registry.all()]).encode()]
            if action.type == RELOAD:
                return [json.dumps(self._registry.reload()).encode()]
            if action.type == METRICS:
                return [text((served.name, served.version, served.counts) for served in self._registry.all()).encode()]
        raise NotImplementedError(f"there is no action {action.type!r}; there are {', '.join(ACTIONS)}")

    def do_exchange(self, context: Any, descriptor: flight.FlightDescriptor, reader: Any, writer: Any) -> None:
        served = self._found(descriptor)
        if not self._exchanges.acquire(blocking=False):
            raise flight.FlightUnavailableError(f"{MOST_EXCHANGES} exchanges are open; try again")
        served.counts.opened(1)
        try:
            with in_words_of_flight():
                _exchange(served, reader, writer)
        except BaseException:
            served.counts.failed()
            raise
        finally:
            served.counts.opened(-1)
            self._exchanges.release()

    def _found(self, descriptor: flight.FlightDescriptor) -> Served:
        path = [part.decode() for part in descriptor.path or []]
        with in_words_of_flight():
            if descriptor.descriptor_type == flight.DescriptorType.CMD:
                return self._asked(descriptor.command)
            if len(path) not in (1, 2):
                raise UsageError("a model is named by a path, NAME or NAME and VERSION, or by a command in JSON")
            return self._registry.find(*path)

    def _asked(self, command: bytes) -> Served:
        try:
            asked = json.loads(command)
            name, version = asked["model"], asked.get("version")
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError('a model is named by {"model": "NAME"}, with "version" where it is not the last') from error
        return self._registry.find(str(name), None if version is None else str(version))


def _schema(served: Served) -> pa.Schema:
    return served.model.schema.with_metadata({"godwit.model": json.dumps(served.described())})


def _info(served: Served) -> flight.FlightInfo:
    return flight.FlightInfo(_schema(served), flight.FlightDescriptor.for_path(served.name, served.version), [], -1, -1)


def _exchange(served: Served, reader: Any, writer: Any) -> None:
    """A batch of scores for each batch, in their order; what is said beside a batch is said beside its scores."""
    try:
        schema = reader.schema
    except OSError:
        # Who says nothing, and goes, is answered nothing.
        return
    columns = served.model.columns(schema)
    writer.begin(served.model.score_schema)
    for batch, words in _chunks(reader):
        if batch is None:
            if words is not None:
                writer.write_metadata(words)
            continue
        started = time.perf_counter()
        if 0 < batch.num_rows <= FEW_ROWS:
            scores = served.model.batch(served.micro.score(served.model.matrix(batch, columns)))
        else:
            scores = served.model.score(batch, columns)
        if words is None:
            writer.write_batch(scores)
        else:
            writer.write_with_metadata(scores, words)
        served.counts.scored(batch.num_rows, time.perf_counter() - started)


def _chunks(reader: Any) -> Iterator[tuple[pa.RecordBatch | None, pa.Buffer | None]]:
    """Batches and what is said beside them.

    Nothing is read ahead: a call that fails while its client waits for an answer could not end before that client has sent more. What
    the client sends meanwhile waits in the buffers of the connection.
    """
    while True:
        try:
            chunk = reader.read_chunk()
        except StopIteration:
            return
        yield chunk.data, chunk.app_metadata


class Service(Serving):
    """A service at work, on threads of its own. Ends with ``stop()``, or at the end of a ``with``.

    ``url`` is where it is.
    """

    def __init__(self, registry: Registry, server: _Server, url: str):
        super().__init__(server, url)
        self._registry = registry

    @property
    def models(self) -> list[dict[str, Any]]:
        """What is served: name, version, kind, features and scores of each."""
        return [served.described() for served in self._registry.all()]

    def reload(self) -> dict[str, Any]:
        """Takes models whose files are new or changed: what was ``loaded``, ``removed`` and has ``failed``, as NAME/VERSION."""
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
    """Serves models for scoring, and returns at once.

    Args:
        models: A model; or the path of one; or such by name, ``{"filter": booster}``; or several versions of each,
            ``{"filter": {"1": old, "2": "filter-2.onnx"}}``; or a directory with files NAME.ubj or NAME/VERSION.ubj (also .json, .txt,
            .onnx, .joblib and .pkl), which `Service.reload` reads again.
        listen: HOST:PORT; port 0 takes any.
        token: What clients have to show.
        tls_cert: Certificate and its chain, PEM.
        tls_key: Its key, PEM.
        threads: Of each model's library; its own choice where nothing is said.
        trust_pickles: Whether models are read that are pickles, which may do anything as they are read.
        insecure: Whether other machines are served without TLS, or without a token.

    Raises:
        UsageError: That is no model, or no address, or other machines would be served unguarded.
        MachineError: A library or a file is missing, or the port is taken.
        InputError: A file is no model.
    """
    place = Place(listen, token, tls_cert, tls_key, insecure)
    registry = Registry(models, threads, trust_pickles)
    server, url = place.start(lambda location, **options: _Server(registry, location, **options))
    return Service(registry, server, url)

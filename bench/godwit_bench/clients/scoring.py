"""Scoring of a table by one model over several transports: scoring.py TRANSPORT WHERE TABLE.

TRANSPORT is `local`, whose WHERE is the model file; `service`, with the address of a scoring service; `json` and `orjson`, with that of a
JSON service. Jobs: `batches`, all rows in batches; `row`, rows one by one; `callers`, the same by several concurrent threads. Each job
returns the sum of the scores, so that the benchmark can verify that the scores are equal.
"""

import http.client
import json
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from godwit_bench.clients import job_loop
from godwit_bench.clients.job_loop import Jobs


class Transport(Protocol):
    """Scoring of tables and of single rows."""

    def batches(self, table: pa.Table, rows: int) -> Any: ...

    def make_scorer(self) -> Callable[[list[float]], Any]: ...


class LocalModel:
    """Scoring in this process in the fastest way: into a matrix of the type that the library computes with."""

    def __init__(self, where: str) -> None:
        import xgboost

        self.booster = xgboost.Booster()
        self.booster.load_model(where)
        # One thread scores a single row: two would wait for each other.
        self.single_thread_booster = self.booster.copy()
        self.single_thread_booster.set_param({"nthread": 1})

    def scored(self, batch: pa.RecordBatch) -> Any:
        matrix = np.empty((batch.num_rows, batch.num_columns), np.float32)
        for at, column in enumerate(batch.columns):
            matrix[:, at] = column.to_numpy(zero_copy_only=False)
        return self.booster.inplace_predict(matrix)

    def batches(self, table: pa.Table, rows: int) -> Any:
        return np.concatenate([self.scored(batch) for batch in table.to_batches(max_chunksize=rows)])

    def make_scorer(self) -> Callable[[list[float]], Any]:
        return lambda row: self.single_thread_booster.inplace_predict(np.array([row]))[0]


class ScoringService:
    """Scoring by `godwit.scoring`."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.scorer = self.connect()

    def connect(self) -> Any:
        from godwit import scoring

        return scoring.connect(self.where)

    def batches(self, table: pa.Table, rows: int) -> Any:
        return self.scorer.score(table, batch_rows=rows)["score"].to_numpy()

    def make_scorer(self) -> Callable[[list[float]], Any]:
        stream = self.connect().stream()
        names = stream._described["features"]
        return lambda row: stream.score(dict(zip(names, row, strict=False)))[0]


class JsonService:
    """Scoring by JSON over a persistent HTTP connection."""

    def __init__(self, where: str) -> None:
        self.where = where

    def post_batch(self, connection: http.client.HTTPConnection, matrix: Any) -> Any:
        body = json.dumps({"rows": matrix}).encode()
        connection.request("POST", "/score", body, {"Content-Type": "application/json"})
        return self.read(connection.getresponse().read())["scores"]

    def read(self, answer: bytes) -> Any:
        return json.loads(answer)

    def connect(self) -> Any:
        connection = http.client.HTTPConnection(self.where)
        connection.connect()
        # Headers and body are sent separately; with Nagle's algorithm the body would wait for the acknowledgement of the headers.
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def rows(self, matrix: Any) -> Any:
        return matrix.tolist()

    def batches(self, table: pa.Table, rows: int) -> Any:
        connection, found = self.connect(), []
        for batch in table.to_batches(max_chunksize=rows):
            found += self.post_batch(connection, self.rows(np.column_stack([column.to_numpy(zero_copy_only=False) for column in batch.columns])))
        return np.array(found)

    def make_scorer(self) -> Callable[[list[float]], Any]:
        connection = self.connect()
        return lambda row: self.post_batch(connection, [row])[0]


class OrjsonService(JsonService):
    """The same with orjson, the fastest JSON library for Python, at both ends."""

    def rows(self, matrix: Any) -> Any:
        return matrix

    def post_batch(self, connection: http.client.HTTPConnection, matrix: Any) -> Any:
        import orjson

        body = orjson.dumps({"rows": matrix}, option=orjson.OPT_SERIALIZE_NUMPY)
        connection.request("POST", "/orjson", body, {"Content-Type": "application/json"})
        return orjson.loads(connection.getresponse().read())["scores"]


TRANSPORTS: dict[str, Callable[[str], Transport]] = {"local": LocalModel, "service": ScoringService, "json": JsonService, "orjson": OrjsonService}


def jobs(transport: Transport, path: str) -> Jobs:
    table = pq.read_table(path).combine_chunks()
    rows_of = np.column_stack([column.to_numpy() for column in table.slice(0, 10_000).columns]).tolist()

    def batches(rows: int) -> Any:
        scores = transport.batches(table, rows)
        return {"rows": len(scores), "sum": float(np.sum(scores, dtype=np.float64))}

    def row(calls: int) -> dict[str, Any]:
        ask, took, total = transport.make_scorer(), [], 0.0
        for at in range(-100, calls):
            started = time.perf_counter()
            score = ask(rows_of[at % len(rows_of)])
            if at >= 0:
                took.append(time.perf_counter() - started)
                total += float(score)
        took.sort()
        return {"median_ms": 1e3 * statistics.median(took), "p99_ms": 1e3 * took[int(0.99 * len(took))], "sum": total}

    def score_concurrently(count: int, calls: int) -> dict[str, Any]:
        asks, gate = [transport.make_scorer() for _ in range(count)], threading.Barrier(count + 1)

        def call(ask: Callable[[list[float]], Any], first: int) -> None:
            ask(rows_of[0])
            gate.wait()
            for at in range(first, len(rows_of) - len(rows_of) % count, count):
                if at // count >= calls:
                    break
                ask(rows_of[at])

        threads = [threading.Thread(target=call, args=(ask, first)) for first, ask in enumerate(asks)]
        for thread in threads:
            thread.start()
        gate.wait()
        started = time.perf_counter()
        for thread in threads:
            thread.join()
        return {"rows_per_s": count * calls / (time.perf_counter() - started)}

    return {"batches": batches, "row": row, "callers": score_concurrently}


if __name__ == "__main__":
    job_loop.run_jobs(jobs(TRANSPORTS[sys.argv[1]](sys.argv[2]), sys.argv[3]))

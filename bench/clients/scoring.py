"""Scoring of a table by one model in several ways: scoring.py WAY WHERE TABLE.

WAY is `local`, whose WHERE is the model's file; `service`, that of a service for scoring; `json` and `orjson`, that of a JSON service. Jobs: `batches`,
all rows in batches; `row`, rows one by one; `callers`, the same by several callers at a time. What was scored is told as the sum of scores,
so that it can be seen to be the same.
"""

import http.client
import json
import socket
import statistics
import sys
import threading
import time

import _loop
import numpy as np
import pyarrow.parquet as pq


class Local:
    """In this process, in the quickest way there is: into a matrix of the type that the library computes with."""

    def __init__(self, where):
        import xgboost

        self.booster = xgboost.Booster()
        self.booster.load_model(where)
        # One row is one thread's: two would wait for each other.
        self.of_one_thread = self.booster.copy()
        self.of_one_thread.set_param({"nthread": 1})

    def scored(self, batch):
        matrix = np.empty((batch.num_rows, batch.num_columns), np.float32)
        for at, column in enumerate(batch.columns):
            matrix[:, at] = column.to_numpy(zero_copy_only=False)
        return self.booster.inplace_predict(matrix)

    def batches(self, table, rows):
        return np.concatenate([self.scored(batch) for batch in table.to_batches(max_chunksize=rows)])

    def caller(self):
        return lambda row: self.of_one_thread.inplace_predict(np.array([row]))[0]


class Service:
    """By `godwit.scoring`."""

    def __init__(self, where):
        self.where = where
        self.scorer = self.connect()

    def connect(self):
        from godwit import scoring

        return scoring.connect(self.where)

    def batches(self, table, rows):
        return self.scorer.score(table, batch_rows=rows)["score"].to_numpy()

    def caller(self):
        stream = self.connect().stream()
        names = stream._described["features"]
        return lambda row: stream.score(dict(zip(names, row)))[0]


class Json:
    """By HTTP with JSON over a connection that is kept."""

    def __init__(self, where):
        self.where = where

    def ask(self, connection, matrix):
        body = json.dumps({"rows": matrix}).encode()
        connection.request("POST", "/score", body, {"Content-Type": "application/json"})
        return self.read(connection.getresponse().read())["scores"]

    def read(self, answer):
        return json.loads(answer)

    def connect(self):
        connection = http.client.HTTPConnection(self.where)
        connection.connect()
        # Headers and body go by themselves, and the latter would wait for the former to be acknowledged.
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def rows(self, matrix):
        return matrix.tolist()

    def batches(self, table, rows):
        connection, found = self.connect(), []
        for batch in table.to_batches(max_chunksize=rows):
            found += self.ask(connection, self.rows(np.column_stack([column.to_numpy(zero_copy_only=False) for column in batch.columns])))
        return np.array(found)

    def caller(self):
        connection = self.connect()
        return lambda row: self.ask(connection, [row])[0]


class Orjson(Json):
    """The same with the fastest JSON there is for Python, at both ends."""

    def rows(self, matrix):
        return matrix

    def ask(self, connection, matrix):
        import orjson

        body = orjson.dumps({"rows": matrix}, option=orjson.OPT_SERIALIZE_NUMPY)
        connection.request("POST", "/orjson", body, {"Content-Type": "application/json"})
        return orjson.loads(connection.getresponse().read())["scores"]


WAYS = {"local": Local, "service": Service, "json": Json, "orjson": Orjson}


def jobs(way, path):
    table = pq.read_table(path).combine_chunks()
    rows_of = np.column_stack([column.to_numpy() for column in table.slice(0, 10_000).columns]).tolist()

    def batches(rows):
        scores = way.batches(table, rows)
        return {"rows": len(scores), "sum": float(np.sum(scores, dtype=np.float64))}

    def row(calls):
        ask, took, total = way.caller(), [], 0.0
        for at in range(-100, calls):
            started = time.perf_counter()
            score = ask(rows_of[at % len(rows_of)])
            if at >= 0:
                took.append(time.perf_counter() - started)
                total += float(score)
        took.sort()
        return {"median_ms": 1e3 * statistics.median(took), "p99_ms": 1e3 * took[int(0.99 * len(took))], "sum": total}

    def callers(count, calls):
        asks, gate = [way.caller() for _ in range(count)], threading.Barrier(count + 1)

        def call(ask, first):
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

    return {"batches": batches, "row": row, "callers": callers}


if __name__ == "__main__":
    _loop.serve(jobs(WAYS[sys.argv[1]](sys.argv[2]), sys.argv[3]))

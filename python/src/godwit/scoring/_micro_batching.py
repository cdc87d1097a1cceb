"""Micro-batching: small batches of concurrent clients are scored by one call of the model."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import numpy as np

from ._metrics import ModelMetrics
from ._models import Matrix

# Larger batches gain nothing from micro-batching.
MAX_MICRO_BATCH_ROWS = 256
# Maximum rows of one call.
MAX_COMBINED_ROWS = 4096


class _Request:
    def __init__(self, matrix: Matrix):
        self.matrix = matrix
        self.scores: Matrix | None = None
        self.error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        return self.scores is not None or self.error is not None


class MicroBatcher:
    """Runs one call of the model at a time. Requests that arrive meanwhile are queued, and the next thread scores all queued requests.

    There is no delay to collect requests: a single request is scored immediately, on its own thread.
    """

    def __init__(self, predict: Callable[[Matrix], Matrix], metrics: ModelMetrics):
        self._predict = predict
        self._metrics = metrics
        self._pending: deque[_Request] = deque()
        self._queue_lock = threading.Lock()
        self._predict_lock = threading.Lock()

    def score(self, matrix: Matrix) -> Matrix:
        request = _Request(matrix)
        with self._queue_lock:
            self._pending.append(request)
        while not request.is_done:
            with self._predict_lock:
                if not request.is_done:
                    self._score_pending()
        if request.error is not None:
            raise request.error
        assert request.scores is not None
        return request.scores

    def _score_pending(self) -> None:
        requests: list[_Request] = []
        rows = 0
        with self._queue_lock:
            # Only requests of one type: the scores of a request must not depend on the other requests.
            while self._pending and (not requests or rows + len(self._pending[0].matrix) <= MAX_COMBINED_ROWS):
                if requests and self._pending[0].matrix.dtype != requests[0].matrix.dtype:
                    break
                requests.append(self._pending.popleft())
                rows += len(requests[-1].matrix)
        if len(requests) > 1:
            try:
                scores = self._predict(np.concatenate([request.matrix for request in requests]))
            except Exception:
                # One request may have caused the error: score each one alone.
                for request in requests:
                    self._score_alone(request)
                return
            self._metrics.record_combined(len(requests))
            ends = np.cumsum([len(request.matrix) for request in requests])
            for request, part in zip(requests, np.split(scores, ends[:-1]), strict=True):
                request.scores = part
        elif requests:
            self._score_alone(requests[0])

    def _score_alone(self, request: _Request) -> None:
        try:
            request.scores = self._predict(request.matrix)
        except BaseException as error:
            request.error = error

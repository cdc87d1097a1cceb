"""Few rows of many callers, scored together."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import numpy as np

from ._metrics import Counts
from ._models import Matrix

# Batches of more rows gain nothing from company.
FEW_ROWS = 256
# Rows that are scored together, at most.
TOGETHER_ROWS = 4096


class _Request:
    def __init__(self, matrix: Matrix):
        self.matrix = matrix
        self.scores: Matrix | None = None
        self.error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        return self.scores is not None or self.error is not None


class Micro:
    """One call of the model at a time; who comes while it runs waits, and the next to have its turn scores the rows of all who wait.

    Nobody waits for company: a caller who is alone is scored at once, on its own thread.
    """

    def __init__(self, predict: Callable[[Matrix], Matrix], counts: Counts):
        self._predict = predict
        self._counts = counts
        self._waiting: deque[_Request] = deque()
        self._door = threading.Lock()
        self._turn = threading.Lock()

    def score(self, matrix: Matrix) -> Matrix:
        request = _Request(matrix)
        with self._door:
            self._waiting.append(request)
        while not request.is_done:
            with self._turn:
                if not request.is_done:
                    self._score_those_who_wait()
        if request.error is not None:
            raise request.error
        assert request.scores is not None
        return request.scores

    def _score_those_who_wait(self) -> None:
        taken: list[_Request] = []
        rows = 0
        with self._door:
            # Those of one type: what a caller gets does not hang on who else is there.
            while self._waiting and (not taken or rows + len(self._waiting[0].matrix) <= TOGETHER_ROWS):
                if taken and self._waiting[0].matrix.dtype != taken[0].matrix.dtype:
                    break
                taken.append(self._waiting.popleft())
                rows += len(taken[-1].matrix)
        if len(taken) > 1:
            try:
                scores = self._predict(np.concatenate([one.matrix for one in taken]))
            except Exception:
                # One of them may be to blame: each for itself.
                for one in taken:
                    self._score_alone(one)
                return
            self._counts.together(len(taken))
            ends = np.cumsum([len(one.matrix) for one in taken])
            for one, part in zip(taken, np.split(scores, ends[:-1]), strict=True):
                one.scores = part
        elif taken:
            self._score_alone(taken[0])

    def _score_alone(self, request: _Request) -> None:
        try:
            request.scores = self._predict(request.matrix)
        except BaseException as error:
            request.error = error

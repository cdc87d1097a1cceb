"""Counts of a model's work, as Prometheus reads them."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable

# Upper bounds of how long a batch takes, seconds.
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Counts:
    """What one version of a model did."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.rows = 0
        self.batches = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0
        self.errors = 0
        self.open = 0
        self.combined = 0
        self.calls = 0

    def scored(self, rows: int, seconds: float) -> None:
        with self._lock:
            self.rows += rows
            self.seconds += seconds
            self.batches[bisect_left(BOUNDS, seconds)] += 1

    def failed(self) -> None:
        with self._lock:
            self.errors += 1

    def together(self, batches: int) -> None:
        """So many batches of callers were scored by one call of the model."""
        with self._lock:
            self.combined += batches
            self.calls += 1

    def opened(self, by: int) -> None:
        with self._lock:
            self.open += by


def text(models: Iterable[tuple[str, str, Counts]]) -> str:
    """All counts in the text format of Prometheus."""
    models = list(models)
    lines: list[str] = []

    def metric(name: str, kind: str, what: str, values: Iterable[tuple[str, float]]) -> None:
        lines.append(f"# HELP {name} {what}")
        lines.append(f"# TYPE {name} {kind}")
        lines.extend(f"{name}{labels} {value:g}" if isinstance(value, float) else f"{name}{labels} {value}" for labels, value in values)

    labelled = [(f'model="{name}",version="{version}"', counts) for name, version, counts in models]
    for name, kind, what, value in (
        ("rows_total", "counter", "Rows scored.", "rows"),
        ("errors_total", "counter", "Exchanges that ended with an error.", "errors"),
        ("exchanges_open", "gauge", "Exchanges that are open.", "open"),
        ("combined_batches_total", "counter", "Batches that were scored together with those of others.", "combined"),
        ("combined_calls_total", "counter", "Calls of the model that scored them.", "calls"),
    ):
        metric(f"godwit_scoring_{name}", kind, what, [(f"{{{labels}}}", getattr(counts, value)) for labels, counts in labelled])
    name = "godwit_scoring_batch_seconds"
    lines += [f"# HELP {name} From a batch being there to its scores being sent.", f"# TYPE {name} histogram"]
    for labels, counts in labelled:
        so_far = 0
        for bound, batches in zip((*map(str, BOUNDS), "+Inf"), counts.batches, strict=True):
            so_far += batches
            lines.append(f'{name}_bucket{{{labels},le="{bound}"}} {so_far}')
        lines += [f"{name}_sum{{{labels}}} {counts.seconds:.6f}", f"{name}_count{{{labels}}} {so_far}"]
    return "\n".join(lines) + "\n"

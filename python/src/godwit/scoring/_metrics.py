"""Metrics of models in the text format of Prometheus."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable

# Upper bounds of the histogram of seconds for a batch.
LATENCY_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class ModelMetrics:
    """Metrics of one version of a model."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.rows = 0
        self.batches = [0] * (len(LATENCY_BUCKETS_S) + 1)
        self.seconds = 0.0
        self.errors = 0
        self.open = 0
        self.combined = 0
        self.calls = 0

    def record_scored(self, rows: int, seconds: float) -> None:
        with self._lock:
            self.rows += rows
            self.seconds += seconds
            self.batches[bisect_left(LATENCY_BUCKETS_S, seconds)] += 1

    def record_failure(self) -> None:
        with self._lock:
            self.errors += 1

    def record_combined(self, batches: int) -> None:
        """Records that one call of the model scored several batches."""
        with self._lock:
            self.combined += batches
            self.calls += 1

    def record_open_exchanges(self, by: int) -> None:
        with self._lock:
            self.open += by


def prometheus_text(models: Iterable[tuple[str, str, ModelMetrics]]) -> str:
    """Returns the metrics of all models in the text format of Prometheus."""
    models = list(models)
    lines: list[str] = []

    def metric(name: str, kind: str, what: str, values: Iterable[tuple[str, float]]) -> None:
        lines.append(f"# HELP {name} {what}")
        lines.append(f"# TYPE {name} {kind}")
        lines.extend(f"{name}{labels} {value:g}" if isinstance(value, float) else f"{name}{labels} {value}" for labels, value in values)

    labelled = [(f'model="{name}",version="{version}"', metrics) for name, version, metrics in models]
    for name, kind, what, value in (
        ("rows_total", "counter", "Rows scored.", "rows"),
        ("errors_total", "counter", "Exchanges that ended with an error.", "errors"),
        ("exchanges_open", "gauge", "Exchanges that are open.", "open"),
        ("combined_batches_total", "counter", "Batches that were scored in one call with others.", "combined"),
        ("combined_calls_total", "counter", "Calls of the model that scored several batches.", "calls"),
    ):
        metric(f"godwit_scoring_{name}", kind, what, [(f"{{{labels}}}", getattr(metrics, value)) for labels, metrics in labelled])
    name = "godwit_scoring_batch_seconds"
    lines += [f"# HELP {name} Seconds from the receipt of a batch to the sending of its scores.", f"# TYPE {name} histogram"]
    for labels, metrics in labelled:
        so_far = 0
        for bound, batches in zip((*map(str, LATENCY_BUCKETS_S), "+Inf"), metrics.batches, strict=True):
            so_far += batches
            lines.append(f'{name}_bucket{{{labels},le="{bound}"}} {so_far}')
        lines += [f"{name}_sum{{{labels}}} {metrics.seconds:.6f}", f"{name}_count{{{labels}}} {so_far}"]
    return "\n".join(lines) + "\n"

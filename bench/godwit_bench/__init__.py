"""Shared code of the benchmarks in `scenarios/`."""

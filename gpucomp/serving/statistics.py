"""What became of the requests of a model: sums for the statistics extension, and figures for Prometheus."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from gpucomp.lazy_dataclass import dataclass

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LABELS = ("model", "version")


@dataclass
class Sum:
    """How often, and nanoseconds in all."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int, count: int = 1) -> None:
        self.count += count
        self.ns += ns * count


PHASES = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")


@dataclass
class Statistics:
    """Of one version of a model, in the terms of Triton's extension: an inference is a row, an execution a run.

    ``most`` rows are joined. A request of more runs alone; all such runs are one entry of ``batches``, of ``most + 1``: their
    sizes are the clients' choice, and each would be an entry for ever.
    """

    most: int
    last_ms: int = 0
    inferences: int = 0
    executions: int = 0
    sums: dict[str, Sum] = field(default_factory=lambda: {name: Sum() for name in PHASES})
    batches: dict[int, dict[str, Sum]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(Sum)))

    def ran(self, rows: int, requests: int, prepare_ns: int, run_ns: int) -> None:
        """A run has ended well."""
        self.last_ms = time.time_ns() // 1_000_000
        self.executions += 1
        self.inferences += rows
        self.sums["compute_input"].add(prepare_ns, requests)
        self.sums["compute_infer"].add(run_ns, requests)
        own = self.batches[min(rows, self.most + 1)]
        own["compute_input"].add(prepare_ns)
        own["compute_infer"].add(run_ns)
        own["compute_output"].add(0)

    def as_json(self, name: str, version: str) -> dict[str, Any]:
        sums = {phase: {"count": one.count, "ns": one.ns} for phase, one in self.sums.items()}
        none = {"count": 0, "ns": 0}
        batches = [
            {"batch_size": rows} | {phase: {"count": one.count, "ns": one.ns} for phase, one in own.items()}
            for rows, own in sorted(self.batches.items())
        ]
        return {
            "name": name,
            "version": version,
            "last_inference": self.last_ms,
            "inference_count": self.inferences,
            "execution_count": self.executions,
            "inference_stats": {**sums, "cache_hit": none, "cache_miss": none},
            "batch_stats": batches,
            "memory_usage": [],
        }


class Metrics:
    """The figures of a server for Prometheus, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = kept = CollectorRegistry()
        ProcessCollector(registry=kept)

        def seconds(name: str, what: str) -> Histogram:
            return Histogram(name, what, LABELS, buckets=SECONDS, registry=kept)

        answered = "Requests for an inference, by HTTP status"
        self.requests = Counter("gpucomp_requests", answered, (*LABELS, "status"), registry=kept)
        self.seconds = seconds("gpucomp_request_seconds", "From headers to answer")
        self.waited = seconds("gpucomp_queue_seconds", "Time in the queue")
        self.ran = seconds("gpucomp_run_seconds", "Time of a run")
        self.rows = Histogram("gpucomp_batch_rows", "Rows of a run", LABELS, buckets=ROWS, registry=kept)
        self.queued = Gauge("gpucomp_queued_requests", "Requests that wait now", LABELS, registry=kept)
        self.running = Gauge("gpucomp_runs", "Runs now", LABELS, registry=kept)
        self.bodies = Gauge("gpucomp_body_bytes", "Bytes of bodies in memory now", registry=kept)
        self.connections = Gauge("gpucomp_connections", "Open connections now", registry=kept)

    def forget(self, model: str, version: str) -> None:
        """Drop what belongs to a version that is served no more."""
        for one in (self.seconds, self.waited, self.ran, self.rows, self.queued, self.running):
            one.remove(model, version)
        self.requests.remove_by_labels({"model": model, "version": version})

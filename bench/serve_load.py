"""How `gpucomp serve` does under load: its knee, then minutes at the knee, with every answer checked.

Two models are served: a small residual network and a small decoder, each with an open batch, joined by the server. Requests come
at random times (Poisson), whether the server keeps up or not, and a latency counts from the time that the request was due. The
offered rate rises until the 99th percentile bends, requests are refused or the clients fall behind: the knee is the last rate
before. Clients are tritonclient's, threads of this process, so they share the machine with the server.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import tritonclient.http as http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

import gpucomp
from bench.decoder_model import Sizes, decoder
from bench.models import build
from bench.options import add_shared, parser_of

POOL = 48  # different requests of each model
GROWTH = 1.4  # from one offered rate to the next
BENDS = 3.0  # a 99th percentile of so many times that of the lowest rate is behind the knee
REACHED = 0.95  # of the offered requests are answered in time, or the rate is behind the knee
RTOL, ATOL = 1e-4, 1e-5


def network() -> onnx.ModelProto:
    """A residual network for small pictures, with an open batch."""
    proto = build("resnet18", reduced=True)
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    del proto.graph.value_info[:]
    return proto


def pictures(rng: np.random.Generator, _: int) -> dict[str, np.ndarray]:
    return {"input": rng.standard_normal((int(rng.integers(1, 4)), 3, 45, 45)).astype(np.float32)}


def tokens(rng: np.random.Generator, number: int) -> dict[str, np.ndarray]:
    """One of three lengths, so that some requests can be joined and others not."""
    batch, length, past = int(rng.integers(1, 3)), (5, 8, 13)[number % 3], 7
    states = {
        f"past_key_values.{n}.{kind}": rng.standard_normal((batch, 2, past, 8)).astype(np.float32)
        for n in range(2)
        for kind in ("key", "value")
    }
    return {"input_ids": rng.integers(0, 97, (batch, length)), **states}


@dataclass(frozen=True)
class Case:
    """A request, and what has to be answered."""

    model: str
    feed: Mapping[str, np.ndarray]
    expected: Mapping[str, np.ndarray]


def cases(folder: Path) -> list[Case]:
    """Writes the models into ``folder``. The answers are those of an executable in this process, one request at a time."""
    found = []
    rng = np.random.default_rng(0)
    for name, proto, draw, shapes in (
        ("resnet", network(), pictures, {"input": ("n", 3, 45, 45)}),
        ("decoder", decoder(Sizes()), tokens, {"input_ids": ("batch_size", "sequence_length")}),
    ):
        onnx.save(proto, folder / f"{name}.onnx")
        exe = gpucomp.compile(proto, target="cpu", shapes=shapes)
        for number in range(POOL):
            feed = draw(rng, number)
            found.append(Case(name, feed, exe.run(feed)))
    return found


@dataclass
class Tally:
    """What became of requests. ``seconds`` by model, from when each was due."""

    ended: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    late: float = 0.0  # the most that a client began after a request was due

    def percentile(self, part: float, model: str = "") -> float:
        every = [s for name, found in self.seconds.items() if model in ("", name) for s in found]
        return float(np.percentile(every, part)) if every else float("nan")


class Load:
    """Clients that send requests when these are due."""

    def __init__(self, port: int, made: Sequence[Case], clients: int) -> None:
        self._cases, self._clients, self._port = made, clients, port
        self._numbers = 0

    def run(self, rate: float, seconds: float, seed: int) -> Tally:
        """Offer ``rate`` requests per second for so long."""
        rng = np.random.default_rng(seed)
        tally, lock = Tally(), threading.Lock()
        due: queue.SimpleQueue[tuple[float, int, Case] | None] = queue.SimpleQueue()
        threads = [threading.Thread(target=self._client, args=(due, tally, lock)) for _ in range(self._clients)]
        for thread in threads:
            thread.start()
        at = begun = time.perf_counter()
        while at < begun + seconds:
            at += rng.exponential(1 / rate)
            if (wait := at - time.perf_counter()) > 0:
                time.sleep(wait)
            self._numbers += 1
            tally.ended["offered"] += 1
            due.put((at, self._numbers, self._cases[int(rng.integers(len(self._cases)))]))
        for _ in threads:
            due.put(None)
        for thread in threads:
            thread.join()
        return tally

    def _client(self, due: queue.SimpleQueue[tuple[float, int, Case] | None], tally: Tally, lock: Any) -> None:
        with http.InferenceServerClient(f"127.0.0.1:{self._port}", network_timeout=120) as client:
            while (job := due.get()) is not None:
                at, number, case = job
                began = time.perf_counter()
                how = ask(client, number, case)
                ended = time.perf_counter()
                with lock:
                    tally.ended[how] += 1
                    tally.late = max(tally.late, began - at)
                    if how == "right":
                        tally.seconds.setdefault(case.model, []).append(ended - at)


def ask(client: Any, number: int, case: Case) -> str:
    """Send one request: ``right``, ``wrong``, ``another's`` answer, or the HTTP status of a refusal."""
    inputs = []
    for name, array in case.feed.items():
        one = http.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        inputs.append(one.set_data_from_numpy(array))
    try:
        answer = client.infer(case.model, inputs, request_id=str(number))
    except InferenceServerException as error:
        return str(error.status())
    if answer.get_response()["id"] != str(number):
        return "another's"
    same = all(np.allclose(answer.as_numpy(name), array, rtol=RTOL, atol=ATOL) for name, array in case.expected.items())
    return "right" if same else "wrong"


@contextmanager
def server(folder: Path, max_batch: int) -> Iterator[tuple[int, psutil.Process]]:
    """`gpucomp serve` as a process: its port."""
    command = [sys.executable, "-m", "gpucomp", "serve", str(folder), "--port", "0", "--max-batch", str(max_batch)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        match = re.search(r":(\d+)$", child.stdout.readline().strip())
        assert match, "the server did not start"
        with http.InferenceServerClient(f"127.0.0.1:{match[1]}") as client:
            while not client.is_server_ready():
                time.sleep(0.05)
        yield int(match[1]), psutil.Process(child.pid)
    finally:
        child.terminate()
        child.communicate()


def find_knee(load: Load, first: float, seconds: float) -> tuple[float, list[dict[str, float]]]:
    """The last offered rate before the 99th percentile bends, and the row of each rate that was tried."""
    rows: list[dict[str, float]] = []
    rate, knee, low, again = first, first, 0.0, False
    while True:
        tally = load.run(rate, seconds, seed=len(rows))
        offered, right = tally.ended["offered"], tally.ended["right"]
        p50, p99 = tally.percentile(50), tally.percentile(99)
        rows.append({"rate": rate, "answered": right / seconds, "p50_ms": 1e3 * p50, "p99_ms": 1e3 * p99})
        told = f"p50 {1e3 * p50:7.1f} ms, p99 {1e3 * p99:7.1f} ms, {offered - right} not right"
        print(f"{rate:8.0f}/s offered: {told}", flush=True)
        low = low or p99
        if p99 <= BENDS * low and right >= REACHED * offered:
            knee, rate, again = rate, rate * GROWTH, False
        elif again:
            return knee, rows
        else:
            again = True  # it may have been another program's fault


def soak(load: Load, process: psutil.Process, rate: float, minutes: float) -> dict[str, Any]:
    """Minutes at ``rate``; memory is that of the server, at the beginning, in the middle and at the end."""
    memory = [process.memory_info().rss]
    halves = []
    for seed in (1001, 1002):
        halves.append(load.run(rate, 30 * minutes, seed))
        memory.append(process.memory_info().rss)
    ended = sum((half.ended for half in halves), Counter())
    both = Tally(ended)
    for half in halves:
        for name, found in half.seconds.items():
            both.seconds.setdefault(name, []).extend(found)
    rows = {
        name: {
            "answers": len(found),
            "p50_ms": 1e3 * both.percentile(50, name),
            "p99_ms": 1e3 * both.percentile(99, name),
        }
        for name, found in sorted(both.seconds.items())
    }
    offered = ended.pop("offered")
    return {
        "rate": rate,
        "minutes": minutes,
        "offered": offered,
        "ended": dict(ended),
        "lost": offered - sum(ended.values()),
        "models": rows,
        "p50_ms": 1e3 * both.percentile(50),
        "p99_ms": 1e3 * both.percentile(99),
        "late_ms": 1e3 * max(half.late for half in halves),
        "rss_mib": [round(one / 2**20, 1) for one in memory],
    }


def counted(port: int) -> dict[str, dict[str, int]]:
    """The server's own counts: requests that ended well, and runs."""
    with http.InferenceServerClient(f"127.0.0.1:{port}") as client:
        rows = client.get_inference_statistics()["model_stats"]
    return {
        row["name"]: {
            "requests": row["inference_stats"]["success"]["count"],
            "rows": row["inference_count"],
            "runs": row["execution_count"],
        }
        for row in rows
    }


def lines(found: Mapping[str, Any]) -> list[str]:
    """The report as Markdown."""
    run = found["soak"]
    out = ["| offered per s | p50 ms | p99 ms |", "|---|---|---|"]
    out += [f"| {row['rate']:.0f} | {row['p50_ms']:.1f} | {row['p99_ms']:.1f} |" for row in found["rates"]]
    ended = ", ".join(f"{count} {how}" for how, count in sorted(run["ended"].items()))
    out += [
        "",
        (
            f"Then {run['minutes']:g} minutes at {run['rate']:.0f} requests per second, p50 {run['p50_ms']:.1f} ms, p99 "
            f"{run['p99_ms']:.1f} ms. Of {run['offered']} requests: {ended}; {run['lost']} without an answer. The server "
            f"counts {found['more_than_answered']:+d} answers more than the clients got. Its memory at the beginning, in the "
            f"middle and at the end: {', '.join(f'{one:.1f}' for one in run['rss_mib'])} MiB."
        ),
        "",
        "| model | answers | p50 ms | p99 ms | rows per run |",
        "|---|---|---|---|---|",
    ]
    for name, row in run["models"].items():
        own = found["server"][name]
        joined = own["rows"] / max(own["runs"], 1)
        out.append(f"| {name} | {row['answers']} | {row['p50_ms']:.1f} | {row['p99_ms']:.1f} | {joined:.2f} |")
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.serve_load", __doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="of load at the knee")
    parser.add_argument(
        "--step", type=float, default=5.0, metavar="SECONDS", help="of each rate while the knee is sought"
    )
    parser.add_argument("--first", type=float, default=50.0, metavar="RATE", help="requests per second to begin with")
    parser.add_argument("--rate", type=float, metavar="RATE", help="requests per second, instead of seeking the knee")
    parser.add_argument("--clients", type=int, default=32, metavar="N", help="requests that are under way at most")
    parser.add_argument("--max-batch", type=int, default=8, metavar="ROWS", help="of the server")
    add_shared(parser, "--markdown")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures to this file")
    options: argparse.Namespace = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as place:
        load_of = cases(Path(place))
        with server(Path(place), options.max_batch) as (port, process):
            load = Load(port, load_of, options.clients)
            load.run(
                options.first, min(2.0, 30 * options.minutes), seed=99
            )  # everything is opened before something is measured
            knee, rates = (options.rate, []) if options.rate else find_knee(load, options.first, options.step)
            before = counted(port)
            run = soak(load, process, knee, options.minutes)
            after = counted(port)
    own = {name: {key: after[name][key] - before[name][key] for key in after[name]} for name in after}
    more = sum(row["requests"] for row in own.values()) - run["ended"].get("right", 0) - run["ended"].get("wrong", 0)
    found = {"cpus": os.cpu_count(), "rates": rates, "soak": run, "server": own, "more_than_answered": more}
    said = lines(found)
    print("\n".join(said))
    command = f"python -m bench.serve_load --minutes {options.minutes:g} --clients {options.clients}"
    if options.markdown:
        head = ["# A server under load", "", f"`{command}`:", ""]
        options.markdown.write_text("\n".join([*head, *said, ""]), encoding="utf-8")
    if options.json:
        options.json.write_text(json.dumps({"command": command, **found}, indent=1) + "\n", encoding="utf-8")
    good = set(run["ended"]) <= {"right", "503"} and not run["lost"] and not more
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

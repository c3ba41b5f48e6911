"""Measures trials per minute with one, two and more workers over TLS, all on this machine: a fleet's gain and its cost.

    python -m bench.fleet --workers 1 --workers 2 --workers 4 --trials 60
    python -m bench.fleet --device cpu --workers 1 --workers 2

The sleeping device checks every candidate on the processor and then waits a fixed time for each sample, like a remote board.
On a machine with few cores this is the fair way to see whether workers measure at the same time. With ``--device cpu`` the
workers have one thread each and really share this machine's cores.
"""

from __future__ import annotations

import datetime
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.options import parser_of
from gpucomp.schedule import records as reading
from gpucomp.targets import resolve
from gpucomp.tuning import devices, fleet, specs, tuner, worker
from gpucomp.tuning.network import Certificates
from gpucomp.tuning.worker_pool import Runner

SAMPLE_S = 0.05
KERNEL = "matmul m=197 n=211 k=193 relu=1"


def certificates(folder: Path, *names: str) -> list[Certificates]:
    """An authority in ``folder``, and for each name a certificate signed by it, valid for a day."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    folder.mkdir()
    today = datetime.datetime.now(datetime.UTC)
    authority_key, authority = ec.generate_private_key(ec.SECP256R1()), x509.Name.from_rfc4514_string("CN=authority")

    def signed(name: x509.Name, key: ec.EllipticCurvePrivateKey, is_authority: bool) -> bytes:
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(authority)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(today - datetime.timedelta(days=1))
            .not_valid_after(today + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .sign(authority_key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)

    (folder / "ca.pem").write_bytes(signed(authority, authority_key, True))
    found = []
    for name in names:
        key = ec.generate_private_key(ec.SECP256R1())
        (folder / f"{name}.pem").write_bytes(signed(x509.Name.from_rfc4514_string(f"CN={name}"), key, False))
        (folder / f"{name}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        found.append(Certificates(folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}.key"))
    return found


class Sleeping:
    """Computes results on this processor; a sample takes 1 to 1.5 times ``sample_s``, depending on the source."""

    noisy = False  # nothing is timed on the cores that build

    def __init__(self, inner: devices.Device, sample_s: float = SAMPLE_S) -> None:
        self._inner, self._sample_s = inner, sample_s
        self.target, self.cache_bytes = inner.target, inner.cache_bytes

    def facts(self) -> dict[str, Any]:
        return self._inner.facts() | {"device": "one that sleeps"}

    def clocks(self) -> dict[str, Any]:
        return {}

    def open(self, plan: Any, sources: Mapping[str, str], binaries: Mapping[str, bytes], weights: Any) -> Any:
        text = "".join(sources.values())
        seconds = self._sample_s * (1 + sum(text.encode()) % 64 / 128)
        return _Asleep(self._inner.open(plan, sources, binaries, weights), seconds)


class _Asleep:
    def __init__(self, program: devices.Program, seconds: float) -> None:
        self.run, self._seconds = program.run, seconds

    def time_launches(self, inputs: Any, count: int, *, warm: bool = True) -> list[float]:
        time.sleep(count * self._seconds)
        return count * [self._seconds]


def serve_asleep(sample_s: str, parent: str) -> None:
    """The role of ``gpucomp.tuning.worker``, for the sleeping device."""
    worker.ROLES = {"run": lambda target: worker.Runner(target, Sleeping(devices.open_device(target), float(sample_s)))}
    worker.main("run", "cpu", parent)


def serve(sample_s: str, address: str, folder: str, number: str) -> None:
    """Run one worker of the fleet until its coordinator ends; without ``sample_s`` it uses this processor."""
    own = Certificates(*(Path(folder) / name for name in ("ca.pem", "board.pem", "board.key")))
    lock = Path(folder) / f"lock{number}"
    command = [sys.executable, "-m", "bench.fleet", "asleep", sample_s, str(os.getpid())]
    runner = Runner("cpu", lock=lock, command=command if sample_s else None)
    fleet.work(address, target="cpu", certificates=own, runner=runner)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def started(sample_s: str, address: str, folder: Path, number: int) -> subprocess.Popen[bytes]:
    command = [
        "env",
        "GPUCOMP_THREADS=1",
        sys.executable,
        "-m",
        "bench.fleet",
        "worker",
        sample_s,
        address,
        str(folder),
    ]
    return subprocess.Popen([*command, str(number)], stderr=subprocess.DEVNULL)


def rate(device: str, sample_s: float, count: int, trials: int, spec: str) -> dict[str, Any]:
    """Search with ``count`` workers; the trials per minute, from the end of the first trial to the end of the last."""
    asleep = f"{sample_s:g}" if device == "sleeps" else ""
    with tempfile.TemporaryDirectory(prefix="gpucomp-fleet-") as place:
        coordinator, _ = certificates(Path(place) / "tls", "coordinator", "board")
        address = f"tls://127.0.0.1:{free_port()}"
        workers = [started(asleep, address, Path(place) / "tls", number) for number in range(count)]
        try:
            options = tuner.TuneOptions(
                trials=trials,
                sampler="random",
                builders=1,
                whole=False,
                fleet=fleet.Wanted(address, count, coordinator),
            )
            tuned = tuner.tune(specs.model(spec), target="cpu", records=Path(place) / "records", options=options)
        finally:
            for process in workers:
                process.terminate()
                process.wait()
        measured = [
            record
            for _, record in reading.read(tuned.records)
            if record and record["kind"] == "trial" and record["invalidity"] == "correct"
        ][1:]  # without the default's trial, before which the others cannot begin
    ends = [reading.time_of(record) for record in measured]
    seconds = max(ends) - min(ends)
    under_way = sum(record["times"][part] for record in measured[1:] for part in ("validation", "benchmark")) / 1e3
    return {
        "device": device,
        "workers": count,
        "trials": len(measured),
        "seconds": seconds,
        "trials_a_minute": 60 * (len(measured) - 1) / seconds,
        "at_a_time": under_way / seconds,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.fleet", __doc__)
    parser.add_argument(
        "--workers",
        type=int,
        action="append",
        metavar="N",
        help="measure with this number of workers; may repeat (default: 1 and 2)",
    )
    parser.add_argument(
        "--device",
        choices=["sleeps", "cpu"],
        default="sleeps",
        help="a device that sleeps for a fixed time, or this processor",
    )
    parser.add_argument(
        "--sample",
        type=float,
        default=SAMPLE_S,
        metavar="S",
        help="seconds that the sleeping device takes for a sample",
    )
    parser.add_argument("--trials", type=int, default=60, metavar="N", help="number of measurements")
    parser.add_argument(
        "--kernel", default=KERNEL, metavar="KERNEL", help="the kernel to tune, as for gpucomp tune --kernel"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the results to this file, one line each")
    given = parser.parse_args(arguments)
    resolve("cpu")  # raises an error here if the processor cannot be used
    first = 0.0
    for count in given.workers or (1, 2):
        found = rate(given.device, given.sample, count, given.trials, given.kernel)
        first = first or found["trials_a_minute"]
        print(
            f"{found['device']}: {count} workers, {found['trials']} trials in {found['seconds']:.1f} s, "
            f"{found['trials_a_minute']:.0f} a minute, {found['trials_a_minute'] / first:.2f} times the first; "
            f"{found['at_a_time']:.2f} under way at a time"
        )
        if given.json is not None:
            with given.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    match sys.argv[1:]:
        case ["asleep", *rest]:
            serve_asleep(*rest)
        case ["worker", *rest]:
            serve(*rest)
        case _:
            sys.exit(main())

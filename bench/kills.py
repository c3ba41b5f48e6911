"""Kills a tuner's processes at random moments, again and again: workers, builders and the coordinator itself.

    python -m bench.kills --kills 100
    python -m bench.kills --kills 30 --fleet

``gpucomp tune`` runs on a small kernel. One of its processes is sent SIGKILL. If that was the coordinator, it is started again
with --resume, sometimes after the last line of the records was truncated or overwritten with zeros, as after a power failure.
After each kill the records must hold every trial that the tuner had reported, unchanged; a candidate that was launched without
an end must not be launched again; a truncated line may cost only itself. With --fleet, ``gpucomp worker`` processes measure:
each one that is killed is replaced, and the new one joins the search.

Between the rounds a search runs into a full disk: it must say so, keep what it has, and continue later.
"""

from __future__ import annotations

import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.fleet import free_port
from bench.options import parser_of
from gpucomp.cli.tune import NOTHING_VALID
from gpucomp.schedule import records as reading
from gpucomp.schedule.records import Record
from gpucomp.tuning.records import NAME, Key, Store, key_of

KERNEL = "matmul m=17 n=37 k=23 relu=1"
PROGRAM = ("env", "GPUCOMP_CACHE=", "GPUCOMP_THREADS=1", sys.executable, "-m", "gpucomp")
EACH = 20  # kills in a round
TRIES = 2  # launches of the default, without which nothing can be judged; any other candidate has one
LINES = (0, 0, 1, 1, 2, 3, 5, 8)  # numbers of new lines in the records between two kills, chosen at random
SOON = 0.3  # longest time after these lines, in seconds
PATIENCE = 60.0  # seconds without a new line after which a process is killed anyway
ROLES = {"coordinator": 1, "runner": 2, "builder": 1, "worker": 1}  # relative frequency of each victim, if it exists
ENDING = 10.0  # seconds in which children of a killed process must end
FILLED, ROOM = 1 << 20, 4_000  # bytes of records on a small disk, and free bytes
PROGRESS = re.compile(r"Progress: \((\d+)/\d+\)")
TORN = ("cut", "zeros")


class Broken(AssertionError):
    """The records broke a promise."""


@dataclass
class Tally:
    """Counts: killed processes by role, truncated lines, trials in the final records."""

    kills: Counter[str] = field(default_factory=Counter)
    torn: int = 0
    rounds: int = 0
    given_up: int = 0  # rounds in which the default was killed as often as it may be tried
    trials: int = 0
    runs: int = 0
    full_disks: int = 0

    def __str__(self) -> str:
        kills = ", ".join(f"{count} {role}" for role, count in sorted(self.kills.items()))
        return (
            f"{self.kills.total()} kills ({kills}) and {self.torn} torn last lines in {self.runs} runs of {self.rounds} searches,"
            f" in {self.given_up} of which the default was killed twice; {self.trials} trials, none lost, no killed one launched"
            f" again; {self.full_disks} full disks survived"
        )


# promises


def lines_of(path: Path) -> list[bytes]:
    """The complete lines of a file."""
    data = path.read_bytes() if path.exists() else b""
    return data[: data.rfind(b"\n") + 1].splitlines()


def faults(found: Sequence[Record], default: Key | None) -> Iterator[str]:
    """What is wrong with the order of the records: a candidate that was measured twice, or a killer that was launched again.

    ``default`` is the key of the default, which may be tried ``TRIES`` times.
    """
    under_way: set[Key] = set()
    killers: Counter[Key] = Counter()
    done: set[Key] = set()
    for record in found:
        if record["kind"] not in ("launch", "release", "trial"):
            continue
        key = key_of(record)
        most = TRIES if key == default else 1
        if record["kind"] == "launch":
            if key in under_way:  # its process and the coordinator ended without a record
                killers[key] += 1
            if key in done:
                yield f"a schedule was launched again after it had been measured: {key}"
            if killers[key] >= most:
                yield f"a schedule was launched again after its process had been killed: {key}"
            under_way.add(key)
            continue
        ended = record["kind"] == "trial" and record["invalidity"] in ("killed", "timeout")
        if ended and key in under_way:
            killers[key] += 1
        under_way.discard(key)
        if record["kind"] == "trial" and record["invalidity"] == "correct":
            done.add(key)


@dataclass
class History:
    """A file of records as it was last seen, and how many of its lines have been torn so far."""

    path: Path
    lines: list[bytes] = field(default_factory=list)
    told: int = 0  # number of trials that the tuner has reported
    torn: int = 0

    def look(self) -> None:
        """Compare the file with its last state. Raises ``Broken``."""
        now = lines_of(self.path)
        if now[: len(self.lines)] != self.lines:
            raise Broken("a line of the records is gone or has changed")
        self.lines = now
        found, damaged = self.records()
        if damaged > self.torn:
            raise Broken(f"{damaged} lines are not records, but only {self.torn} were torn on purpose")
        trials = sum(record["kind"] == "trial" for record in found)
        if trials < self.told:
            raise Broken(f"{trials} trials in the records, but the tuner had reported {self.told}")
        default = next((key_of(r) for r in found if r["kind"] == "launch"), None)
        for fault in faults(found, default):
            raise Broken(fault)

    def records(self) -> tuple[list[Record], int]:
        """The records, and the number of bad lines."""
        if not self.path.exists():
            return [], 0
        read = [record for _, record in reading.read(self.path)]
        return [r for r in read if r], sum(not r for r in read)

    @property
    def hopeless(self) -> bool:
        """Whether the default was launched as often as allowed without an end."""
        found, _ = self.records()
        launches = [key_of(r) for r in found if r["kind"] == "launch"]
        ended = {key_of(r) for r in found if r["kind"] == "trial" and r["invalidity"] not in ("killed", "timeout")}
        return bool(launches) and launches[0] not in ended and launches.count(launches[0]) >= TRIES

    def tear(self, draw: random.Random) -> bool:
        """Damage the last line as a power failure may: truncate it, or write zeros. False if there is no line."""
        data = self.path.read_bytes() if self.path.exists() else b""
        start = data.rstrip(b"\n").rfind(b"\n") + 1
        if len(data) - start < 3 or not data.endswith(b"\n"):
            return False
        keep = draw.randrange(start + 1, len(data) - 1)
        end = b"" if draw.choice(TORN) == "cut" else bytes(len(data) - keep)
        self.path.write_bytes(data[:keep] + end)
        lost = reading.unsealed(data[start:].decode().strip())
        self.lines = lines_of(self.path)
        self.told -= bool(lost) and lost["kind"] == "trial"  # this trial is lost on disk
        self.torn += 1
        return True


# processes


def children(pid: int) -> dict[int, str]:
    """The child processes of ``pid`` with their command lines, from /proc."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except (OSError, ValueError, IndexError):
            continue  # it has ended in the meantime
        if parent == pid:
            found[int(entry.name)] = " ".join(words)
    return found


def roles(pid: int) -> dict[str, list[int]]:
    """The processes of a tuner by role: ``builder`` and ``runner``."""
    found: dict[str, list[int]] = {}
    for child, words in children(pid).items():
        for role, word in (("builder", "worker build"), ("runner", "worker run")):
            if f"gpucomp.tuning.{word}" in words:
                found.setdefault(role, []).append(child)
    return found


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it ended before


def gone(pids: Sequence[int]) -> None:
    """Wait until these processes have ended. Raises ``Broken`` if one does not."""
    deadline = time.monotonic() + ENDING
    while left := [pid for pid in pids if Path(f"/proc/{pid}/cmdline").exists() and _lives(pid)]:
        if time.monotonic() > deadline:
            for pid in left:
                kill(pid)
            raise Broken(f"processes of a killed coordinator still run: {left}")
        time.sleep(0.05)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Tuning:
    """Runs of ``gpucomp tune`` on one folder of records; with ``fleet``, a worker for each."""

    def __init__(self, folder: Path, spec: str, *, seed: int, trials: int, fleet: bool = False) -> None:
        self.folder, self.spec, self.seed, self.trials, self.fleet = folder, spec, seed, trials, fleet
        self.history = History(folder / "records" / NAME)
        self.process: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []
        self._log = folder / "log"
        self._address = ""

    def command(self, trials: int) -> list[str]:
        made = [*PROGRAM, "tune", "--kernel", self.spec, "--target", "cpu"]
        made += ["--records", str(self.folder / "records"), "--sampler", "random", "--seed", str(self.seed)]
        made += ["--trials", str(trials), "--builders", "1", "--lock", str(self.folder / "lock")]
        if self.history.path.exists():
            made.append("--resume")
        if self.fleet:
            self._address = f"tcp://127.0.0.1:{free_port()}"
            made += ["--fleet", self._address]
        return made

    def start(self, trials: int, limit: int | None = None) -> None:
        """Start a run; ``limit`` is the largest size of its files."""
        bound = (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))) if limit else None
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command(trials), stdout=subprocess.DEVNULL, stderr=log, preexec_fn=bound
            )
        if self.fleet:
            self.add_worker()

    def add_worker(self) -> None:
        command = [*PROGRAM, "worker", "--scheduler", self._address, "--target", "cpu"]
        command += ["--lock", str(self.folder / f"lock{len(self.workers)}")]
        self.workers.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def look(self) -> None:
        """Compare the records with their last state and with what the tuner has reported. Raises ``Broken``."""
        told = [int(count) for count in PROGRESS.findall(self.said)]
        self.history.told = max([self.history.told, *told])
        self.history.look()

    def victims(self) -> dict[str, list[int]]:
        """The processes that can be killed, by role."""
        assert self.process is not None
        found = roles(self.process.pid) | {"coordinator": [self.process.pid]}
        for worker in self.workers:
            if worker.poll() is None:
                found.setdefault("worker", []).append(worker.pid)
                found.setdefault("runner", []).extend(roles(worker.pid).get("runner", []))
        return {role: pids for role, pids in found.items() if pids}

    def end(self) -> None:
        """End all processes."""
        everything = [self.process, *self.workers] if self.process is not None else self.workers
        inner = [pid for p in everything if p is not None for pid in children(p.pid)]
        for process in everything:
            if process is not None:
                process.kill()
                process.wait()
        self.process, self.workers = None, []
        gone(inner)


def struck(tuning: Tuning, draw: random.Random, tally: Tally) -> None:
    """Kill one process of a run and check the records; a killed coordinator is started again."""
    victims = tuning.victims()
    among = sorted(victims)
    (role,) = draw.choices(among, [ROLES[name] for name in among])
    pid = draw.choice(victims[role])
    kill(pid)
    tally.kills[role] += 1
    if role == "worker":
        next(w for w in tuning.workers if w.pid == pid).wait()
        tuning.add_worker()
    if role == "coordinator":
        tuning.end()
    tuning.look()
    if role == "coordinator":
        if draw.random() < 0.4 and tuning.history.tear(draw):
            tally.torn += 1
        tally.runs += 1
        tuning.start(tuning.trials)


def waited(tuning: Tuning, draw: random.Random) -> bool:
    """Wait for a random moment: some new lines in the records, and a little more. False if the run ends first."""
    assert tuning.process is not None
    wanted, deadline = len(lines_of(tuning.history.path)) + draw.choice(LINES), time.monotonic() + PATIENCE
    while len(lines_of(tuning.history.path)) < wanted and time.monotonic() < deadline:
        if tuning.process.poll() is not None:
            return False
        time.sleep(0.02)
    time.sleep(draw.uniform(0, SOON))
    return tuning.process.poll() is None


def killed_round(
    folder: Path,
    draw: random.Random,
    tally: Tally,
    kills: int,
    *,
    spec: str = KERNEL,
    trials: int = 12,
    fleet: bool = False,
) -> None:
    """Kill ``kills`` processes of a search, which must still finish. Raises ``Broken``."""
    tuning = Tuning(folder, spec, seed=draw.randrange(1000), trials=trials, fleet=fleet)
    before = tally.kills.total()
    try:
        tally.runs += 1
        tuning.start(trials)
        while tally.kills.total() < before + kills:
            if waited(tuning, draw):
                struck(tuning, draw, tally)
                continue
            _ended(tuning)  # it ended before it was killed
            if tuning.history.hopeless:
                break
            tally.runs += 1
            tuning.start(trials)
        tuning.end()
        tuning.look()
        tally.runs += 1
        tuning.start(trials)
        assert tuning.process is not None
        tuning.process.wait(300)
        tuning.look()
        hopeless = tuning.history.hopeless
        if tuning.process.returncode != (NOTHING_VALID if hopeless else 0):
            raise Broken(f"a search that was not killed ends with {tuning.process.returncode}: {tuning.said[-500:]}")
        tally.given_up += hopeless
        tally.trials += sum(record["kind"] == "trial" for record in tuning.history.records()[0])
        tally.rounds += 1
    finally:
        tuning.end()


def _ended(tuning: Tuning) -> None:
    """Check that a run ended by itself with a result, or with one line that says whom it has lost. Raises ``Broken``."""
    assert tuning.process is not None
    code, said = tuning.process.returncode, tuning.said
    tuning.end()
    tuning.look()
    if code == NOTHING_VALID and tuning.history.hopeless:
        return
    if code != 0 and ("Traceback" in said or "error GPC" not in said):
        raise Broken(f"a run ended with {code}: {said[-500:]}")


def full_disk(folder: Path, tally: Tally, *, spec: str = KERNEL, trials: int = 12) -> None:
    """Check that a search whose records cannot grow says so, loses nothing, and can continue later. Raises ``Broken``."""
    tuning = Tuning(folder, spec, seed=1, trials=trials)
    path = tuning.history.path
    device = {"kind": "cpu", "arch": "another", "name": "another"}
    with Store(path) as store:
        while path.stat().st_size < FILLED:
            store.append("task", {"kernel": "another", "device": device, "problem": {"m": 1}, "label": 999 * "x"})
    try:
        tuning.start(trials, path.stat().st_size + ROOM)
        assert tuning.process is not None
        code, said = tuning.process.wait(300), tuning.said
        tuning.look()
        if code != 3 or "GPC7101" not in said or "File too large; make room" not in said or "Traceback" in said:
            raise Broken(f"a full disk ends a search with {code}: {said[-500:]}")
        tuning.end()
        before = len(tuning.history.lines)
        tuning.start(trials)
        deadline = time.monotonic() + 300
        while len(lines_of(path)) <= before and tuning.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        tuning.look()
        if len(tuning.history.lines) <= before:
            raise Broken(f"nothing is added to the records after the disk has room again: {tuning.said[-500:]}")
        tally.runs += 2
        tally.full_disks += 1
    finally:
        tuning.end()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.kills", __doc__)
    parser.add_argument("--kills", type=int, default=100, metavar="N", help="number of processes to kill")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the random numbers")
    parser.add_argument("--fleet", action="store_true", help="measure with workers, and kill these too")
    given = parser.parse_args(arguments)
    draw, tally = random.Random(given.seed), Tally()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpucomp-kills-") as place:
        while tally.kills.total() < given.kills:
            folder = Path(place) / str(tally.rounds)
            folder.mkdir()
            killed_round(folder, draw, tally, min(EACH, given.kills - tally.kills.total()), fleet=given.fleet)
            print(f"{time.monotonic() - begin:6.0f} s: {tally}", flush=True)
        if not given.fleet:
            folder = Path(place) / "full"
            folder.mkdir()
            full_disk(folder, tally)
    print(tally)
    return 0


if __name__ == "__main__":
    sys.exit(main())

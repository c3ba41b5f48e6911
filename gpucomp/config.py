"""The ``GPUCOMP_`` variables. No other module reads the environment.

GPUCOMP_DEBUG=1   print the pass table, target and kernel count; =2 also fired rules and the tiers of schedules;
             =3   also a diff of the graph for every pass that changed it; =4 also every kernel's source
GPUCOMP_DUMP=DIR  write the graph after every pass, diffs, kernel sources and schedules; file names are deterministic
GPUCOMP_VERIFY=1  check the IR after every pass
GPUCOMP_TARGET    the target that ``auto`` means
GPUCOMP_CACHE     folder of compiled kernels and models; empty disables the cache
GPUCOMP_CACHE_BYTES  most bytes in that folder (default 8 GiB); what was not used for longest is deleted
GPUCOMP_SELF_TEST=1  test kernels on every device that is no processor, the first time; =0 on none (default: OpenCL's but PoCL)
GPUCOMP_RECORDS   file or folder of tuning records, preferred to the shipped ones; empty disables both
GPUCOMP_DEVICES   file of measured devices by architecture, written by ``bench/gpu probe``, for the analytic model
GPUCOMP_THREADS   threads of the CPU target
GPUCOMP_PIN=1     threads that help runs on the CPU each stay on one processor of those that the process may use
GPUCOMP_LARGE_PAGES=0  the CPU target leaves weights in the mapped file, which processes share
GPUCOMP_CONVERTERS  Python of another environment, which has what converts models of other formats
GPUCOMP_FOLD_LIMIT  most bytes that constant folding may produce for one value (default 1 GiB)
GPUCOMP_OPENCL_LIBRARY  path of OpenCL's library, which only the C library reads

ROCM_PATH or HIP_PATH  AMD's variables: the folder in whose lib/ HIP's runtime is looked for first
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gpucomp.errors import UsageError
from gpucomp.lazy_dataclass import dataclass

SHIPPED = Path("<shipped>")  # means the tuning records in the package


@dataclass(frozen=True, slots=True)
class Config:
    debug: int = 0
    dump: Path | None = None
    verify: bool = False
    target: str = "cpu"
    cache: Path | None = None
    cache_bytes: int = 8 << 30
    self_test: bool | None = None  # None: for OpenCL devices but PoCL's
    threads: int = 0  # 0: all that the process may use
    pin: bool = False
    fold_limit: int = 1 << 30
    records: Path | None = SHIPPED
    devices: Path | None = None
    large_pages: bool = True
    converters: Path | None = None
    rocm: Path | None = None  # of ROCM_PATH or HIP_PATH: AMD's names, not ours


def _integer(name: str, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise UsageError(f"{name}={text!r}: expected a whole number of at least 0", code="GPC2001")
    return value


def _default_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "gpucomp"


def read(environment: Mapping[str, str]) -> Config:
    """The configuration in ``environment``. A misspelt ``GPUCOMP_`` name is an error, not a silent no-op."""
    known = {"DEBUG", "DUMP", "VERIFY", "TARGET", "CACHE", "CACHE_BYTES", "THREADS", "FOLD_LIMIT", "RECORDS"}
    known |= {"DEVICES", "LARGE_PAGES", "CONVERTERS", "PIN", "OPENCL_LIBRARY", "SELF_TEST"}
    given = {k.removeprefix("GPUCOMP_"): v for k, v in environment.items() if k.startswith("GPUCOMP_")}
    if unknown := sorted(set(given) - known):
        names = ", ".join(f"GPUCOMP_{name}" for name in sorted(known))
        raise UsageError(f"unknown variable GPUCOMP_{unknown[0]}; known are {names}", code="GPC2001")
    return Config(
        debug=_integer("GPUCOMP_DEBUG", given.get("DEBUG") or "0"),
        dump=Path(given["DUMP"]) if given.get("DUMP") else None,
        verify=bool(_integer("GPUCOMP_VERIFY", given.get("VERIFY") or "0")),
        target=given.get("TARGET") or "cpu",
        cache=(Path(given["CACHE"]) if given["CACHE"] else None) if "CACHE" in given else _default_cache(),
        cache_bytes=_integer("GPUCOMP_CACHE_BYTES", given.get("CACHE_BYTES") or str(8 << 30)),
        self_test=bool(_integer("GPUCOMP_SELF_TEST", given["SELF_TEST"])) if given.get("SELF_TEST") else None,
        threads=_integer("GPUCOMP_THREADS", given.get("THREADS") or "0"),
        pin=bool(_integer("GPUCOMP_PIN", given.get("PIN") or "0")),
        fold_limit=_integer("GPUCOMP_FOLD_LIMIT", given.get("FOLD_LIMIT") or str(1 << 30)),
        records=Path(given["RECORDS"]) if given.get("RECORDS") else None if "RECORDS" in given else SHIPPED,
        devices=Path(given["DEVICES"]) if given.get("DEVICES") else None,
        converters=Path(given["CONVERTERS"]) if given.get("CONVERTERS") else None,
        rocm=Path(rocm) if (rocm := environment.get("ROCM_PATH") or environment.get("HIP_PATH")) else None,
        large_pages=bool(_integer("GPUCOMP_LARGE_PAGES", given.get("LARGE_PAGES") or "1")),
    )


_current: Config | None = None


def current() -> Config:
    """The current configuration: the environment, read once, with the changes of ``using``."""
    global _current
    if _current is None:
        _current = read(os.environ)
    return _current


@contextmanager
def using(**changes: object) -> Iterator[Config]:
    """Change settings for a block: ``with config.using(verify=True): ...``."""
    global _current
    before = current()
    _current = replace(before, **changes)  # type: ignore[arg-type]
    try:
        yield _current
    finally:
        _current = before

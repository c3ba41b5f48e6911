"""Builds programs for WebAssembly by zig, and runs them by wasmtime."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

ZIG = (sys.executable, "-m", "ziglang", "cc")
COMPILER = (*ZIG, "-target", "wasm32-wasi", "-mcpu=generic+simd128")
MISSING = [name for name in ("ziglang", "wasmtime") if importlib.util.find_spec(name) is None]


def ended(program: Path, folder: Path, *arguments: str) -> int:
    """The exit status of a program of WASI, which sees the files of ``folder``.

    What it prints is in the files ``printed`` and ``told`` there. Raises ``wasmtime.Trap`` where it does what it must not.
    """
    import wasmtime

    engine = wasmtime.Engine()
    linker, store, wasi = wasmtime.Linker(engine), wasmtime.Store(engine), wasmtime.WasiConfig()
    linker.define_wasi()
    wasi.argv = [program.name, *arguments]
    wasi.stdout_file, wasi.stderr_file = str(folder / "printed"), str(folder / "told")
    wasi.preopen_dir(str(folder), ".")
    store.set_wasi(wasi)
    instance = linker.instantiate(store, wasmtime.Module.from_file(engine, str(program)))
    try:
        instance.exports(store)["_start"](store)
    except wasmtime.ExitTrap as trap:
        return trap.code
    return 0

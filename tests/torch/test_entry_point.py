"""How torch finds the backend by its name, and what is said where torch is missing."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GROUP = "torch_dynamo_backends"
WITHOUT_TORCH = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name=name)
sys.meta_path.insert(0, Missing())
import gpucomp
try:
    import gpucomp.torch
except gpucomp.DeviceError as error:
    print(error)
"""


def test_torch_finds_the_backend_by_its_name(monkeypatch):
    pytest.importorskip("torch", reason="could not import 'torch'")
    from torch._dynamo.backends import registry

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][GROUP]
    points = importlib.metadata.EntryPoints(EntryPoint(name, value, GROUP) for name, value in declared.items())
    # a checkout that was installed before it had the entry point has none in its metadata
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **given: points.select(**given))
    monkeypatch.setattr(registry, "_BACKENDS", dict(registry._BACKENDS))
    monkeypatch.setattr(registry, "_COMPILER_FNS", dict(registry._COMPILER_FNS))
    registry._discover_entrypoint_backends.cache_clear()
    registry._lazy_import.cache_clear()
    try:
        found = registry.lookup_backend("gpucomp")
        assert "gpucomp" in registry.list_backends()
    finally:
        registry._discover_entrypoint_backends.cache_clear()
        registry._lazy_import.cache_clear()

    assert found is importlib.import_module("gpucomp.torch").backend


def test_without_torch_the_command_that_installs_it_is_told():
    told = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout

    assert told.startswith("GPC5003 torch is not installed: pip install 'torch>=2.9'")

"""Which packages are installed. ``python -m gpucomp.frontend.foreign.installed MODULE...`` prints that as JSON."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, packages_distributions, version


def versions(modules: Sequence[str]) -> dict[str, str | None]:
    """The distributions that have each of these modules, with their versions; ``None`` if the module is not installed."""
    return {module: _version(module) if importlib.util.find_spec(module) else None for module in modules}


def _version(module: str) -> str:
    try:
        return f"{module} {version(module)}"
    except PackageNotFoundError:  # tensorflow is also in distributions of other names
        names = sorted(packages_distributions().get(module, ()))
        return " ".join(f"{name} {version(name)}" for name in names)


if __name__ == "__main__":
    print(json.dumps(versions(sys.argv[1:])))

"""What the build adds to ``pyproject.toml``: the wheel needs the one of ``runtime/``, which has the files that it leaves out.

An editable install is the whole tree, and needs no other distribution.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NeedsRuntime(BuildHookInterface):  # type: ignore[type-arg]
    """Hatchling calls it before it builds a wheel: ``standard``, or ``editable``."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Require the runtime of the same version, and leave the command to it: no file may be in two wheels."""
        if version == "standard":
            build_data["dependencies"].append(f"gpucomp-runtime=={self.metadata.version}")
            self.metadata.core.scripts.clear()

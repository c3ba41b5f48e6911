"""Figures that were measured on a GPU, in place of the built-in ones: the file that ``bench/gpu probe`` writes."""

from __future__ import annotations

import json
import re

from gpucomp import config
from gpucomp.device.device import AMD, CUDA, Device, measured
from gpucomp.errors import UsageError, quote

OF_AMD = re.compile(r"gfx[0-9a-f]+")  # more instruction sets than those that have figures of their own


def figures(arch: str, built_in: Device) -> Device:
    """``built_in``, with what the file of measured devices has of the architecture. Raises ``UsageError`` for a bad file."""
    place = config.current().devices
    if place is None:
        return built_in
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
        changes = found.get(arch, {}) if isinstance(found, dict) else None
    except (OSError, ValueError) as error:
        raise UsageError(f"measured devices {quote(place)}: {error}", code="GPC2001") from error
    if not isinstance(changes, dict):
        raise UsageError(
            f"measured devices {quote(place)}: a JSON object with the figures of each architecture expected",
            code="GPC2001",
        )
    if unknown := sorted(name for name in set(found) - set(CUDA) if not OF_AMD.fullmatch(name)):
        known = ", ".join((*CUDA, *AMD))
        raise UsageError(
            f"measured devices {quote(place)}: unknown architecture {quote(str(unknown[0]))}; known are {known}",
            code="GPC2001",
        )
    return measured(built_in, changes)

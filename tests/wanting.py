"""What tests were skipped for want of a package, and the command that installs what they want."""

from __future__ import annotations

import re
from collections.abc import Iterable

# what a reason says -> the installer and its packages; "{0}": what the reason names
APT, PIP = "apt-get install", "python -m pip install"
WANTED = (
    (r"^clang \d+ or lld is not installed", APT, "clang-19 lld-19"),
    (r"^clang or ld\.lld is not installed", APT, "clang lld"),
    (r"^(clang|oclgrind|g\+\+) is not installed", APT, "{0}"),
    (r"^(?:GPC5002 )?no installed clang knows gfx950", APT, "clang-22 lld-22"),
    (r"^(?:GPC5002 )?no installed clang knows", APT, "clang-19"),
    (r"^(?:GPC5002 )?clang is not installed", APT, "clang"),
    (r"no OpenCL device", APT, "pocl-opencl-icd"),
    (r"^nvdisasm is not installed", PIP, "nvidia-cuda-nvdisasm"),
    (r"^could not import '(\w+)", PIP, "{0}"),
    (r"apt-get install (\S+)", APT, "{0}"),
    (r"pip install ((?:-[\w-]+ )*[^\n]+)$", PIP, "{0}"),
)


def line(reasons: Iterable[str]) -> str:
    """One line with how many are wanting and the command; empty where no package would help."""
    packages: dict[str, dict[str, None]] = {}
    count = 0
    for reason in reasons:
        for pattern, installer, named in WANTED:
            if match := re.search(pattern, reason.removeprefix("Skipped: ")):
                packages.setdefault(installer, {})[named.format(*match.groups())] = None
                count += 1
                break
    commands = []
    for installer in sorted(packages):
        plain = [name for name in packages[installer] if not name.startswith("-")]
        commands += [f"{installer} {' '.join(sorted({*' '.join(plain).split()}))}"] if plain else []
        commands += [f"{installer} {name}" for name in packages[installer] if name.startswith("-")]
    return f"{count} tests want packages that are not here: {'; '.join(commands)}" if commands else ""

"""Checks OpenCL C with clang, for devices that are not here: what a compiler of theirs would refuse."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Collection

CLANG = shutil.which("clang")
# core OpenCL C, which clang's own header hides behind cl_khr_fp16
CORE_HALF = "\n".join(
    f"float{n} __attribute__((overloadable)) vload_half{n}(size_t, const {space} half*);\n"
    f"void __attribute__((overloadable)) vstore_half{n}_rte(float{n}, size_t, {space} half*);"
    for n in ("", 2, 4, 8, 16)
    for space in ("__global", "__private")
)
ARM_DOT = "".join(
    f"int __attribute__((overloadable)) {name}({t}4, {t}4{third});\n"
    for t in ("char", "uchar")
    for name, third in (("arm_dot", ""), ("arm_dot_acc", ", int"))
)
EXTENSIONS = {"fp16": "cl_khr_fp16", "fp64": "cl_khr_fp64"}


def complaints(text: str, features: Collection[str] = (), standard: str = "CL1.2") -> str:
    """What clang says of ``text`` for a device with ``features`` and no other extension; empty when it accepts it."""
    assert CLANG, "clang is not installed"
    allowed = ",".join(["-all", *(f"+{EXTENSIONS[f]}" for f in features if f in EXTENSIONS)])
    command = [CLANG, "-x", "cl", f"-cl-std={standard}", "-target", "spir64", "-fsyntax-only", "-Wall", "-Werror"]
    command += ["-Wno-unused-variable", "-Xclang", "-finclude-default-header", "-Xclang", "-fdeclare-opencl-builtins"]
    command += ["-Xclang", f"-cl-ext={allowed}", "-"]
    before = "" if "fp16" in features else CORE_HALF
    before += ARM_DOT if "arm_dot" in features else ""
    text = re.sub(
        r"#pragma OPENCL EXTENSION cl_(arm|khr_integer)\S+ : enable\n", "", text
    )  # which clang knows nothing of
    before += "\n#line 1\n"
    return subprocess.run(command, input=before + text, capture_output=True, text=True, timeout=60, check=False).stderr

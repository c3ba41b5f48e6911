"""The text that a compiler of HIP is given for a kernel: the prelude, the mathematical functions if it calls one, the kernel."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from fractions import Fraction
from functools import cache
from importlib import resources as files

from gpucomp.codegen.llvm.ir import math as tables
from gpucomp.codegen.llvm.ir.floats import FORMATS

PRELUDE, MATHEMATICS = "prelude_hip.h", "math_hip.h"
EXACT = frozenset({"fabs", "floor", "ceil", "rint", "sqrt", "copysign", "fma", "fmod"})  # rounded once at most
FUNCTIONS = sorted(EXACT | tables.NAMES)
CALLED = re.compile(rf"\b(?:{'|'.join(FUNCTIONS)}|exp2)f?\(")
CIRCULAR = re.compile(r"\b(?:sin|cos|tan)f?\(")
PLACE = re.compile(r"@(\w+)@")


def text_of(kernel: str) -> str:
    """``kernel`` with what it needs in front of it. Compilers count its lines from 1."""
    parts = [prelude()]
    if CALLED.search(kernel):
        parts.append(mathematics(circular=CIRCULAR.search(kernel) is not None))
    return "\n".join([*parts, "#line 1", kernel])


@cache
def prelude() -> str:
    """The ``gc_*`` device functions, which are compiled in front of every kernel."""
    return _file(PRELUDE)


@cache
def mathematics(*, circular: bool) -> str:
    """The mathematical functions with their coefficients; sine, cosine and tangent are usable only if ``circular``."""
    values = _coefficients() | {"TURNS": _listed(tables.turns_table(ENTRIES) if circular else (0.0,))}
    return PLACE.sub(lambda found: values[found[1]], _file(MATHEMATICS))


ENTRIES = 1023 - 52 + 26 - tables.TABLE_START + 1  # powers of two that an f64 can have, for the angles


@cache
def _coefficients() -> dict[str, str]:
    """The text of each constant of ``math_hip.h``, from the CPU back end's tables."""
    double = FORMATS["double"]
    half_pi = tables.fixed_parts(Fraction(tables.scaled_pi(200), 1 << 201), 21, 6)
    rows: dict[str, Iterable[float]] = {
        "EXPM1_F32": tables.EXPM1["float"],
        "EXPM1_F64": tables.EXPM1["double"],
        "LOG_F64": tables.LOG["double"],
        "ERF_F32": tables.ERF["float"],
        "ERF_F64": tables.ERF["double"],
        "LOG2_ERFC_F32": tables.LOG2_ERFC_F32,
        "LOG_ERFC_F64": tables.LOG_ERFC_F64,
        "ATAN": tables.ATAN,
        "ASIN": tables.ASIN,
        "SIN": tables.SIN,
        "COS": tables.COS,
        "LOG_TAIL": tables.LOG_TAIL,
        "LN2": (math.log(2),),
        "LN2_HIGH": (double.ln2[0],),
        "LN2_LOW": (double.ln2[1],),
        "HALF_PI_0": half_pi[:1],
        "HALF_PI_1": half_pi[1:2],
        "HALF_PI_2": (sum(half_pi[2:4]),),
        "HALF_PI_3": (sum(half_pi[4:]),),
    }
    return {name: _listed(numbers) for name, numbers in rows.items()}


def _listed(numbers: Iterable[float]) -> str:
    return ", ".join(map(repr, numbers))


def _file(name: str) -> str:
    return files.files("gpucomp.kernels_templates").joinpath("dialect", name).read_text(encoding="utf-8")

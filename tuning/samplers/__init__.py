"""Search strategies: samplers of legal points for any optuna study, and any optuna sampler on legal points.

Importing any of them raises ``UsageError`` (GPC2603) if optuna is not installed.
"""

from __future__ import annotations

from gpucomp.errors import UsageError
from gpucomp.extras import install

try:
    import optuna
except ImportError as error:
    raise UsageError(f"this needs optuna: {install('tune')} ({error})", code="GPC2603") from None

__all__ = ["DEFAULT", "optuna"]

DEFAULT = "model"

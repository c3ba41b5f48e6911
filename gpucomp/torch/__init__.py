"""``torch.compile(model, backend="gpucomp")``, and saved programs of ``torch.export``.

>>> compiled = torch.compile(model.eval(), backend="gpucomp", options={"precision": "fp32"})
>>> with torch.no_grad():
...     y = compiled(x)
>>> print(gpucomp.torch.report())
"""

from __future__ import annotations

from gpucomp.errors import DeviceError
from gpucomp.extras import install

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise DeviceError(f"torch is not installed: {install('torch')}", code="GPC5003") from error

from gpucomp.torch.dynamo import backend
from gpucomp.torch.reports import Graph, Part, Report, report
from gpucomp.torch.settings import Settings

__all__ = ["Graph", "Part", "Report", "Settings", "backend", "report"]

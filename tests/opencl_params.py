"""OpenCL devices as parameters of a test, skipped where a driver is not installed."""

from typing import Any

import pytest

from testing.opencl_drivers import DRIVERS


def param(name: str, *values: object) -> Any:
    """A parameter of a test that runs on the device ``name``: skipped where its driver is not here."""
    driver = DRIVERS.get(name)
    here = driver is None or driver.library()
    reason = "" if driver is None else f"no OpenCL driver {name!r} here: {driver.install}"
    return pytest.param(name, *values, marks=[] if here else pytest.mark.skip(reason=reason))


# every OpenCL device here: PoCL in the process of the tests, the others in their own
DEVICES = [param(name) for name in ("pocl", *DRIVERS)]
OTHERS = [param(name) for name in DRIVERS]

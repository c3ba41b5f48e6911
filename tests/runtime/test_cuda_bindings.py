"""The CUDA runtime with other versions of cuda-bindings than the one that is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = Path(sys.prefix) / "cuda-bindings"  # .ci/run fills it
VERSIONS = ("13.0.3", "12.9.4")  # the oldest for CUDA 13, the newest for CUDA 12
TESTS = ("test_cuda.py", "test_cuda_driver.py", "test_fake_driver.py", "test_inputs_on_gpu.py", "test_real_cubins.py")


def test_ci_installs_these_versions():
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")

    assert f"for version in {' '.join(VERSIONS)};" in text
    assert '"$venv/cuda-bindings/$version"' in text


@pytest.mark.parametrize("version", VERSIONS)
def test_the_runtime_passes_its_tests_with(version):
    folder = FOLDER / version
    if not folder.exists():
        pytest.skip(f"{sys.executable} -m pip install --no-deps --target {folder} cuda-bindings=={version}")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))}
    found = "import cuda.bindings; print(cuda.bindings.__version__)"
    assert subprocess.check_output([sys.executable, "-c", found], env=environment, text=True).strip() == version

    files = [f"tests/runtime/{name}" for name in TESTS]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", *files]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)

    assert ran.returncode == 0, ran.stdout[-4000:]

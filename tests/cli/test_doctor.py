"""The doctor on machines that are not this one."""

import ctypes
import json
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from gpucomp.cli import doctor
from gpucomp.extras import EXTRAS
from gpucomp.targets import amdgcn
from tests.fake_hip.runtime import FakeHip


class Driver:
    """What of libcuda the doctor calls."""

    def __init__(self, devices=(), status=0):
        self.devices, self.status = devices, status

    def cuInit(self, flags):
        return self.status

    def cuDriverGetVersion(self, number):
        number._obj.value = 13020
        return 0

    def cuDeviceGetCount(self, count):
        count._obj.value = len(self.devices)
        return 0

    def cuDeviceGetName(self, buffer, size, index):
        buffer.value = self.devices[index][0]
        return 0

    def cuDeviceGetAttribute(self, value, attribute, index):
        value._obj.value = self.devices[index][1][attribute - 75]
        return 0


def test_a_clang_that_is_too_old_for_hip_counts_as_missing(monkeypatch):
    monkeypatch.setattr(amdgcn, "_installed", lambda program: ["/usr/bin/clang"] if program == "clang" else [])
    monkeypatch.setattr(amdgcn, "version", lambda clang: "Debian clang version 14.0.6")

    _, clang, lld, *_ = doctor._hip()

    assert clang.found.startswith("missing: clang 18 or newer is not installed")
    assert clang.found.endswith("apt-get install clang-19 lld-19 (here: Debian clang version 14.0.6)")
    assert lld.found.endswith("apt-get install clang-19 lld-19")


def text(rows):
    return "\n".join(doctor.lines([doctor.Section("looked at", tuple(rows))]))


@pytest.fixture
def driver(monkeypatch):
    def install(driver):
        def find(name):
            if driver is None:
                raise OSError("no such library")
            return driver

        monkeypatch.setattr(ctypes, "CDLL", find)

    return install


def test_a_gpu_is_named_with_its_architecture(driver):
    driver(Driver([(b"NVIDIA H200", (9, 0)), (b"NVIDIA T4", (7, 5))]))

    lines = text(doctor._cuda())

    assert "for CUDA 13.2" in lines
    assert "device 0             NVIDIA H200, sm_90" in lines
    assert "device 1             NVIDIA T4, sm_75" in lines
    assert "cuda" in doctor.targets_found()


@pytest.mark.parametrize(
    ("installed", "line"),
    [(None, "missing: NVIDIA's driver is needed to run"), (Driver(status=100), "cuInit gives error 100")],
)
def test_a_machine_without_a_gpu_is_told_so(driver, installed, line):
    driver(installed)

    assert line in text(doctor._cuda())
    assert "cuda" not in doctor.targets_found()


def test_a_driver_without_a_device_is_no_target(driver):
    driver(Driver([]))

    assert "cuda" not in doctor.targets_found()


class ClError(Exception):
    """Stands for pyopencl.Error."""


def fake_opencl(monkeypatch, platforms):
    monkeypatch.setitem(sys.modules, "pyopencl", SimpleNamespace(get_platforms=platforms, Error=ClError))


def device(**changes):
    values = {"name": " Mali-G610 ", "global_mem_size": 4 << 30, "max_compute_units": 4, "max_work_group_size": 1024}
    return SimpleNamespace(
        **values | {"local_mem_size": 32 << 10, "driver_version": "3.0", "version": "OpenCL 3.0 v1"} | changes
    )


def test_an_opencl_device_is_described(monkeypatch):
    place = SimpleNamespace(name="ARM Platform", get_devices=lambda: [device()])
    fake_opencl(monkeypatch, lambda: [place])

    assert next(doctor._opencl()) == doctor.Row(
        "ARM Platform", "Mali-G610: 4 units, 4.0 GiB, work-groups of 1024, 32 KiB local, driver 3.0"
    )
    assert "opencl" in doctor.targets_found()


def test_a_device_that_is_too_old_is_named_with_the_reason(monkeypatch):
    place = SimpleNamespace(name="Clover", get_devices=lambda: [device(version="OpenCL 1.1 Mesa 22.3.6")])
    fake_opencl(monkeypatch, lambda: [place])

    assert next(doctor._opencl()).found.endswith("driver 3.0; left out: it has OpenCL 1.1, 1.2 is needed")
    assert "opencl" not in doctor.targets_found()


def test_no_opencl_platform_names_the_way_to_one(monkeypatch):
    def none():
        raise ClError("PLATFORM_NOT_FOUND_KHR")

    fake_opencl(monkeypatch, none)

    assert "apt-get install pocl-opencl-icd" in next(doctor._opencl()).found
    assert "opencl" not in doctor.targets_found()


def test_a_platform_without_a_device_is_told_so(monkeypatch):
    def none():
        raise ClError("DEVICE_NOT_FOUND")

    fake_opencl(monkeypatch, lambda: [SimpleNamespace(name="Empty", get_devices=none)])

    assert next(doctor._opencl()) == doctor.Row("Empty", "no device (DEVICE_NOT_FOUND)")


def test_two_cupys_are_a_conflict(monkeypatch):
    monkeypatch.setattr(doctor, "version_of", lambda name: "14.0" if name.startswith("cupy-cuda") else None)

    assert any("cupy-cuda13x and cupy-cuda12x are both installed" in row.found for row in doctor._optional_packages())


def test_a_missing_package_comes_with_the_command_that_gets_it(monkeypatch):
    monkeypatch.setattr(doctor, "version_of", lambda package: None)

    rows = [*doctor._packages(), *doctor._optional_packages()]

    assert doctor.Row("numpy", "missing: pip install numpy") in rows
    assert (
        doctor.Row("ort", "compare, run --compare onnxruntime: onnxruntime missing: pip install 'onnxruntime>=1.22'")
        in rows
    )


def test_every_optional_package_is_listed_with_what_it_is_for(monkeypatch):
    monkeypatch.setattr(doctor, "version_of", lambda package: "1.0")

    lines = text(doctor._optional_packages())

    for extra, one in EXTRAS.items():
        assert f"{extra:20} {one.purpose}: " in lines
        for requirement in one.packages:
            assert re.split("[<>=[]", requirement)[0] in lines


def test_one_cuda_is_enough(monkeypatch):
    installed = ("cupy-cuda12x", "nvidia-cuda-nvrtc-cu12", "cuda-bindings", "nvidia-ml-py")
    monkeypatch.setattr(doctor, "version_of", lambda package: "1.0" if package in installed else None)

    assert doctor.Row("cuda13", "not needed beside cuda12") in list(doctor._optional_packages())


def test_the_report_is_also_json(command, tmp_path):
    shown, file = command("doctor", "--json", "-").out, tmp_path / "here.json"
    also = command("doctor", "--json", str(file)).out

    found = json.loads(shown)
    assert json.loads(file.read_text()) == found
    assert found["targets"] == doctor.targets_found()
    sections = [line for line in also.splitlines() if line and not line.startswith(" ")]
    assert sections == [title for title in found if title != "targets"]
    versions = {row["name"]: row["found"] for row in found["packages"]}
    assert versions["numpy"] == np.__version__
    for row in [row for title in sections for row in found[title]]:
        assert row["name"] in also
        assert row["found"] in also


@pytest.fixture(autouse=True)
def without_hip(monkeypatch):
    """The library of AMD's GPUs is not here, whatever a test says of others."""
    monkeypatch.setattr(doctor.hip, "candidates", list)
    doctor.hip.runtime.cache_clear()


def test_a_gpu_of_amd_is_listed_and_hip_runs_here(monkeypatch):
    there = FakeHip(arch="gfx1100:xnack-", gpus=1).library
    monkeypatch.setattr(doctor.hip, "runtime", lambda: there)

    rows = {row.name: row.found for row in doctor._hip()}

    assert (rows["runtime"], rows["device 0"]) == ("version 60342134", "AMD Instinct MI210, gfx1100")
    assert "hip" in doctor.targets_found()

    FakeHip(gpus=0)
    assert "rocminfo should list one" in {row.name: row.found for row in doctor._hip()}["devices"]
    assert "hip" not in doctor.targets_found()

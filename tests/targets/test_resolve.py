"""Targets by name: what exists resolves, what does not is an error that says what does."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gpucomp import config, targets
from gpucomp.codegen.c import dots
from gpucomp.device.fences import STATEMENTS
from gpucomp.errors import DeviceError, UsageError
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.kernels_templates.render import render
from gpucomp.targets import amdgcn, cuda, opencl, opencl_build
from testing.kernels import matmul


@pytest.mark.parametrize("arch", cuda.ARCHITECTURES)
def test_every_cuda_architecture_resolves_without_a_device(arch):
    target = targets.resolve(f"cuda:{arch}")

    assert (target.name, target.kind, target.arch, target.language) == (f"cuda:{arch}", "cuda", arch, "cuda")
    assert target.limits.registers == 255


@pytest.mark.parametrize("flavour", opencl.FLAVOURS)
def test_every_opencl_flavour_has_room_for_a_schedule_of_every_engine(flavour):
    limits, least = opencl.FLAVOURS[flavour], opencl.LEAST

    assert limits.threads >= least.threads
    assert limits.shared_bytes >= least.shared_bytes
    assert limits.registers >= least.registers


def test_a_new_flavour_with_an_analytic_model_uses_it(monkeypatch):
    monkeypatch.setitem(opencl.FLAVOURS, "new", opencl.FLAVOURS["mali"])
    monkeypatch.setitem(opencl.FEATURES, "new", frozenset())
    monkeypatch.setitem(opencl.DEVICES, "new", opencl.DEVICES["mali"])

    assert opencl.manifest("new").device is not None
    assert opencl.manifest("generic").device is None


@pytest.mark.parametrize("flavour", opencl.FLAVOURS)
def test_every_opencl_flavour_resolves_without_a_device(flavour):
    target = targets.resolve(f"opencl:{flavour}")

    assert (target.name, target.kind, target.language) == (f"opencl:{flavour}", "opencl", "opencl")


def test_a_device_is_found_by_a_part_of_its_name():
    name = opencl.devices()[0].name

    target = targets.resolve(f"opencl:{name[3:11].upper()}")

    assert target.limits.units == opencl.devices()[0].max_compute_units


def test_opencl_alone_is_the_first_device():
    target = targets.resolve("opencl")

    assert target.name == "opencl"
    assert target.arch == opencl.flavour_of(opencl.devices()[0])


def test_auto_is_what_the_configuration_says():
    with config.using(target="cuda:sm_89"):
        assert targets.resolve("auto").name == "cuda:sm_89"
    with config.using(target="auto"):
        assert targets.resolve("auto").kind == "cpu"


@pytest.mark.parametrize(
    "text", ["", "gpu", "cuda:", "opencl:", "CUDA", "cpu:", "vulkan:x", "cuda:sm_70", "cuda:sm_80; rm"]
)
def test_an_unknown_target_is_a_usage_error_that_lists_what_exists(text):
    with pytest.raises(UsageError, match=r"sm_80|known are|targets are") as found:
        targets.resolve(text)

    assert found.value.exit_code == 2
    assert "\n" not in str(found.value)


def test_an_unknown_opencl_device_is_a_usage_error_that_lists_devices():
    assert {"generic", "pocl", "mali", "amd"} <= set(opencl.flavours())
    for name in ("no such device", "gfx999"):
        with pytest.raises(UsageError, match=f"names are {opencl.NAMES}; devices here are '"):
            targets.resolve(f"opencl:{name}")


def test_what_is_listed_is_what_there_is():
    listed = set(re.findall(r"[\w-]+", opencl.NAMES))

    assert set(opencl.flavours()) <= listed
    assert all(targets.resolve(f"opencl:{name}") for name in ("mali-g78", "gfx803", "gfx1201"))
    assert {"mali-g78", "gfx803", "gfx1201"} <= listed
    with pytest.raises(UsageError, match=re.escape(f"names for opencl: {opencl.NAMES};")):
        targets.resolve("tpu")
    assert (next(iter(cuda.ARCHITECTURES)), list(cuda.ARCHITECTURES)[-1]) == ("sm_75", "sm_120")


def test_the_index_of_a_device_is_no_architecture():
    with pytest.raises(UsageError, match=r"unknown CUDA architecture '0'; .*an index is no architecture: cuda alone"):
        targets.resolve("cuda:0")


class Driver:
    """As much of libcuda as is asked for."""

    def __init__(self, name):
        self.name = name

    def cuInit(self, flags):
        return 0

    def cuDeviceGet(self, device, number):
        return 0

    def cuDeviceGetAttribute(self, value, which, device):
        value._obj.value = {75: 8, 76: 9}[which]
        return 0

    def cuDeviceGetName(self, name, size, device):
        name.value = self.name[: size - 1]
        return 0

    def cuDriverGetVersion(self, value):
        value._obj.value = 12040
        return 0


def test_cuda_alone_is_the_first_device_and_no_other_of_its_architecture(monkeypatch):
    found = []
    for name in (b"NVIDIA L4", b"NVIDIA GeForce RTX 4090"):
        monkeypatch.setattr(cuda.ctypes, "CDLL", lambda library, name=name: Driver(name))
        found.append(targets.resolve("cuda"))

    assert [target.name for target in found] == ["cuda:sm_89"] * 2
    assert [target.identity for target in found] == ["NVIDIA L4 | 12040", "NVIDIA GeForce RTX 4090 | 12040"]
    assert targets.resolve("cuda:sm_89").identity == ""


def test_cuda_without_a_driver_is_a_device_error(monkeypatch):
    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(cuda.ctypes, "CDLL", missing)

    with pytest.raises(DeviceError, match="cuda:sm_90a"):
        targets.resolve("cuda")


@pytest.mark.parametrize(
    ("capability", "arch"),
    [((7, 5), "sm_75"), ((8, 0), "sm_80"), ((8, 6), "sm_86"), ((8, 7), "sm_86"), ((8, 9), "sm_89"), ((9, 0), "sm_90a"),
     ((10, 0), "sm_100"), ((10, 3), "sm_100"), ((12, 0), "sm_120"), ((12, 1), "sm_120")],
)  # fmt: skip
def test_a_device_runs_the_newest_binary_of_its_generation(capability, arch):
    assert cuda.architecture_for(*capability) == arch


@pytest.mark.parametrize("capability", [(7, 0), (9, 1), (13, 0)])
def test_a_device_that_no_binary_fits_is_an_error(capability):
    with pytest.raises(DeviceError, match="known are sm_75"):
        cuda.architecture_for(*capability)


@pytest.mark.parametrize(
    ("arch", "capability", "runs"),
    [("sm_80", (8, 9), True), ("sm_89", (8, 6), False), ("sm_80", (9, 0), False), ("sm_90a", (9, 0), True),
     ("sm_90a", (9, 1), False), ("sm_100", (10, 3), True), ("sm_100", (12, 0), False)],
)  # fmt: skip
def test_binaries_run_on_their_generation_from_their_own_step_on(arch, capability, runs):
    assert cuda.runs_on(arch, *capability) is runs


@pytest.mark.parametrize(
    ("arch", "warp", "matrices"),
    [("gfx906", 64, set()), ("gfx90a", 64, {"mfma"}), ("gfx942", 64, {"mfma"}), ("gfx1030", 32, set()),
     ("gfx1100", 32, {"wmma"})],
)  # fmt: skip
def test_an_amd_instruction_set_is_a_target(arch, warp, matrices):
    target = targets.resolve(f"opencl:{arch}")

    assert (target.name, target.arch, target.limits.warp) == (f"opencl:{arch}", arch, warp)
    assert target.features & {"mfma", "wmma"} == matrices
    assert "amd" in target.features


class Device:
    """What ``of_device`` asks a device for."""

    class platform:
        name, vendor = "AMD Accelerated Parallel Processing", "Advanced Micro Devices, Inc."

    type = 4  # CL_DEVICE_TYPE_GPU
    vendor, name, extensions = "Advanced Micro Devices, Inc.", "gfx90a:sramecc+:xnack-", "cl_khr_fp64 cl_khr_fp16"
    driver_version = "3590.0 (HSA1.1,LC)"
    version, opencl_c_version = "OpenCL 2.1 AMD-APP (3590.0)", "OpenCL C 2.0 "
    max_work_group_size, local_mem_size, max_compute_units, mem_base_addr_align = 256, 65536, 104, 2048


def test_a_device_that_two_drivers_have_is_told_apart_by_the_platform(monkeypatch):
    """Intel's driver calls the processor by its name, which PoCL's name of it holds."""

    def device(platform, vendor, name):
        kind = type("platform", (), {"name": platform, "vendor": vendor})
        return type("device", (Device,), {"platform": kind, "name": name, "type": 2})()

    pocl = device("Portable Computing Language", "The pocl project", "pthread-AMD EPYC")
    intel = device("Intel(R) OpenCL", "Intel(R) Corporation", "AMD EPYC")
    monkeypatch.setattr(opencl, "devices", lambda: (pocl, intel))

    for which, chosen in (("AMD EPYC", pocl), ("intel", intel), ("pthread", pocl), ("portable computing", pocl)):
        target = targets.resolve(f"opencl:{which}")
        assert target.identity.startswith(f"{chosen.name} |")
        assert opencl.device_of(target) is chosen
    with pytest.raises(UsageError, match=r"devices here are 'pthread-AMD EPYC' of Portable .*, 'AMD EPYC' of Intel"):
        targets.resolve("opencl:nvidia")


def test_an_amd_device_has_its_instruction_set_s_features():
    found = opencl.of_device(Device(), "opencl")

    assert (found.limits.warp, found.limits.units, found.alignment) == (64, 104, 512)
    assert found.features == {"amd", "mfma", "mfma_1k", "sdot4", "fp16", "fp64", "amd_fence"}


def test_a_mali_has_the_extensions_that_it_names():
    device = Device()
    device.platform = type("platform", (), {"name": "ARM Platform", "vendor": "ARM"})
    device.vendor, device.name = "ARM", "Mali-G610 r0p0"
    device.extensions = "cl_khr_fp16 cl_arm_integer_dot_product_int8 cl_khr_integer_dot_product"
    device.version, device.opencl_c_version = "OpenCL 3.0 v1.r44p0", "OpenCL C 3.0 v1.r44p0"
    device.opencl_c_all_versions, device.opencl_c_features = [], []

    found = opencl.of_device(device, "opencl")

    assert found.features == {"mali", "fp16", "arm_dot", "khr_dot"}
    assert not found.prologues


def test_every_cuda_architecture_has_its_rows():
    assert set(cuda.FEATURES) == set(cuda.ARCHITECTURES), "FEATURES in gpucomp/targets/cuda.py"
    assert set(cuda.DEVICES) == set(cuda.ARCHITECTURES), "CUDA in gpucomp/device/device.py"


def test_who_has_dot_products_of_bytes_is_known_to_the_model():
    manifests = [opencl.manifest(flavour) for flavour in (*opencl.flavours(), *opencl.AMD)]
    manifests += [cuda.manifest(arch) for arch in cuda.ARCHITECTURES]

    lacking = {t.arch for t in manifests if not t.limits.dots}

    assert lacking == {t.arch for t in manifests if dots.dot_of(t.features) is None}
    assert {"generic", "pocl", "amd"} <= lacking
    assert lacking.isdisjoint({"mali", *opencl.AMD, *cuda.ARCHITECTURES})
    assert opencl.DOTS | {"dp4a"} == set(dots.DOTS)
    assert {t.device.dot_instructions for t in manifests if t.device is not None} == {1}


@pytest.mark.parametrize("extensions", ["cl_khr_fp16", "cl_khr_fp16 cl_arm_integer_dot_product_int8"])
def test_a_mali_without_dot_products_is_reckoned_without_them(extensions):
    device = Device()
    device.platform = type("platform", (), {"name": "ARM Platform", "vendor": "ARM"})
    device.vendor, device.name, device.extensions = "ARM", "Mali-T880 r2p0", extensions

    found = opencl.of_device(device, "opencl")

    has = "arm" in extensions
    assert (found.limits.dots, found.device.dot_instructions > 1) == (has, not has)
    assert (found.device.name, found.device.units) == ("Mali-T880 r2p0", 104)


@pytest.mark.parametrize(
    ("version", "listed", "has"),
    [("OpenCL 2.1", [], False), ("OpenCL 3.0 v1", [(1, 2), (2, 0)], False), ("OpenCL 3.0 v1", [(1, 2), (3, 0)], True)],
)
def test_khronos_dot_product_wants_a_compiler_that_declares_it(version, listed, has):
    device = Device()
    device.extensions, device.version, device.opencl_c_version = (
        "cl_khr_integer_dot_product",
        version,
        "OpenCL C 1.2 v1",
    )
    device.opencl_c_all_versions = [SimpleNamespace(version=major << 22 | minor << 12) for major, minor in listed]
    text = SimpleNamespace(text="c + dot_4x8packed_ss_int(a, b)", geometry=SimpleNamespace(items=(1, 1, 1)))
    device.single_fp_config = 0

    assert ("khr_dot" in opencl.of_device(device, "opencl").features) == has
    assert opencl_build.build_flags(device, text) == ["-cl-std=CL3.0" if has else "-cl-std=CL1.2"]
    text.text = "c + a * b"
    assert opencl_build.build_flags(device, text) == ["-cl-std=CL1.2"]


ARM, MESA = ("ARM Platform", "ARM"), ("rusticl", "Mesa/X.org")
AMD = ("AMD Accelerated Parallel Processing", "Advanced Micro Devices, Inc.")
GPU, CPU = 4, 2


def on_platform(platform, **says):
    found = Device()
    found.platform = SimpleNamespace(name=platform[0], vendor=platform[1])
    for question, answer in says.items():
        setattr(found, question, answer)
    return found


@pytest.mark.parametrize(
    ("platform", "kind", "name", "flavour"),
    [
        (AMD, GPU, "gfx1100", "amd"),
        (AMD, CPU, "AMD EPYC", "generic"),
        (("Intel(R) OpenCL", "Intel(R) Corporation"), CPU, "AMD EPYC", "generic"),
        (("Portable Computing Language", "The pocl project"), CPU, "pthread-AMD EPYC", "pocl"),
        (("Portable Computing Language", "The pocl project"), GPU, "NVIDIA H100", "generic"),
        (ARM, GPU, "Mali-G610 r0p0", "mali"),
        (MESA, GPU, "AMD Radeon RX 6800 XT (radeonsi, navi21)", "generic"),
        (MESA, GPU, "Mali-G610 (Panfrost)", "generic"),
        (("NVIDIA CUDA", "NVIDIA Corporation"), GPU, "NVIDIA H100", "generic"),
    ],
)
def test_a_flavour_is_of_a_platform_s_compiler_and_a_kind_of_device(platform, kind, name, flavour):
    device = on_platform(platform, type=kind, name=name, vendor="AMD")

    assert opencl.flavour_of(device) == flavour
    assert opencl.of_device(device, "opencl").arch == flavour or flavour == "amd"


@pytest.mark.parametrize(
    ("name", "warp", "dots", "matrices"),
    [
        ("gfx900", 64, set(), set()),
        ("gfx90c", 64, set(), set()),
        ("gfx950", 64, {"sdot4"}, {"mfma", "mfma_1k", "mfma_deep", "mfma_wide"}),
        ("gfx1010", 32, set(), set()),
        ("gfx1012", 32, {"sdot4"}, set()),
        ("gfx1031", 32, {"sdot4"}, set()),
        ("gfx1103", 32, {"sudot4"}, {"wmma"}),
        ("gfx1151", 32, {"sudot4"}, {"wmma"}),
        ("gfx1200", 32, {"sudot4"}, {"wmma", "wmma_gfx12"}),
    ],
)
def test_an_instruction_set_that_no_table_has_is_like_the_nearest(name, warp, dots, matrices):
    device = on_platform(AMD, name=f"{name}:xnack-", wavefront_width_amd=warp, simd_per_compute_unit_amd=2)

    for target in (targets.resolve(f"opencl:{name}"), opencl.of_device(device, "opencl")):
        assert (target.arch, target.limits.warp, target.limits.dots) == (name, warp, bool(dots))
        assert target.features & opencl.DOTS == dots
        assert target.features & opencl.MATRIX == matrices
        assert (target.device.dot_instructions > 1) == (not dots)


@pytest.mark.parametrize("name", ["gfx1250", "gfx1170", "gfx1104", "gfx1160", "gfx9999"])
def test_an_instruction_set_like_no_other_is_none(name):
    """The matrix instructions of gfx1250 take other operands again; what those of a set to come take, nobody knows here."""
    device = on_platform(AMD, name=name, wavefront_width_amd=32, simd_per_compute_unit_amd=2)

    assert opencl.amd_set(name) == ""
    assert not opencl.of_device(device, "opencl").features & opencl.MATRIX


@pytest.mark.parametrize(
    "name", [*opencl.AMD, "gfx900", "gfx90c", "gfx1010", "gfx1012", "gfx1036", "gfx1102", "gfx1151", "gfx1200"]
)
def test_clang_knows_the_dot_products_of_an_instruction_set(name):
    """What the table says a set has, its compiler takes, and what it lacks no compiler of it does.

    Sets from CDNA2 and RDNA3 on have dot products of f16 too, which the table leaves out: nothing is faster by them.
    """
    calls = {
        "sdot4": "__builtin_amdgcn_sdot4(a, b, 0, false)",
        "sudot4": "__builtin_amdgcn_sudot4(true, a, true, b, 0, false)",
        "fdot2": "as_int(__builtin_amdgcn_fdot2(as_half2(a), as_half2(b), 0.0f, false))",
    }
    has = set()
    for feature, call in calls.items():
        fp16 = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n"
        text = f"{fp16}__kernel void k0(__global int* y, int a, int b) {{ *y = {call}; }}"
        try:
            amdgcn.assemble(KernelSource("k0", "opencl", text, Geometry((1, 1, 1))), name)
        except DeviceError as error:
            if error.code == "GPC5002":
                pytest.skip(error.message)
        else:
            has.add(feature)

    features = opencl.manifest(name).features
    assert has - {"fdot2"} == features & opencl.DOTS
    assert "fdot2" in has or "fdot2" not in features
    assert "fdot2" in features or "fdot2" not in has or features & {"mfma_1k", "wmma"}


@pytest.mark.parametrize(
    ("says", "warp", "units"),
    [
        ({"name": "gfx1100", "simd_per_compute_unit_amd": 4}, 32, 96),  # of work-group processors, two units each
        ({"name": "gfx1100", "simd_per_compute_unit_amd": 2}, 32, 48),
        ({"name": "gfx1100"}, 32, 96),
        ({"name": "gfx90a", "simd_per_compute_unit_amd": 4}, 64, 48),
        ({"name": "gfx9999", "wavefront_width_amd": 32, "simd_per_compute_unit_amd": 4}, 32, 96),
        ({"name": "gfx9999", "wavefront_width_amd": 64, "simd_per_compute_unit_amd": 4}, 64, 48),
    ],
)
def test_units_and_lanes_are_counted_as_the_model_does(says, warp, units):
    limits = opencl.of_device(on_platform(AMD, max_compute_units=48, **says), "opencl").limits

    assert (limits.warp, limits.units) == (warp, units)


def here(monkeypatch, *devices):
    """These are the OpenCL devices of the machine."""
    places = {}
    for device in devices:
        places.setdefault(device.platform.name, []).append(device)
    found = [SimpleNamespace(name=name, get_devices=lambda own=own: own) for name, own in places.items()]
    monkeypatch.setattr(opencl.pyopencl(), "get_platforms", lambda: found)
    monkeypatch.setattr(opencl, "devices", opencl.devices.__wrapped__)


MALI = {"name": "Mali-G72 r0p3", "extensions": "cl_khr_fp16", "max_compute_units": 12, "max_work_group_size": 384}


@pytest.mark.parametrize(
    ("which", "device", "arch", "features"),
    [
        ("mali", on_platform(ARM, **MALI), "mali", {"mali", "fp16"}),
        ("amd", on_platform(AMD, name="gfx1030"), "gfx1030", {"amd", "sdot4", "fdot2", "fp16", "fp64"}),
        ("gfx1030", on_platform(AMD, name="gfx1030", extensions=""), "gfx1030", {"amd", "sdot4", "fdot2"}),
        ("gfx1151", on_platform(AMD, name="gfx1151"), "gfx1151", {"amd", "sudot4", "wmma", "fp16", "fp64"}),
    ],
)
def test_a_flavour_is_refined_by_a_device_that_is_here(monkeypatch, which, device, arch, features):
    before = targets.resolve(f"opencl:{which}")
    here(monkeypatch, device)

    target = targets.resolve(f"opencl:{which}")

    assert before == opencl.manifest(which)
    assert (target.name, target.arch, target.features - set(STATEMENTS)) == (f"opencl:{which}", arch, features)
    assert target.limits.units == device.max_compute_units * (1 if which == "mali" else 2)
    assert target.limits.threads == 256
    assert device.name in target.identity
    assert opencl.device_of(target) is device


def test_a_flavour_without_pyopencl_is_its_manifest(monkeypatch):
    def missing():
        raise DeviceError("pyopencl is not installed", code="GPC5002")

    monkeypatch.setattr(opencl, "devices", missing)

    assert targets.resolve("opencl:mali") == opencl.manifest("mali")


def test_a_vendor_s_platform_comes_before_rusticl(monkeypatch):
    mesa = on_platform(MESA, name="AMD Radeon RX 7900 XTX (radeonsi)")
    vendor, cpu = on_platform(AMD, name="gfx1100"), on_platform(MESA, name="llvmpipe", type=CPU)
    pocl = on_platform(("Portable Computing Language", "The pocl project"), name="pthread", type=CPU)
    here(monkeypatch, cpu, mesa, pocl, vendor)

    assert opencl.devices() == (vendor, mesa, pocl, cpu)


def test_devices_below_opencl_1_2_are_left_out_and_named(monkeypatch):
    old = on_platform(("Clover", "Mesa"), name="llvmpipe", version="OpenCL 1.1 Mesa 22.3.6")
    here(monkeypatch, old)
    said = "'llvmpipe' of Clover: it has OpenCL 1.1, 1.2 is needed"

    assert opencl.devices() == ()
    assert opencl.left_out() == [said]
    with pytest.raises(DeviceError, match=f"no OpenCL device was found; left out: {said}"):
        targets.resolve("opencl")
    with pytest.raises(UsageError, match=f"devices here are none; left out: {said}"):
        targets.resolve("opencl:llvmpipe")
    with pytest.raises(
        DeviceError, match=f"no device for target opencl:pocl; its OpenCL devices are none; left out: {said}"
    ):
        opencl.device_of(opencl.manifest("pocl"))


def test_a_device_that_asks_for_more_is_planned_for():
    assert opencl.of_device(on_platform(ARM, mem_base_addr_align=8 * 4096), "opencl").alignment == 4096


def device_of(platform, version, features=(), **facts):
    """A device whose newest OpenCL C is of its own ``version``, with what it lists of that."""
    device = Device()
    device.platform, device.name, device.vendor = SimpleNamespace(name=platform, vendor=platform), "a GPU", ""
    device.version, device.opencl_c_version = f"OpenCL {version} of somebody", f"OpenCL C {version} of somebody"
    device.opencl_c_all_versions = []
    device.opencl_c_features = [SimpleNamespace(name=f"__opencl_c_{name}") for name in features]
    device.single_fp_config = 0
    for name, value in facts.items():
        setattr(device, name, value)
    return device


def refusing(*questions):
    """A device of OpenCL 3.0 whose driver answers each of ``questions`` with an error."""
    device = device_of("Some Platform", "3.0", FENCED)

    def refuse(self):
        raise opencl.pyopencl().LogicError("clGetDeviceInfo failed: INVALID_VALUE")

    device.__class__ = type("Refusing", (type(device),), dict.fromkeys(questions, property(refuse)))
    return device


def test_a_device_that_does_not_say_what_it_has_is_taken_to_have_nothing():
    found = opencl.of_device(refusing("opencl_c_features", "opencl_c_all_versions"), "opencl")

    assert not found.limits.device_fence
    assert not found.features & set(STATEMENTS)


def test_a_driver_that_does_not_answer_is_an_error_with_a_code():
    with pytest.raises(DeviceError, match="INVALID_VALUE") as raised:
        opencl.of_device(refusing("max_work_group_size"), "opencl")

    assert raised.value.code == "GPC5005"


FENCED = "atomic_order_acq_rel", "atomic_scope_device"
QUERIES = "cl_khr_fp64 cl_nv_device_attribute_query"


@pytest.mark.parametrize(
    ("device", "fence", "standard"),
    [
        (device_of("ARM Platform", "3.0", FENCED), {"device_fence"}, "CL3.0"),
        (device_of("rusticl", "3.0", ["images"]), set(), ""),
        (device_of("rusticl", "3.0", FENCED[:1]), set(), ""),
        (device_of("Intel(R) OpenCL", "2.1"), {"device_fence"}, "CL2.0"),
        (device_of("Clover", "1.1"), set(), ""),
        (device_of("AMD Accelerated Parallel Processing", "2.0"), {"amd_fence"}, "CL1.2"),
        (device_of("NVIDIA CUDA", "3.0", extensions=QUERIES, compute_capability_major_nv=9), {"ptx_fence"}, "CL1.2"),
        (device_of("NVIDIA CUDA", "3.0", extensions=QUERIES, compute_capability_major_nv=6), set(), ""),
        (device_of("NVIDIA CUDA", "1.2"), set(), ""),
    ],
    ids=["mali", "rusticl", "no scope", "OpenCL 2", "OpenCL 1", "ROCm", "sm_90", "sm_60", "old NVIDIA"],
)
def test_work_groups_meet_where_there_is_a_fence_of_the_device(device, fence, standard):
    """Split sums and scans that look back are legal there alone, and are built for the OpenCL C that has the fence."""
    found = opencl.of_device(device, "opencl")
    kernel = matmul(4, 8, 4096)
    family = FAMILIES["contraction/simt"]
    problem = family.problem(kernel)
    schedule = dict.fromkeys((p.name for p in family.params), 1) | {"tile_m": 8, "tile_n": 16, "tile_k": 8, "splits": 4}
    schedule["asynchronous"] = 0

    assert (found.features & set(STATEMENTS), found.limits.device_fence) == (fence, bool(fence))
    if not fence:
        reason = "4 work-groups share a result, but the device has no fence that orders memory between work-groups"
        assert family.reasons(schedule, problem, found.limits) == [reason]
        assert family.default(problem, found.limits).numbers["splits"] == 1
        return
    source = render(kernel, schedule, found, "k0", family)
    for order in ("release", "acquire"):
        assert STATEMENTS[min(fence)].format(order=order, ORDER=order.upper()) in source.text
    assert opencl_build.build_flags(device, source) == [f"-cl-std={standard}"]


def test_the_manifests_meet_where_every_device_of_the_kind_has_a_fence():
    manifests = [opencl.manifest(flavour) for flavour in (*opencl.flavours(), *opencl.AMD)]

    lacking = {t.arch for t in manifests if not t.limits.device_fence}
    assert "generic" in lacking
    assert lacking.isdisjoint({"pocl", "mali", "amd", *opencl.AMD})
    assert all(bool(t.features & set(STATEMENTS)) == t.limits.device_fence for t in manifests)


@pytest.mark.parametrize("name", ["gfx", "gfx9999", "AMD Radeon", "NVIDIA H100"])
def test_a_name_that_tells_no_known_instruction_set_is_none(name):
    assert opencl.amd_set(name) == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "measured devices"),
        ("[]", "a JSON object with the figures of each architecture expected"),
        ('{"sm_80": 3}', "a JSON object with the figures of each architecture expected"),
        ('{"sm_80": {"speed": 2}}', "positive numbers"),
        ('{"sm_80": {"matrix": 5}}', "positive numbers"),
        ('{"sm_80": {"ghz": {"f16": 1}}}', "positive numbers"),
        ('{"sm_90": {"ghz": 2}}', "unknown architecture 'sm_90'; known are sm_75, "),
        (None, "measured devices"),
    ],
)
def test_a_file_of_measured_devices_that_is_none_is_refused(text, said, tmp_path):
    place = tmp_path / "devices.json"
    if text is not None:
        place.write_text(text)

    with config.using(devices=place), pytest.raises(UsageError, match=said):
        cuda.manifest("sm_80")


def test_measured_figures_are_for_their_architecture_alone(tmp_path):
    (tmp_path / "devices.json").write_text('{"sm_80": {"units": 107}}')

    with config.using(devices=tmp_path / "devices.json"):
        assert cuda.manifest("sm_80").device.units == 107
        assert cuda.manifest("sm_86").device == cuda.DEVICES["sm_86"]


@pytest.mark.parametrize(
    ("name", "lacking"),
    [
        ("mali-g78", set()),
        ("Mali-G715", set()),
        ("immortalis-g720", set()),
        ("mali-g52", set()),
        ("mali-g72", {"arm_dot", "arm_dot_acc"}),
    ],
)
def test_the_name_of_a_mali_is_a_name_of_its_flavour(monkeypatch, name, lacking):
    monkeypatch.setattr(opencl, "devices", lambda: ())
    plain = opencl.manifest("mali")

    target = targets.resolve(f"opencl:{name}")

    assert (target.name, target.arch) == (f"opencl:{name.lower()}", "mali")
    assert target.features == plain.features - lacking
    assert target.limits.dots == (not lacking)
    if not lacking:
        assert target == replace(plain, name=target.name)


@pytest.mark.parametrize("name", ["mali-g87", "mali-t860", "mali-g7"])
def test_a_mali_that_is_not_known_is_refused_with_the_names_that_are(monkeypatch, name):
    monkeypatch.setattr(opencl, "devices", lambda: ())

    with pytest.raises(UsageError, match="mali, a Mali's name such as mali-g78"):
        targets.resolve(f"opencl:{name}")


def test_a_model_for_a_mali_by_its_name_runs_on_that_device_only(monkeypatch):
    here = on_platform(ARM, **(MALI | {"name": "Mali-G78 r0p0"}))
    monkeypatch.setattr(opencl, "devices", lambda: (here,))

    assert opencl.device_of(targets.resolve("opencl:mali-g78")) is here
    with pytest.raises(DeviceError, match="no device for target opencl:mali-g57"):
        opencl.device_of(targets.resolve("opencl:mali-g57"))

"""Targets by name: what exists resolves, what does not is an error that says what does."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kernels import matmul

from gpucomp import config, targets
from gpucomp.codegen import dots, fences
from gpucomp.codegen.families import FAMILIES
from gpucomp.codegen.render import render
from gpucomp.errors import DeviceError, UsageError
from gpucomp.targets import cuda, opencl


@pytest.mark.parametrize("arch", cuda.ARCHITECTURES)
def test_every_cuda_architecture_resolves_without_a_device(arch):
    target = targets.resolve(f"cuda:{arch}")

    assert (target.name, target.kind, target.arch, target.language) == (f"cuda:{arch}", "cuda", arch, "cuda")
    assert target.limits.registers == 255


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
    with pytest.raises(
        UsageError, match=r"flavours are generic, pocl, mali, amd, gfx906, .*gfx1100; devices here are '"
    ):
        targets.resolve("opencl:no such device")


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


def test_an_amd_device_has_its_instruction_set_s_features():
    found = opencl.of_device(Device(), "opencl")

    assert (found.limits.warp, found.limits.units, found.alignment) == (64, 104, 512)
    assert found.features == {"amd", "mfma", "sdot4", "fp16", "fp64", "amd_fence"}


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


def test_who_has_dot_products_of_bytes_is_known_to_the_model():
    manifests = [opencl.manifest(flavour) for flavour in (*opencl.flavours(), *opencl.AMD)]
    manifests += [cuda.manifest(arch) for arch in cuda.ARCHITECTURES]

    lacking = {t.arch for t in manifests if not t.limits.dots}

    assert lacking == {"generic", "pocl", "amd"} == {t.arch for t in manifests if dots.dot_of(t.features) is None}
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
    device.extensions, device.version, device.opencl_c_version = "cl_khr_integer_dot_product", version, "OpenCL C 1.2 v1"
    device.opencl_c_all_versions = [SimpleNamespace(version=major << 22 | minor << 12) for major, minor in listed]
    text = SimpleNamespace(text="c + dot_4x8packed_ss_int(a, b)", geometry=SimpleNamespace(items=(1, 1, 1)))
    device.single_fp_config = 0

    assert ("khr_dot" in opencl.of_device(device, "opencl").features) == has
    assert opencl.build_flags(device, text) == ["-cl-std=CL3.0" if has else "-cl-std=CL1.2"]
    text.text = "c + a * b"
    assert opencl.build_flags(device, text) == ["-cl-std=CL1.2"]


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

    assert (found.features & set(fences.STATEMENTS), found.limits.device_fence) == (fence, bool(fence))
    if not fence:
        reason = "4 work-groups share a result, the device has no fence that orders memory between them"
        assert family.reasons(schedule, problem, found.limits) == [reason]
        assert family.default(SimpleNamespace(**problem), found.limits)["splits"] == 1
        return
    source = render(kernel, schedule, found, "k0", family)
    for order in ("release", "acquire"):
        assert fences.STATEMENTS[min(fence)].format(order=order, ORDER=order.upper()) in source.text
    assert opencl.build_flags(device, source) == [f"-cl-std={standard}"]


def test_the_manifests_meet_where_every_device_of_the_kind_has_a_fence():
    manifests = [opencl.manifest(flavour) for flavour in (*opencl.flavours(), *opencl.AMD)]

    assert [t.arch for t in manifests if not t.limits.device_fence] == ["generic"]
    assert all(bool(t.features & set(fences.STATEMENTS)) == t.limits.device_fence for t in manifests)


@pytest.mark.parametrize("name", ["gfx", "gfx9999", "AMD Radeon", "NVIDIA H100"])
def test_a_name_that_tells_no_known_instruction_set_is_none(name):
    assert opencl.amd_set(name) == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "measured devices"), ("[]", "figures by architecture"), ('{"sm_80": 3}', "figures by architecture"),
     ('{"sm_80": {"speed": 2}}', "positive numbers"), ('{"sm_80": {"matrix": 5}}', "positive numbers"),
     ('{"sm_80": {"ghz": {"f16": 1}}}', "positive numbers"), ('{"sm_90": {"ghz": 2}}', "architecture 'sm_90', sm_75, "),
     (None, "measured devices")],
)  # fmt: skip
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

"""HIP targets: the same templates as CUDA's, compiled by clang without ROCm to code objects for AMD's instruction sets."""

from __future__ import annotations

import ctypes
import re
import subprocess
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gpucomp import config, targets
from gpucomp.codegen.llvm.ir import math as tables
from gpucomp.device import hip as device
from gpucomp.errors import DeviceError, KernelBuildError, UsageError
from gpucomp.ir.types import BF16, F16, F32, I8, I32
from gpucomp.kernel.passes.pack_weights import pack
from gpucomp.kernels_templates.engines import FAMILIES, engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.schedule.choose import choose
from gpucomp.targets import amdgcn, hip, hip_text, opencl
from gpucomp.targets.cache import KernelCache
from testing.kernels import add_relu, conv, matmul, max_pool, softmax
from testing.template_cases import CASES

needs_clang = pytest.mark.skipif(
    amdgcn.compiler("hip") is None or amdgcn.linker() is None,
    reason=f"clang {amdgcn.OLDEST_FOR_HIP} or lld is not installed",
)
ARCHS = ("gfx906", "gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1151", "gfx1201")
KERNELS = {
    "loops": add_relu(64, 64),
    "loops_f16": add_relu(64, 64, dtype=F16),
    "rowwise": softmax(64, 1000),
    "pool": max_pool((1, 28, 28, 64), 3, 2, 1),
    "row": matmul(1, 1000, 512),
    "product": matmul(196, 256, 256),
    "product_f16": matmul(196, 256, 256, dtype=F16),
    "product_bf16": matmul(196, 256, 256, dtype=BF16),
    "product_i8": matmul(196, 256, 256, dtype=I8, acc=I32),
    "stem": conv((1, 56, 56, 3), 32, (3, 3), stride=2, pad=1),
}


def source_for(kernel, arch, engine=None):
    target = hip.manifest(arch)
    families = (FAMILIES[engine],) if engine else engines_of(kernel, target.features)
    choice = choose(kernel, families, target.limits, target.device)
    return render(kernel, choice.schedule, target, "k0", choice.family)


def resources_of(source, arch):
    """Skips if no clang here knows ``arch``: CI's machines have different ones."""
    try:
        return amdgcn.resources(source, arch)
    except DeviceError as unknown:
        pytest.skip(str(unknown))


def test_a_target_is_its_opencl_twin_in_another_language():
    found, twin = targets.resolve("hip:gfx90a"), opencl.manifest("gfx90a")

    assert (found.name, found.kind, found.language, found.arch) == ("hip:gfx90a", "hip", "hip", "gfx90a")
    assert found.features == twin.features - {"amd_fence"} | {"hip"}
    assert (found.limits.warp, found.limits.units, found.limits.shared_bytes) == (64, 110, 65536)
    assert found.limits.subgroups
    assert not twin.limits.subgroups
    assert (found.device.name, found.device.shuffles, twin.device.shuffles) == ("MI210", True, False)


def test_gfx12_has_matrix_instructions_of_its_own():
    assert {"wmma", "wmma_gfx12"} <= hip.manifest("gfx1201").features
    assert "wmma_gfx12" in hip.manifest("gfx1200").features
    assert "wmma_gfx12" not in hip.manifest("gfx1100").features


@pytest.mark.parametrize("name", ["gfx803", "gfx1250", "gfx9999", "gfx", "sm_90a", "MI210", "gfx90a:xnack+"])
def test_an_unknown_instruction_set_is_refused_with_what_is_known(name):
    with pytest.raises(UsageError, match=r"unknown HIP target .*; an AMD instruction set from gfx900 to gfx1201"):
        targets.resolve(f"hip:{name}")


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", KERNELS)
@needs_clang
def test_defaults_build_without_a_spill(name, arch):
    found = resources_of(source_for(KERNELS[name], arch), arch)

    if (name, arch) == ("product_i8", "gfx906"):  # there its OpenCL twin spills as well
        assert found.spilled < 16
    else:
        assert (found.spilled, found.private_bytes) == (0, 0)
    assert found.local_bytes <= hip.manifest(arch).limits.shared_bytes
    assert found.count("s_endpgm") >= 1


@pytest.mark.parametrize("arch", ["gfx90a", "gfx1100"])
@pytest.mark.parametrize("name", CASES)
@needs_clang
def test_every_engine_builds_and_nothing_stays_a_call(name, arch):
    kernel, features = CASES[name], hip.manifest(arch).features

    for family in engines_of(kernel, features):
        resources_of(source_for(kernel, arch, family.title), arch)  # it refuses calls


INSTRUCTIONS = {
    ("gfx908", F16): "v_mfma_f32",
    ("gfx90a", F16): "v_mfma_f32",
    ("gfx942", F16): "v_mfma_f32",
    ("gfx908", BF16): "v_mfma_f32_16x16x8bf16",
    ("gfx90a", BF16): "v_mfma_f32_16x16x16bf16_1k",
    ("gfx942", BF16): "v_mfma_f32_16x16x16_bf16",
    ("gfx942", I8): "v_mfma_i32",
    ("gfx950", F16): "v_mfma_f32_16x16x32_f16",
    ("gfx950", BF16): "v_mfma_f32_16x16x32_bf16",
    ("gfx950", I8): "v_mfma_i32_16x16x64_i8",
    ("gfx1100", F16): "v_wmma_f32_16x16x16_f16",
    ("gfx1151", F16): "v_wmma_f32_16x16x16_f16",
    ("gfx1100", I8): "v_wmma_i32_16x16x16_iu8",
    ("gfx1100", BF16): "v_wmma_f32_16x16x16_bf16",
    ("gfx1201", F16): "v_wmma_f32_16x16x16_f16",
    ("gfx1201", BF16): "v_wmma_f32_16x16x16_bf16",
    ("gfx1201", I8): "v_wmma_i32_16x16x16_iu8",
}


@pytest.mark.parametrize(("arch", "dtype"), INSTRUCTIONS)
@needs_clang
def test_products_run_on_matrix_cores(arch, dtype):
    kernel = matmul(196, 256, 256, dtype=dtype, acc=I32) if dtype is I8 else matmul(196, 256, 256, dtype=dtype)

    found = resources_of(source_for(kernel, arch), arch)

    assert found.count(INSTRUCTIONS[arch, dtype]) > 0


@pytest.mark.parametrize("arch", ["gfx906", "gfx1030"])
@pytest.mark.parametrize("dtype", [F16, BF16])
def test_a_set_without_matrix_cores_uses_no_matrix_instruction(arch, dtype):
    assert not re.search("builtin_amdgcn_(w|mf)mma", source_for(matmul(196, 256, 256, dtype=dtype), arch).text)


@needs_clang
@pytest.mark.parametrize("tile", [32, 64])
@pytest.mark.parametrize("dtype", [F16, F32])
@pytest.mark.parametrize("arch", ["gfx906", "gfx1030"])
def test_operands_of_a_few_steps_are_in_registers_at_once(arch, dtype, tile):
    """clang moved the products of a tile behind the branch that stores the next one: 129 to 171 registers for f16."""
    family, kernel = FAMILIES["contraction/simt"], matmul(3136, 128, 96, dtype=dtype)
    schedule = {"tile_m": tile, "tile_n": tile, "tile_k": 16, "reg_m": tile // 16, "reg_n": 4, "stages": 2}
    schedule |= {"asynchronous": 0, "fragments": 1, "slices": 1, "splits": 1, "lanes": 1}

    found = resources_of(render(kernel, schedule, hip.manifest(arch), "k0", family), arch)

    assert found.spilled == 0
    assert found.vector <= 64  # four waves a SIMD of gfx906


GRANULE = 8  # registers of a lane are given away by so many


@needs_clang
@pytest.mark.parametrize(
    ("change", "most"),
    [({"columns": 64, "positions": 2}, 217), ({"channels": 8, "blocks": 16, "reg_b": 4}, 125)],
    ids=["128 sums", "32 sums"],
)
@pytest.mark.parametrize("arch", ["gfx906", "gfx1030"])
def test_winograd_s_products_stay_before_the_loads_of_the_next_channels(arch, change, most):
    """clang moved them behind the branch around these loads: 256 registers with 92 spilt, and 175."""
    family, kernel = FAMILIES["contraction/winograd"], conv((1, 28, 28, 128), 128, (3, 3), pad=1)
    kernel = replace(kernel, constants=frozenset({1}))
    schedule = {"outputs": 2, "columns": 32, "blocks": 32, "channels": 4, "positions": 1, "reg_n": 8, "reg_b": 8}
    schedule |= {"stages": 3, "splits": 1} | change
    kernel = pack(kernel, family.packing(kernel, family.schedule(schedule), family.problem(kernel))).kernel

    found = resources_of(render(kernel, schedule, hip.manifest(arch), "k0", family), arch)

    assert found.spilled == 0
    assert found.vector <= most + GRANULE


@pytest.mark.parametrize("arch", ["gfx90a", "gfx1100"])
@needs_clang
def test_the_matrix_engine_costs_what_its_opencl_twin_costs(arch):
    kernel, family = KERNELS["product_f16"], FAMILIES["contraction/amd"]
    schedule = choose(kernel, (family,), hip.manifest(arch).limits).schedule

    found, twin = (
        resources_of(render(kernel, schedule, module.manifest(arch), "k0", family), arch) for module in (hip, opencl)
    )

    assert found.local_bytes == twin.local_bytes
    assert (found.count("v_mfma"), found.count("v_wmma")) == (twin.count("v_mfma"), twin.count("v_wmma"))
    granules = [-(-each.vector // GRANULE) for each in (found, twin)]
    assert abs(granules[0] - granules[1]) <= 1


def listing(value, arch="gfx90a"):
    """clang's listing of a kernel that stores ``value``, an expression of the array ``x``."""
    text = f'extern "C" __global__ void __launch_bounds__(64) k0(float* x) {{ x[threadIdx.x] = {value}; }}'
    return amdgcn.assemble(SimpleNamespace(name="k0", language="hip", text=text, digest="0"), arch)


@pytest.mark.parametrize("arch", ["gfx90a", "gfx1100"])
@pytest.mark.parametrize("function", ["expf", "logf", "sqrtf"])
@needs_clang
def test_what_clang_computes_is_more_than_one_inexact_instruction(function, arch, monkeypatch):
    for clang in amdgcn.compilers("hip"):
        monkeypatch.setattr(amdgcn, "compilers", lambda language, clang=clang: [clang])
        found = amdgcn.parse(listing(f"{function}(x[threadIdx.x])", arch))
        assert found.count("v_fma") >= 1, clang  # 14 to 16 have none for any of the three, 17 none for the root


def test_a_clang_that_is_too_old_for_hip_is_left_out_and_told(monkeypatch):
    versions = {"/clang": "14.0.6", "/clang-18": "18.1.8", "/clang-17": "17.0.6", "/clang-15": "15.0.6"}
    monkeypatch.setattr(amdgcn, "_installed", lambda program: [*versions])
    monkeypatch.setattr(amdgcn, "version", lambda clang: f"Debian clang version {versions[clang]}")

    assert amdgcn.compilers("hip") == ["/clang-18"]
    assert amdgcn.compilers() == [*versions]
    versions["/clang"] = "21.1.0"
    assert amdgcn.compilers("hip") == ["/clang-18", "/clang"]  # the default one last
    versions |= {"/clang": "14.0.6", "/clang-18": "9.0.1"}
    for ask in (lambda: amdgcn.assemble(source_for(KERNELS["loops"], "gfx90a"), "gfx90a"), hip.compiler_version):
        hip.compiler_version.cache_clear()
        with pytest.raises(DeviceError, match=r"clang 18 or newer is not .* clang-19 lld-19 \(here: .* 14\.0\.6, .*17"):
            ask()


@needs_clang
def test_lanes_exchange_values_within_32_lanes_without_memory():
    assert "quad_perm:[1,0,3,2]" in listing("gc_shfl_xor(x[threadIdx.x], 1)")
    assert "ds_swizzle_b32" in listing("gc_shfl_xor(x[threadIdx.x], 16)")
    assert "ds_bpermute" in listing("gc_shfl(x[threadIdx.x], (int)x[1])")
    assert "ds_bpermute" not in listing("gc_warp_sum(x[threadIdx.x])")


@needs_clang
def test_either_half_of_16_bytes_reaches_the_matrix_cores():
    def code(part):
        body = f"y[0] = as_long(reinterpret_cast<const gc_int4*>(x)->{part});"
        text = f'extern "C" __global__ void __launch_bounds__(64) k0(const int* x, long* y) {{ {body} }}'
        return amdgcn.code_of(
            amdgcn.assemble(SimpleNamespace(name="k0", language="hip", text=text, digest="0"), "gfx942")
        )

    assert code("lo") != code("hi")  # the same, if clang takes the first half for both


@needs_clang
def test_fences_of_the_device_stand_around_what_work_groups_leave():
    kernel, target = matmul(8, 8, 4096), hip.manifest("gfx90a")
    family = FAMILIES["contraction/simt"]
    schedule = dict(choose(kernel, (family,), target.limits).schedule) | {"splits": 4}

    source = render(kernel, schedule, target, "k0", family)
    listing = amdgcn.code_of(amdgcn.assemble(source, "gfx90a"))

    assert source.text.index("gc_release_to_device()") < source.text.index("gc_atomic_inc_wrap(")
    assert source.text.index("gc_atomic_inc_wrap(") < source.text.index("gc_acquire_from_device()")
    assert (
        listing.index("s_waitcnt vmcnt(0)") < listing.index("global_atomic_inc") < listing.rindex("buffer_wbinvl1_vol")
    )
    assert "volatile" not in source.text


@needs_clang
def test_a_code_object_has_the_kernel_and_the_cache_keeps_it(tmp_path, monkeypatch):
    source, cache = source_for(KERNELS["loops"], "gfx90a"), KernelCache(tmp_path)

    code = hip.members({"k0.co": source}, hip.manifest("gfx90a"), cache)["k0.co"]

    assert code.startswith(b"\x7fELF")
    assert b"k0.kd\0" in code
    monkeypatch.setattr(amdgcn, "code_object", lambda *_: pytest.fail("compiled again"))
    assert hip.build(source, hip.manifest("gfx90a"), cache) == code


@needs_clang
def test_a_refused_kernel_tells_its_first_error_by_its_own_line():
    source = SimpleNamespace(name="k0", language="hip", text="\nbroken kernel;\n", digest="0")

    with pytest.raises(KernelBuildError, match=r"kernel k0: .*:2:1: error: unknown type name 'broken'"):
        amdgcn.code_object(source, "gfx90a")


def test_a_missing_linker_is_named(monkeypatch):
    said = 'clang: error: unable to execute command: Executable "lld" doesn\'t exist!\n'
    monkeypatch.setattr(amdgcn, "compilers", lambda language: ["clang"])
    monkeypatch.setattr(
        amdgcn.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 1, stdout="", stderr=said)
    )

    with pytest.raises(
        DeviceError, match=r"lld, which links code objects, is missing .*: apt-get install clang-19 lld-19"
    ):
        amdgcn.code_object(source_for(KERNELS["loops"], "gfx90a"), "gfx90a")


@needs_clang
def test_another_error_of_the_linker_is_the_kernels():
    text = (
        'extern "C" __device__ float nowhere(float);\nextern "C" __global__ void k0(float* x) { x[0] = nowhere(x[1]); }'
    )
    source = SimpleNamespace(name="k0", language="hip", text=text, digest="0")

    with pytest.raises(KernelBuildError, match=r"kernel k0: .*undefined .*symbol: nowhere"):
        amdgcn.code_object(source, "gfx90a")


def test_without_clang_the_message_names_the_packages(monkeypatch):
    monkeypatch.setattr(amdgcn.shutil, "which", lambda name: None)
    hip.compiler_version.cache_clear()

    with pytest.raises(DeviceError, match=r"clang 18 or newer is not installed.*: apt-get install clang-19 lld-19$"):
        targets.require_compiler(hip.manifest("gfx90a"))
    hip.compiler_version.cache_clear()


LIBRARY = """
extern "C" int hipGetDeviceCount(int* count) {{ *count = {count}; return {status}; }}
extern "C" int hipRuntimeGetVersion(int* version) {{ *version = 60342134; return 0; }}
extern "C" int hipGetDevicePropertiesR0600(char* properties, int device) {{
  const char name[] = "{name}", arch[] = "{arch}";
  for (unsigned i = 0; i < sizeof name; ++i) properties[i] = name[i];
  for (unsigned i = 0; i < sizeof arch; ++i) properties[1160 + i] = arch[i];
  return 0;
}}
"""


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    """Makes a ``libamdhip64.so`` that describes one GPU."""

    def made(*, count=1, status=0, name="AMD Instinct MI210", arch="gfx90a:sramecc+:xnack-"):
        place = tmp_path / "libamdhip64.so"
        text = LIBRARY.format(count=count, status=status, name=name, arch=arch)
        subprocess.run(
            ["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(place)], input=text, text=True, check=True
        )
        library = ctypes.CDLL(str(place))
        monkeypatch.setattr(device, "runtime", lambda: library)

    return made


def test_the_gpu_here_is_asked_for_its_instruction_set(runtime):
    runtime()

    found = targets.resolve("hip")

    assert (found.name, found.identity) == ("hip:gfx90a", "AMD Instinct MI210 | 60342134")


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ({"count": 0}, r"finds no usable GPU \(error 0\)"),
        ({"status": 100}, r"finds no usable GPU \(error 100\)"),
        ({"arch": "gfx1250"}, "has no instruction set that is known"),
        ({"arch": "gfx803"}, "has no instruction set that is known"),
        ({"arch": "other"}, "has no instruction set that is known"),
    ],
)
def test_a_gpu_that_cannot_be_used_is_told(runtime, device, message):
    runtime(**device)

    with pytest.raises(DeviceError, match=message):
        targets.resolve("hip")


def test_without_the_runtime_the_message_says_what_to_install_and_how_to_compile_for_another_machine(monkeypatch):
    monkeypatch.setattr(device, "candidates", lambda: ["libamdhip64-that-is-not-here.so"])
    device.runtime.cache_clear()

    with pytest.raises(DeviceError, match=r"HIP runtime .* was not found: apt-get install .*hip:gfx90a"):
        targets.resolve("hip")
    with pytest.raises(DeviceError, match="was not found"):
        targets.require_device(hip.manifest("gfx90a"))
    device.runtime.cache_clear()


def test_rocm_s_folder_in_the_environment_comes_first(monkeypatch):
    for name in ("ROCM_PATH", "HIP_PATH"):
        with config.using(rocm=config.read({name: "/opt/rocm"}).rocm):
            assert device.candidates()[0] == "/opt/rocm/lib/libamdhip64.so"
    with config.using(rocm=None):
        assert device.candidates()[:2] == ["libamdhip64.so", "libamdhip64.so.9"]


def test_only_kernels_that_call_a_function_get_the_mathematics():
    plain, calls = hip_text.text_of("int x;"), hip_text.text_of("float y = erff(x);")

    assert "gc_expm1" not in plain
    assert "gc_expm1" in calls
    assert not re.search(r"@\w+@", calls)
    assert len(hip_text.text_of("sinf(x)")) > len(calls) + 50_000  # the table of angles


def numbers(function):
    """f64 arguments over the whole range, special ones first."""
    rng = np.random.default_rng(0)
    special = [0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, 1e-310, 1e300, -1e300, 2.0**-1074]
    wide = np.ldexp(rng.uniform(-1, 1, 4000), rng.integers(-60, 200, 4000))
    return np.concatenate([special, wide, rng.uniform(-30, 30, 8000)])


# of one number, by arithmetic; builtins are of the compiler, and here g++ would be measured instead of clang
ONE = {"": sorted(tables.NAMES - {"pow"}), "f": sorted(tables.NAMES - {"pow", "exp", "log"})}


@pytest.fixture(scope="module")
def mathematics(tmp_path_factory):
    """``math_hip.h`` for this processor, by g++: the functions of f64 and of f32, on arrays."""
    folder = tmp_path_factory.mktemp("mathematics")
    text = "#define __device__ inline\n#define __constant__\n#define __forceinline__\nnamespace hip {\n"
    text += hip_text.mathematics(circular=True).replace("static __device__", "static") + "}\n"
    for suffix, t in (("f", "float"), ("", "double")):
        for name in ONE[suffix]:
            text += f'extern "C" void of_{name}{suffix}(const {t}* x, {t}* y, int n) {{ for (int i = 0; i < n; ++i) '
            text += f"y[i] = hip::{name}{suffix}(x[i]); }}\n"
        for name in ("pow", "fmod"):
            text += f'extern "C" void of_{name}{suffix}(const {t}* x, const {t}* z, {t}* y, int n) {{ for (int i = 0; '
            text += f"i < n; ++i) y[i] = hip::{name}{suffix}(x[i], z[i]); }}\n"
    place = folder / "mathematics.so"
    flags = ["-std=c++20", "-O1", "-fno-builtin", "-ffp-contract=off", "-shared", "-fPIC", "-w", "-x", "c++", "-"]
    subprocess.run(["g++", *flags, "-o", str(place)], input=text, text=True, check=True)
    return ctypes.CDLL(str(place))


def called(library, name, dtype, *given):
    given = [np.ascontiguousarray(g, dtype) for g in given]
    found = np.empty_like(given[0])
    suffix = "f" if dtype is np.float32 else ""
    getattr(library, f"of_{name}{suffix}")(*(g.ctypes.data_as(ctypes.c_void_p) for g in (*given, found)), found.size)
    return found


def reference(name, *given):
    """In numpy's longest float, where it has the function; else in f64 by the C library."""
    if name == "erf":
        import math

        return np.array([math.erf(x) for x in given[0]])
    np_name = {"acos": "arccos", "asin": "arcsin", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh",
               "atanh": "arctanh", "pow": "power"}.get(name, name)  # fmt: skip
    return getattr(np, np_name)(*(g.astype(np.longdouble) for g in given)).astype(np.float64)


def assert_near(found, right, relative, absolute=0.0):
    assert np.array_equal(np.isnan(found), np.isnan(right))
    with np.errstate(invalid="ignore"):
        bad = ~(np.abs(found - right) <= np.maximum(np.abs(right) * relative, absolute)) & ~np.isnan(right)
    bad &= found != right  # infinities
    bad |= (right == 0) & (found == 0) & (np.signbit(found) != np.signbit(right))
    assert not bad.any(), (np.flatnonzero(bad)[:5], found[bad][:5], right[bad][:5])


@pytest.mark.parametrize("name", ONE[""])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_functions_of_f64_are_right_over_the_whole_range(mathematics, name):
    x = numbers(name)

    found = called(mathematics, name, np.float64, x)

    least = 1e-15 if name in ("sin", "cos") else 2.0**-1040
    relative = 1e-9 if name == "tan" else 2e-13  # near a pole of the tangent the angle's error counts
    assert_near(found, reference(name, x), relative, least)


@pytest.mark.parametrize("name", ONE["f"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_functions_of_f32_are_right_to_4_ulp(mathematics, name):
    x = numbers(name).astype(np.float32)

    found = called(mathematics, name, np.float32, x)

    with np.errstate(over="ignore", under="ignore"):
        right = reference(name, x.astype(np.float64)).astype(np.float32)
    assert_near(found.astype(np.float64), right.astype(np.float64), 4 * 2.0**-23, 2.0**-148)


@pytest.mark.parametrize("name", ["pow", "fmod"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_functions_of_two_numbers_are_right(mathematics, name):
    rng = np.random.default_rng(1)
    special = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, 0.5, np.inf, -np.inf, np.nan, 1e-310])
    a, b = (g.ravel() for g in np.meshgrid(special, special))
    x = np.concatenate([a, rng.uniform(-50, 50, 6000), np.exp(rng.uniform(-300, 300, 4000))])
    y = np.concatenate([b, rng.uniform(-20, 20, 3000), rng.integers(-30, 30, 3000), rng.uniform(-2, 2, 4000)])

    found = called(mathematics, name, np.float64, x, y)

    right = np.power(x, y) if name == "pow" else np.fmod(x, y)
    assert_near(found, right, 2.0**-51 if name == "pow" else 0.0, 2.0**-1074)
    assert np.array_equal(np.signbit(found[~np.isnan(right)]), np.signbit(right[~np.isnan(right)]))

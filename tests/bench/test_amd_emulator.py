"""The program that plays AMD's machine code: what it reads of a code object, what a launch is given, what it says."""

from __future__ import annotations

import shutil
import struct
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from bench import amd_emulator, simulated
from bench.amd_emulator import (
    CodeObject,
    Descriptor,
    Emulator,
    Probe,
    cells,
    kernel_arguments,
    linked,
    outside,
    packet_of,
)
from bench.kernel_sweep.__main__ import Journal
from bench.kernel_sweep.cases import Case, Cell, draw
from bench.kernel_sweep.play import difference, prepared
from bench.simulated import SimulatorError, arguments_of
from gpucomp.errors import DeviceError
from gpucomp.targets import amdgcn
from testing.kernels import matmul

LINKER = next((path for name in amd_emulator.LINKERS if (path := shutil.which(name))), None)
needs_a_linker = pytest.mark.skipif(
    amdgcn.compiler() is None or LINKER is None, reason="clang or ld.lld is not installed"
)
SIMT = Cell("gfx1100", "contraction/simt", "f32")


def descriptor(local=1024, private=0, entry=256, resources=0b11111 << 1, properties=0b1001) -> bytes:
    return (
        struct.pack("<IIII", local, private, 0, 0)
        + struct.pack("<q", entry)
        + bytes(28)
        + struct.pack("<IHHI", resources, properties, 0, 0)
    )


def test_a_descriptor_says_what_a_wave_starts_with():
    found = Descriptor.read(descriptor(entry=-64))

    assert len(descriptor()) == 64
    assert (found.local_bytes, found.private_bytes, found.entry) == (1024, 0, -64)
    # four words of the scratch resource, then the address of the arguments; zeros up to what is asked for
    assert found.user_registers(0x1_0000_0002, 0x3_0000_0004) == [0, 0, 0, 0, 4, 3] + [0] * 25
    with_packet = replace(found, properties=0b1010, resources=4 << 1)
    assert with_packet.user_registers(0x1_0000_0002, 0x3_0000_0004) == [2, 1, 4, 3]
    assert replace(found, properties=1 << 6, private_bytes=16, resources=1 << 1).user_registers(0, 0) == [16]


@pytest.mark.parametrize(("dynamic", "granules"), [(0, 2), (1, 3), (512, 3), (65536 - 1024, 128)])
def test_local_memory_is_allotted_by_granules_into_its_bits_alone(dynamic, granules):
    found = replace(Descriptor.read(descriptor()), resources=0xFFFFFFFF)

    made = found.resources_with(dynamic)

    assert made >> 15 & 0x1FF == granules
    assert made | 0x1FF << 15 == 0xFFFFFFFF


def test_kernel_arguments_are_addresses_and_then_the_sizes_of_the_launch():
    made = kernel_arguments([1, 2**40], (5, 6, 7), (64, 2, 1))

    assert struct.unpack_from("<QQIIIHHH", made) == (1, 2**40, 5, 6, 7, 64, 2, 1)
    assert struct.unpack_from("<HHHHHHIII", packet_of((5, 6, 7), (64, 2, 1)))[2:] == (64, 2, 1, 0, 320, 12, 7)
    assert len(packet_of((1, 1, 1), (1, 1, 1))) == 64


@needs_a_linker
@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201", "gfx942"])
def test_a_linked_kernel_is_found_by_its_name(arch):
    ready = prepared(draw(replace(SIMT, target=arch), 1), on_pocl=False)
    try:
        elf = linked(ready.source, arch)
    except DeviceError as error:
        pytest.skip(str(error))

    code = CodeObject.read(elf, "k0")
    loaded = bytearray(code.size)
    for at, part in code.parts:
        loaded[at : at + len(part)] = part
    found = Descriptor.read(bytes(loaded[code.descriptor : code.descriptor + 64]))

    assert found.local_bytes == amdgcn.resources(ready.source, arch).local_bytes
    assert found.properties & 8  # it asks for its arguments
    assert (code.descriptor + found.entry) % 256 == 0
    assert 0 < code.descriptor + found.entry < code.size
    with pytest.raises(KeyError):
        CodeObject.read(elf, "k1")


@needs_a_linker
def test_instructions_on_caches_are_none_there():
    case = Case(
        SIMT,
        0,
        matmul(8, 16, 64),
        dict.fromkeys((p.name for p in SIMT.family.params), 1)
        | {"tile_m": 8, "tile_n": 16, "tile_k": 8, "splits": 2, "asynchronous": 0},
    )
    assembly = amdgcn.assemble(prepared(case, on_pocl=False).source, "gfx1100")

    left = amd_emulator.ON_CACHES.sub("s_nop 0", assembly)

    assert "buffer_gl0_inv" in assembly
    assert "buffer_gl" not in left
    assert left.count("s_nop 0") >= assembly.count("buffer_gl0_inv") + assembly.count("buffer_gl1_inv")


def test_every_cell_has_cases_and_wmma_has_none_of_f32():
    found = cells()

    assert {cell.target for cell in found if cell.engine == "contraction/amd"} == {*amd_emulator.ARCHITECTURES}
    assert {cell.dtype for cell in found if cell.engine == "contraction/amd"} == {"f16", "bf16", "i8", "f32"}
    assert "takes f32" in amd_emulator.unsuited(Cell("gfx1100", "contraction/amd", "f32"))
    for cell in found:
        assert draw(cell, 0).kernel.stores


def test_a_case_is_launched_as_it_is_and_half_stays_half():
    ready = prepared(draw(Cell("gfx942", "contraction/amd", "f16"), 0), on_pocl=False)

    given, first, count = arguments_of(ready)

    assert "multiplied(" not in ready.source.text  # nothing is written out
    assert "__builtin_amdgcn_mfma" in ready.source.text
    assert given[0].dtype == np.float16
    assert (first, count) == (ready.kernel.inputs, len(ready.kernel.params) - ready.kernel.inputs)


def test_what_disagrees_and_what_ends_is_told_and_a_case_without_means_is_left_out(tmp_path):
    """The launches of a simulator that gets one case wrong and one not to its end."""

    def right(ready):
        whole = [np.full(t.shape, 1).astype(t.dtype.numpy) for t in ready.kernel.params[ready.kernel.inputs :]]
        for points in ready.wanted:
            whole[points.target - ready.kernel.inputs][points.index] = points.values
        return whole

    def launch(ready):
        if ready.case.number == 1:
            raise SimulatorError("it stops")
        found = right(ready)
        if ready.case.number == 2:
            found[0] = found[0] + 1
        return found

    journal = Journal(tmp_path / "journal.jsonl")
    wanted = [(f"{n} by --seed 0", SIMT.name, lambda n=n: draw(SIMT, n)) for n in range(4)]
    simulated.sweep(wanted, journal, float("inf"), launch, lambda ready: "not this one" * (ready.case.number == 3))
    faults = [journal.ended[name].get("fault") for name, _, _ in wanted]

    assert difference(prepared(draw(SIMT, 0), on_pocl=False), right(prepared(draw(SIMT, 0), on_pocl=False))) == ""
    assert faults[:2] == ["", "it stops"]
    assert "parameter" in faults[2]
    assert journal.ended[wanted[3][0]]["left_out"] == "not this one"
    text = simulated.report(simulated.rows([SIMT], " by --seed 0", journal), journal, "AMD emulator", "Lead.")
    assert "Lead. 3 cases" in text
    assert "- 1: not this one" in text
    assert text.count("it stops") == 1
    assert not Journal(tmp_path / "journal.jsonl").wants(wanted[1][0])


def test_guards_show_what_is_written_beside_a_buffer():
    around = np.full(16, amd_emulator.FILL, np.uint8)
    assert not outside(around)
    around[3] = 0
    assert outside(around)


FAKE = """
import ctypes, os, time
def run_asm(lib, size, gx, gy, gz, lx, ly, lz, arguments, rsrc2, scratch, arch, registers):
    out = ctypes.cast(arguments, ctypes.POINTER(ctypes.c_uint64))
    what = ctypes.cast(out[0], ctypes.POINTER(ctypes.c_int))[0]
    if what == 1: os._exit(3)
    if what == 2: time.sleep(60)
    if what == 3: raise RuntimeError("cannot")
    ctypes.cast(out[1] - 4 * (what == 4), ctypes.POINTER(ctypes.c_int))[0] = 5
    return 7 * (what == 5)
"""


@needs_a_linker
def test_the_emulator_may_end_hang_or_write_beside_buffers_and_the_next_launch_is_played(tmp_path, monkeypatch):
    folder = tmp_path / "test" / "mockgpu" / "amd"
    folder.mkdir(parents=True)
    (folder / "emu.py").write_text(FAKE)
    for part in (folder, folder.parent, folder.parent.parent):
        (part / "__init__.py").write_text("")
    source = amd_emulator.PROBES[-1].source()
    emulator = Emulator(tmp_path, 20)

    def launch(what):
        return emulator.launch("gfx1100", source, [np.array([what], np.int32), np.zeros(1, np.int32)])[1][0]

    try:
        assert launch(0) == 5
        for what, said in [
            (1, "ended its process"),
            (3, "RuntimeError: cannot"),
            (4, "argument 1 is written outside"),
            (5, "stops with 7"),
        ]:
            with pytest.raises(SimulatorError, match=said):
                launch(what)
        emulator.limit = 2
        with pytest.raises(SimulatorError, match="no end after 2 s"):
            launch(2)
        emulator.limit = 20
        assert launch(0) == 5
    finally:
        emulator.close()


def test_a_probe_that_fails_names_what_is_to_be_repaired(monkeypatch):
    each = replace(amd_emulator.PROBES[0], name="sums", archs=("gfx942",), right=lambda lanes: np.array([1, 2]))
    monkeypatch.setattr(amd_emulator, "PROBES", (each,))

    def answering(words):
        return SimpleNamespace(launch=lambda arch, source, given: [given[0], np.array(words)])

    assert isinstance(each, Probe)
    assert amd_emulator.probe(answering([1, 2, 9]), "gfx942") == {}
    assert amd_emulator.probe(answering([1, 3, 9]), "gfx1100") == {}
    wrong = {"gfx942": amd_emulator.probe(answering([1, 3, 9]), "gfx942")}
    assert wrong == {"gfx942": {"sums": "word 1 is 3, not 2"}}
    assert any(each.repair in sentence and "gfx942" in sentence for sentence in amd_emulator.known(wrong))


@needs_a_linker
def test_16_bits_in_high_registers_are_told_from_others():
    each = next(p for p in amd_emulator.PROBES if p.name == "16 bits in registers from v128 on")
    source = each.source()

    def needs(old, new):
        text = source.text.replace(old, new)
        cell = SimpleNamespace(target="gfx942")
        return each.needs(SimpleNamespace(source=replace(source, text=text), case=SimpleNamespace(cell=cell)))

    assert CodeObject.read(linked(source, "gfx942"), "probe").size
    assert each.right(64)[:3].tolist() == [0, 0x101, 0x202]
    assert needs("", "")
    assert not needs("v13", "v9")
    # the long encoding, and instructions of 32 bits, name registers alone
    assert not needs("_e32", "_e64")
    kept = source.text[source.text.index("v_lshlrev_b16") : source.text.index("v_cndmask")]
    assert "v_mov_b32_e32 v130" in source.text.replace(kept, "")
    assert not needs(kept, "")


@needs_a_linker
def test_a_constant_that_is_added_to_a_product_matters_where_v128_is_in_use():
    each = next(p for p in amd_emulator.PROBES if p.name == "constants that WMMA adds")
    source = each.source()

    def needs(old, new):
        text = source.text.replace(old, new)
        cell = SimpleNamespace(target="gfx1201")
        return each.needs(SimpleNamespace(source=replace(source, text=text), case=SimpleNamespace(cell=cell)))

    assert each.right(64).tolist() == [1] * 64
    assert needs("", "")
    assert not needs("v128", "v100")
    assert not needs("int8 c = 0", "int8 c = x[1]")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("v_lshlrev_b16_e32 v153, 8, v153", True),
        ("v_lshlrev_b16_e32 v5, 8, v163", True),
        ("v_cvt_f16_f32_e32 v128, v3", True),
        ("v_cvt_f32_f16_e32 v3, v255", True),
        ("v_add_f16_dpp v1, v200, v1 row_shr:1", True),
        ("v_cmp_gt_i16_e32 vcc, v2, v199", True),
        ("v_lshlrev_b16_e32 v127, 8, v12", False),
        ("v_or_b32_e32 v153, v16, v154", False),
        ("v_max_i16_sdwa v140, sext(v140), v5 dst_sel:DWORD", False),
        ("v_mad_u16 v140, v141, v3, v4", False),
        ("v_add_u16_e32 v1, v2, v3\n\tv_mov_b32_e32 v128, v1", False),
    ],
)
def test_what_a_listing_does_with_registers_from_v128_on(line, found):
    assert bool(amd_emulator.HALF_FROM_128.search(f"\t{line}\n")) is found


def test_a_folder_that_is_no_checkout_is_told(tmp_path, capsys):
    with pytest.raises(SystemExit):
        amd_emulator.main([str(tmp_path)])

    assert "is not a checkout of tinygrad" in capsys.readouterr().err
    assert "test.mockgpu" not in sys.modules

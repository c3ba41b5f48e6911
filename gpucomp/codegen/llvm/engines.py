"""The engines of the CPU, one row each: the space and the emitter in the engine's folder."""

from __future__ import annotations

from gpucomp.codegen.llvm.amx import space as amx
from gpucomp.codegen.llvm.amx.emit import emit_amx
from gpucomp.codegen.llvm.attention import decode_space as decode
from gpucomp.codegen.llvm.attention import space as attention
from gpucomp.codegen.llvm.attention.decode_emit import emit_decode
from gpucomp.codegen.llvm.attention.emit import emit_attention
from gpucomp.codegen.llvm.contraction import space as contraction
from gpucomp.codegen.llvm.contraction.forms import emit_in_form
from gpucomp.codegen.llvm.core_space import geometry, nothing
from gpucomp.codegen.llvm.depth_first import space as depth_first
from gpucomp.codegen.llvm.depth_first.emit import emit_depth_first
from gpucomp.codegen.llvm.loops import space as loops
from gpucomp.codegen.llvm.loops.loops import emit_elementwise, emit_pool
from gpucomp.codegen.llvm.loops.rowwise import emit_rowwise
from gpucomp.codegen.llvm.loops.scan import emit_scan
from gpucomp.codegen.llvm.loops.scatter import emit_scatter
from gpucomp.codegen.llvm.vnni import pairs
from gpucomp.codegen.llvm.vnni import space as vnni
from gpucomp.codegen.llvm.vnni.emit import emit_vnni
from gpucomp.codegen.llvm.windows import bytes_emit, emit, planes_emit
from gpucomp.codegen.llvm.windows import bytes_space as byte_windows
from gpucomp.codegen.llvm.windows import planes_space as planes
from gpucomp.codegen.llvm.windows import space as windows
from gpucomp.codegen.llvm.winograd import space as winograd
from gpucomp.codegen.llvm.winograd.emit import emit_winograd
from gpucomp.kernel import Attention, Contraction, FusedLayers, Kernel, Loops, Rowwise, Scan, Scatter, Window
from gpucomp.kernel.example import example_of, has_sizes
from gpucomp.schedule.space import Family

# A row is one engine. First the fields that all have: kernel family, kind of body, parameters, problem, objections, derive,
# geometry, default. Then its own.
# fmt: off
ELEMENTWISE = Family(
    "loops", Loops, loops.LoopsSchedule, loops.problem, loops.objections, nothing, geometry, loops.default,
    emit=emit_elementwise, any_size=True,
)
WINDOWS_OF_LOOPS = Family(
    "loops", Loops, windows.WindowSchedule, windows.problem, windows.objections, nothing, geometry, windows.default,
    engine="windows", accepts=emit.accepts, emit=emit.emit_windows, any_size=True,
)
BYTE_WINDOWS = Family(
    "loops", Loops, windows.WindowSchedule, byte_windows.problem, windows.objections, nothing, geometry,
    byte_windows.default,
    engine="bytes", accepts=bytes_emit.accepts, emit=bytes_emit.emit_byte_windows, any_size=True,
)
PLANES_OF_LOOPS = Family(
    "loops", Loops, planes.PlanesSchedule, planes.problem, planes.objections, nothing, geometry, planes.default,
    engine="planes", accepts=planes_emit.accepts, emit=planes_emit.emit_planes, any_size=True,
)
POOL = Family(
    "pool", Window, loops.LoopsSchedule, loops.problem, loops.objections, nothing, geometry, loops.default,
    emit=emit_pool, any_size=True,
)
WINDOWS_OF_POOL = Family(
    "pool", Window, windows.WindowSchedule, windows.problem, windows.objections, nothing, geometry, windows.default,
    engine="windows", accepts=emit.accepts, emit=emit.emit_windows, any_size=True,
)
PLANES_OF_POOL = Family(
    "pool", Window, planes.PlanesSchedule, planes.problem, planes.objections, nothing, geometry, planes.default,
    engine="planes", accepts=planes_emit.accepts, emit=planes_emit.emit_planes, any_size=True,
)
ROWWISE = Family(
    "rowwise", Rowwise, loops.RowwiseSchedule, loops.rowwise_problem, loops.objections, nothing, geometry,
    loops.rowwise_default,
    emit=emit_rowwise, any_size=True,
)
SCAN = Family(
    "scan", Scan, loops.LoopsSchedule, loops.problem, loops.objections, nothing, geometry, loops.default,
    emit=emit_scan, any_size=True,
)
SCATTER = Family(
    "scatter", Scatter, loops.ScatterSchedule, loops.problem, loops.objections, nothing, geometry,
    loops.scatter_default,
    emit=emit_scatter, any_size=True,
)
AMX = Family(
    "contraction", Contraction, amx.TileSchedule, amx.problem, amx.objections, nothing, geometry, amx.default,
    engine="amx", accepts=amx.accepts, estimate=amx.estimate, packing=amx.packing, emit=emit_amx, any_size=True,
)
VNNI = Family(
    "contraction", Contraction, amx.VnniSchedule, vnni.problem, vnni.objections, nothing, geometry, vnni.default,
    engine="vnni", accepts=vnni.accepts, estimate=vnni.estimate, packing=vnni.packing, emit=emit_vnni, any_size=True,
)
PAIRS = Family(
    "contraction", Contraction, amx.VnniSchedule, pairs.pairs_problem, vnni.objections, nothing, geometry, vnni.default,
    engine="pairs", accepts=pairs.accepts, estimate=pairs.estimate, packing=vnni.packing, emit=pairs.emit_pairs, any_size=True,
)
WINOGRAD = Family(
    "contraction", Contraction, winograd.WinogradSchedule, winograd.problem, winograd.objections, winograd.derive,
    winograd.geometry, winograd.default,
    engine="winograd", accepts=winograd.accepts, estimate=winograd.estimate, packing=winograd.packing,
    emit=emit_winograd, any_size=True,
)
REGISTER_BLOCKS = Family(
    "contraction", Contraction, contraction.ContractionSchedule, contraction.problem, contraction.objections,
    nothing, geometry, contraction.default,
    estimate=contraction.estimate, packing=contraction.packing, in_general=contraction.in_general,
    elsewhere=contraction.elsewhere, emit=emit_in_form, any_size=True,
)
DECODE = Family(
    "attention", Attention, decode.DecodeSchedule, decode.problem, decode.objections, nothing, geometry, decode.default,
    engine="decode", accepts=decode.accepts, estimate=decode.estimate, emit=emit_decode, any_size=True,
)
ATTENTION = Family(
    "attention", Attention, attention.AttentionSchedule, attention.problem, attention.objections, nothing, geometry,
    attention.default,
    accepts=attention.accepts, estimate=attention.estimate, emit=emit_attention, any_size=True,
)
DEPTH_FIRST = Family(
    "fused_layers", FusedLayers, depth_first.FusedLayersSchedule, depth_first.problem, depth_first.objections, nothing, geometry,
    depth_first.default,
    emit=emit_depth_first,
)
# fmt: on

# Engines of each kind of body in order of preference; the last accepts every kernel of its kind. Those with an ``estimate`` are
# compared by it: ``gpucomp.schedule.choose._estimated``.
ENGINES: dict[type, tuple[Family, ...]] = {
    Loops: (BYTE_WINDOWS, WINDOWS_OF_LOOPS, PLANES_OF_LOOPS, ELEMENTWISE),
    Contraction: (AMX, VNNI, PAIRS, WINOGRAD, REGISTER_BLOCKS),
    Rowwise: (ROWWISE,),  # softmax, norms, reductions
    Scan: (SCAN,),
    Scatter: (SCATTER,),
    Window: (WINDOWS_OF_POOL, PLANES_OF_POOL, POOL),
    Attention: (DECODE, ATTENTION),
    FusedLayers: (DEPTH_FIRST,),
}


def engines_of(kernel: Kernel, features: frozenset[str] = frozenset()) -> tuple[Family, ...]:
    """The engines that can compute ``kernel`` on a processor with ``features``, in order of preference.

    They can also compute the example's sizes alone, by which they are compared: of one column no step is seen any more.
    """
    able = [family for family in ENGINES[type(kernel.body)] if family.any_size or not has_sizes(kernel)]
    both = (kernel, example_of(kernel)) if has_sizes(kernel) else (kernel,)
    return tuple(family for family in able if not any(family.accepts(one, features) for one in both))


def family_of(kernel: Kernel) -> Family:
    """The engine that can compute ``kernel`` on every processor."""
    return ENGINES[type(kernel.body)][-1]

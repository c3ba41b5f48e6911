"""The engines that render kernels for CUDA and OpenCL. The space of each is in its folder, beside its template."""

from __future__ import annotations

from gpucomp.kernel import (
    Attention,
    Contraction,
    Kernel,
    Loops,
    Rowwise,
    Scan,
    Scatter,
    Separable,
    TileTransform,
    Window,
)
from gpucomp.kernel.example import has_sizes
from gpucomp.kernels_templates.attention.amd.space import FAMILY as ATTENTION_AMD
from gpucomp.kernels_templates.attention.mma.space import FAMILY as ATTENTION_MMA
from gpucomp.kernels_templates.attention.simt.space import FAMILY as ATTENTION
from gpucomp.kernels_templates.attention.tcgen05.space import FAMILY as ATTENTION_TCGEN05
from gpucomp.kernels_templates.attention.wgmma.space import FAMILY as ATTENTION_WGMMA
from gpucomp.kernels_templates.contraction.amd.space import FAMILY as AMD
from gpucomp.kernels_templates.contraction.gemv.space import FAMILY as GEMV
from gpucomp.kernels_templates.contraction.mali.space import FAMILY as MALI
from gpucomp.kernels_templates.contraction.mma.space import FAMILY as MMA
from gpucomp.kernels_templates.contraction.separable_mma.space import FAMILY as SEPARABLE_MMA
from gpucomp.kernels_templates.contraction.separable_simt.space import FAMILY as SEPARABLE_SIMT
from gpucomp.kernels_templates.contraction.simt.space import FAMILY as SIMT
from gpucomp.kernels_templates.contraction.simt_pairs.space import FAMILY as SIMT_PAIRS
from gpucomp.kernels_templates.contraction.stem_mma.space import FAMILY as STEM_MMA
from gpucomp.kernels_templates.contraction.stem_simt.space import FAMILY as STEM_SIMT
from gpucomp.kernels_templates.contraction.tcgen05.space import FAMILY as TCGEN05
from gpucomp.kernels_templates.contraction.wgmma.space import FAMILY as WGMMA
from gpucomp.kernels_templates.contraction.winograd.space import FAMILY as WINOGRAD
from gpucomp.kernels_templates.depthwise.space import FAMILY as DEPTHWISE
from gpucomp.kernels_templates.loops.space import FAMILY as LOOPS
from gpucomp.kernels_templates.loops.transpose.space import FAMILY as TRANSPOSE
from gpucomp.kernels_templates.pool.space import FAMILY as POOL
from gpucomp.kernels_templates.pool.window.space import FAMILY as POOL_WINDOW
from gpucomp.kernels_templates.rowwise.space import FAMILY as ROWWISE
from gpucomp.kernels_templates.scan.space import FAMILY as SCAN
from gpucomp.kernels_templates.scatter.space import FAMILY as SCATTER
from gpucomp.kernels_templates.tile_transform.space import FAMILY as TILE_TRANSFORM
from gpucomp.schedule.space import Family

# Engines of each kind of body in order of preference; the last accepts every kernel of its kind. A new engine needs:
#
# 1. A folder ``<family>/<engine>/`` with ``__init__.py``, ``space.py`` (the parameters, what is legal, the launch, the
#    default: ``FAMILY``), ``emit.py`` (what the template reads) and ``kernel.j2``.
# 2. A place in this table. If the first engine that accepts a kernel lacks ``work`` or ``registers``, the analytic model
#    does not rank the other engines for it either (``schedule.rank.can_rank``).
# 3. Functions of a space also run on whole columns of schedules at once: use ``least``, ``most`` and ``gcd`` of
#    ``gpucomp.device.lockstep``, not ``min``, ``max`` and ``math.gcd``. With ``any_size``, ``derive`` and ``geometry`` also
#    run on sizes that each run decides: see ``gpucomp.codegen.c.arguments``.
# 4. A row in ``CELLS`` of ``bench/kernel_sweep``, and in the tests that list engines (they import ``FAMILIES``).
ENGINES: dict[type, tuple[Family, ...]] = {
    Loops: (DEPTHWISE, TRANSPOSE, LOOPS),
    Contraction: (MALI, GEMV, AMD, WGMMA, TCGEN05, STEM_MMA, MMA, STEM_SIMT, WINOGRAD, SIMT_PAIRS, SIMT),
    Separable: (SEPARABLE_MMA, SEPARABLE_SIMT),
    Rowwise: (ROWWISE,),
    Scan: (SCAN,),
    Scatter: (SCATTER,),
    Window: (POOL_WINDOW, POOL),
    Attention: (ATTENTION_WGMMA, ATTENTION_TCGEN05, ATTENTION_MMA, ATTENTION_AMD, ATTENTION),
    TileTransform: (TILE_TRANSFORM,),
}
FAMILIES = {family.title: family for engines in ENGINES.values() for family in engines}


def engines_of(kernel: Kernel, features: frozenset[str] = frozenset()) -> tuple[Family, ...]:
    """The engines that can compute ``kernel`` on a device with ``features``, in order of preference."""
    able = [family for family in ENGINES[type(kernel.body)] if family.any_size or not has_sizes(kernel)]
    return tuple(family for family in able if not family.accepts(kernel, features))


def family_of(kernel: Kernel) -> Family:
    """The engine that can compute ``kernel`` on every device."""
    return ENGINES[type(kernel.body)][-1]

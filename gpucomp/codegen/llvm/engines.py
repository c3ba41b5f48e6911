"""The engines of the CPU, by what they compute. Their spaces are in modules of their own, and no IR is written here."""

from __future__ import annotations

from gpucomp.codegen.llvm.amx import space as tiles_space
from gpucomp.codegen.llvm.attention import decode_space as attention_few_space
from gpucomp.codegen.llvm.attention import space as attention_space
from gpucomp.codegen.llvm.chain import space as chain_space
from gpucomp.codegen.llvm.contraction import space as contraction_space
from gpucomp.codegen.llvm.loops.space import LOOPS, ROWWISE, SCAN, SCATTER, WINDOW
from gpucomp.codegen.llvm.vnni import space as dots_space
from gpucomp.codegen.llvm.windows.bytes_space import BYTE_WINDOWS
from gpucomp.codegen.llvm.windows.space import WINDOWS_OF_LOOPS, WINDOWS_OF_POOL
from gpucomp.codegen.llvm.winograd import space as winograd_space
from gpucomp.kernel import Attention, Chain, Contraction, Kernel, Loops, Rowwise, Scan, Scatter, Window
from gpucomp.schedule.space import Family

# engines of each kind of body, the one to prefer first; the last accepts every kernel of its kind
ENGINES: dict[type, tuple[Family, ...]] = {
    Loops: (BYTE_WINDOWS, WINDOWS_OF_LOOPS, LOOPS),
    Contraction: (tiles_space.FAMILY, dots_space.FAMILY, winograd_space.FAMILY, contraction_space.FAMILY),
    Rowwise: (ROWWISE,),
    Scan: (SCAN,),
    Scatter: (SCATTER,),
    Window: (WINDOWS_OF_POOL, WINDOW),
    Attention: (attention_few_space.FAMILY, attention_space.FAMILY),
    Chain: (chain_space.FAMILY,),
}


def engines_of(kernel: Kernel, features: frozenset[str] = frozenset()) -> tuple[Family, ...]:
    """The engines that can compute ``kernel`` on a processor with ``features``, the one to prefer first."""
    return tuple(family for family in ENGINES[type(kernel.body)] if not family.accepts(kernel, features))


def family_of(kernel: Kernel) -> Family:
    """The engine that computes ``kernel`` on every processor."""
    return ENGINES[type(kernel.body)][-1]

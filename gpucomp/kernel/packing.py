"""The memory layout in which an engine reads a constant operand.

``Family.packing`` chooses it, and ``gpucomp.kernel.passes.pack_weights`` makes the bytes.
"""

from __future__ import annotations

from gpucomp.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Digit:
    """One axis of a packed operand: ``(flat index along axis // step) % extent``.

    axis     ``batch``, ``k`` or ``span``, each as one flat index. ``span`` is the rows of ``a`` or the columns of ``b``
    """

    axis: str
    step: int
    extent: int


@dataclass(frozen=True, slots=True)
class Packing:
    """The layout in which a contraction's constant operand is stored: one digit per axis, outermost first.

    ``(Digit("span", 4, n // 4), Digit("k", 1, k), Digit("span", 1, 4))`` is columns in blocks of four. Digits that
    reach past the end of an axis pad it with zeros.

    ``transform`` names one of ``passes.pack_weights.TRANSFORMS``. It is applied to the depth first, and the digits of
    ``k`` index its result. ``filled`` pads inside the depth instead. It is pairs (extent, padded extent), one for each
    axis of the depth, outermost first; the digits of ``k`` index the padded depth.
    """

    operand: str  # "a" or "b"
    digits: tuple[Digit, ...]
    transform: str = ""
    filled: tuple[tuple[int, int], ...] = ()

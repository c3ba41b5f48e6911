"""The arithmetic of sliding windows that convolutions and pools share: padding modes and result extents."""

from __future__ import annotations

from collections.abc import Sequence

from gpucomp.lazy_dataclass import dataclass

AUTO_PAD = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
LIMIT = 1 << 31


@dataclass(frozen=True)
class Windows:
    """Static windows over the spatial axes. ``pads`` holds all begins, then all ends."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    out: tuple[int, ...]

    def begin(self, axis: int) -> int:
        return self.pads[axis]

    def end(self, axis: int) -> int:
        return self.pads[len(self.kernel) + axis]

    def span(self, axis: int) -> int:
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1


def windows(
    spatial: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    pads: Sequence[int] | None,
    dilations: Sequence[int] | None,
    auto_pad: str,
    ceil_mode: bool = False,
) -> Windows:
    """Resolve ``auto_pad`` and ``ceil_mode``. Raises ``ValueError`` for invalid attributes."""
    rank = len(spatial)
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    pads = tuple(pads) if pads else (0,) * (2 * rank)
    if auto_pad not in AUTO_PAD:
        raise ValueError(f"auto_pad {auto_pad!r}: one of {', '.join(AUTO_PAD)} expected")
    if rank < 1 or not len(kernel) == len(strides) == len(dilations) == rank or len(pads) != 2 * rank:
        raise ValueError(f"kernel, strides, dilations and pads for {rank} spatial axes expected")
    if any(not 1 <= v < LIMIT for v in (*strides, *dilations)) or any(not 0 <= v < LIMIT for v in kernel):
        raise ValueError("kernel, strides and dilations of at least 1 expected")
    if any(not -LIMIT < v < LIMIT for v in pads):
        raise ValueError(f"pads between {-LIMIT} and {LIMIT} expected, {list(pads)} given")
    begins, ends, out = [], [], []
    for d in range(rank):
        size, stride = spatial[d], strides[d]
        span = (kernel[d] - 1) * dilations[d] + 1
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            extent = -(-size // stride)
            total = max(0, (extent - 1) * stride + span - size)
            small, large = total // 2, total - total // 2
            begins.append(small if auto_pad == "SAME_UPPER" else large)
            ends.append(large if auto_pad == "SAME_UPPER" else small)
        else:
            begin, end = (0, 0) if auto_pad == "VALID" else (pads[d], pads[rank + d])
            room = size + begin + end - span
            if room < 0:
                raise ValueError(f"a window of {span} is larger than the padded input of {size + begin + end}")
            extent = room // stride + 1
            if ceil_mode and room % stride:
                extent += 1
                if (extent - 1) * stride >= size + begin:  # no window may begin in the padding at the end
                    extent -= 1
            begins.append(begin)
            ends.append(end)
        out.append(extent)
    return Windows(tuple(kernel), tuple(strides), (*begins, *ends), tuple(dilations), tuple(out))

"""What holds for states of a context in C on every kind of device."""

import ctypes
from collections.abc import Sequence

import numpy as np

from gpucomp.runtime.context import Context
from testing.c_library import Model, same_bits
from tests.c_runtime import models


def check_states_that_grow(model: Model, python: Context, counts: Sequence[int], last: int):
    """Runs of ``counts`` tokens and one of ``last`` give Python's bits, kept states and a rewound context the same once more.

    Returns the context.
    """
    context, second = model.context(), model.context()
    for count in counts:
        feed = models.tokens(count, 2)
        assert same_bits(context.run(feed), python.run(feed))
        assert context.rows(0) == python.rows[models.PAST[0]]
    kept = [context.save(number) for number in range(len(model.states))]
    for number, info in enumerate(model.states):
        assert (kept[number] == python.save()[info.name.decode()]).all()
        second.restore(number, kept[number])
    feed = models.tokens(last, 2)
    wanted = context.run(feed)
    assert same_bits(second.run(feed), wanted)
    context.call("gpucomp_rewind", ctypes.c_int64(sum(counts)))
    assert same_bits(context.run(feed), wanted)
    return context


def check_a_state_made_anew(model: Model, python: Context, runs: int) -> None:
    """Runs of the model ``filtered`` give Python's bits, and after a reset the first one's again."""
    context = model.context()
    feeds = [{"x": models.RNG.standard_normal((2, 16)).astype(np.float32)} for _ in range(runs)]
    first = [context.run(feed) for feed in feeds]

    assert all(same_bits(found, python.run(feed)) for found, feed in zip(first, feeds, strict=True))
    assert (context.save(0) == python.save()["h"]).all()
    context.call("gpucomp_reset")
    assert same_bits(context.run(feeds[0]), first[0])

"""Numbers of a model for any size changed at random, always the same: its plans are refused, or sound at every size."""

import copy
import json
import random

from gpucomp.artifact import manifest, open_model
from gpucomp.errors import GpucompError
from tests.runtime.samples import OPEN_PLAN, open_contents

ROUNDS = 4000
WRONG = [0, 1, -1, 2, 3, 5, 100, 1 << 31, 1 << 40, 1 << 47, 1 << 62, -(1 << 63), 1 << 64, True, None, 0.5, "x", [], {}]
WRONG += [{"place": 0}, {"place": 3}, {"place": 6}, {"place": 7}, [0], [[1, [0]]], "sum", "least"]


def paths(data, path=()):
    """The way to everything in nested lists and tables."""
    if path:
        yield path
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield from paths(value, (*path, key))


def changed(data, ways, rng):
    data = copy.deepcopy(data)
    for _ in range(rng.randint(1, 3)):
        *way, last = rng.choice(ways)
        place = data
        try:
            for key in way:
                place = place[key]
            if rng.random() < 0.8 or not isinstance(place, list):
                place[last] = copy.deepcopy(rng.choice(WRONG))
            else:
                del place[last]
        except (LookupError, TypeError):  # an earlier change removed the way
            continue
    return data


def test_changed_models_have_sound_plans_or_none():
    text = manifest.dumps({"open": open_model.data_of(open_contents().open), "plan": manifest.data_of(OPEN_PLAN.plan)})
    whole, rng = json.loads(text), random.Random(7)
    ways = [
        way
        for way in paths(whole)
        if len(way) > 1 and (way[0] == "open" or way[1] in ("buffers", "kernels", "repeats"))
    ]
    sound = refused = 0
    for _ in range(ROUNDS):
        data = changed(whole, ways, rng)
        try:
            model = open_model.model_of(data["open"], data["plan"])
            assert all(str(model.shape(shape)) for shape in model.outputs)
            for n in (1, 3):
                sizes = {name: dim.nearest(n * dim.high // 3) for name, dim in model.shapes.dims.items()}
                sized = model.plan.at(sizes)
                if sized is not None:
                    manifest.check_plan(sized.plan)  # arena, shapes and positions as of a model for these sizes
                else:
                    assert model.plan.objection(sizes) is not None
            sound += 1
        except GpucompError:
            refused += 1

    assert refused > 1000
    assert sound > 50

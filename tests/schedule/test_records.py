"""The tiers that read records: this device, a sibling, a near problem; never a stale, illegal or damaged record."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import pytest

import gpucomp
from gpucomp import compiler, config
from gpucomp.codegen.llvm.engines import engines_of
from gpucomp.errors import RecordError, quote
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.refusal import Refusal
from gpucomp.schedule import records
from gpucomp.schedule.choose import TIERS, choose, recorded
from gpucomp.schedule.engine_hash import engine_hash
from gpucomp.schedule.records import Pick, Picks, device_of
from gpucomp.schedule.standing import standing
from gpucomp.targets import cpu, cuda
from gpucomp.tuning import specs
from gpucomp.tuning.records import Store
from gpucomp.tuning.tasks import Candidate, tasks_of
from testing.kernels import conv, matmul

HERE = dataclasses.replace(cpu.named("cpu:skylake"), name="cpu", identity="a processor, 3 cores")
KERNEL = matmul(29, 53, 31)
FAMILY = engines_of(KERNEL)[0]


def default(kernel=KERNEL):
    return dict(FAMILY.default(FAMILY.problem(kernel), HERE.limits).numbers)


def another(kernel=KERNEL):
    """A legal schedule that is not the default."""
    problem, base = FAMILY.problem(kernel), default(kernel)
    for param in FAMILY.params:
        for value in param.choices:
            schedule = base | {param.name: value}
            if schedule != base and param.name != "lanes" and not FAMILY.reasons(schedule, problem, HERE.limits):
                return schedule
    raise AssertionError


def pick(kernel=KERNEL, *, digest=None, **changes):
    found = Pick(digest or kernel.digest, dict(FAMILY.problem(kernel).numbers), device_of(HERE), FAMILY.title, another(kernel),
                 engine_hash(FAMILY), "source", 0.7)  # fmt: skip
    return dataclasses.replace(found, **changes)


def chosen(*picks, kernel=KERNEL):
    found = choose(kernel, engines_of(kernel), HERE.limits, tiers=(*recorded(Picks.of(picks), HERE), *TIERS))
    return found.tier, dict(found.schedule)


def other(**changes):
    return device_of(HERE) | changes


def test_the_exact_record_answers_first():
    assert chosen(pick(device=other(name="z"), schedule=default()), pick()) == ("record", another())


def test_a_target_without_a_device_goes_by_any_device_of_its_instruction_set():
    unnamed = dataclasses.replace(HERE, identity="")
    same, near = pick(device=other(name="y")), pick(matmul(29, 54, 31), device=other(name="z"))
    picks = Picks.of([same, near, pick(matmul(29, 54, 31), device=other(name="z", arch="znver5"), ratio=0.1)])

    assert not picks.exact(KERNEL.digest, unnamed)
    assert picks.sibling(KERNEL.digest, unnamed) == same
    assert picks.nearest(dict(FAMILY.problem(matmul(29, 55, 31)).numbers), FAMILY.title, unnamed) == near
    assert picks.nearest(dict(FAMILY.problem(matmul(29, 55, 31)).numbers), FAMILY.title, HERE) == Refusal(
        "no problem with sizes within 1.5 times of this one's was tuned"
    )


def test_of_equally_near_problems_the_surest_gain_answers():
    unnamed = dataclasses.replace(HERE, identity="")
    sure = pick(matmul(29, 54, 31), device=other(name="z"), ratio=0.2)
    picks = Picks.of([pick(matmul(29, 54, 31), device=other(name="y")), sure])

    assert picks.nearest(dict(FAMILY.problem(KERNEL).numbers), FAMILY.title, unnamed) == sure


# leave one device out: the schedules that a device without records gets from the records of others

GPUS = [("sm_89", "NVIDIA L4 | 13010"), ("sm_89", "NVIDIA GeForce RTX 4090 | 13010"), ("sm_80", "NVIDIA A100 | 13010")]
LAYERS = [matmul(m, n, k) for m, n, k in ((197, 768, 768), (49, 512, 2304), (1, 1000, 2048))]
NEAR_LAYERS = [matmul(m, n, k) for m, n, k in ((211, 768, 768), (49, 512, 2560), (1, 1012, 2048))]
SIMT = FAMILIES["contraction/simt"]


def gpu_pick(number, kernel):
    """A different legal schedule as the pick for each device and kernel."""
    arch, name = GPUS[number]
    problem, limits = SIMT.problem(kernel), cuda.manifest(arch).limits
    legal = itertools.islice(SIMT.legal(problem, limits), 40)
    schedule = list(legal)[7 * number + LAYERS.index(kernel)]
    device = {"kind": "cuda", "arch": arch, "name": name}
    return Pick(kernel.digest, problem.numbers, device, SIMT.title, schedule, engine_hash(SIMT), "source",
                0.5 + 0.1 * number)  # fmt: skip


@pytest.mark.parametrize("held", range(len(GPUS)))
@pytest.mark.parametrize("named", [True, False])
def test_a_device_that_is_left_out_is_answered_for_by_those_of_its_architecture(held, named):
    arch, name = GPUS[held]
    target = dataclasses.replace(cuda.manifest(arch), identity=name if named else "")
    rest = [gpu_pick(n, kernel) for n in range(len(GPUS)) if n != held for kernel in LAYERS]
    siblings = [p for p in rest if p.device["arch"] == arch]
    tiers = (*recorded(Picks.of(rest), target), *TIERS)

    for layer, near in zip(LAYERS, NEAR_LAYERS, strict=True):
        same = choose(layer, [SIMT], target.limits, tiers=tiers)
        close = choose(near, [SIMT], target.limits, tiers=tiers)
        if not siblings:
            assert same.pick is close.pick is None
            continue
        (expected,) = [p for p in siblings if p.kernel == layer.digest]
        assert (same.tier, same.schedule, same.pick) == ("sibling", expected.schedule, expected)
        assert same.said == f"sibling: {quote(expected.device['name'])}"
        if named:  # picks of another device for another problem are not used
            assert close.pick is None
        else:
            assert (close.tier, close.pick) == ("nearest", expected)
            assert close.said.startswith(f"nearest: {quote(expected.device['name'])}, batch=1 m=")


def test_with_its_own_records_a_device_needs_no_other():
    arch, name = GPUS[0]
    target = dataclasses.replace(cuda.manifest(arch), identity=name)
    everything = [gpu_pick(n, kernel) for n in range(len(GPUS)) for kernel in LAYERS]
    tiers = (*recorded(Picks.of(everything), target), *TIERS)

    for layer, near in zip(LAYERS, NEAR_LAYERS, strict=True):
        for kernel, tier in ((layer, "record"), (near, "nearest")):
            choice = choose(kernel, [SIMT], target.limits, tiers=tiers)
            assert (choice.tier, choice.pick) == (tier, gpu_pick(0, layer))


def test_a_sibling_answers_where_this_device_has_no_record():
    assert chosen(pick(device=other(name="z"))) == ("sibling", another())


def test_the_surest_of_several_siblings_answers():
    sure = pick(device=other(name="y"), ratio=0.2)

    assert chosen(pick(device=other(name="z"), schedule=default()), sure) == ("sibling", another())


@pytest.mark.parametrize("device", [other(arch="znver5", name="z"), other(kind="opencl")])
def test_a_device_of_another_kind_is_no_sibling(device):
    assert chosen(pick(device=device))[0] in ("analytic", "default")


def test_the_nearest_problem_answers_for_one_without_a_record():
    near, nearer = matmul(29, 61, 31), matmul(29, 54, 31)

    tier, schedule = chosen(pick(near, schedule=default(near)), pick(nearer))

    assert (tier, schedule) == ("nearest", another(nearer))


def test_where_the_nearest_problem_s_default_won_a_problem_has_its_own():
    """The pick of a problem that is further away is not used."""
    near, nearer = matmul(29, 61, 31), matmul(29, 54, 31)

    assert chosen(pick(near), pick(nearer, ratio=1.0))[0] in ("analytic", "default")
    assert chosen(pick(near, ratio=1.0), pick(nearer)) == ("nearest", another(nearer))


def test_where_the_nearest_problem_s_default_won_no_other_s_agreement_counts():
    agreed = [common(number) for number in range(3)]

    assert chosen(*agreed) == ("portfolio", another())
    assert chosen(*agreed, pick(matmul(29, 54, 31), schedule=default(), ratio=1.0))[0] in ("analytic", "default")


def test_a_problem_that_is_far_off_is_not_near():
    assert chosen(pick(matmul(29, 530, 31)))[0] in ("analytic", "default")


# the schedule that most picks share


FAR_OFF = [matmul(29, n, 31) for n in (90, 110, 130)]  # between ``NEAR`` and ``FAR`` from 53


def common(number, **changes):
    """Picks with the same schedule, each for another kernel and another device."""
    return pick(FAR_OFF[number], schedule=another(), device=other(name=f"device {number}"), **changes)


def test_what_all_far_kernels_agree_on_answers_on_another_device():
    picks = [common(number) for number in range(3)]

    assert chosen(*picks) == ("portfolio", another())
    found = choose(KERNEL, engines_of(KERNEL), HERE.limits, tiers=(*recorded(Picks.of(picks), HERE), *TIERS))
    assert found.said.startswith("portfolio: 'device 0', batch=1 m=29 n=90 k=31")


@pytest.mark.parametrize(
    "picks",
    [
        [common(0), common(1)],
        [common(0), common(1), common(1, template="older")],
        [common(0), common(1), common(2, ratio=0.99)],
        [common(0), common(1), common(2), *(pick(matmul(29, n, 31), schedule=default()) for n in (100, 120))],
        [common(n, template="older") for n in range(3)],
        [dataclasses.replace(common(n), device=other(arch="znver5", name="z")) for n in range(3)],
        [pick(matmul(29, n, 31), schedule=another()) for n in (530, 540, 550)],
        [dataclasses.replace(common(n), schedule=default() | {FAMILY.params[1].name: 7777}) for n in range(3)],
    ],
    ids=["two", "a template", "hardly a gain", "outvoted", "stale", "another kind", "too far", "illegal"],
)
def test_what_is_no_agreement_does_not_answer(picks):
    assert chosen(*picks)[0] in ("analytic", "default")


def test_the_same_kernel_on_many_devices_is_no_agreement():
    same = [pick(FAR_OFF[0], schedule=another(), device=other(name=f"device {n}")) for n in range(5)]

    assert chosen(*same)[0] in ("analytic", "default")


def test_variants_of_one_problem_are_no_agreement():
    """The same product with three epilogues counts as one problem."""
    variants = [pick(FAR_OFF[0], schedule=another(), digest=f"epilogue {n}") for n in range(3)]

    assert chosen(*variants)[0] in ("analytic", "default")
    assert chosen(*variants, common(1), common(2)) == ("portfolio", another())


# of several engines

IMAGE, *IMAGES = (dataclasses.replace(conv((1, size, size, 64), 64, (3, 3), pad=1), constants=frozenset({1}))
                  for size in (56, *range(70, 85)))  # fmt: skip
WINOGRAD, *_, DIRECT = engines_of(IMAGE)


SCHEDULES = functools.cache(lambda family: dict(family.default(family.problem(IMAGE), HERE.limits).numbers))


def engine_pick(family, kernel):
    """A pick with a clear gain on another device. Its schedule is the engine's default for ``IMAGE``."""
    return Pick(kernel.digest, dict(family.problem(kernel).numbers), other(name="z"), family.title, SCHEDULES(family),
                engine_hash(family), "source", 0.7)  # fmt: skip


def engine_chosen(families):
    picks = Picks.of([engine_pick(family, kernel) for family, kernel in zip(families, IMAGES, strict=False)])
    found = choose(IMAGE, engines_of(IMAGE), HERE.limits, tiers=(*recorded(picks, HERE), *TIERS))
    return found.tier, found.family.title


@pytest.mark.parametrize(("few", "many"), [(WINOGRAD, DIRECT), (DIRECT, WINOGRAD)])
def test_the_engines_vote_together(few, many):
    assert WINOGRAD.title != DIRECT.title

    assert engine_chosen([few] * 3 + [many] * 12) == ("portfolio", many.title)
    assert engine_chosen([few] * 3) == ("portfolio", few.title)
    assert engine_chosen([few] * 3 + [many] * 2)[0] in ("analytic", "default")


def test_a_record_of_the_default_keeps_the_nearest_away():
    assert chosen(pick(matmul(29, 54, 31)), pick(schedule=default())) == ("record", default())


@pytest.mark.parametrize("device", [device_of(HERE), other(name="z")])
def test_an_illegal_record_does_not_answer(device):
    bad = default() | {FAMILY.params[1].name: 7777}

    assert chosen(pick(schedule=bad, device=device))[0] in ("analytic", "default")


def test_a_record_of_an_engine_that_is_gone_does_not_answer():
    assert chosen(pick(engine="abacus"))[0] in ("analytic", "default")


def test_a_near_problem_s_record_of_an_engine_that_has_changed_does_not_answer():
    near = pick(matmul(29, 54, 31))

    assert chosen(near)[0] == "nearest"
    assert chosen(dataclasses.replace(near, template="older"))[0] in ("analytic", "default")


def test_a_later_pick_replaces_an_earlier_one():
    assert chosen(pick(schedule=default()), pick())[1] == another()
    assert chosen(pick(), pick(schedule=default()))[1] == default()


def test_lookups_do_not_go_through_everything(monkeypatch):
    picks = Picks.of([pick(kernel=matmul(29, 53, k)) for k in range(200, 230)])
    monkeypatch.setattr(Picks, "_by_engine", property(lambda self: pytest.fail("looked at all of them")))

    assert not picks.exact(KERNEL.digest, HERE)
    assert not picks.sibling(KERNEL.digest, HERE)


# compiling


MODEL = "matmul m=29 n=53 k=31 relu=1"


@pytest.fixture
def tuned(tmp_path):
    """A record file with one pick, for the model's only kernel on this machine, as the tuner writes it."""
    target = cpu.host()
    lowered = compiler.lower(specs.model(MODEL), target)
    (task,) = tasks_of(lowered, target)
    base = dict(task.default.schedule)
    problem = task.problem(task.default.family)
    for param in task.default.family.params:
        for value in param.choices:
            candidate = Candidate(task.default.family, base | {param.name: value})
            if param.name == "lanes" or task.default.family.reasons(candidate.schedule, problem, target.limits):
                continue
            source = task.rendered(candidate)[0]
            if source.text != task.rendered(task.default)[0].text:
                break
        else:
            continue
        break
    fields = {"kernel": task.kernel.digest, "device": device_of(target), "engine": task.default.family.title,
              "configuration": dict(candidate.schedule), "problem": dict(problem.numbers), "ratio": 0.5,
              "template": engine_hash(task.default.family),
              "source": records.source_hash(source.text, source.name)}  # fmt: skip
    path = tmp_path / "r.jsonl"
    with Store(path) as store:
        store.append("pick", fields)
    return path, fields


def info(**options):
    (found,) = gpucomp.compile(specs.model(MODEL), target="cpu", **options).kernels
    return found.tier, dict(found.schedule)


def test_compiling_with_records_goes_by_them_and_says_so(tuned):
    path, fields = tuned

    assert info(records=path) == ("record", fields["configuration"])
    assert info(records=path.parent) == ("record", fields["configuration"])
    assert info()[0] != "record"
    with config.using(records=path):
        assert info() == ("record", fields["configuration"])


def test_a_record_of_another_source_is_stale_whatever_its_template(tuned):
    path, fields = tuned
    with Store(path) as store:
        store.append("pick", fields | {"source": "0" * 16})
    assert info(records=path) == info()

    with Store(path) as store:
        store.append("pick", fields | {"template": "older"})  # the same source by another template
    assert info(records=path) == ("record", fields["configuration"])


@pytest.mark.parametrize(
    ("changes", "answers"),
    [({}, True), ({"template": "older"}, True), ({"source": "0" * 16}, True),
     ({"template": "older", "source": "0" * 16}, False)],
)  # fmt: skip
def test_a_sibling_s_record_is_stale_where_both_its_source_and_its_engine_are_others(tuned, changes, answers):
    """The same source is the same program. A different source may only be for another number of cores."""
    path, fields = tuned
    path.unlink()
    untuned = info()
    with Store(path) as store:
        store.append("pick", fields | {"device": fields["device"] | {"name": "a sibling, 7 cores"}} | changes)

    assert info(records=path) == (("sibling", fields["configuration"]) if answers else untuned)


@pytest.mark.parametrize("last", ["pick", "drop"])
def test_in_a_folder_the_last_decision_counts_whatever_its_file_is_called(tuned, last):
    path, fields = tuned
    before = "drop" if last == "pick" else "pick"
    for name, kind, second in (("z.jsonl", before, 13), ("a.jsonl", last, 14)):
        with Store(path.parent / name) as store:
            store.append(kind, fields | {"timestamp": f"2100-03-05T07:11:{second}+00:00"})

    assert len(records.load(path.parent).by_kernel) == (1 if last == "pick" else 0)


def test_a_dropped_pick_does_not_answer(tuned):
    path, fields = tuned
    with Store(path) as store:
        store.append("drop", {"kernel": fields["kernel"], "device": fields["device"]})

    assert info(records=path) == info()


def test_broken_lines_are_passed_over_and_told(tuned):
    path, fields = tuned
    path.write_bytes(b"\xff nonsense\n" + path.read_bytes() + b'{"kind":"pick"')

    with pytest.warns(RuntimeWarning, match=rf"{path.name}:1: .* and 1 more"):
        assert info(records=path) == ("record", fields["configuration"])


def test_records_that_are_not_there_are_an_error(tmp_path):
    with pytest.raises(RecordError, match="no such file or folder"):
        info(records=tmp_path / "nowhere")


def test_a_file_is_read_once_until_it_changes(tuned, monkeypatch):
    path, fields = tuned
    first = records.load(path)
    monkeypatch.setattr(records, "read", lambda path: pytest.fail("read again"))

    assert records.load(path) is first
    monkeypatch.undo()
    with Store(path) as store:
        store.append("pick", fields | {"ratio": 0.4})
    assert records.load(path).by_kernel[fields["kernel"]][0].ratio == 0.4


def test_records_are_asked_before_the_shipped_ones(tuned, tmp_path, monkeypatch):
    path, fields = tuned
    shipped = tmp_path / "shipped"
    with Store(shipped / "s.jsonl") as store:
        store.append("pick", fields | {"configuration": {}, "engine": "abacus"})
    monkeypatch.setattr(records, "shipped", lambda: shipped)

    with config.using(records=config.SHIPPED):
        assert info(records=path) == ("record", fields["configuration"])
        assert info()[0] != "record"


@pytest.mark.parametrize("same", [True, False])
def test_what_is_shipped_is_used_on_the_same_class_of_processor_and_nowhere_else(tuned, tmp_path, monkeypatch, same):
    _, fields = tuned
    device = {"name": "one of the same make, 2 cores"} | ({} if same else {"arch": "znver9"})
    shipped = tmp_path / "shipped"
    with Store(shipped / "cpu_here.jsonl") as store:
        store.append("pick", fields | {"device": fields["device"] | device})
    with Store(shipped / "trials" / "cpu_here.jsonl") as store:  # what a search begins with is no pick
        store.append("pick", fields)
    monkeypatch.setattr(records, "shipped", lambda: shipped)
    untuned = info()

    with config.using(records=config.SHIPPED):
        assert info() == (("sibling", fields["configuration"]) if same else untuned)


WIDE = "matmul m=512 n=384 k=40"


def parts_of(picks, target=None):
    """The tier that answers for ``WIDE``, here or on ``target``, and the number of parts of its schedule."""
    target = target or cpu.host()
    lowered = compiler.lower(specs.model(WIDE), target)
    ((found, _),) = ((item, step) for step, item in compiler.again(lowered, target, picks).rendered.items())
    return found.choice.tier, found.source.geometry.groups[0]


def wide_pick(*, few, name=None, **changes):
    """A pick for ``WIDE`` whose schedule makes one part or many, measured here or on the device ``name``."""
    target = cpu.host()
    (task,) = tasks_of(compiler.lower(specs.model(WIDE), target), target)
    family, default, problem = (
        task.default.family,
        dict(task.default.schedule),
        task.problem(task.default.family),
    )
    schedule = default | {"tile_m": 512, "panels": 32, "nv": 3, "mr": 2}  # for vectors of any width
    if not few:
        schedule = next(
            s
            for s in family.legal(problem, target.limits)
            if s["tile_m"] == 16 and s["panels"] == 1 and s["pack_b"] == default["pack_b"] and s["mr"] < 8
        )
    assert not family.reasons(schedule, problem, target.limits)
    source = task.rendered(Candidate(family, schedule))[0]
    found = Pick(task.kernel.digest, problem.numbers, device_of(target) | ({"name": name} if name else {}), family.title,
                 schedule, engine_hash(family), records.source_hash(source.text, source.name), 0.5)  # fmt: skip
    return dataclasses.replace(found, **changes)


@pytest.mark.parametrize("name", ["a sibling with 2 cores", None])
def test_a_sibling_s_pick_does_not_leave_the_threads_of_a_larger_processor_idle(name):
    """A tile as large as the whole result is fine on one thread, and on the device where it was measured."""
    untuned = parts_of(Picks())
    assert untuned[0] not in ("record", "sibling")
    assert parts_of(Picks.of([wide_pick(few=True, name=name)])) == (untuned if name else ("record", 1))
    tier, parts = parts_of(Picks.of([wide_pick(few=False, name=name)]))
    assert tier == ("sibling" if name else "record")
    assert parts >= 32


def counted(monkeypatch):
    """The tiers whose answers are rendered from now on, in order, without duplicates."""
    found, render = [], compiler.rendered_of

    def rendered(one, target, seen):
        known = len(seen)
        result = render(one, target, seen)
        found.extend([one.choice.tier] * (len(seen) - known))
        return result

    monkeypatch.setattr(compiler, "rendered_of", rendered)
    return found


def near(found):
    """``found`` changed to be for a slightly larger problem."""
    return dataclasses.replace(found, kernel="another", problem=found.problem | {"m": 515})


@pytest.mark.parametrize("here", [True, False])
def test_a_near_pick_of_this_very_device_may_leave_threads_idle(here):
    """It was measured on these threads. A sibling's pick was not, also if the target is only a kind of device."""
    target = cpu.host() if here else dataclasses.replace(cpu.host(), identity="")

    found = parts_of(Picks.of([near(wide_pick(few=True))]), target)

    assert found == (("nearest", 1) if here else parts_of(Picks(), target))


def test_after_a_pick_that_is_not_used_the_next_record_is_asked_and_the_default_rendered_once(monkeypatch):
    untuned = parts_of(Picks())[0]
    unused = [wide_pick(few=True, source="another"), wide_pick(few=True, name="a sibling with 2 cores")]
    beside = near(wide_pick(few=False))
    tiers = counted(monkeypatch)

    assert parts_of(Picks.of([*unused, beside]))[0] == "nearest"
    # after those of the model lowered without records; the sibling's schedule is the record's
    assert tiers[1:] == ["record", untuned, "nearest"]

    tiers.clear()
    assert parts_of(Picks.of(unused))[0] == untuned
    assert tiers[1:] == ["record", untuned]


# why a record is not used


def passed_over(*picks):
    return choose(KERNEL, engines_of(KERNEL), HERE.limits, tiers=(*recorded(Picks.of(picks), HERE), *TIERS)).passed_over


MINE = "'a processor, 3 cores'"
NEAR_ONE = matmul(29, 54, 31)


@pytest.mark.parametrize(
    ("picks", "reason"),
    [
        ([], "record: this kernel was not tuned on any device"),
        ([pick(device=other(name="z", arch="znver5"))], "record: this kernel was tuned on other devices only: 'z'"),
        ([pick(device=other(name="z", arch="znver5"))], "sibling: this kernel was not tuned on another device of"),
        ([pick(engine="abacus")], f"record: {MINE}: its engine abacus does not run this kernel here"),
        ([pick(schedule=default() | {"mr": 1 << 20})], f"record: {MINE}: its schedule is not legal here: "),
        ([pick(matmul(29, 530, 31))], "nearest: no problem with sizes within 1.5 times of this one's was tuned"),
        ([pick(NEAR_ONE, template="older")], f"nearest: {MINE}: the engine {FAMILY.title} has changed since"),
        ([pick(NEAR_ONE, ratio=1.0)], f"nearest: {MINE}: the default won for the nearest problem"),
        ([pick(NEAR_ONE, ratio=1.0)], f"portfolio: {MINE}: the default won for the nearest problem"),
        ([], "portfolio: no problem with sizes within 4 times of this one's was tuned"),
        ([common(0), common(1)], "portfolio: of 2 tuned problems with sizes within 4 times of this one's, 2 share"),
        ([common(n, ratio=0.97) for n in range(3)], "portfolio: the schedule that most near problems share was not"),
    ],
)
def test_why_a_record_is_not_used_is_said(picks, reason):
    assert len([line for line in passed_over(*picks) if line.startswith(reason)]) == 1


def test_nothing_is_passed_over_where_a_record_answers():
    assert passed_over(pick(), pick(NEAR_ONE, template="older")) == ()


def test_a_target_that_is_but_a_kind_of_device_is_said():
    unnamed = dataclasses.replace(HERE, identity="")

    assert str(Picks.of([pick()]).exact(KERNEL.digest, unnamed)) == "the target is a kind of device, not one device"


@pytest.mark.parametrize(
    ("changes", "parts", "reason"),
    [
        ({}, 64, ""),
        ({"source": "another"}, 64, "record: 'a processor, 3 cores': the kernel's source has changed since it was measured"),
        ({"source": "another", "template": "older", "device": other(name="z")}, 64,
         "sibling: 'z': the kernel's source and the engine"),
        ({"device": other(name="z")}, 1, "sibling: 'z': it makes 1 parts, the default schedule 99: threads"),
        ({}, 1, ""),
    ],
)  # fmt: skip
def test_why_a_record_does_not_stand_is_said(changes, parts, reason):
    def source_of(choice):
        return KernelSource("k7", "llvm", "text of k7", Geometry((parts if choice.pick else 99, 1, 1)))

    found = pick(**{"source": records.source_hash("text of k7", "k7")} | changes)
    tiers = (*recorded(Picks.of([found]), HERE), *TIERS)

    choice = standing(lambda some: choose(KERNEL, engines_of(KERNEL), HERE.limits, tiers=some), source_of, HERE, tiers)

    assert (choice.pick is None) == bool(reason)
    said = [line for line in choice.passed_over if line.startswith(f"{found.device['name']!r}: ", line.find("'"))]
    assert len(said) == bool(reason)
    assert all(line.startswith(reason) for line in said)


def test_debugging_says_why_a_record_is_not_used(tuned, capsys):
    path, fields = tuned
    with Store(path) as store:
        store.append("pick", fields | {"source": "0" * 16})

    with config.using(debug=2):
        assert info(records=path)[0] != "record"

    device = quote(fields["device"]["name"])
    assert f"not record: {device}: the kernel's source has changed since it was measured" in capsys.readouterr().err


def test_the_hash_of_a_source_is_of_its_statements_alone():
    text = "// engine x\nvoid k7() {\n  // the sum\n  const float s = a + b;\n\n  y[0] = s;\n}\n"
    plain = "void k0() {\n  const float s = a + b;\n  y[0] = s;\n}\n"

    assert records.source_hash(text, "k7") == records.source_hash(plain, "k0")
    assert records.source_hash("; of LLVM\n" + plain, "k0") == records.source_hash(plain, "k0")
    assert records.source_hash(plain.replace("a + b", "a - b"), "k0") != records.source_hash(plain, "k0")

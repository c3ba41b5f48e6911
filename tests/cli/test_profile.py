"""``bench --profile``: every figure by hand from made-up times, and the command over the sample model."""

import json
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from gpucomp.artifact.plan import FEWER_OPERATIONS
from gpucomp.cli import profile
from gpucomp.codegen.llvm import engines as cpu_engines
from gpucomp.kernels_templates import engines
from gpucomp.runtime.ceilings import Ceilings, Span, together
from gpucomp.runtime.kernel_info import KernelInfo
from tests.runtime.samples import CEILINGS


def info(operations=0, traffic=0, arithmetic="f32", family="loops"):
    return KernelInfo(
        "k", family, ("Mul", "Mul"), (), label="two", operations=operations, traffic=traffic, arithmetic=arithmetic
    )


def one(kernel, seconds, spans=(), ceilings=CEILINGS):
    (row,) = profile.rows([kernel], [([seconds], list(spans))], ceilings)
    return row


def test_a_row_has_rates_and_their_share_of_the_ceilings():
    row = one(info(3 * 10**11, 1 << 30), 0.5, [Span(0, 0, 0.0, 0.5), Span(0, 1, 0.1, 0.4)])

    assert (row.gflops, row.gbs) == pytest.approx((600, 2 * 1.073741824))
    assert row.of_peak == pytest.approx(0.6)
    assert row.of_copy == pytest.approx((1 << 30) / 16e9 / 0.5)
    assert row.idle == pytest.approx(1 - 0.8 / 1.0)
    assert row.limit == "compute"
    assert row.floor_ms == pytest.approx(300)


def test_the_limit_is_what_has_the_largest_share():
    busy = [Span(0, 0, 0.0, 0.5), Span(0, 1, 0.0, 0.5)]

    assert one(info(10**9, 7 << 30), 0.5, busy).limit == "bandwidth"
    assert one(info(10**9, 1 << 30), 0.5, busy[:1]).limit == "waiting"


def test_no_limit_is_named_by_small_shares():
    almost = [Span(0, 0, 0.0, 0.5), Span(0, 1, 0.0, 0.44)]
    (winograd,) = FEWER_OPERATIONS

    assert one(info(2 * 10**11, 1 << 20), 0.5, almost).limit is None
    assert one(info(2 * 10**11, 1 << 20, family=winograd), 0.5, almost).limit is None
    assert one(info(2 * 10**11, 1 << 20, family=winograd), 0.5, almost[1:]).limit == "waiting"


def test_a_loops_weights_outside_the_cache_move_at_the_bandwidth_of_their_size():
    inside, outside = info(0, 1 << 24), replace(info(0, 1 << 24), held=1 << 10)

    assert one(inside, 0.5).of_copy == pytest.approx((1 << 24) / CEILINGS.bandwidth(1 << 24) / 0.5)
    assert one(outside, 0.5).of_copy == pytest.approx((1 << 24) / CEILINGS.bandwidth(1 << 10) / 0.5)


@pytest.mark.parametrize("arithmetic", ["f64", "i32", ""])
def test_the_peak_of_other_numbers_than_f32_is_not_told(arithmetic):
    row = one(info(10**9, 1 << 20, arithmetic), 0.5)

    assert row.of_peak is None
    assert (row.gflops is None) == (arithmetic != "f64")


def test_nothing_is_told_of_a_host_operator_but_its_time():
    row = one(KernelInfo("Unique", "host", ("Unique",), ()), 0.25)

    assert row.ms == 250
    assert [
        row.operations,
        row.bytes,
        row.gflops,
        row.of_peak,
        row.gbs,
        row.of_copy,
        row.idle,
        row.limit,
        row.floor_ms,
    ] == [None] * 9


def test_ceilings_are_the_better_ones_of_two_measurements():
    first = Ceilings(2, 100.0, ((1 << 10, 8.0), (1 << 14, 4.0)), 3e-6)
    second = Ceilings(2, 80.0, ((1 << 10, 9.0), (1 << 14, 4.0)), 1e-6)

    assert together(first, second) == Ceilings(2, 100.0, ((1 << 10, 9.0), (1 << 14, 4.0)), 1e-6, pytest.approx(0.2))
    assert together(first, first).spread == 0


@pytest.mark.parametrize(
    ("spread", "faster", "told"),
    [
        (0.0, 1.0, ""),
        (0.05, 1.0, ""),
        (0.3, 1.0, "measured before and after the runs they differ by 30 %:"),
        (0.0, 2.0, "disturbed, 1 kernel is above them:"),
        (0.3, 2.0, "differ by 30 % and 1 kernel is above them:"),
    ],
)
def test_disturbed_ceilings_are_told(spread, faster, told):
    ceilings = replace(CEILINGS, spread=spread)
    row = one(info(int(CEILINGS.flops), 1), 1 / faster, ceilings=ceilings)
    lines = [line for line in profile.summary([row], ceilings) if line.startswith("Diagnosis")]

    assert len(lines) == bool(told)
    assert all(told in line for line in lines)


def test_without_ceilings_only_rates_are_told():
    row = one(info(10**9, 1 << 30), 0.5, ceilings=None)

    assert row.gflops == 2
    assert (row.of_peak, row.of_copy, row.idle, row.limit) == (None,) * 4
    assert profile.summary([row], None)[-1].startswith("Ceilings: not measured")


def test_the_peak_and_the_floor_are_of_f32_work_alone():
    kernels = [info(3 * 10**11, 1 << 20), info(10**12, 1 << 20, "bf16"), info(0, 1 << 20, "")]
    plain, mixed = (profile.rows(k, [([0.5] * len(k), [])], CEILINGS) for k in (kernels[::2], kernels))

    of_f32, of_both = (profile.summary(rows, CEILINGS)[0] for rows in (plain, mixed))

    assert [r.arithmetic for r in mixed] == ["f32", "bf16", None]
    assert [r.floor_ms is None for r in mixed] == [False, True, False]
    assert "600 GFLOP" not in of_f32
    assert "(30.0% of peak)" in of_f32
    assert "every kernel at peak" in of_f32
    assert "(30.0% of peak without 1 launch of other numbers than f32)" in of_both
    assert "every kernel but 1 launch of other numbers than f32 at peak" in of_both


def test_winograds_operations_have_no_share_of_the_peak():
    (name,) = FEWER_OPERATIONS
    assert {name} <= {engines.WINOGRAD.title, cpu_engines.WINOGRAD.title}
    kernels = [info(3 * 10**11, 1 << 20), info(2 * int(CEILINGS.flops), 1 << 20, family=name)]

    plain, winograd = profile.rows(kernels, [([0.5] * 2, [])], CEILINGS)
    first, *_, last = profile.summary([plain, winograd], CEILINGS)

    assert winograd.gflops == pytest.approx(4 * CEILINGS.flops / 1e9)
    assert (winograd.of_peak, winograd.floor_ms) == (None, None)
    assert "(60.0% of peak without 1 launch of Winograd's algorithm)" in first
    assert not last.startswith("Diagnosis")


def test_a_launch_that_took_no_time_has_no_rates():
    row = one(info(10**9, 1 << 30), 0.0)

    assert (row.gflops, row.gbs, row.of_copy) == (None,) * 3


def test_times_are_medians_and_all_samples_are_kept():
    runs = [([s, 0.25], []) for s in (0.5, 0.25, 4.0)]

    first, second = profile.rows([info(), info()], runs, CEILINGS)

    assert (first.ms, second.ms) == (500, 250)
    assert first.samples_ms == (500, 250, 4000)
    assert first.share == pytest.approx(2 / 3)


def test_bandwidth_lies_between_the_copies_beside_it():
    ceilings = Ceilings(1, 1.0, ((1 << 10, 8.0), (1 << 14, 4.0), (1 << 16, 1.0)), 0.0)

    assert [ceilings.bandwidth(n) for n in (0, 1 << 10, 1 << 12, 1 << 14, 1 << 15, 1 << 16, 1 << 30)] == pytest.approx(
        [8, 8, 6, 4, 2.5, 1, 1]
    )


def test_the_tables_show_dashes_for_what_is_not_known():
    found = profile.rows(
        [info(10**9, 1 << 30), KernelInfo("Unique", "host", ("Unique",), ())], [([0.5, 0.5], [])], CEILINGS
    )
    text = StringIO()
    console = Console(file=text, width=200)

    console.print(profile.table(found))
    console.print(profile.by_family(found))

    lines = [line.split() for line in text.getvalue().splitlines()]
    assert lines[1][:5] == ["1", "two", "Mul*2", "loops", "500.0"]
    assert lines[2][-6:] == ["-"] * 6
    assert [line[0] for line in lines[4:]] == ["loops", "host"]


def test_a_floor_without_anything_counted_says_what_it_leaves_out():
    (row,) = profile.rows([info(10**12, 1 << 20, "bf16")], [([0.5], [])], CEILINGS)

    assert profile.summary([row], CEILINGS)[0].endswith(
        "floor 0 ms: every kernel but 1 launch of other numbers than f32 at peak or at the bandwidth of a copy"
    )


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (2.5e-7, "0.000000250"), (0.01179, "0.0118"), (41.52, "41.5"), (20571.8, "20572")]
)
def test_small_and_large_numbers_keep_three_digits(value, text):
    assert profile.significant(value) == text


def test_a_trace_has_the_spans_of_the_median_run():
    runs = [([s], [Span(0, t, 0.0, s) for t in range(2)]) for s in (3.0, 1.0, 2.0)]

    found = profile.trace(profile.rows([info(7, 9)], runs, CEILINGS), runs, "m.onnx")

    spans = [e for e in found["traceEvents"] if e["ph"] == "X"]
    assert [(e["tid"], e["ts"], e["dur"], e["name"]) for e in spans] == [(0, 0, 2e6, "two"), (1, 0, 2e6, "two")]
    assert {e["args"]["name"] for e in found["traceEvents"] if e["ph"] == "M"} == {"m.onnx", "thread 0", "thread 1"}


def test_a_thread_that_came_too_late_is_told_with_the_reason():
    both = [Span(0, 0, 0.0, 2.0), Span(0, 1, 1.0, 2.0)]
    runs = [([2.0], both), ([2.0], both[:1]), ([2.0], both[:1])]

    busy = profile.threads(runs, CEILINGS)
    line, diagnosis = profile.threads_said(runs, CEILINGS)

    assert [(one.thread, one.runs) for one in busy] == [(0, 3), (1, 1)]
    assert [one.share for one in busy] == pytest.approx([1.0, 1 / 6])
    assert line == "Threads: 0 busy 100 %, 1 busy 17 %"
    assert diagnosis.startswith("Diagnosis: thread 1 took part in 1 of 3 runs: a run is so short")
    assert profile.threads_said(runs[:1], CEILINGS) == ["Threads: 0 busy 100 %, 1 busy 50 %"]
    assert profile.threads_said([([2.0], [])], CEILINGS) == profile.threads_said(runs, None) == []


def test_a_trace_names_the_threads_that_did_nothing():
    runs = [([2.0], [Span(0, 0, 0.0, 2.0)])]

    found = profile.trace(profile.rows([info()], runs, CEILINGS), runs, "m.onnx", CEILINGS)

    names = {e["tid"]: e["args"]["name"] for e in found["traceEvents"] if e["name"] == "thread_name"}
    assert names == {0: "thread 0", 1: "thread 1: no work in this run"}


def test_the_command_prints_and_writes_it(command, compiled, tmp_path):
    outcome = command(
        "bench", "model.onnx", "--trace", "t.json", "--json", "r.json", "--duration", "0", "--warmup", "0"
    )

    assert outcome.code == 0, outcome.err
    assert "=== Profile ===" in outcome.out
    assert "Ceilings: 2 threads, 1000.0 GFLOP/s" in outcome.out
    report = json.loads((tmp_path / "r.json").read_text())["profile"]
    assert [k["ms"] for k in report["kernels"]] == [250, 500]
    assert [k["of_peak"] for k in report["kernels"]] == pytest.approx([0.4, None])
    assert report["ceilings"]["launch_s"] == 1e-6
    assert len(json.loads((tmp_path / "t.json").read_text())["traceEvents"]) == 6


def test_a_plain_bench_has_no_profile(command, compiled):
    outcome = command("bench", "model.onnx", "--duration", "0", "--warmup", "0")

    assert "Profile" not in outcome.out


def test_a_static_report_has_no_profile(command, compiled):
    outcome = command("bench", "model.onnx", "--static", "--profile")

    assert outcome.code == 2
    assert "--static measures nothing" in outcome.error

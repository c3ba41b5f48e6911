"""Which requests run when, and with which others. The runs are ended by the tests, so nothing here depends on time."""

import asyncio

import numpy as np
import pytest

pytest.importorskip("prometheus_client", reason="could not import 'prometheus_client'")

from gpucomp.errors import DeviceLostError, InputError, RunStoppedError, ServingError
from gpucomp.ir.dim import Dim
from gpucomp.refusal import Refusal
from gpucomp.runtime.pending import Pending
from gpucomp.runtime.stopping import Stop
from gpucomp.serving import limits
from gpucomp.serving.model import Loaded
from gpucomp.serving.scheduler import Scheduler, split
from gpucomp.serving.statistics import Metrics
from tests.serving import servers


class Context:
    def __init__(self, exe):
        self.exe, self.closed = exe, False

    def run_async(self, feed):
        pending = Pending(Stop())
        if self.exe.begins:
            pending.set_running_or_notify_cancel()
        pending.feed, pending.context = feed, self
        self.exe.runs.append(pending)
        return pending

    def close(self):
        self.closed = True


class Executable:
    """Its runs end when a test says so, with twice their inputs."""

    def __init__(self):
        self.runs, self.contexts, self.begins = [], [], True

    def context(self):
        self.contexts.append(Context(self))
        return self.contexts[-1]

    def end(self, number):
        self.runs[number].set_result({"y": 2 * self.runs[number].feed["x"]})


def scheduler(instances=1, max_batch=1, delay_us=0, queue=10):
    batch = Dim("n") if max_batch > 1 else Refusal("not asked for")
    model = Loaded("m", 1, Executable(), (), (), instances, batch, max_batch, delay_us)
    return Scheduler(model, queue, Metrics()), model.exe


def rows(*numbers):
    return {"x": np.array(numbers, np.float32).reshape(-1, 1)}


async def settled():
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_request_runs_at_once_when_an_instance_is_free():
    async def main():
        made, exe = scheduler(max_batch=8, delay_us=0)
        job = made.submit(rows(3))
        await settled()
        assert len(exe.runs) == 1
        exe.end(0)
        return await job.result

    assert asyncio.run(main())["y"].tolist() == [[6]]


def test_requests_that_wait_are_joined_and_split():
    async def main():
        made, exe = scheduler(max_batch=8)
        jobs = [made.submit(rows(*numbers)) for numbers in ([1], [2, 3], [4], [5, 6, 7])]
        await settled()
        exe.end(0)
        await settled()
        assert [run.feed["x"].ravel().tolist() for run in exe.runs] == [[1], [2, 3, 4, 5, 6, 7]]
        exe.end(1)
        found = [(await job.result)["y"].ravel().tolist() for job in jobs]
        stats = made.statistics
        assert (stats.inferences, stats.executions, stats.sums["queue"].count) == (7, 2, 4)
        assert {n: one["compute_infer"].count for n, one in stats.batches.items()} == {1: 1, 6: 1}
        return found

    assert asyncio.run(main()) == [[2], [4, 6], [8], [10, 12, 14]]


def test_statistics_of_large_requests_are_one_entry():
    """A client chooses their sizes: of each an entry would be kept for ever."""

    async def main():
        made, exe = scheduler(max_batch=2)
        for number in range(5):
            job = made.submit(rows(*range(number + 1)))
            await settled()
            exe.end(number)
            await job.result
        return {n: one["compute_infer"].count for n, one in made.statistics.batches.items()}

    assert asyncio.run(main()) == {1: 1, 2: 1, 3: 3}


def test_a_result_does_not_hold_those_of_others():
    """A client that reads slowly keeps its own part of a batch in memory, not the whole."""
    parts = split({"y": np.arange(6).reshape(6, 1)}, [1, 2, 3])

    assert [part["y"].ravel().tolist() for part in parts] == [[0], [1, 2], [3, 4, 5]]
    assert all(part["y"].base is None for part in parts)


def test_a_batch_has_no_more_rows_than_allowed_and_none_of_another_shape():
    async def main():
        made, exe = scheduler(max_batch=3)
        wide = {"x": np.ones((1, 2), np.float32)}
        for feed in (rows(0), rows(1, 2), wide, rows(3, 4), rows(5), wide):
            made.submit(feed)
        for number in range(4):
            await settled()
            exe.end(number)
        await settled()
        assert len(exe.runs) == 4
        return [run.feed["x"].shape for run in exe.runs], exe.runs[1].feed["x"].ravel().tolist()

    assert asyncio.run(main()) == ([(1, 1), (3, 1), (2, 2), (2, 1)], [1, 2, 5])


def test_without_batches_each_runs_alone_on_as_many_instances_as_there_are():
    async def main():
        made, exe = scheduler(instances=2)
        jobs = [made.submit(rows(n)) for n in range(3)]
        await settled()
        assert len(exe.runs) == 2
        assert exe.runs[0].context is not exe.runs[1].context
        exe.end(1)
        await jobs[1].result
        await settled()
        assert exe.runs[2].context is exe.runs[1].context

    asyncio.run(main())


def test_a_delay_waits_for_more_rows_and_a_full_batch_does_not_wait():
    async def main():
        made, exe = scheduler(max_batch=2, delay_us=10**9)
        made.submit(rows(1))
        await settled()
        assert exe.runs == []
        made.submit(rows(2))
        await settled()
        assert [run.feed["x"].ravel().tolist() for run in exe.runs] == [[1, 2]]

    asyncio.run(main())


def test_a_delay_ends():
    async def main():
        made, exe = scheduler(max_batch=2, delay_us=1000)
        made.submit(rows(1))
        async with asyncio.timeout(servers.PATIENCE):
            while not exe.runs:
                await asyncio.sleep(0.001)

    asyncio.run(main())


def test_a_full_queue_refuses():
    async def main():
        made, exe = scheduler(queue=2)
        for n in range(3):  # one runs, two wait
            made.submit(rows(n))
            await settled()
        with pytest.raises(ServingError, match=r"GPC1205 .*2 requests wait already") as caught:
            made.submit(rows(9))
        assert caught.value.status == 503
        exe.end(0)
        await settled()
        made.submit(rows(3))

    asyncio.run(main())


def test_one_that_is_given_up_in_the_queue_never_runs():
    async def main():
        made, exe = scheduler()
        made.submit(rows(1))
        second, third = made.submit(rows(2)), made.submit(rows(3))
        await settled()
        made.abandon(second)
        exe.end(0)
        await settled()
        assert exe.runs[1].feed["x"].item() == 3
        exe.end(1)
        assert (await third.result)["y"].item() == 6
        assert second.result.cancelled()

    asyncio.run(main())


def test_a_run_is_stopped_when_nobody_waits_for_it_any_more():
    async def main():
        made, exe = scheduler(max_batch=4)
        made.submit(rows(0))
        one, other = made.submit(rows(1)), made.submit(rows(2))
        await settled()
        exe.end(0)
        await settled()
        made.abandon(one)
        exe.runs[1]._stop.check()  # the other still waits
        made.abandon(other)
        with pytest.raises(RunStoppedError, match="GPC1101"):
            exe.runs[1]._stop.check()
        exe.runs[1].set_exception(RunStoppedError("the run was cancelled", code="GPC1101"))
        last = made.submit(rows(5))
        await settled()
        exe.end(2)
        assert (await last.result)["y"].item() == 10

    asyncio.run(main())


def test_one_that_fails_in_a_batch_does_no_harm_to_others():
    async def main():
        made, exe = scheduler(max_batch=8)
        made.submit(rows(0))
        jobs = [made.submit(rows(n)) for n in (1, 2, 3)]
        await settled()
        exe.end(0)
        await settled()
        exe.runs[1].set_exception(InputError("no", code="GPC2113"))
        for number in (2, 3, 4):
            await settled()
            if exe.runs[number].feed["x"].item() == 2:
                exe.runs[number].set_exception(InputError("no", code="GPC2113"))
            else:
                exe.end(number)
        found = await asyncio.gather(*(job.result for job in jobs), return_exceptions=True)
        assert [type(one) for one in found] == [dict, InputError, dict]
        assert [found[n]["y"].item() for n in (0, 2)] == [2, 6]

    asyncio.run(main())


@pytest.mark.parametrize("fault", ["a bug", "a cancelled run"])
def test_one_that_ends_oddly_when_it_runs_alone_does_no_harm_to_others(fault):
    async def main():
        made, exe = scheduler(max_batch=8)
        made.submit(rows(0))
        jobs = [made.submit(rows(n)) for n in (1, 2, 3)]
        await settled()
        exe.end(0)
        await settled()
        exe.begins = fault == "a bug"
        exe.runs[1].set_exception(InputError("no", code="GPC2113"))
        await settled()
        if fault == "a bug":
            exe.runs[2].set_exception(ZeroDivisionError("oh"))
        else:
            exe.runs[2].cancel()
        exe.begins = True
        for number in (3, 4):
            await settled()
            exe.end(number)
        found = await asyncio.gather(*(job.result for job in jobs), return_exceptions=True)
        assert [found[n]["y"].item() for n in (1, 2)] == [4, 6]
        assert str(found[0])[:7] == ("GPC1000" if fault == "a bug" else "GPC1101")
        await settled()
        assert all(job.over.done() for job in jobs)

    asyncio.run(main())


def test_an_end_while_each_runs_alone_is_told_to_all():
    async def main():
        made, exe = scheduler(max_batch=8)
        made.submit(rows(0))
        jobs = [made.submit(rows(n)) for n in (1, 2, 3)]
        await settled()
        exe.end(0)
        await settled()
        exe.runs[1].set_exception(InputError("no", code="GPC2113"))
        await settled()
        made.cancel()
        exe.runs[2].set_exception(RunStoppedError("the run was cancelled", code="GPC1101"))
        await made.close()
        found = await asyncio.gather(*(job.result for job in jobs), return_exceptions=True)
        assert [str(one)[:7] for one in found] == ["GPC1206"] * 3
        assert len(exe.runs) == 3

    asyncio.run(main())


def test_figures_of_one_that_was_replaced_and_of_the_new_one_are_added():
    async def main():
        old, exe = scheduler()
        new = Scheduler(old.model, 10, old.metrics)
        jobs = [one.submit(rows(n)) for n, one in enumerate((old, old, new, new, new))]
        await settled()
        assert (old.queued._value.get(), old.running._value.get()) == (3, 2)
        for number in range(5):
            exe.end(number)
            await settled()
        assert all(job.result.done() for job in jobs)
        assert (old.queued._value.get(), old.running._value.get()) == (0, 0)

    asyncio.run(main())


def test_a_feed_is_over_when_nothing_reads_it_any_more():
    async def main():
        made, exe = scheduler()
        first, second = made.submit(rows(1)), made.submit(rows(2))
        await settled()
        made.abandon(first)
        made.abandon(second)
        await settled()
        assert (first.over.done(), second.over.done()) == (False, True)
        exe.runs[0].set_exception(RunStoppedError("the run was cancelled", code="GPC1101"))
        await settled()
        assert first.over.done()

    asyncio.run(main())


def test_rows_that_the_model_loses_are_noticed():
    async def main():
        made, exe = scheduler(max_batch=8)
        made.submit(rows(0))
        jobs = [made.submit(rows(n)) for n in (1, 2)]
        await settled()
        exe.end(0)
        await settled()
        exe.runs[1].set_result({"y": np.zeros((1, 1))})
        for number in (2, 3):  # each alone
            await settled()
            exe.end(number)
        return [(await job.result)["y"].item() for job in jobs]

    assert asyncio.run(main()) == [2, 4]


def test_a_device_that_is_lost_ends_the_model():
    async def main():
        made, exe = scheduler()
        job = made.submit(rows(1))
        await settled()
        exe.runs[0].set_exception(DeviceLostError("gone"))
        with pytest.raises(DeviceLostError):
            await job.result
        with pytest.raises(ServingError, match=r"GPC1203 .*gone"):
            made.submit(rows(2))

    asyncio.run(main())


def test_a_bug_is_an_error_of_its_request_alone():
    async def main():
        made, exe = scheduler()
        first, second = made.submit(rows(1)), made.submit(rows(2))
        await settled()
        exe.runs[0].set_exception(ZeroDivisionError("oh"))
        with pytest.raises(Exception, match="GPC1000 internal error, ZeroDivisionError"):
            await first.result
        await settled()
        exe.end(1)
        assert (await second.result)["y"].item() == 4

    asyncio.run(main())


def test_closing_serves_what_waits():
    async def main():
        made, exe = scheduler(instances=2, max_batch=4, delay_us=10**9)
        jobs = [made.submit(rows(n)) for n in (1, 2)]
        closing = asyncio.create_task(made.close())
        await settled()
        assert len(exe.runs) == 1
        assert not any(context.closed for context in exe.contexts)
        exe.end(0)
        await closing
        assert all(context.closed for context in exe.contexts)
        return [(await job.result)["y"].item() for job in jobs]

    assert asyncio.run(main()) == [2, 4]


def test_who_has_found_a_version_may_use_it_after_it_was_replaced():
    async def main():
        made, exe = scheduler()
        with made.used():
            closing = asyncio.create_task(made.close())
            await settled()
            assert not closing.done()
            job = made.submit(rows(3))
            await settled()
            exe.end(0)
            found = (await job.result)["y"].item()
            assert not exe.contexts[0].closed
        await closing
        assert exe.contexts[0].closed
        return found

    assert asyncio.run(main()) == 6


def test_giving_up_waits_for_nobody():
    async def main():
        made, exe = scheduler()
        with made.used():
            job = made.submit(rows(1))
            await settled()
            made.cancel()
            exe.runs[0].set_exception(RunStoppedError("the run was cancelled", code="GPC1101"))
            await made.close()
            with pytest.raises(ServingError, match="GPC1203"):
                made.submit(rows(2))
        assert job.over.done()
        with pytest.raises(ServingError, match="GPC1206"):
            await job.result

    asyncio.run(main())


def test_large_requests_are_joined_by_a_thread():
    async def main():
        made, exe = scheduler(max_batch=1 << 20)
        large = limits.INLINE // 4
        made.submit(rows(0))
        jobs = [made.submit({"x": np.full((large, 1), n, np.float32)}) for n in (1, 2)]
        await settled()
        exe.end(0)
        async with asyncio.timeout(servers.PATIENCE):
            while len(exe.runs) < 2:
                await asyncio.sleep(0.001)
        exe.end(1)
        return [(await job.result)["y"].sum() / large for job in jobs]

    assert asyncio.run(main()) == [2, 4]


def test_a_batch_that_is_given_up_while_it_is_joined_does_not_run(monkeypatch):
    async def main():
        made, exe = scheduler(max_batch=8)
        made.submit(rows(0))
        jobs = [made.submit(rows(n)) for n in (1, 2)]
        monkeypatch.setattr("gpucomp.serving.scheduler.offloaded", slow)
        await settled()
        exe.end(0)
        await asyncio.wait_for(joining.wait(), servers.PATIENCE)
        for job in jobs:
            made.abandon(job)
        goes_on.set()
        await settled()
        assert len(exe.runs) == 1
        assert all(job.over.done() for job in jobs)
        last = made.submit(rows(3))
        await settled()
        exe.end(1)
        return (await last.result)["y"].tolist()

    joining, goes_on = asyncio.Event(), asyncio.Event()

    async def slow(nbytes, work, *arguments):
        joining.set()
        await goes_on.wait()
        return work(*arguments)

    assert asyncio.run(main()) == [[6]]

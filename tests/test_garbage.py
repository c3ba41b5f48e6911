"""How often Python looks for garbage while a model is compiled."""

import gc
import threading

import pytest

from gpucomp.garbage import SELDOM, seldom_collected


@pytest.fixture(autouse=True)
def usual():
    before = gc.get_threshold()
    gc.set_threshold(701, 11, 9)
    yield
    gc.set_threshold(*before)


def test_it_is_seldom_within_the_block_and_as_before_behind_it():
    with seldom_collected():
        assert gc.get_threshold() == SELDOM

    assert gc.get_threshold() == (701, 11, 9)


def test_an_error_restores_it():
    with pytest.raises(ZeroDivisionError), seldom_collected():
        raise ZeroDivisionError

    assert gc.get_threshold() == (701, 11, 9)


def test_blocks_of_threads_that_overlap_restore_it_with_the_last_one():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with seldom_collected():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with seldom_collected():
        thread.start()
        assert inside.wait(60)
    assert gc.get_threshold() == SELDOM
    leave.set()
    thread.join()

    assert gc.get_threshold() == (701, 11, 9)


@pytest.mark.parametrize("threshold", [(0, 10, 10), (50_000, 30, 20)])
def test_who_asked_for_fewer_or_for_none_keeps_that(threshold):
    gc.set_threshold(*threshold)

    with seldom_collected():
        assert gc.get_threshold() == threshold


def test_a_compilation_is_such_a_block(monkeypatch):
    from gpucomp import compiler, compiling

    found = []
    monkeypatch.setattr(compiler, "compile", lambda model, **how: found.append(gc.get_threshold()))
    compiling._compiled(b"", None, {})

    assert found == [SELDOM]
    assert gc.get_threshold() == (701, 11, 9)

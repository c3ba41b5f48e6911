"""What ``bench.ocr_trace`` measures: every request of every engine is timed, and answers are compared."""

import numpy as np
import pytest

from bench import ocr_trace
from tests.onnx_builders import model, node, value


@pytest.fixture
def small(monkeypatch):
    proto = model(
        [node("ReduceMean", ["x"], ["y"], keepdims=0)], [value("x", [1, 3, "h", "w"])], [value("y", None)], opset=17
    )
    monkeypatch.setattr(ocr_trace, "content", lambda model: proto.SerializeToString())


def test_every_request_of_every_engine_is_timed(small):
    lines = sum(len(found) for _, found in ocr_trace.pages(2, 7))
    times = ocr_trace.measure(["gpucomp", "onnxruntime"], 2, 7, 1)

    for found in times.values():
        assert [len(found.requests[name]) for name in (ocr_trace.DETECTION, ocr_trace.RECOGNITION)] == [2, lines]
        assert found.worst < 1e-3


def test_a_wrong_answer_is_seen(small, monkeypatch):
    right = ocr_trace.ours(1)
    monkeypatch.setitem(ocr_trace.ENGINES, "gpucomp", lambda threads: lambda name, image: right(name, image) + 1)

    assert ocr_trace.measure(["gpucomp", "onnxruntime"], 1, 7, 1)["gpucomp"].worst > 0.5


def test_pages_and_lines_have_many_sizes_in_the_ranges():
    found = list(ocr_trace.pages(4, 1))
    heights, widths = zip(*(page.shape[2:] for page, _ in found), strict=True)
    lines = [line.shape for _, own in found for line in own]

    assert len({*heights, *widths}) > 4
    assert all(size % 32 == 0 and 320 <= size <= 960 for size in (*heights, *widths))
    assert {shape[:3] for shape in lines} == {(1, 3, 48)}
    assert len({shape[3] for shape in lines}) > 10
    assert np.abs(found[0][0]).max() <= 1


def test_a_peer_that_there_is_not_is_told(capsys):
    with pytest.raises(SystemExit):
        ocr_trace.main(["--peers", "abacus"])

    assert "no peer 'abacus': one of onnxruntime, openvino expected" in capsys.readouterr().err

"""Results that are parts of larger tensors in eager, and weights whose memory others write into."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="could not import 'torch'")
pytest.importorskip("onnxscript", reason="could not import 'onnxscript'")

from torch.nn import functional  # noqa: E402

from tests.torch.calls import assert_same, compiled, graphs  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch about torch


def parts(x):
    first, second = (x.sin()).split(2)
    return (x * 2)[:, ::2], (x * 3)[1:], (x * 4)[:1], (x.exp()).expand(3, 4, 8), first, second, x.cos().mT[2:]


def steps_beyond(x):
    """``as_strided`` reads what lies beside its tensor in memory; it is left to eager, behind what is compiled."""
    gaps = (x.tanh().sin().cos() * 2)[:, ::2]
    behind = (x.sin().cos().tanh() * 3)[1:]
    found = torch.as_strided(gaps.mT, (2, 3), (1, 2)), torch.as_strided(behind.mT, (2, 3), (1, 2), 0)
    return [one.neg().sin().cos().tanh() for one in found]


def offset_of_another(x):
    return torch.as_strided(x.exp()[1:], (2,), (1,), 0) * 2, torch.as_strided((x + 1)[1:], (3,), (1,), 0)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [parts, steps_beyond, offset_of_another])
def test_parts_of_larger_tensors_lie_in_memory_as_in_eager(function, dynamic):
    x = torch.randn(4, 8)

    found, wanted = compiled(function, strict=False, dynamic=dynamic, least=2)(x), function(x)

    assert_same(found, wanted)
    for a, b in zip(found, wanted, strict=True):
        assert (a.storage_offset(), a.untyped_storage().nbytes()) == (b.storage_offset(), b.untyped_storage().nbytes())
    assert graphs()[0].parts


def test_views_of_attention_with_a_mask_share_its_memory():
    mask = torch.tensor([[True] * 3, [False] * 3, [True, False, False]])

    def function(q):
        y = functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)
        return y, y.transpose(1, 2), y[0]

    q = torch.randn(1, 2, 3, 8)
    found, wanted = compiled(function)(q), function(q)

    assert_same(found, wanted)
    for results in (found, wanted):
        results[2].fill_(7)  # which shows in the others
    assert_same(found, wanted)


def test_weights_that_are_shared_after_the_first_call_are_read_in_each():
    net = torch.nn.Linear(40, 30).requires_grad_(False)
    x = torch.randn(2, 40)
    run = compiled(net)
    run(x)

    net.share_memory()
    run(x)
    net.weight.data[0].fill_(0)  # not counted by torch, as what another process writes

    assert_same(run(x), net(x), 1e-4)
    assert graphs()[0].parts[0].weights == 0

"""``torch.compile`` with this backend: the results are eager's, whatever the graph does, and what was not compiled is told."""

from __future__ import annotations

import copy
import importlib
import threading

import pytest

import gpucomp

torch = pytest.importorskip("torch", reason="could not import 'torch'")
pytest.importorskip("onnxscript", reason="could not import 'onnxscript'")
gpucomp_torch = pytest.importorskip("gpucomp.torch")

from torch import nn  # noqa: E402
from torch._dynamo.exc import BackendCompilerFailed  # noqa: E402
from torch.nn import functional  # noqa: E402

from tests.torch.calls import assert_same, compiled, graphs, leaves  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch about torch


class Net(nn.Module):
    """A convolution, a norm, and a linear layer."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3)
        self.norm = nn.BatchNorm2d(5)
        self.head = nn.Linear(5, 7)

    def forward(self, x):
        return self.head(functional.relu(self.norm(self.conv(x))).mean((2, 3)))


def test_a_model_gives_what_eager_gives():
    net, x = Net().eval(), torch.randn(2, 3, 11, 9)

    with torch.no_grad():
        found = compiled(net)(x)

    assert_same(found, net(x))
    (graph,) = graphs()
    assert graph.compiled
    assert graph.parts[0].kernels > 0
    assert graph.parts[0].weights == 8


def test_a_second_size_makes_a_program_for_any_size():
    net = Net().eval()
    run = compiled(net)

    with torch.inference_mode():
        for n, h, w in [(2, 11, 9), (3, 12, 8), (5, 21, 10), (4, 7, 19)]:
            x = torch.randn(n, 3, h, w)
            assert_same(run(x), net(x))

    assert [len(graph.parts[0].dims) for graph in graphs()] == [0, 3]


def test_sizes_and_whole_numbers_are_arguments_and_results():
    def function(x, n):
        return (x * n).reshape(-1), x.shape[0] * 2 + n, x.flip(0)[: x.shape[0] - 1]

    run = compiled(function, dynamic=True)
    for rows, n in [(4, 3), (6, 5), (9, 2)]:
        x = torch.randn(rows, 5)
        assert_same(run(x, n), function(x, n))

    assert len(graphs()) == 1


def test_a_size_beyond_the_declared_range_runs_in_eager_and_is_told():
    run = compiled(lambda x: x.cumsum(0) * 2, dynamic=True)
    run(torch.ones(3, 2))

    assert_same(run(torch.ones(40_000, 2)), torch.ones(40_000, 2).cumsum(0) * 2)
    assert any("ran in eager" in note for note in graphs()[-1].parts[0].notes)


def step(net, x):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    net(x).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def load(net, x):
    net.load_state_dict({name: tensor + 0.25 for name, tensor in net.state_dict().items()})


def through_data(net, x):
    for parameter in net.parameters():
        parameter.data.mul_(0.5)


def replaced(net, x):
    net.head.weight = nn.Parameter(torch.randn(7, 5))


def swapped(net, x):
    net.head.weight.data = torch.randn(7, 5)


@pytest.mark.parametrize("change", [step, load, through_data, replaced, swapped])
def test_changed_weights_are_never_stale(change):
    net, x = Net().eval(), torch.randn(2, 3, 11, 9)
    run = compiled(net)

    for _ in range(4):
        with torch.no_grad():
            assert_same(run(x), net(x))
        change(net, x)
    with torch.no_grad():
        assert_same(run(x), net(x))


def test_weights_that_change_again_and_again_become_inputs():
    net, x = nn.Linear(5, 7), torch.randn(4, 5)
    run = compiled(net)

    with torch.no_grad():
        for _ in range(5):
            assert_same(run(x), net(x))
            net.weight.add_(0.5)

    (part,) = graphs()[0].parts
    assert part.weights == 1  # the bias
    assert sum(part.notes.values()) == 2


def test_weights_made_in_inference_mode_are_inputs():
    with torch.inference_mode():
        net = nn.Linear(5, 7)
        x = torch.randn(4, 5)
        run = compiled(net)
        assert_same(run(x), net(x))
        net.weight.mul_(3)
        assert_same(run(x), net(x))


def test_gradients_are_eagers_and_the_graph_is_left_to_eager():
    net, x = Net().eval(), torch.randn(2, 3, 11, 9)
    other = copy.deepcopy(net)

    compiled(net, strict=False)(x).square().sum().backward()
    other(x).square().sum().backward()

    for a, b in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    (graph,) = graphs()
    assert not graph.parts
    assert "torch.no_grad()" in graph.eager[0]


def test_gradients_that_a_graph_enables_itself_are_eagers():
    def function(x):
        with torch.enable_grad():
            return (x * x).sum()

    x = torch.randn(5, requires_grad=True)
    with torch.no_grad():
        y = compiled(function, strict=False)(x)
    y.backward()

    torch.testing.assert_close(x.grad, 2 * x.detach())


def test_strict_raises_torchs_own_error():
    with pytest.raises(BackendCompilerFailed, match="GPC4021 gradients may be needed"):
        compiled(Net().eval())(torch.randn(2, 3, 11, 9))


def written(x, y):
    x.add_(y)
    y[1:] = 0
    return x * 2


def views(x, y):
    return x.view(-1), x[1:], y.T


def shared(x, y):
    z = x @ y.T
    return z, z.view(-1), z[0]


def unchanged(x, y):
    return x, (x + y).clone(), y.detach()


@pytest.mark.parametrize("function", [written, views, shared, unchanged])
def test_writes_and_shared_memory_are_eagers(function):
    x, y = torch.randn(4, 5), torch.randn(4, 5)
    x2, y2 = x.clone(), y.clone()

    found, wanted = compiled(function)(x, y), function(x2, y2)
    assert_same(found, wanted)
    assert_same((x, y), (x2, y2))
    for results in (found, wanted):
        results[0].view(-1)[:3] = 9  # which shows in all that shares its memory
    assert_same((found, x, y), (wanted, x2, y2))


def test_arguments_that_share_memory_and_are_written():
    def function(x, y):
        x.mul_(3)
        return y + 1

    a, b = torch.randn(6), torch.randn(6)
    b.copy_(a)
    found, wanted = compiled(function, strict=False)(a[:4], a[2:]), function(b[:4], b[2:])

    assert_same((found, a), (wanted, b))


def test_buffers_that_a_model_writes():
    net = Net().train()
    other = copy.deepcopy(net)
    run = compiled(net)

    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(4, 3, 11, 9)
            assert_same(run(x), other(x), 1e-4)
    for (name, a), b in zip(net.state_dict().items(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, msg=name)


def test_random_numbers_are_torchs_and_the_rest_is_compiled():
    net = nn.Sequential(
        nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 6), nn.Dropout(0.5), nn.Linear(6, 8), nn.GELU(), nn.Tanh()
    )
    x = torch.randn(4, 5)
    with torch.no_grad():
        run = compiled(net, strict=False, least=2)
        torch.manual_seed(11)
        found = run(x)
        torch.manual_seed(11)
        wanted = net(x)

    assert_same(found, wanted)
    (graph,) = graphs()
    assert len(graph.parts) == 2
    assert any("random numbers" in str(why) for why in graph.eager)


def test_results_whose_shape_depends_on_values_end_a_graph():
    def function(x):
        y = torch.relu(x * 2)
        return y[y > 0.5] + 1

    x = torch.randn(6, 5)

    assert_same(compiled(function, strict=False)(x), function(x))
    assert sum(gpucomp_torch.report().breaks.values()) == 1


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool"]
)
def test_element_types(dtype):
    kind = getattr(torch, dtype)
    x = torch.randint(0, 3, (4, 5)).to(kind)
    y = torch.randint(0, 2, (5,)).to(kind)

    def function(x, y):
        return (x | y, x & y) if kind is torch.bool else (x * y, x + y, x.T)

    assert_same(compiled(function)(x, y), function(x, y))


@pytest.mark.parametrize(
    "x",
    [
        torch.tensor(2.5),
        torch.randn(0, 4),
        torch.randn(6, 8)[::2, 1:7:3],
        torch.randn(3, 1).expand(3, 4),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randn(4, 5, requires_grad=True),
        torch.randn(4, dtype=torch.complex64).imag.neg(),
    ],
    ids=["scalar", "empty", "steps", "expanded", "channels_last", "gradient", "complex part"],
)
def test_layouts_of_inputs(x):
    with torch.no_grad():
        assert_same(compiled(lambda x: torch.exp(x) + 1)(x), torch.exp(x) + 1)


def test_results_have_the_layout_of_eager():
    net = nn.Conv2d(3, 5, 3).to(memory_format=torch.channels_last).eval()
    x = torch.randn(2, 3, 7, 6).to(memory_format=torch.channels_last)

    with torch.no_grad():
        found = compiled(lambda x: (net(x), x.permute(2, 0, 3, 1) * 2, x.mT + 1))(x)
        assert_same(found, (net(x), x.permute(2, 0, 3, 1) * 2, x.mT + 1))


def test_complex_numbers_stay_in_eager():
    x = torch.randn(4, 6)

    def function(x):
        return torch.fft.fft(x).abs()

    assert_same(compiled(function, strict=False)(x), function(x))
    assert "complex64" in str(gpucomp_torch.report())


def test_an_operator_that_is_nobody_elses_is_cut_out():
    @torch.library.custom_op("gpucomp_tests::halved", mutates_args=())
    def halved(x: torch.Tensor) -> torch.Tensor:
        return x / 2

    @halved.register_fake
    def _(x):
        return torch.empty_like(x)

    first, second, x = nn.Linear(5, 7), nn.Linear(7, 6), torch.randn(4, 5)

    def function(x):
        return torch.tanh(second(halved(torch.relu(first(x)).exp()))).sum(1)

    with torch.no_grad():
        assert_same(compiled(function, strict=False, least=2)(x), function(x))

    (graph,) = graphs()
    assert [part.weights for part in graph.parts] == [2, 2]
    (why,) = graph.eager
    assert why.operator == "gpucomp_tests.halved.default"
    assert "test_backend.py" in why.where
    torch.compiler.reset()
    with pytest.raises(BackendCompilerFailed, match="halved"), torch.no_grad():
        compiled(function)(x)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"targets": "cpu"}, "GPC2053 options: there is no option 'targets'"),
        ({"strict": 1}, "GPC2053 options: strict: bool expected"),
        ({"precision": "fp17"}, "GPC2"),
        ({"target": "cpu:80486"}, "GPC"),
        ({"specialise": "sometimes"}, "GPC2"),
    ],
)
def test_mistakes_in_options_are_errors(options, told):
    run = torch.compile(lambda x: x + 1, backend=gpucomp_torch.backend, options=options)

    with pytest.raises(BackendCompilerFailed, match=told):
        run(torch.ones(3))


def test_modes_are_not_taken():
    run = torch.compile(lambda x: x + 1, backend=gpucomp_torch.backend, mode="max-autotune")

    with pytest.raises(BackendCompilerFailed, match=r"GPC2053 torch\.compile: 'mode'"):
        run(torch.ones(3))


def test_precision_and_target_are_options():
    net, x = Net().eval(), torch.randn(2, 3, 11, 9)

    with torch.no_grad():
        assert_same(compiled(net, precision="fp16", target="cpu")(x), net(x), 1e-2)


def test_another_device_computes_for_tensors_of_the_processor():
    pytest.importorskip("pyopencl")
    net, x = Net().eval(), torch.randn(2, 3, 11, 9)

    with torch.no_grad():
        assert_same(compiled(net, target="opencl:pocl")(x), net(x), 1e-4)
    assert graphs()[0].parts[0].target.startswith("opencl")


def test_threads_call_one_model():
    net, xs = Net().eval(), [torch.randn(2, 3, 11, 9) for _ in range(6)]
    wanted = [net(x).detach() for x in xs]
    run, right = compiled(net), []
    with torch.no_grad():
        run(xs[0])

    def call(number):
        with torch.no_grad():
            for _ in range(20):
                right.append(torch.allclose(run(xs[number]), wanted[number], atol=1e-5))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(xs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert right == [True] * 120


def test_an_export_is_read_from_the_cache():
    net, x = nn.Sequential(nn.Linear(5, 9), nn.ELU(0.7)), torch.randn(4, 5)

    with torch.no_grad():
        for found in (False, True):
            torch.compiler.reset()
            compiled(net)(x)
            assert graphs()[0].parts[0].export_cached is found


def test_autocast_is_part_of_the_graph():
    net, x = Net().eval(), torch.randn(2, 3, 11, 9)

    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert_same(compiled(net)(x), net(x), 3e-2)


def test_the_report_is_for_people():
    net = nn.Sequential(nn.Linear(5, 7), nn.ReLU())
    with torch.no_grad():
        compiled(net, dynamic=True)(torch.randn(4, 5))

    lines = str(gpucomp_torch.report()).splitlines()

    assert lines[0] == "1 graph: 1 compiled, 0 compiled in part, 0 eager; 0 graph breaks"
    assert "2 weights" in lines[2]
    assert "any size" in lines[3]


def test_results_of_another_shape_than_torchs_stay_in_eager():
    def function(x):
        return torch.linalg.matrix_power(x, 0) * 2  # the exporter leaves the batch out

    x = torch.randn(3, 4, 4)

    assert_same(compiled(function, strict=False)(x), function(x))
    assert "where torch has" in str(graphs()[0].eager)


def test_a_graph_with_wrong_results_is_found_and_left_to_eager(monkeypatch):
    region = importlib.import_module("gpucomp.torch.region")
    right = region.tensor_of
    monkeypatch.setattr(region, "tensor_of", lambda array, device: right(array, device) * 1.01)
    x = torch.randn(4, 5)

    for _ in range(2):
        assert_same(compiled(torch.exp, strict=False, verify=True)(x), torch.exp(x))
    assert "not eager's: result 0 differs" in str(graphs()[0].eager)
    torch.compiler.reset()
    with pytest.raises(gpucomp.AccuracyError, match="GPC6010"):
        compiled(torch.exp, verify=True)(x)


def test_a_wrong_graph_is_an_error_each_time_if_strict(monkeypatch):
    region = importlib.import_module("gpucomp.torch.region")
    right = region.tensor_of
    monkeypatch.setattr(region, "tensor_of", lambda array, device: right(array, device) * 1.01)
    run = compiled(torch.exp, verify=True)

    for _ in range(2):
        with pytest.raises(gpucomp.AccuracyError, match="GPC6010"):
            run(torch.randn(4, 5))


def test_the_parts_of_a_graph_are_verified_beside_eager(monkeypatch):
    region = importlib.import_module("gpucomp.torch.region")
    right = region.tensor_of
    monkeypatch.setattr(region, "tensor_of", lambda array, device: right(array, device) * 1.01)

    def function(x):
        return functional.dropout(x.exp().sin().cos().tanh(), 0.5).exp().sin().cos().tanh()

    run, x = compiled(function, strict=False, verify=True), torch.randn(4, 5)
    for _ in range(2):
        torch.manual_seed(3)
        wanted = function(x)
        torch.manual_seed(3)
        assert_same(run(x), wanted)

    assert "not eager's" in str(graphs()[0].eager)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x[x.shape[0] // 2 :],
        lambda x, y: (x * 2, y.expand(x.shape[0], 4)),
        lambda x, y: (x[1:].t(), x.reshape(-1)[3:], y * 2),
    ],
)
def test_views_of_arguments_of_any_size(function):
    run = compiled(function, dynamic=True, strict=False)
    for rows in (6, 9):
        x, y = torch.randn(rows, 4), torch.randn(1, 4)
        found, wanted = run(x, y), function(x, y)
        assert_same(found, wanted)


def test_a_weight_that_is_written_while_it_is_compiled_is_not_stale(monkeypatch):
    region = importlib.import_module("gpucomp.torch.region")
    compile = region.compile
    net, x = nn.Linear(5, 7).requires_grad_(False), torch.randn(4, 5)

    def while_it_compiles(model, **how):
        exe = compile(model, **how)
        monkeypatch.setattr(region, "compile", compile)
        net.weight.zero_()
        return exe

    monkeypatch.setattr(region, "compile", while_it_compiles)
    run = compiled(net)
    run(x)

    assert_same(run(x), net(x))


def test_a_model_that_cannot_be_compiled_again_runs_in_eager(monkeypatch):
    region = importlib.import_module("gpucomp.torch.region")
    net, x = nn.Linear(5, 7).requires_grad_(False), torch.randn(4, 5)
    run = compiled(net, strict=False)
    run(x)
    net.weight.mul_(2)

    def fails(model, **how):
        raise gpucomp.DeviceError("full")

    monkeypatch.setattr(region, "compile", fails)
    for _ in range(2):
        assert_same(run(x), net(x))
    assert any("from now on" in note for note in graphs()[0].parts[0].notes)


def test_sizes_of_no_known_range_stay_in_eager():
    def function(n):
        k = n.item()
        torch._check(k >= 0)
        return torch.ones(k).sum().exp().sin().cos().tanh()

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        assert_same(compiled(function, strict=False)(torch.tensor(5)), function(torch.tensor(5)))


def test_a_graph_with_right_results_is_verified_once():
    net, x = Net().eval(), torch.randn(2, 3, 11, 9)
    run = compiled(net, verify=True)

    with torch.no_grad():
        for _ in range(3):
            assert_same(run(x), net(x))
    assert graphs()[0].compiled


def test_large_weights_are_in_a_file(monkeypatch):
    weights = importlib.import_module("gpucomp.torch.weights")
    monkeypatch.setattr(weights, "IN_A_FILE", 100)
    net = Net().eval()
    run = compiled(net)

    with torch.no_grad():
        for rows in (2, 3, 5):
            x = torch.randn(rows, 3, 11, 9)
            assert_same(run(x), net(x))
        net.head.bias.add_(1)
        assert_same(run(x), net(x))


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_that_dynamo_lets_through(layer):
    net, x = layer(5, 7, batch_first=True).eval(), torch.randn(2, 4, 5)

    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        found, wanted = compiled(net)(x), net(x)

    for a, b in zip(leaves(found), leaves(wanted), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    assert len(graphs()) == 1


def test_a_bug_of_the_compiler_leaves_a_graph_to_eager_and_is_told(monkeypatch):
    def fails(*given, **named):
        raise IndexError("a bug")

    monkeypatch.setattr(importlib.import_module("gpucomp.torch.region"), "compile", fails)

    assert_same(compiled(torch.exp, strict=False)(torch.ones(3)), torch.exp(torch.ones(3)))
    assert "internal error, IndexError: a bug" in str(graphs()[0].eager)

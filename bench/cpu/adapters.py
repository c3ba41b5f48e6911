"""How each engine loads and runs a model. The worker imports this in the engine's own environment, where only numpy is shared.

``convert`` makes the engine's own file from the ONNX file, in a separate process whose memory is not counted.
``Engine(folder, inputs, threads)`` loads it; ``run`` returns the outputs in the model's order. f32 means f32: no engine may
round to fewer bits, unless the folder asks for bf16 and the engine has it.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bench.cpu.torch_models import torch_module, with_constant_shapes
from bench.options import openvino_f32

Arrays = Mapping[str, np.ndarray]
ALL_CORES = 1  # TVM's ThreadGroup::AffinityMode::kBig: all cores if they are alike
MODEL = "model.onnx"  # in the folder, beside what ``convert`` wrote
PRECISION = "precision.txt"  # in the folder; fp32 if it is missing
TARGET = "target.txt"  # in the folder: gpucomp's target; cpu if it is missing
NARROW = (
    "onnxruntime",
    "gpucomp",
    "openvino",
)  # engines of a comparison at bf16; the first one stays at f32 as the reference


def precision_of(folder: Path) -> str:
    """``fp32`` or ``bf16``: the type that an engine may round to."""
    return _said(folder / PRECISION, "fp32")


def target_of(folder: Path) -> str:
    """``cpu``, or the name of one of its processors; gpucomp then uses only that processor's instructions."""
    return _said(folder / TARGET, "cpu")


def are_images(inputs: Arrays) -> bool:
    """Whether engines that prefer NHWC get the inputs in that layout."""
    return all(a.ndim == 4 for a in inputs.values())


def _said(file: Path, otherwise: str) -> str:
    return file.read_text(encoding="utf-8").strip() if file.exists() else otherwise


class Engine(Protocol):
    """One loaded model."""

    version: str

    def run(self) -> Sequence[np.ndarray]:
        """The outputs for the inputs that it was loaded with, as new arrays."""
        ...


class Gpucomp:
    def __init__(self, folder: Path, inputs: Arrays, threads: int) -> None:
        from gpucomp import __version__, config
        from gpucomp.loading import load

        self.version = __version__
        self._settings = contextlib.ExitStack()  # in force while this object exists
        self._settings.enter_context(config.using(threads=threads))
        self._inputs, self._exe = dict(inputs), load(folder / "model.gpuc")
        self._names = [spec.name for spec in self._exe.outputs]

    @staticmethod
    def convert(folder: Path, inputs: Arrays) -> None:
        import gpucomp
        from gpucomp import config

        with config.using(cache=None):  # its time is that of a compilation
            exe = gpucomp.compile(folder / MODEL, target=target_of(folder), precision=precision_of(folder))
        exe.save(folder / "model.gpuc")

    def run(self) -> list[np.ndarray]:
        found = self._exe.run(self._inputs)
        return [found[name] for name in self._names]


class OnnxRuntime:
    """Products of bytes are added exactly on every processor, unless onnxruntime refuses the model then."""

    def __init__(self, folder: Path, inputs: Arrays, threads: int) -> None:
        ort = import_module("onnxruntime")
        self.version = ort.__version__

        def session(*, exact: bool) -> Any:
            options = ort.SessionOptions()
            options.intra_op_num_threads = threads
            options.log_severity_level = 4
            options.add_session_config_entry("session.x64quantprecision", str(int(exact)))
            return ort.InferenceSession(str(folder / MODEL), options, providers=["CPUExecutionProvider"])

        try:
            self._session = session(exact=True)
        except ort.capi.onnxruntime_pybind11_state.NotImplemented:
            self._session = session(exact=False)
        self._inputs = dict(inputs)

    def run(self) -> list[np.ndarray]:
        return list(self._session.run(None, self._inputs))


class OpenVino:
    def __init__(self, folder: Path, inputs: Arrays, threads: int) -> None:
        openvino = import_module("openvino")
        self.version = version("openvino")
        options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}
        if precision_of(folder) == "fp32":
            options = openvino_f32(threads)
        compiled = openvino.Core().compile_model(str(folder / MODEL), "CPU", options)
        self._request, self._inputs = compiled.create_infer_request(), dict(inputs)
        self._count = len(compiled.outputs)

    def run(self) -> list[np.ndarray]:
        found = self._request.infer(self._inputs, share_inputs=True)
        return [found[k] for k in range(self._count)]


class Ncnn:
    def __init__(self, folder: Path, inputs: Arrays, threads: int) -> None:
        ncnn = self._ncnn = import_module("ncnn")
        self.version = version("ncnn")
        self._net = ncnn.Net()
        options = self._net.opt
        options.num_threads = threads
        for name in ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_storage"):
            setattr(options, name, False)
        for result in (
            self._net.load_param(str(folder / "model.ncnn.param")),
            self._net.load_model(str(folder / "model.ncnn.bin")),
        ):
            if result:
                raise ValueError(f"ncnn cannot load what pnnx made of the model: {result}")
        self._inputs = [np.ascontiguousarray(a[0]) for a in inputs.values()]  # ncnn has no batch axis

    @staticmethod
    def convert(folder: Path, inputs: Arrays) -> None:
        if any(a.dtype != np.float32 or a.shape[0] != 1 for a in inputs.values()):
            raise ValueError("ncnn takes images: f32 inputs of batch 1")
        pnnx = Path(sysconfig.get_path("purelib")) / "pnnx" / "pnnx"
        shapes = ",".join("[" + ",".join(map(str, a.shape)) + "]f32" for a in inputs.values())
        subprocess.run([pnnx, MODEL, f"inputshape={shapes}", "fp16=0", "optlevel=2"], cwd=folder, check=True)

    def run(self) -> list[np.ndarray]:
        extractor = self._net.create_extractor()
        for name, array in zip(self._net.input_names(), self._inputs, strict=True):
            extractor.input(name, self._ncnn.Mat(array))
        results = []
        for name in self._net.output_names():
            failed, mat = extractor.extract(name)
            if failed:
                raise ValueError(f"ncnn cannot compute {name}: {failed}")
            results.append(np.array(mat)[None])
        return results


class Mnn:
    def __init__(self, folder: Path, inputs: Arrays, threads: int) -> None:
        mnn = self._mnn = import_module("MNN")
        self.version = version("MNN")
        self._net = mnn.Interpreter(str(folder / "model.mnn"))
        options = {"numThread": threads, "precision": "high", "backend": "CPU"}
        self._session = self._net.createSession(options)
        kinds = {"f": mnn.Halide_Type_Float, "i": mnn.Halide_Type_Int}
        self._inputs = []
        for name, array in inputs.items():
            wanted = np.ascontiguousarray(array, np.float32 if array.dtype.kind == "f" else np.int32)
            tensor = self._net.getSessionInput(self._session, name)
            host = mnn.Tensor(wanted.shape, kinds[wanted.dtype.kind], wanted, mnn.Tensor_DimensionType_Caffe)
            self._inputs.append((tensor, host))
        names = (folder / "outputs.txt").read_text().split("\n")
        self._outputs = [self._net.getSessionOutput(self._session, name) for name in names]

    @staticmethod
    def convert(folder: Path, inputs: Arrays) -> None:
        convert = Path(sys.executable).parent / "mnnconvert"
        command = [convert, "-f", "ONNX", "--modelFile", MODEL, "--MNNModel", "model.mnn", "--bizCode", "bench"]
        subprocess.run(command, cwd=folder, check=True)

    def run(self) -> list[np.ndarray]:
        for tensor, host in self._inputs:
            tensor.copyFrom(host)
        self._net.runSession(self._session)
        results = []
        for tensor in self._outputs:
            shape = tensor.getShape()
            host = self._mnn.Tensor(
                shape, self._mnn.Halide_Type_Float, np.empty(shape, np.float32), self._mnn.Tensor_DimensionType_Caffe
            )
            tensor.copyToHostTensor(host)
            results.append(np.array(host.getNumpyData(), np.float32).reshape(shape))
        return results


class Torch:
    """Eager mode with images in channels_last, torch's fastest layout."""

    backend = ""

    def __init__(self, folder: Path, inputs: Arrays, threads: int) -> None:
        torch = self._torch = import_module("torch")
        self.version = torch.__version__
        torch.set_num_threads(threads)
        model = torch_module(folder / MODEL)
        self._inputs = [torch.from_numpy(np.array(a)) for a in inputs.values()]
        if are_images(inputs):
            model = model.to(memory_format=torch.channels_last)
            self._inputs = [t.to(memory_format=torch.channels_last) for t in self._inputs]
        if self.backend:
            import_module("torch._inductor.config").freezing = True
            model = torch.compile(with_constant_shapes(model, self._inputs), backend=self.backend)
        self._model: Callable[..., Any] = model

    def run(self) -> list[np.ndarray]:
        with self._torch.inference_mode():
            found = self._model(*self._inputs)
        return [t.numpy() for t in (found if isinstance(found, (tuple, list)) else (found,))]


class Inductor(Torch):
    """``torch.compile`` with frozen weights."""

    backend = "inductor"


class Zentorch(Torch):
    """The same with AMD's backend."""

    backend = "zentorch"

    def __init__(self, folder: Path, inputs: Arrays, threads: int) -> None:
        import_module("zentorch")
        super().__init__(folder, inputs, threads)
        self.version = version("zentorch")


class Xnnpack:
    """LiteRT, which gives the operators that XNNPACK has to XNNPACK; images are in NHWC, the only layout that it has."""

    def __init__(self, folder: Path, inputs: Arrays, threads: int) -> None:
        interpreter = import_module("ai_edge_litert.interpreter").Interpreter
        self.version = version("ai-edge-litert")
        self._net = interpreter(str(folder / "model.tflite"), num_threads=threads)
        self._net.allocate_tensors()

        def by_number(details: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return sorted(details, key=lambda one: int(re.findall(r"\d+", one["name"])[-1]))

        self._images = are_images(inputs)
        feeds = [np.ascontiguousarray(np.moveaxis(a, 1, -1)) if self._images else a for a in inputs.values()]
        tensors = by_number(self._net.get_input_details())  # indices are i32 in LiteRT
        self._inputs = [(one["index"], a.astype(one["dtype"])) for one, a in zip(tensors, feeds, strict=True)]
        self._outputs = [one["index"] for one in by_number(self._net.get_output_details())]

    @staticmethod
    def convert(folder: Path, inputs: Arrays) -> None:
        torch = import_module("torch")
        examples = tuple(torch.from_numpy(np.array(a)) for a in inputs.values())
        model = with_constant_shapes(torch_module(folder / MODEL), examples)
        litert = import_module("litert_torch")
        if are_images(inputs):
            with torch.inference_mode():
                found = model(*examples)
            outputs = found if isinstance(found, (tuple, list)) else (found,)
            last = [k for k, t in enumerate(outputs) if t.dim() == 4]
            model = litert.to_channel_last_io(model, args=list(range(len(examples))), outputs=last)
            examples = tuple(t.permute(0, 2, 3, 1).contiguous() for t in examples)
        litert.convert(model, examples).export(str(folder / "model.tflite"))

    def run(self) -> list[np.ndarray]:
        for place, array in self._inputs:
            self._net.set_tensor(place, array)
        self._net.invoke()
        found = [self._net.get_tensor(place) for place in self._outputs]
        return [np.moveaxis(a, -1, 1) if self._images and a.ndim == 4 else a for a in found]


class Tvm:
    """Relax with its default pipeline, untuned: its schedules for CPUs come only from a search."""

    def __init__(self, folder: Path, inputs: Arrays, threads: int) -> None:
        tvm = import_module("tvm")
        tvm.get_global_func("runtime.config_threadpool")(ALL_CORES, threads)
        self.version = tvm.__version__
        module = tvm.runtime.load_module(str(folder / "model.so"))
        self._main = import_module("tvm.relax").VirtualMachine(module, tvm.cpu())["main"]
        self._inputs = [tvm.runtime.tensor(a) for a in inputs.values()]

    @staticmethod
    def convert(folder: Path, inputs: Arrays) -> None:
        import onnx

        tvm = import_module("tvm")
        model = import_module("tvm.relax.frontend.onnx").from_onnx(
            onnx.load(folder / MODEL),
            shape_dict={name: list(a.shape) for name, a in inputs.items()},
            dtype_dict={name: str(a.dtype) for name, a in inputs.items()},
            keep_params_in_input=False,
        )
        processor = tvm.get_global_func("target.llvm_get_system_cpu")()
        target = tvm.target.Target({"kind": "llvm", "mcpu": str(processor)})
        tvm.compile(model, target=target).export_library(str(folder / "model.so"))

    def run(self) -> list[np.ndarray]:
        found = self._main(*self._inputs)
        return [found.numpy()] if hasattr(found, "numpy") else [tensor.numpy() for tensor in found]


class Iree:
    """Compiled for this processor at -O3; the threads are those of IREE's task system."""

    def __init__(self, folder: Path, inputs: Arrays, threads: int) -> None:
        runtime = import_module("iree.runtime")
        self.version = version("iree-base-runtime")
        runtime.flags.parse_flags(f"--task_topology_group_count={threads}")
        config = runtime.Config("local-task")
        program = runtime.VmModule.mmap(config.vm_instance, str(folder / "model.vmfb"))
        module = runtime.load_vm_module(program, config)
        name = next(n for n in program.function_names if not n.startswith("__") and not n.endswith("$async"))
        self._main = module[name]
        self._inputs = [runtime.asdevicearray(config.device, a) for a in inputs.values()]

    @staticmethod
    def convert(folder: Path, inputs: Arrays) -> None:
        tools = Path(sys.executable).parent
        subprocess.run([tools / "iree-import-onnx", MODEL, "-o", "model.mlir"], cwd=folder, check=True)
        options = (
            "--iree-hal-target-device=local",
            "--iree-hal-local-target-device-backends=llvm-cpu",
            "--iree-llvmcpu-target-cpu=host",
            "--iree-opt-level=O3",
        )
        subprocess.run([tools / "iree-compile", "model.mlir", *options, "-o", "model.vmfb"], cwd=folder, check=True)

    def run(self) -> list[np.ndarray]:
        found = self._main(*self._inputs)
        return [np.asarray(array) for array in (found if isinstance(found, (tuple, list)) else (found,))]


class Tinygrad:
    """tinygrad's JIT with its C renderer."""

    def __init__(self, folder: Path, inputs: Arrays, threads: int) -> None:
        tinygrad = import_module("tinygrad")
        import_module("tinygrad.helpers").NUM_CPU_THREADS.value = threads
        self.version = version("tinygrad")
        runner = import_module("tinygrad.nn.onnx").OnnxRunner(folder / MODEL)

        def everything(**tensors: Any) -> list[Any]:
            return [tensor.contiguous().realize() for tensor in runner(tensors).values()]

        self._main = tinygrad.TinyJit(everything)
        self._inputs = {name: tinygrad.Tensor(a).realize() for name, a in inputs.items()}
        for _ in range(2):  # the JIT records in the second run and replays from the third on
            self.run()

    def run(self) -> list[np.ndarray]:
        return [tensor.numpy() for tensor in self._main(**self._inputs)]


ENGINES: dict[str, type[Any]] = {
    "gpucomp": Gpucomp,
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "ncnn": Ncnn,
    "mnn": Mnn,
    "torch": Torch,
    "inductor": Inductor,
    "tvm": Tvm,
    "iree": Iree,
    "tinygrad": Tinygrad,
    "zentorch": Zentorch,
    "xnnpack": Xnnpack,
}

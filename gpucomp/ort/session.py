"""``InferenceSession``: a model and its runs, with onnxruntime's methods, results and exceptions."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from onnx import GraphProto

from gpucomp.errors import GpucompError, InputError, ModelError, RunStoppedError
from gpucomp.frontend.onnx.loader import read
from gpucomp.ort import model as models
from gpucomp.ort import providers as known
from gpucomp.ort.binding import IOBinding
from gpucomp.ort.enums import OrtAllocatorType, OrtMemType
from gpucomp.ort.exceptions import FAILURES, Fail, InvalidArgument, NoSuchFile, error, theirs, translated
from gpucomp.ort.model import ModelMetadata, NodeArg, tensor_text
from gpucomp.ort.options import ENTRIES, RunOptions, SessionOptions
from gpucomp.ort.profiling import Profile
from gpucomp.ort.programs import Programs, of_file
from gpucomp.ort.values import OrtMemoryInfo, OrtValue
from gpucomp.runtime.executable import Executable
from gpucomp.runtime.options import PLAIN, Options

COMPILED = ".gpuc"
TERMINATED = "Exiting due to terminate flag being set to true."
Callback = Callable[[list[Any], Any, str], None]


class Session:
    """What ``InferenceSession`` and programs' own classes of onnxruntime have in common."""

    _inputs: list[NodeArg]
    _outputs: list[NodeArg]

    def __init__(self, enable_fallback: bool = True) -> None:
        self._enable_fallback = enable_fallback

    def enable_fallback(self) -> None:
        """Without effect: a run that fails on one device is not tried on another."""
        self._enable_fallback = True

    def disable_fallback(self) -> None:
        """Without effect: a run that fails on one device is not tried on another."""
        self._enable_fallback = False

    def get_inputs(self) -> list[NodeArg]:
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        return list(self._outputs)


class InferenceSession(Session):
    """A model that is compiled when the session is made, and its runs, from any number of threads at once.

    ``path_or_bytes`` is an ONNX file, its bytes, or a ``.gpuc`` file that gpucomp compiled before. The first of ``providers``
    that is here decides the device: ``CPUExecutionProvider``, ``CUDAExecutionProvider``, or ``GpucompExecutionProvider`` with
    options ``target``, ``precision``, ``keep_fp32``, ``records`` and ``specialise``. What ``sess_options`` do is in
    ``gpucomp.ort.options.TABLE``.

    Raises ``NoSuchFile``, ``InvalidProtobuf``, ``InvalidGraph``, ``NotImplemented`` (the message names the node and the reason),
    ``EPFail`` for a missing device or compiler, ``InvalidArgument`` for wrong options, and ``TypeError`` for another model.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: known.Given | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(bool(int(kwargs.get("enable_fallback", 1))))
        if not isinstance(path_or_bytes, (str, bytes, os.PathLike)):
            raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")
        if isinstance(path_or_bytes, str) and not path_or_bytes:
            raise TypeError("a model's path or its bytes expected, found an empty string")
        if isinstance(path_or_bytes, bytes) and not path_or_bytes:
            raise error(InvalidArgument, "No graph was found in the protobuf.")
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise TypeError(f"sess_options: SessionOptions expected, found {type(sess_options).__name__}")
        self._options = (sess_options or SessionOptions()).copied()
        self._model = path_or_bytes if isinstance(path_or_bytes, bytes) else Path(path_or_bytes)
        self._choose(providers if providers is not None else self._options.providers or None, provider_options)
        self._profile = Profile(self._options.profile_file_prefix) if self._options.enable_profiling else None
        self._profile_began_ns = self._profile.began_ns if self._profile is not None else 0
        with translated():
            self._load()

    def _choose(self, providers: known.Given | None, options: Sequence[Mapping[Any, Any]] | None) -> None:
        chosen = known.normalized(providers, options)
        self._chosen = chosen or {known.CPU: {}}
        self._arguments = known.arguments(self._chosen)
        for entry in ENTRIES:
            if entry in self._options.entries:
                self._arguments[entry.removeprefix("gpucomp.")] = self._options.entries[entry]

    def _load(self) -> None:
        threads = max(0, self._options.intra_op_num_threads)
        self._one: Executable | None = None
        if isinstance(self._model, Path) and self._model.suffix == COMPILED:
            if not self._model.exists():
                raise error(NoSuchFile, f"Load model from {self._model} failed. File doesn't exist")
            self._one = of_file(self._model, threads)
            self._meta = ModelMetadata()
            self._chosen, self._arguments = {known.provider_of(self._one.target): {}}, {"target": self._one.target}
            self._overridable: list[NodeArg] = []
            self._inputs, self._outputs = models.of_specs(self._one.inputs), models.of_specs(self._one.outputs)
        else:
            proto, _ = read(self._model)
            graph = proto.graph
            fixed = self._fixed(graph)
            self._programs = Programs(self._model, proto, self._arguments, threads=threads, fixed=fixed)
            first = self._programs.first
            self._meta = models.metadata_of(proto)
            self._inputs, self._overridable = models.inputs_of(graph, fixed), models.overridable(graph)
            self._outputs = models.outputs_of(graph, fixed, first.outputs if first is not None else ())
        self._names = [arg.name for arg in self._outputs]
        self._inputs_by_name = {arg.name: arg for arg in self._inputs}
        self._dtypes = {arg.name: arg.dtype for arg in self._inputs if arg.is_tensor}
        self._texts = {name for name, dtype in self._dtypes.items() if dtype.hasobject}
        if path := self._options.optimized_model_filepath:
            self._save(path)

    def _fixed(self, graph: GraphProto) -> dict[str, int]:
        """Sizes of dimensions by their names in the file."""
        dims = [dim for info in graph.input for dim in info.type.tensor_type.shape.dim]
        denoted = self._options.denoted
        found = {dim.dim_param: denoted[dim.denotation] for dim in dims if dim.denotation in denoted and dim.dim_param}
        return found | self._options.sizes

    def _save(self, path: str) -> None:
        exe = self._one or self._programs.first
        if exe is None or Path(path).suffix != COMPILED:
            told = (
                f"a file that ends in {COMPILED} expected"
                if exe is not None
                else "the model is compiled in its first run"
            )
            warnings.warn(f"optimized_model_filepath: nothing is written to {path}: {told}", stacklevel=5)
        else:
            exe.save(path)

    # what the model is

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The inputs that have a value in the file. Here they are constants: a run cannot give them others."""
        return list(self._overridable)

    def get_modelmeta(self) -> ModelMetadata:
        return self._meta

    def get_session_options(self) -> SessionOptions:
        return self._options

    def get_providers(self) -> list[str]:
        return list(self._chosen)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {name: dict(options) for name, options in self._chosen.items()}

    def set_providers(
        self, providers: known.Given | None = None, provider_options: Sequence[Mapping[Any, Any]] | None = None
    ) -> None:
        """Compile the model again for other providers. Raises as the constructor."""
        before = dict(vars(self))
        try:
            self._choose(providers, provider_options)
            with translated():
                self._load()
        except BaseException:  # the session stays what it was
            vars(self).update(before)
            raise

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        return [self._memory() for _ in self._inputs]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        return [self._memory() for _ in self._outputs]

    def _memory(self) -> OrtMemoryInfo:
        return OrtMemoryInfo("Cpu", OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, OrtMemType.DEFAULT)

    # runs

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """The outputs of these names, or all, as new arrays, lists and dicts.

        Raises ``ValueError`` for a missing input, ``InvalidArgument`` for a wrong one or a wrong name, ``NotImplemented``
        for shapes or values that cannot be compiled, and ``Fail`` for a run that ``run_options`` ended.
        """
        names = self._wanted(output_names)
        found = self._run(self._feed(input_feed), run_options)
        return [found[name] for name in names]

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """As ``run``, with values in the place of arrays; results stay on the device."""
        names = self._wanted(output_names)
        feed = self._feed({name: value.value for name, value in input_dict_ort_values.items()})
        found = self._run(feed, run_options, on_device=True)
        return [OrtValue(found[name]) for name in names]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callback,
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """As ``run`` in another thread, which then calls ``callback(results, user_data, error)``: no results if it failed."""
        if not callable(callback):
            raise TypeError(f"callback: a function expected, found {callback!r}")
        names, feed = self._wanted(output_names), self._feed(input_feed)

        def told(done: Future[dict[str, Any]]) -> None:
            failed = done.exception()
            found = {} if failed is not None else done.result()
            callback(
                [found[name] for name in names if failed is None], user_data, "" if failed is None else str(failed)
            )

        self._pool.submit(self._run, feed, run_options).add_done_callback(told)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max(2, os.cpu_count() or 1), "gpucomp-ort")

    def io_binding(self) -> IOBinding:
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run with bound inputs, into bound outputs. Raises ``RuntimeError``; ``ValueError`` for another session's binding."""
        if iobinding.session is not self:
            raise ValueError("IOBinding must be used with the session that created it.")
        if not iobinding.outputs:
            raise RuntimeError("Error in execution: At least one output should be requested.")
        into = {name: array for name, (_, array) in iobinding.outputs.items() if array is not None}
        on_device = not into and all(device != "cpu" for device, _ in iobinding.outputs.values())
        try:
            self._wanted(list(iobinding.outputs))
            feed = self._feed(iobinding.inputs)
            iobinding.results = self._run(feed, run_options, outputs=into, on_device=on_device)
        except FAILURES as why:
            raise RuntimeError(f"Error in execution: {why}") from why

    def _wanted(self, names: Sequence[str] | None) -> Sequence[str]:
        found = [] if names is None else list(names)  # an iterator gives them once
        if isinstance(names, str) or not all(isinstance(name, str) for name in found):
            raise TypeError("run(): incompatible function arguments: a sequence of output names expected")
        for name in found:
            if name not in self._names:
                raise error(InvalidArgument, f"Invalid output name:{name}")
        return found or self._names

    def _feed(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs as gpucomp takes them: lists become arrays, and what is given as a text becomes one. Of names that are no
        inputs, those whose value is ``None`` are left out.
        """
        names = given.keys()
        missing = [arg.name for arg in self._inputs if arg.name not in names and not arg.type.startswith("optional(")]
        if missing:
            raise ValueError(f"Required inputs ({missing}) are missing from input feed ({list(names)}).")
        feed = {name: value for name, value in given.items() if value is not None or name in self._inputs_by_name}
        for name, value in feed.items():
            if type(value) is np.ndarray and value.dtype.kind not in "OS":
                continue
            if isinstance(value, OrtValue):
                feed[name] = value = value.value
            if name in self._dtypes and not hasattr(value, "dtype"):
                if not isinstance(value, (list, tuple)):
                    raise RuntimeError(f"Unable to handle object of type {type(value)}")
                feed[name] = value = _array_of(value, self._dtypes[name])
            if isinstance(value, np.ndarray) and value.dtype.kind in "OS" and name in self._texts:
                feed[name] = _texts(value)
        return feed

    def _run(
        self,
        feed: dict[str, Any],
        options: RunOptions | None,
        *,
        outputs: Mapping[str, Any] | None = None,
        on_device: bool = False,
    ) -> dict[str, Any]:
        if options is not None and not isinstance(options, RunOptions):
            raise TypeError(f"run_options: RunOptions expected, found {type(options).__name__}")
        how = PLAIN
        if options is not None or outputs or on_device:
            stop = options.begin() if options is not None else None
            how = Options(outputs or {}, None, stop, on_device and not self._on_cpu, None)
            if options is not None and options.terminate:
                raise error(Fail, TERMINATED)

        def work(exe: Executable, feed: Mapping[str, Any]) -> dict[str, Any]:
            return exe._run(feed, how)

        run = work if self._profile is None else self._profile.noted(work)
        try:
            found: dict[str, Any] = run(self._one, feed) if self._one is not None else self._programs.run(feed, run)
            return found
        except InputError as why:
            raise error(InvalidArgument, f"{self._told(feed)}{why}") from why
        except RunStoppedError as why:
            raise error(Fail, f"{TERMINATED} {why}") from why
        except ModelError as why:  # values that do not fit each other
            raise error(Fail, str(why)) from why
        except GpucompError as why:
            raise theirs(why) from why

    @property
    def _on_cpu(self) -> bool:
        return str(self._arguments["target"]).partition(":")[0] == "cpu"

    def _told(self, feed: Mapping[str, Any]) -> str:
        """What onnxruntime says of a wrong input, before what gpucomp says."""
        for name, value in feed.items():
            if name not in self._inputs_by_name:
                return f"Invalid input name: {name}: "
            arg = self._inputs_by_name[name]
            if not arg.is_tensor or not isinstance(getattr(value, "dtype", None), np.dtype):
                continue
            if (found := tensor_text(value.dtype)) != arg.type:
                return f"Unexpected input data type. Actual: ({found}) , expected: ({arg.type}): "
            if arg.shape and len(value.shape) != len(arg.shape):
                return f"Invalid rank for input: {name} Got: {len(value.shape)} Expected: {len(arg.shape)}: "
            pairs = enumerate(zip(value.shape, arg.shape, strict=False))
            wrong = [(k, got, wanted) for k, (got, wanted) in pairs if isinstance(wanted, int) and got != wanted]
            if wrong:
                listed = " ".join(f"index: {k} Got: {got} Expected: {wanted}" for k, got, wanted in wrong)
                return f"Got invalid dimensions for input: {name} for the following indices {listed}: "
        return ""

    # profiles

    def get_profiling_start_time_ns(self) -> int:
        """When profiling began, in nanoseconds of the machine's clock; 0 if it did not."""
        return self._profile_began_ns

    def end_profiling(self) -> str:
        """Write the profile, and return its file's name; empty if ``enable_profiling`` was not set."""
        if self._profile is None:
            return ""
        profile, self._profile = self._profile, None
        return profile.written()

    def __reduce__(self) -> NoReturn:
        raise TypeError("cannot pickle 'onnxruntime.InferenceSession' object")


def _array_of(value: Any, dtype: np.dtype) -> np.ndarray:
    """A list's numbers as an array. Raises ``RuntimeError`` if they are none of this type and one shape."""
    try:
        return np.asarray(value, dtype)
    except (ValueError, TypeError, OverflowError) as why:
        raise RuntimeError(f"Could not create tensor from given input list: {why}") from why


def _texts(array: np.ndarray) -> np.ndarray:
    """Strings, of bytes in UTF-8 or of any objects, as onnxruntime makes them."""
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8")
    if all(isinstance(one, str) for one in array.flat):
        return array
    return np.array([str(one) for one in array.flat], object).reshape(array.shape)

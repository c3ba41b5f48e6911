"""Options of sessions and runs. ``TABLE`` says what each of onnxruntime's does here; the documentation shows it."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakSet

from gpucomp.lazy_dataclass import dataclass
from gpucomp.ort.enums import ExecutionMode, ExecutionOrder, GraphOptimizationLevel
from gpucomp.ort.exceptions import NotImplemented as NotHere
from gpucomp.ort.exceptions import error
from gpucomp.runtime.stopping import Stop

HONOURED, WITHOUT_EFFECT, REFUSED = "honoured", "without effect", "refused"
MOST_KEY, MOST_ENTRY = 1024, 8192  # characters of an entry's key and value, as in onnxruntime


@dataclass(frozen=True)
class Row:
    """What an option or a method of ``owner`` does here, and in which way."""

    owner: str
    name: str
    how: str
    what: str
    default: Any = None


S, R = "SessionOptions", "RunOptions"
TABLE = (
    Row(S, "intra_op_num_threads", HONOURED, "most processor threads of a run; 0: GPUCOMP_THREADS, or all", 0),
    Row(S, "inter_op_num_threads", WITHOUT_EFFECT, "operators run one after the other, each by all threads", 0),
    Row(S, "execution_mode", WITHOUT_EFFECT, "operators run one after the other", ExecutionMode.ORT_SEQUENTIAL),
    Row(S, "execution_order", WITHOUT_EFFECT, "the compiler decides the order", ExecutionOrder.DEFAULT),
    Row(
        S,
        "graph_optimization_level",
        WITHOUT_EFFECT,
        "a model is compiled in one way, at every level",
        GraphOptimizationLevel.ORT_ENABLE_ALL,
    ),
    Row(
        S,
        "optimized_model_filepath",
        HONOURED,
        "to a name that ends in .gpuc the compiled model is written; a session reads it",
        "",
    ),
    Row(S, "enable_profiling", HONOURED, "end_profiling writes the runs, and the kernels of the last one", False),
    Row(S, "profile_file_prefix", HONOURED, "what that file's name begins with", "onnxruntime_profile_"),
    Row(S, "enable_cpu_mem_arena", WITHOUT_EFFECT, "memory is planned by the compiler", True),
    Row(S, "enable_mem_pattern", WITHOUT_EFFECT, "memory is planned by the compiler", True),
    Row(S, "enable_mem_reuse", WITHOUT_EFFECT, "memory is planned by the compiler", True),
    Row(S, "use_deterministic_compute", WITHOUT_EFFECT, "the same inputs give the same bits on one device", False),
    Row(S, "use_per_session_threads", WITHOUT_EFFECT, "sessions of a process share their threads", True),
    Row(S, "log_severity_level", WITHOUT_EFFECT, "there is no log; GPUCOMP_DEBUG prints what is compiled", -1),
    Row(S, "log_verbosity_level", WITHOUT_EFFECT, "there is no log", 0),
    Row(S, "logid", WITHOUT_EFFECT, "there is no log", ""),
    Row(S, "add_session_config_entry", HONOURED, "kept and given back; entries that begin with gpucomp. are below"),
    Row(S, "add_free_dimension_override_by_name", HONOURED, "the dimension has one size"),
    Row(
        S,
        "add_free_dimension_override_by_denotation",
        HONOURED,
        "as by name, for dimensions that have both",
    ),
    Row(S, "add_initializer", REFUSED, "weights are those of the file"),
    Row(S, "add_external_initializers", REFUSED, "weights are those of the file, or beside it"),
    Row(S, "add_external_initializers_from_files_in_memory", REFUSED, "weights are those of the file, or beside it"),
    Row(S, "register_custom_ops_library", REFUSED, "operators of other libraries: write them as a gpucomp plug-in"),
    Row(S, "add_provider", HONOURED, "as the argument providers of a session"),
    Row(S, "add_provider_for_devices", REFUSED, "there are no plug-in providers"),
    Row(S, "set_provider_selection_policy", REFUSED, "name the providers"),
    Row(S, "set_provider_selection_policy_delegate", REFUSED, "name the providers"),
    Row(S, "set_load_cancellation_flag", WITHOUT_EFFECT, "a compilation is not cancelled"),
    Row(S, "set_ep_context_data_read_func", REFUSED, "there are no EPContext nodes"),
    Row(S, "clear_ep_context_data_read_func", WITHOUT_EFFECT, "there are no EPContext nodes"),
    Row(R, "terminate", HONOURED, "ends runs that have these options, between two kernels", False),
    Row(R, "only_execute_path_to_fetches", WITHOUT_EFFECT, "all outputs are computed", False),
    Row(R, "log_severity_level", WITHOUT_EFFECT, "there is no log", -1),
    Row(R, "log_verbosity_level", WITHOUT_EFFECT, "there is no log", 0),
    Row(R, "logid", WITHOUT_EFFECT, "there is no log", ""),
    Row(R, "add_run_config_entry", WITHOUT_EFFECT, "kept and given back"),
    Row(R, "add_active_adapter", REFUSED, "there are no LoRA adapters"),
)
DEFAULTS = {(row.owner, row.name): row.default for row in TABLE if row.default is not None}
ENTRIES = {  # of a session's configuration
    "gpucomp.target": "what is compiled for, in the place of the provider's: cpu, opencl:pocl, cuda:sm_90a ...",
    "gpucomp.precision": "types that numbers may be rounded to: fp32, tf32, fp16, bf16, mixed",
    "gpucomp.specialise": "never, or background: sizes that are run often are compiled again for themselves",
    "gpucomp.records": "a file or folder of tuning records",
}


class _Options:
    """Attributes with defaults and types; a name that does not exist is an ``AttributeError``."""

    entries: dict[str, str]  # the configuration, as it was given

    if TYPE_CHECKING:  # what ``TABLE`` lists

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self) -> None:
        for (owner, name), default in DEFAULTS.items():
            if owner == type(self).__name__:
                object.__setattr__(self, name, default)
        object.__setattr__(self, "entries", {})

    def __setattr__(self, name: str, value: Any) -> None:
        owner = type(self).__name__
        if (owner, name) not in DEFAULTS:
            raise AttributeError(f"'onnxruntime.{owner}' object has no attribute '{name}'")
        object.__setattr__(self, name, _converted(DEFAULTS[owner, name], value, name))

    def _add(self, key: str, value: str) -> None:
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"two strings expected, found {key!r} and {value!r}")
        if not key or len(key) > MOST_KEY:
            raise RuntimeError(f"Config key is empty or longer than maximum length {MOST_KEY}")
        if len(value) > MOST_ENTRY:
            raise RuntimeError(f"Config value is longer than maximum length: {MOST_ENTRY}")
        self.entries[key] = value

    def _get(self, key: str) -> str:
        if key not in self.entries:
            raise RuntimeError(f"{type(self).__name__} does not have configuration with key: {key}")
        return str(self.entries[key])

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"cannot pickle 'onnxruntime.{type(self).__name__}' object")


def _converted(default: Any, value: Any, name: str) -> Any:
    if isinstance(default, str) and hasattr(value, "__fspath__"):
        value = value.__fspath__()
    kind = type(default)
    if kind is bool or not isinstance(default, int):
        fits = isinstance(value, (bool, int) if kind is bool else str)
    else:
        fits = isinstance(value, int) or hasattr(value, "__index__")
    if not fits:
        raise TypeError(f"{name}: {kind.__name__} expected, found {value!r}")
    try:
        return kind(value)
    except ValueError:  # no member of an enumeration
        raise TypeError(f"{name}: {kind.__name__} expected, found {value!r}") from None


class SessionOptions(_Options):
    """Options of a session, with onnxruntime's names and defaults. ``TABLE`` says what each does here.

    A method that is refused raises ``NotImplemented``; an attribute that does not exist raises ``AttributeError``, and a
    value of another type ``TypeError``.
    """

    sizes: dict[str, int]  # of dimensions, by their names
    denoted: dict[str, int]  # of dimensions, by their denotations
    providers: list[tuple[str, dict[str, str]]]

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "sizes", {})
        object.__setattr__(self, "denoted", {})
        object.__setattr__(self, "providers", [])

    def add_session_config_entry(self, key: str, value: str) -> None:
        self._add(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """The value of an entry. Raises ``RuntimeError`` if there is none."""
        return self._get(key)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Let each dimension of this name in the file have one ``size``."""
        self.sizes[str(name)] = int(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Let each dimension of this denotation in the file have one ``size``."""
        self.denoted[str(denotation)] = int(size)

    def add_provider(self, name: str, options: dict[str, str] | None = None) -> None:
        self.providers.append((name, dict(options or {})))

    def has_providers(self) -> bool:
        return bool(self.providers)

    def set_load_cancellation_flag(self, value: bool) -> None:
        """Without effect: a compilation is not cancelled."""

    def clear_ep_context_data_read_func(self) -> None:
        """Without effect: there are no EPContext nodes."""

    def copied(self) -> SessionOptions:
        """As they are now: a session does not change with them later."""
        made = SessionOptions()
        for name, value in vars(self).items():
            object.__setattr__(made, name, copy.copy(value))
        return made


class RunOptions(_Options):
    """Options of a run. Setting ``terminate`` ends the runs that have these options."""

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "_runs", WeakSet())
        object.__setattr__(self, "_guard", threading.Lock())

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "terminate" and value:
            with self._guard:
                runs = list(self._runs)
            for stop in runs:
                stop.stop()

    def begin(self) -> Stop:
        """What ends a run that begins now."""
        stop = Stop()
        with self._guard:
            self._runs.add(stop)
        if vars(self)["terminate"]:
            stop.stop()
        return stop

    def add_run_config_entry(self, key: str, value: str) -> None:
        self._add(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """The value of an entry. Raises ``RuntimeError`` if there is none."""
        return self._get(key)


def _refused(row: Row) -> Any:
    def method(self: Any, *given: Any, **named: Any) -> NoReturn:
        raise error(NotHere, f"{row.owner}.{row.name}: {row.what}")

    method.__name__, method.__doc__ = row.name, f"Raises ``NotImplemented``: {row.what}."
    return method


def _add_refused(kinds: Sequence[type[_Options]]) -> None:
    for row in TABLE:
        for kind in kinds:
            if row.how == REFUSED and row.owner == kind.__name__:
                setattr(kind, row.name, _refused(row))


_add_refused((SessionOptions, RunOptions))

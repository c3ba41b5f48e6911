"""Operators, rules, kernel passes, engines and samplers from other packages. Nothing is loaded unless the user names it.

A package names a function under the entry point group ``gpucomp.plugins``::

    [project.entry-points."gpucomp.plugins"]
    example = "gpucomp_example:register"

``gpucomp.plugin("example")``, or ``gpucomp --plugin example ...``, imports it and calls it with a ``Plugin``. What the
function adds applies to the whole process. Operators and translators need no method: the decorators ``ops.registry.op``
and ``frontend.onnx.translate.translates`` add them when their module is imported.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points

from gpucomp import lowering
from gpucomp.errors import FOREIGN, GpucompError, UsageError, failed_in, not_searched, quote
from gpucomp.kernel.pipeline import KernelPass
from gpucomp.rewrite import pipeline
from gpucomp.rewrite.rule import Rule
from gpucomp.schedule.space import Family
from gpucomp.targets.back_end import engines_by_body

GROUP = "gpucomp.plugins"
LANGUAGES = ("c", "llvm")  # templates for CUDA and OpenCL; LLVM for the CPU
# what a plug-in's code may raise; ``errors.internal_error`` reports the rest
FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    GpucompError,
)

SAMPLERS: dict[str, str] = {}  # ``package.module:Class`` by name; imported by searches only
_loaded: set[str] = set()
_failed: dict[str, str] = {}  # messages by name


@dataclass
class Plugin:
    """Collects what a plug-in adds. Nothing is added if the plug-in's function raises an error.

    The methods raise ``ValueError`` for what is there already.
    """

    name: str
    rules: list[Rule] = field(default_factory=list)
    kernel_passes: list[KernelPass] = field(default_factory=list)
    engines: list[tuple[str, Family]] = field(default_factory=list)
    samplers: dict[str, str] = field(default_factory=dict)

    def add_rule(self, rule: Rule) -> None:
        """A rewrite rule. It runs in the pass ``plugins`` after ``canonicalize``, together with that pass's own rules."""
        _check_kind(rule, Rule, "a function with the decorator @rule")
        built_in = [r for one in pipeline.PIPELINE for r in one.rules]
        _check_new(rule.name, [r.name for r in (*built_in, *pipeline.ADDED_RULES, *self.rules)], "a rule")
        self.rules.append(rule)

    def add_kernel_pass(self, one: KernelPass) -> None:
        """A pass over kernels. It runs after those of ``lowering.KERNEL_PASSES``."""
        _check_kind(one, KernelPass, "a KernelPass")
        known = (*lowering.KERNEL_PASSES, *lowering.ADDED_PASSES, *self.kernel_passes)
        _check_new(one.name, [other.name for other in known], "a kernel pass")
        self.kernel_passes.append(one)

    def add_engine(self, language: str, family: Family) -> None:
        """An engine for kernels with the family's kind of body. It is preferred to those that are there.

        ``language`` is ``c`` (a template for CUDA and OpenCL) or ``llvm`` (the CPU). The template of a family in another
        package is ``package:folder/kernel.j2``.
        """
        _check_kind(family, Family, "a Family")
        if language not in LANGUAGES:
            raise ValueError(f"language {language!r}: one of {', '.join(LANGUAGES)} expected")
        known = engines_by_body(language)
        if family.body not in known:
            raise ValueError(
                f"no kernels of {family.body.__name__}: one of {', '.join(b.__name__ for b in known)} expected"
            )
        titles = [f.title for engines in known.values() for f in engines] + [f.title for _, f in self.engines]
        _check_new(family.title, titles, "an engine")
        self.engines.append((language, family))

    def add_sampler(self, name: str, path: str) -> None:
        """A sampler that ``--sampler`` knows as ``name``. ``path`` is ``package.module:Class``; a search imports it."""
        module, _, attribute = path.partition(":")
        if not module or not attribute:
            raise ValueError(f"sampler {name!r}: package.module:Class expected, got {path!r}")
        _check_new(name, [*SAMPLERS, *self.samplers], "a sampler")
        self.samplers[name] = path


def plugin(name: str) -> None:
    """Load the installed plug-in ``name``. A second call does nothing.

    Raises ``UsageError`` (GPC2014) if no installed package has such a plug-in, if several have, or if its code fails. A second
    call for one that failed raises the same error: part of its modules may have been imported.
    """
    if name in _loaded:
        return
    if name in _failed:
        raise UsageError(_failed[name], code="GPC2014")
    found = _entry_point(name)
    FOREIGN[found.module.partition(".")[0]] = f"plug-in {quote(name)}"
    made = Plugin(name)
    try:
        found.load()(made)
    except FAILURES as error:
        place, others = failed_in(error, found.module.partition(".")[0]), ", ".join(sorted(map(quote, _loaded)))
        _failed[name] = (
            f"plug-in {quote(name)} ({found.value}) cannot be loaded: {type(error).__name__}: {error}"
            + f" ({place})" * bool(place)
            + not_searched(error, found.module)
            + f"; loaded before it: {others}" * bool(others)
        )
        raise UsageError(_failed[name], code="GPC2014") from error
    pipeline.ADDED_RULES.extend(made.rules)
    lowering.ADDED_PASSES.extend(made.kernel_passes)
    for language, family in made.engines:
        engines = engines_by_body(language)
        engines[family.body] = (family, *engines[family.body])
    SAMPLERS.update(made.samplers)
    _loaded.add(name)


def loaded() -> bool:
    """Whether a plug-in was loaded in this process."""
    return bool(_loaded)


def installed() -> list[str]:
    """The names of all plug-ins that installed packages have."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def _entry_point(name: str) -> EntryPoint:
    found = list(dict.fromkeys(entry_points(group=GROUP, name=name)))
    if len(found) == 1:
        return found[0]
    if not found:
        known = ", ".join(installed()) or "none"
        raise UsageError(
            f"no plug-in {quote(name)} is installed; installed: {known}; install the package that has it "
            "with python -m pip install",
            code="GPC2014",
        )
    several = ", ".join(sorted(point.value for point in found))
    raise UsageError(f"{len(found)} packages have a plug-in {quote(name)}: {several}", code="GPC2014")


def _check_kind(given: object, kind: type, expected: str) -> None:
    if not isinstance(given, kind):
        raise TypeError(f"{expected} expected, got {getattr(given, '__qualname__', given)!r}")


def _check_new(name: str, known: list[str], what: str) -> None:
    if name in known:
        raise ValueError(f"there is {what} of this name already: {name!r}")

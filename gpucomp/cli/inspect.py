"""``gpucomp inspect``: what a model compiles to, from its graph to its kernels."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucomp.cli import show, tensors
from gpucomp.cli.opening import costs_of, has_compiler, lowered_model, model_to_show, needs_model, open_model
from gpucomp.cli.options import ModelOptions, model_options, page
from gpucomp.cli.progress import progress
from gpucomp.cli.tables import exported
from gpucomp.errors import UsageError, plain, quote, several
from gpucomp.extras import install
from gpucomp.files import write
from gpucomp.runtime.any_shape import AnyShapeExecutable
from gpucomp.runtime.kernel_info import kernels_of

if TYPE_CHECKING:
    from gpucomp.compiler import Lowered
    from gpucomp.device.target import Target
    from gpucomp.report.journey import Journey

GRAPHS = ("before", "after", "kernels")


class _Inspect(click.Command):
    """Knows that ``--graph`` alone takes no value: in ``--graph m.onnx -o FILE`` the model is none."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        drawn = any(arg.startswith(("-o", "--output")) for arg in args)
        for k, (arg, value) in enumerate(pairwise(args)):
            if arg == "--graph" and value not in GRAPHS and (drawn or value.endswith((".onnx", ".gpuc"))):
                args = [*args[:k], "--graph=kernels", *args[k + 1 :]]
        return super().parse_args(ctx, args)


@click.command(cls=_Inspect)
@model_options
@click.option(
    "--kernels", is_flag=True, help="List every kernel: its operators, its schedule, and why no more is fused into it."
)
@click.option("--sources", type=click.Path(path_type=Path), metavar="DIR", help="Write the kernels' sources to DIR.")
@click.option(
    "--graph",
    type=click.Choice(GRAPHS),
    is_flag=False,
    flag_value="kernels",
    help="Print the graph before or after the passes. Without a value: draw the kernels as a page, see --output.",
)
@page("Where --graph draws the kernels and what is fused in them: one HTML page with pan and search.")
@click.option("--passes", is_flag=True, help="Print what every pass changed.")
@click.option(
    "--node",
    metavar="NAME",
    help="Print what a node became, from the graph to its kernel. NAME is the node's or an output's; * and ? match.",
)
@click.option(
    "--why",
    is_flag=True,
    help="Print what the analytic model of a GPU says of every kernel (CUDA, AMD and Mali; for other targets: --node '*').",
)
@click.option("--spaces", is_flag=True, help="Print how many schedules every distinct kernel has.")
@click.option(
    "--regret",
    is_flag=True,
    help="Print where a program for any shape changes the schedule of a kernel, and how far that may be from the fastest.",
)
@exported()
def inspect(
    how: ModelOptions,
    kernels: bool,
    sources: Path | None,
    graph: str | None,
    output: Path | None,
    passes: bool,
    node: str | None,
    why: bool,
    spaces: bool,
    regret: bool,
) -> None:
    """Show what MODEL (.onnx or .gpuc) compiles to: its graph, its passes, its kernels and their sources.

    Without an option it prints a summary.
    """
    if (graph == "kernels") != (output is not None):
        raise UsageError("the page of kernels needs both --graph and a file: give --graph -o FILE.html", code="GPC2028")
    if output is not None:
        _draw_graph(how, output)
        if not (kernels or passes or why or spaces or regret) and sources is None and node is None:
            return
        graph = None
    if sources is not None:
        _make_folder(sources)
    if node is not None:
        _show_node(how, node, source=sources is None)
        if not (graph or passes or kernels or why or spaces or regret) and sources is None:
            return
    if graph or passes:
        if how.model.suffix == ".gpuc":
            options = (f" --graph {graph}" if graph else "") + (" --passes" if passes else "")
            raise needs_model(how, "graph", f"inspect MODEL.onnx{options}")
        _show_graph(how, graph, passes)
        if not (kernels or why or spaces or regret) and sources is None:
            return
    if why or spaces:
        from gpucomp.cli import costs

        options = (" --why" if why else "") + (" --spaces" if spaces else "")
        lowered, device = lowered_model(how, ("expressions of its kernels", f"inspect MODEL.onnx{options}"))
        if spaces:
            click.echo("\n".join(costs.spaces(lowered, device)))
        if why:
            compiled = has_compiler(device)
            found = costs_of(how.model, lowered, device, compare=True, compiled=compiled)
            click.echo("\n".join(costs.why(found, device)))
            if not compiled:
                click.echo(
                    f"registers are estimated by the engines' formulas, because NVRTC is missing: {install('nvrtc')}"
                )
        if not (kernels or regret) and sources is None:
            return
    _show_executable(how, kernels, regret, sources)


def _show_executable(how: ModelOptions, kernels: bool, regret: bool, sources: Path | None) -> None:
    exe, choices = model_to_show(how)
    if kernels and isinstance(exe, AnyShapeExecutable):
        click.echo("\n".join([*show.open_kernels(exe), *show.open_summary(exe)]))
    elif kernels:
        click.echo("\n".join([*show.kernels(exe.kernels), *show.without_record(choices), *show.memory(exe)]))
    elif sources is None and not regret:
        click.echo("\n".join(show.summary(exe)))
    if regret:
        lines = (
            show.variants(exe)
            if isinstance(exe, AnyShapeExecutable)
            else ["no size is open: kernels have one schedule"]
        )
        click.echo("\n".join(lines))
    if sources is not None:
        _write_sources(exe.contents().sources, exe.target, sources)


def _write_sources(texts: Mapping[str, str], target: str, folder: Path) -> None:
    for name, text in sorted(texts.items()):  # names are generated: none can be a path
        write(folder / name, text)
    click.echo(f"{len(texts)} sources -> {folder}")
    if target.startswith("cuda"):
        from gpucomp.targets import cuda

        write(folder / cuda.PRELUDE, cuda.prelude())
        click.echo(f"{cuda.PRELUDE} is compiled in front of each: it defines the functions gc_*")
    if target.startswith("hip"):
        from gpucomp.targets import hip_text

        write(folder / hip_text.PRELUDE, hip_text.prelude())
        write(folder / hip_text.MATHEMATICS, hip_text.mathematics(circular=True))
        click.echo(
            f"{hip_text.PRELUDE} is compiled in front of each: it defines the functions gc_*. {hip_text.MATHEMATICS} follows it "
            "where a kernel calls one of its functions"
        )


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write to {quote(path)}: {error.strerror}", code="GPC2005") from None


def _show_graph(how: ModelOptions, graph: str | None, passes: bool) -> None:
    from gpucomp import targets
    from gpucomp.compiler import schedule, silent
    from gpucomp.frontend import onnx as frontend
    from gpucomp.ir.passes import PassRecord
    from gpucomp.ir.printer import format_graph
    from gpucomp.lowering import kernels_of, rewritten
    from gpucomp.schedule.records import picks_of

    records: list[PassRecord] = []
    with progress(f"rewriting {how.model.name}"):
        before, _ = frontend.load_split(
            how.model, shapes=tensors.parse_shapes(how.shapes), constants=tensors.parse_constants(how.constants)
        )
        after = before
        if graph != "before" or passes:
            target = targets.resolve(how.target_name)
            after = rewritten(before, target, how.precision, how.keep_fp32, observer=records.append)
            if passes:
                steps = kernels_of(after, target, how.precision, how.keep_fp32, None, observer=records.append)
                schedule(steps, target, silent, picks_of(how.records), records.append)
    if graph:
        click.echo(format_graph(before if graph == "before" else after), nl=False)
    if passes:
        click.echo("\n".join(show.passes(records)))


def _show_compiled_node(how: ModelOptions, pattern: str, *, source: bool) -> None:
    """The kernels and host operators that compute a node, which is all that a compiled model knows of it."""
    exe = open_model(how)
    contents = exe.contents()
    infos = kernels_of(contents.plan)
    launches = [(k, info) for k, info in enumerate(infos, start=1) if any(fnmatchcase(n, pattern) for n in info.nodes)]
    hosted = [(operator, name) for operator, name in exe.dynamic_operators if fnmatchcase(name, pattern)]
    if not launches and not hosted:
        lost = needs_model(how, "node that was folded or rewritten", f"inspect MODEL.onnx --node {quote(pattern)}")
        raise UsageError(
            f"--node {quote(pattern)}: no kernel computes a node of this name; {lost.message}", code="GPC2013"
        )
    files = {kernel.name: kernel.source for kernel in contents.plan.kernels}
    for k, info in launches:
        text = contents.sources.get(files.get(info.entry, ""), "") if source else ""
        click.echo("\n".join(show.launch(k, len(infos), info, text)))
    for operator, name in hosted:
        click.echo(f"{plain(operator)} at node {quote(name)} runs on the host: its shapes depend on values")


def _followed(how: ModelOptions, option: str) -> tuple[Journey, Lowered, Target]:
    """The model as kernels, with the way of each of its nodes."""
    from gpucomp.ir.trail import followed
    from gpucomp.report.journey import Journey

    journey = Journey()
    with followed(journey.replaced):
        return journey, *lowered_model(how, ("nodes", f"inspect MODEL.onnx {option}"), journey.watch)


def _draw_graph(how: ModelOptions, output: Path) -> None:
    from gpucomp.frontend import onnx as frontend
    from gpucomp.report import graph

    journey, lowered, target = _followed(how, f"--graph -o {output}")
    nodes = list(frontend.nodes_in(how.model))
    host = frontend.names_in(lowered.dynamic_model) if lowered.dynamic_model else ()
    write(output, graph.text(lowered, journey, how.model.name, target.name, nodes, host))
    click.echo(f"{several(len(nodes), 'node')}, {several(len(lowered.steps), 'kernel')} -> {output}")


def _show_node(how: ModelOptions, pattern: str, *, source: bool) -> None:
    if how.model.suffix == ".gpuc":
        _show_compiled_node(how, pattern, source=source)
        return
    from gpucomp.cli import journey as text
    from gpucomp.frontend import onnx as frontend

    nodes = list(frontend.nodes_in(how.model))
    names = text.chosen(pattern, nodes, how.model)
    journey, lowered, target = _followed(how, f"--node {quote(pattern)}")
    data_dependent = frontend.names_in(lowered.dynamic_model) if lowered.dynamic_model else set()
    for number, name in enumerate(names):
        if number:
            click.echo("\n")
        click.echo("\n".join(text.of_node(name, nodes, journey, lowered, target, name in data_dependent, source)))

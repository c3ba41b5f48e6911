"""``gpucomp serve``: a model server. ``gpucomp export``: a model for another server."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click

from gpucomp import __version__, config
from gpucomp.cli.options import TARGET_HELP
from gpucomp.errors import DeviceError
from gpucomp.extras import install

BODIES = 4  # of the largest requests, or their answers, fit in memory


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        prefix = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        return prefix + record.getMessage()


def _log(access_log: bool) -> None:
    """Notes of the server go to stderr, and each request if that is wanted."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # clients that send no HTTP are no news
    names = ["gpucomp.serving", *(["uvicorn.access"] if access_log else [])]
    for name in names:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)


@click.command()
@click.argument("models", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    metavar="PORT",
    help="0 takes a free one, which is printed.",
)
@click.option("--target", metavar="TARGET", help=TARGET_HELP)
@click.option(
    "--max-batch",
    type=click.IntRange(1, 4096),
    default=1,
    show_default=True,
    metavar="ROWS",
    help="Join waiting requests into runs of up to so many rows, where it is proven that rows do not change each other.",
)
@click.option(
    "--max-body",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    metavar="MIB",
    help="Refuse requests whose body is larger.",
)
@click.option(
    "--queue",
    type=click.IntRange(1),
    default=128,
    show_default=True,
    metavar="N",
    help="Refuse requests for a model for which so many wait.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="S",
    help="Give up requests after so many seconds; they may ask for less.",
)
@click.option(
    "--drain",
    type=click.IntRange(0),
    default=30,
    show_default=True,
    metavar="S",
    help="At the end, wait so many seconds for requests that run.",
)
@click.option(
    "--control/--no-control",
    default=None,
    help="Whether clients may load and unload models. Default: only if no other machine can reach the server.",
)
@click.option("--access-log", is_flag=True, help="Write a line for each request to stderr.")
def serve(
    models: Path,
    host: str,
    port: int,
    target: str | None,
    max_batch: int,
    max_body: int,
    queue: int,
    timeout: float,
    drain: int,
    control: bool | None,
    access_log: bool,
) -> None:
    """Serve the models of the folder MODELS over HTTP, by the Open Inference Protocol (KServe v2).

    SIGTERM or Ctrl-C ends the server, after the requests that it has.
    """
    try:
        from gpucomp.serving import server
        from gpucomp.serving.limits import Limits
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "prometheus_client"):
            raise
        raise DeviceError(
            f"{error.name} is not installed, and the server needs it: {install('serve')}", code="GPC5003"
        ) from None
    _log(access_log)
    local = server.is_loopback(host)
    if not local:
        click.echo(f"warning: everybody who reaches {host} can use these models; there is no password", err=True)
    body = max_body << 20
    limits = Limits(body=body, bodies=max(Limits.bodies, BODIES * body), queue=queue, timeout=timeout, drain=drain)
    made = server.make_server(
        models,
        target=target or config.current().target,
        max_batch=max_batch,
        limits=limits,
        control=local if control is None else control,
        access_log=access_log,
        version=__version__,
    )
    server.serve(made, server.listening(host, port), lambda address: click.echo(f"serving {models} at {address}"))

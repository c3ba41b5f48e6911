"""The ``gpucomp`` command: exit codes, and errors as one line. The commands are in ``commands``.

    0 ok   1 other   2 usage   3 bad model, artefact or records   4 unsupported   5 device   6 accuracy
    8 a search found nothing right   130 interrupted

Results go to stdout, everything else to stderr. A traceback is printed only with ``GPUCOMP_DEBUG=1``.
"""

from __future__ import annotations

import atexit
import gc
import sys
import warnings
from collections.abc import Sequence
from types import TracebackType

from gpucomp.errors import GpucompError, UnsupportedError, internal_error
from gpucomp.extras import not_installed
from gpucomp.garbage import seldom_collected

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, which is that of this process if no ``arguments`` are given, and return the exit code."""
    if arguments is None:
        atexit.register(
            gc.freeze
        )  # the system takes all memory back at once: searching it for garbage takes 0.2 s before
    sys.excepthook = report_crash
    warnings.showwarning = report_warning
    try:
        with seldom_collected():  # modules that are slow to import are imported when they are used
            import click

            from gpucomp.cli.commands import gpucomp
    except ModuleNotFoundError as error:
        if found := not_installed(error):
            return report(found)
        raise
    try:
        given = None if arguments is None else list(arguments)
        ended = gpucomp.main(args=given, prog_name="gpucomp", standalone_mode=False)
    except GpucompError as error:
        return report(error)
    except ImportError as error:
        if found := not_installed(error):
            return report(found)
        raise
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.ctx.get_help() if error.ctx else error.format_message(), file=sys.stderr)
        return 2
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f"; see {context.command_path} --help" if context else ""
        print_error("GPC2000", f"{error.format_message().rstrip('.')}{hint}")
        return 2
    except (KeyboardInterrupt, click.Abort):
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except MemoryError as error:
        print_error("GPC1001", f"out of memory: {error}" if str(error) else "out of memory")
        return 1
    return ended if isinstance(ended, int) else 0  # --help and --version end with a number


def print_error(code: str, message: str) -> None:
    print(f"error {code}: {one_line(message)}", file=sys.stderr)


def one_line(text: str) -> str:
    """``text`` without line breaks; control characters, which a terminal would act on, are escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in " ".join(text.split()))


def report(error: GpucompError) -> int:
    """Print ``error`` and return its exit code. Unsupported cases are listed, one per line."""
    print_error(error.code, error.in_shell)
    if isinstance(error, UnsupportedError) and len(error.problems) > 1:
        for problem in error.problems:
            print(f"  {one_line(problem)}", file=sys.stderr)
    if _debugging():
        sys.__excepthook__(type(error), error, error.__traceback__)
    return error.exit_code


def report_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The interpreter's hook for uncaught exceptions, which are bugs in gpucomp: print one line."""
    found = internal_error(error)
    print_error(found.code, found.message)
    if _debugging():
        sys.__excepthook__(kind, error, trace)


def report_warning(message: Warning | str, *where: object, **options: object) -> None:
    """The interpreter's hook for warnings: print the message without the line of code that raised it."""
    print(f"warning: {one_line(str(message))}", file=sys.stderr)


def _debugging() -> bool:
    from gpucomp import config

    try:
        return config.current().debug > 0
    except GpucompError:  # the variables themselves are wrong
        return False

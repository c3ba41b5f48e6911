"""The command as a process: what a shell sees."""

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import time

PREFIX = "import sys, gpucomp, gpucomp.cli as cli\n"


def process(script="", *arguments, **variables):
    code = PREFIX + script + "\nsys.exit(cli.main(sys.argv[1:]))"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GPUCOMP_")} | variables
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment, timeout=60
    )


BROKEN = "def broken(*a, **k): raise ZeroDivisionError('one\\ntwo')\ngpucomp.compile = broken"


def test_a_bug_is_one_line_with_the_way_to_its_traceback():
    ran = process(BROKEN, "run", "m.onnx")

    assert ran.returncode == 1
    assert ran.stderr == (
        "error GPC1000: internal error, ZeroDivisionError: one two; this is a bug of gpucomp: please report it "
        "with the traceback (GPUCOMP_DEBUG=1)\n"
    )
    assert ran.stdout == ""


def test_a_bug_shows_its_traceback_when_debugging():
    ran = process(BROKEN, "run", "m.onnx", GPUCOMP_DEBUG="1")

    assert ran.returncode == 1
    assert "Traceback (most recent call last)" in ran.stderr


def test_a_misspelt_variable_is_an_error_of_every_command():
    ran = process("", "doctor", GPUCOMP_DEBUT="1")

    assert ran.returncode == 2
    assert ran.stderr.startswith("error GPC2001: unknown variable GPUCOMP_DEBUT; known are GPUCOMP_CACHE")
    assert len(ran.stderr.splitlines()) == 1


def test_python_m_gpucomp_is_the_command():
    ran = subprocess.run([sys.executable, "-m", "gpucomp", "frob"], capture_output=True, text=True)

    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "error GPC2000: No such command 'frob'; see gpucomp --help\n"


SLOW = (
    "import time\n"
    "from gpucomp.errors import DeviceError\n"
    "def slow(*a, progress, **k):\n"
    "    progress('kernels', 3, 7); time.sleep(0.8); raise DeviceError('enough')\n"
    "gpucomp.compile = slow\nsys.exit(cli.main(['run', 'm.onnx']))"
)


def test_a_long_task_says_nothing_in_a_pipe():
    ran = subprocess.run([sys.executable, "-c", PREFIX + SLOW], capture_output=True, text=True)

    assert (ran.returncode, ran.stderr, ran.stdout) == (5, "error GPC5000: enough\n", "")


def test_a_long_task_has_one_moving_line_on_a_terminal():
    terminal, end = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", PREFIX + SLOW], stdout=subprocess.PIPE, stderr=end):
        os.close(end)
        told = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(terminal, 4096):
                told += part
    os.close(terminal)

    text = told.decode()
    assert re.search(r"compiling m\.onnx, \d+ s: kernels 3 of 7", text)
    assert text.count("\n") <= 2  # the line is drawn over itself; the error has its own


def test_control_c_ends_with_130_and_one_line():
    script = (
        "import time\n"
        "def slow(*a, **k):\n    print('started', flush=True); time.sleep(30)\n"
        "gpucomp.compile = slow\nsys.exit(cli.main(['run', 'm.onnx']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", PREFIX + script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout.readline() == "started\n"
        time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=30)

    assert (running.returncode, err.strip()) == (130, "interrupted")


def test_a_warning_is_one_line():
    script = "import warnings\ndef warned(*a, **k):\n  warnings.warn('one\\ntwo', RuntimeWarning)\n  return broken()\n"

    ran = process(BROKEN + "\n" + script + "gpucomp.compile = warned", "run", "m.onnx")

    assert ran.stderr.splitlines()[0] == "warning: one two"


def test_a_reader_that_stops_reading_gets_no_traceback():
    script = PREFIX + "import click\n"
    script += "from gpucomp.cli import doctor\ndoctor.lines = lambda found: ['x' * 100] * 20000\n"
    script += "sys.exit(cli.main(['doctor']))"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdout.read(10)
        running.stdout.close()
        err = running.stderr.read()

    assert (running.returncode, err) == (0, b"")


def test_a_write_that_meets_a_closed_pipe_ends_the_command_well():
    script = "from gpucomp.cli import doctor\nimport os\ndoctor.lines = lambda found: (os.close(reader), ['x'])[1]\n"
    script += "reader, writer = os.pipe()\nos.dup2(writer, 1)\n"

    ran = process(script, "doctor")

    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_command_whose_reader_has_gone_still_gives_its_verdict():
    script = "from gpucomp.frontend import onnx\nimport os\nreader, writer = os.pipe()\nos.dup2(writer, 1)\n"
    script += "onnx.check = lambda *a, **k: (os.close(reader), (['unsupported'], None))[1]\n"

    ran = process(script, "check", "m.onnx")

    assert ran.returncode == 4
    assert "cannot be compiled: 1 problem, listed" in ran.stderr


def test_a_broken_pipe_to_another_process_is_no_success():
    script = "from gpucomp.cli import doctor\ndef findings(): raise BrokenPipeError(32, 'Broken pipe')\n"
    script += "doctor.findings = findings\n"

    ran = process(script, "doctor")

    assert ran.returncode == 1
    assert ran.stderr.startswith("error GPC1000: internal error, RuntimeError: a process that was written to has ended")


def test_importing_the_package_imports_nothing_heavy():
    script = "import sys, gpucomp, gpucomp.cli\nprint(sorted({'numpy', 'onnx', 'click', 'rich'} & set(sys.modules)))"

    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert ran.stdout == "[]\n"


def test_a_process_ends_without_a_search_for_garbage_and_a_caller_does_not():
    ask = "import atexit, gc\natexit.register(lambda: print('frozen', gc.get_freeze_count() > 0))\n"

    assert "frozen False" in process(ask, "--version").stdout
    assert "frozen True" in process(ask + "sys.argv[1:] = ['--version']\ncli.main()\n").stdout

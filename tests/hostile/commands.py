"""Hostile files and words on the command line: an exit code and one line, whatever comes."""

from __future__ import annotations

import contextlib
import io
import os
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from gpucomp.errors import GpucompError
from tests.hostile import artifacts, external, functions, graph, shapes
from tests.hostile.arguments import X, relu
from tests.hostile.corpus import OK, Act, add


def command(words: Sequence[str], expected: int) -> None:
    """Run the command line in this process. What it prints as an error is raised again, to be judged as any other."""
    from gpucomp import cli

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(words)
    lines = err.getvalue().splitlines()
    assert code == expected, (code, lines)
    assert all(line.isprintable() for line in (*lines, *out.getvalue().splitlines()))
    if code:
        (line,) = [line for line in lines if line.startswith("error ")]
        name, _, message = line.removeprefix("error ").partition(": ")
        raise GpucompError(message, code=name)


def case(
    what: str,
    code: str,
    exit_code: int,
    words: Sequence[str],
    make: Callable[[Path], object] = lambda folder: None,
    mention: str = "",
) -> None:
    """``make`` puts files beside m.onnx, which is sound; words that begin with ``@`` are files of the folder."""

    def prepare(folder: Path) -> Act:
        (folder / "m.onnx").write_bytes(relu())
        make(folder)
        return partial(command, [w.replace("@", f"{folder}/") for w in words], exit_code)

    add(f"commands/{what}", code, prepare, mention)


def written(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def archive(**arrays: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, content in arrays.items():
            zipped.writestr(f"{name}.npy", content)
    return file.getvalue()


def npy(header: str, body: bytes = b"") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body


def saved(array: np.ndarray, **options: bool) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


F32 = "{'descr': '<f4', 'fortran_order': False, 'shape': %s}"
RUN = ["run", "@m.onnx", "--target", "cpu", "--input"]

case("check", OK, 0, ["check", "@m.onnx"])
case("check_missing", "GPC3001", 3, ["check", "@none.onnx"], mention="none.onnx")
case("check_folder", "GPC3001", 3, ["check", "@"])
case("check_pipe", "GPC3001", 3, ["check", "@pipe"], lambda f: os.mkfifo(f / "pipe"))
case("check_zero", "GPC3001", 3, ["check", "@zero"], lambda f: (f / "zero").symlink_to("/dev/zero"))
case("check_text", "GPC3002", 3, ["check", "@t.onnx"], written("t.onnx", b"hello"))
case("check_cycle", "GPC3018", 3, ["check", "@c.onnx"], written("c.onnx", graph.ring(3).SerializeToString()), "'n0'")
case("check_laughs", "GPC4001", 4, ["check", "@l.onnx"], written("l.onnx", functions.tower(40, 2).SerializeToString()))
case(
    "check_range",
    "GPC4001",
    4,
    ["check", "@r.onnx"],
    written(
        "r.onnx", shapes.one("Range", None, a=np.array(0), b=np.array(1 << 62), c=np.array(1))().SerializeToString()
    ),
)
case(
    "check_passwd",
    "GPC3024",
    3,
    ["check", "@e.onnx"],
    written("e.onnx", external.external(location="/etc/passwd").SerializeToString()),
    "'w'",
)
case("compile_to_nowhere", "GPC7005", 3, ["compile", "@m.onnx", "--target", "cpu", "-o", "@none/m.gpuc"])
case("compile_target", "GPC2002", 2, ["compile", "@m.onnx", "--target", "cpu;touch PWNED", "-o", "@m.gpuc"])
for what, words, code in [
    ("word", "x", "GPC2024"),
    ("negative", "x:-1x3", "GPC2024"),
    ("fraction", "x:2.5x3", "GPC2024"),
    ("nan", "x:nanx3", "GPC2024"),
    ("2_70", f"x:{1 << 70}x3", "GPC2024"),
    ("no_name", ":2x3", "GPC2024"),
    ("other_name", "q:2x3", "GPC2101"),
    ("arabic", "x:٢x٣", "GPC2024"),
    ("contradiction", "x:2x4", "GPC2110"),
    ("escape", "x\x1b[31m:2", "GPC2101"),
]:
    case(f"shapes_{what}", code, 2, ["compile", "@m.onnx", "--target", "cpu", "--shapes", words, "-o", "@m.gpuc"])
case("run_gpuc_that_is_none", "GPC7001", 3, ["run", "@m.gpuc"], written("m.gpuc", b"PK\x05\x06" + bytes(200)))
case("run_zip_bomb", "GPC7001", 3, ["run", "@m.gpuc"], lambda f: (f / "m.gpuc").write_bytes(artifacts.bomb()))
case("run", OK, 0, [*RUN, "x=@x.npy"], written("x.npy", saved(X)))
case("run_npz", OK, 0, [*RUN, "@x.npz"], written("x.npz", archive(x=saved(X))))
case(
    "run_npz_of_another_name", "GPC2101", 2, [*RUN, "@x.npz"], written("x.npz", archive(x=saved(X), q=saved(X))), "'q'"
)
case(
    "run_npz_bomb",
    "GPC2103",
    2,
    [*RUN, "@x.npz"],
    written("x.npz", archive(x=npy(F32 % "(67108864,)", bytes(64 << 20)))),
    "'x'",
)
case(
    "run_npz_bomb_of_another_name",
    "GPC2101",
    2,
    [*RUN, "@x.npz"],
    written("x.npz", archive(q=npy(F32 % "(67108864,)", bytes(64 << 20)))),
    "'q'",
)
case(
    "run_npz_that_lies", "GPC2004", 2, [*RUN, "@x.npz"], written("x.npz", archive(x=npy(F32 % "(2, 3)", b""))), "x.npz"
)
case("run_npz_of_2_40", "GPC2103", 2, [*RUN, "@x.npz"], written("x.npz", archive(x=npy(F32 % f"({1 << 40},)"))), "'x'")
case("run_npz_that_is_none", "GPC2004", 2, [*RUN, "@x.npz"], written("x.npz", b"PK\x03\x04" + bytes(99)), "x.npz")
case(
    "run_npz_of_objects",
    "GPC2004",
    2,
    [*RUN, "@x.npz"],
    written("x.npz", archive(x=saved(np.array([[None] * 3] * 2), allow_pickle=True))),
    "x.npz",
)
case("run_npz_cut", "GPC2004", 2, [*RUN, "@x.npz"], written("x.npz", archive(x=saved(X))[:-30]), "x.npz")
case(
    "run_npy_of_objects",
    "GPC2004",
    2,
    [*RUN, "x=@x.npy"],
    written("x.npy", saved(np.array([None, 1]), allow_pickle=True)),
    "x.npy",
)
for what, header, code in [
    ("shape_that_lies", F32 % "(1099511627776,)", "GPC2004"),
    ("shape_negative", F32 % "(-1, 3)", "GPC2004"),
    ("shape_of_texts", F32 % "('a',)", "GPC2004"),
    ("shape_of_a_call", F32 % "(__import__('os').system('touch PWNED'),)", "GPC2004"),
    ("descr_object", "{'descr': '|O', 'fortran_order': False, 'shape': (2, 3)}", "GPC2004"),
    ("descr_wrong", "{'descr': '{{7*7}}', 'fortran_order': False, 'shape': (2, 3)}", "GPC2004"),
    ("header_no_table", "[1, 2]", "GPC2004"),
    ("header_deep", "(" * 3000, "GPC2004"),
    ("header_long", "'" + "x" * 60_000 + "'", "GPC2004"),
]:
    case(f"run_npy_{what}", code, 2, [*RUN, "x=@x.npy"], written("x.npy", npy(header, X.tobytes())), "x.npy")
case("run_npy_pickle", "GPC2004", 2, [*RUN, "x=@x.npy"], written("x.npy", b"\x80\x04]."), "x.npy")
case("run_npy_missing", "GPC2004", 2, [*RUN, "x=@none.npy"], mention="none.npy")
case(
    "run_wav_that_is_none",
    "GPC2004",
    2,
    [*RUN, "x=@x.wav"],
    written("x.wav", b"RIFF\xff\xff\xff\x7fWAVEdata" + b"\xff" * 99),
    "x.wav",
)
case("run_pb_that_is_none", "GPC2004", 2, [*RUN, "x=@x.pb"], written("x.pb", b"\xff" * 99), "x.pb")
case(
    "run_pb_outside",
    "GPC2004",
    2,
    [*RUN, "x=@x.pb"],
    lambda f: (f / "x.pb").write_bytes(
        external.external(location="/etc/passwd").graph.initializer[0].SerializeToString()
    ),
    "x.pb",
)
case("run_photo_that_is_none", "GPC2003", 2, [*RUN, "x=@x.png"], written("x.png", b"\x89PNG\r\n\x1a\n" + bytes(99)))
case("run_other_kind", "GPC2003", 2, [*RUN, "x=@x.pkl"], written("x.pkl", b"\x80\x04]."), "x.pkl")
case("run_other_name", "GPC2101", 2, [*RUN, "q=@x.npy"], written("x.npy", saved(X)))
case("records_missing", "GPC7102", 3, ["compile", "@m.onnx", "--target", "cpu", "--records", "@none", "-o", "@m.gpuc"])
case(
    "records_pipe",
    "GPC7102",
    3,
    ["compile", "@m.onnx", "--target", "cpu", "--records", "@r.jsonl", "-o", "@m.gpuc"],
    lambda f: os.mkfifo(f / "r.jsonl"),
)
case(
    "records_show_surrogate",
    OK,
    0,
    ["records", "show", "@r.jsonl"],
    lambda f: (f / "r.jsonl").write_bytes(b"\xff\n{}\n"),
)
case("replay_deep", "GPC2601", 2, ["replay", "@t.json"], written("t.json", b"[" * 300_000))
case("no_such_command", "GPC2000", 2, ["\x1b[31m\n"])
case("no_such_option", "GPC2000", 2, ["check", "@m.onnx", "--\u202e"])

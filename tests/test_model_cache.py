"""The cache of models: the same call gives the same artefact without the compiler, any other call does not."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time

import numpy as np
import onnx
import pytest

import gpucomp
from gpucomp import compiler, config, model_cache, plugins
from gpucomp.artifact import cache as files
from gpucomp.artifact import container, known
from gpucomp.cli import main
from gpucomp.device import processor
from gpucomp.runtime import artifact
from testing.tolerance import assert_matches
from tests.onnx_builders import model, node, value

WEIGHT = np.arange(3, dtype=np.float32)
FEED = {"x": np.linspace(-1, 1, 21, dtype=np.float32).reshape(7, 3)}


def scaled(weight=WEIGHT, rows=7):
    return model(
        [node("Mul", ["x", "w"], ["p"]), node("Tanh", ["p"], ["y"])], [value("x", (rows, 3))], weights={"w": weight}
    )


@pytest.fixture
def folder(tmp_path):
    """A cache of its own, as a user has it: nothing watches the compilation."""
    with config.using(cache=tmp_path / "cache", verify=False):
        yield tmp_path / "cache"


@pytest.fixture
def compilations(monkeypatch):
    """A list that grows with every compilation."""
    done, compile = [], compiler.compile

    def counted(model, **options):
        done.append(options)
        return compile(model, **options)

    monkeypatch.setattr(compiler, "compile", counted)
    return done


def models_in(folder):
    return [entry for entry in files.entries(folder) if entry.kind == "models"]


def test_the_same_call_is_answered_without_the_compiler(folder, compilations):
    first = gpucomp.compile(scaled())
    again = gpucomp.compile(scaled().SerializeToString(deterministic=True))

    assert len(compilations) == 1
    assert again.plan == first.plan
    np.testing.assert_array_equal(again.run(FEED)["y"], first.run(FEED)["y"])
    np.testing.assert_allclose(again.run(FEED)["y"], np.tanh(FEED["x"] * WEIGHT), rtol=1e-6)


def test_a_model_that_cannot_be_compiled_is_refused_again_without_the_compiler(folder, compilations):
    proto = model(
        [node("Reshape", ["x", "shape"], ["y"], name="n")],
        [value("x", ("rows", 3))],
        weights={"shape": np.array([2, 6])},
    )
    errors = []
    for _ in range(2):
        with pytest.raises(gpucomp.ModelError) as raised:
            gpucomp.compile(proto, shapes={"x": (7, 3)})
        errors.append(raised.value)

    assert len(compilations) == 1
    assert [str(error) for error in errors] == [str(errors[0])] * 2
    assert type(errors[0]) is type(errors[1])
    assert errors[0].in_shell == errors[1].in_shell
    assert errors[0].code == "GPC3101"
    assert gpucomp.compile(proto, shapes={"x": (4, 3)}).outputs[0].shape == (2, 6)
    assert len(compilations) == 2


def test_refusals_take_no_more_than_the_cache_may(folder):
    """Each takes a block of a disk, though it is a few hundred bytes."""
    with config.using(cache_bytes=3 * files.BLOCK):
        for rows in range(5, 10):
            proto = model(
                [node("Reshape", ["x", "shape"], ["y"])], [value("x", (rows, 3))], weights={"shape": np.array([4, 400])}
            )
            with pytest.raises(gpucomp.ModelError):
                gpucomp.compile(proto)

    assert len(models_in(folder)) == 3


def test_errors_of_other_kinds_are_not_kept(folder, compilations):
    for _ in range(2):
        with pytest.raises(gpucomp.ModelError, match="GPC3016"):
            gpucomp.compile(model([node("Det", ["x"], ["y"], domain="nobody.knows")], [value("x", (3, 3))]))

    assert len(compilations) == 2


def test_a_file_is_known_by_its_bytes(folder, tmp_path, compilations):
    for name in ("a.onnx", "b.onnx"):
        onnx.save(scaled(), tmp_path / name)
        gpucomp.compile(tmp_path / name)
    assert len(compilations) == 1

    onnx.save(scaled(WEIGHT + 1), tmp_path / "a.onnx")
    found = gpucomp.compile(tmp_path / "a.onnx").run(FEED)["y"]
    assert len(compilations) == 2
    np.testing.assert_allclose(found, np.tanh(FEED["x"] * (WEIGHT + 1)), rtol=1e-6)


OPEN = model([node("Mul", ["x", "k"], ["y"])], [value("x", ("n", 3)), value("k", (1,))])
CALL = {"shapes": {"x": (7, 3)}, "constants": {"k": np.float32([2.0])}}


@pytest.mark.parametrize(
    "change",
    [
        {"shapes": {"x": (8, 3)}},
        {"constants": {"k": np.float32([2.5])}},
        {"constants": {"k": [3.0]}},
        {"precision": "bf16"},
        {"keep_fp32": ["nobody*"], "precision": "bf16"},
        {"target": "cpu:x86-64-v2"},
        {"target": "opencl:pocl"},
        {"target": "cuda:sm_80"},
    ],
    ids=str,
)
def test_every_argument_is_in_the_key(folder, change):
    call = {"target": "cpu", **CALL}
    assert key(**call) == key(**call)
    assert key(**{**call, **change}) != key(**call)


def key(target="cpu", records=None, model=OPEN, **arguments):
    entry = model_cache.entry_for(model, target, arguments, records)
    assert entry is not None
    return entry.key


def test_every_setting_that_decides_is_in_the_key(folder, tmp_path):
    (tmp_path / "records").mkdir()
    keys = [key()]
    for setting in (
        {"threads": 1},
        {"fold_limit": 5},
        {"target": "cpu:x86-64-v3"},
        {"records": None},
        {"records": tmp_path / "records"},
        {"devices": tmp_path / "devices.json"},
    ):
        (tmp_path / "devices.json").write_text("{}")
        with config.using(**{"records": config.SHIPPED, **setting}):
            keys.append(key(target="auto"))
    with config.using(devices=tmp_path / "devices.json"):
        (tmp_path / "devices.json").write_text('{"other": 1}')
        keys.append(key(target="auto"))

    assert len(set(keys)) == len(keys) - 1  # the first has no records either, and ``auto`` is then ``cpu``


def test_the_content_of_records_is_in_the_key(folder, tmp_path):
    place = tmp_path / "mine.jsonl"
    keys = [key()]
    for text in ("", "one\n", "two\n"):
        place.write_text(text)
        keys.append(key(records=place))

    assert len(set(keys)) == 4


@pytest.mark.parametrize(
    "what",
    [
        (model_cache, "_code", lambda: "other code"),
        (model_cache, "_versions", lambda: ("3.11.0", "numpy 1.0")),
        (model_cache, "FORMAT", 0),
        (processor, "description", lambda: ("another processor",)),
    ],
    ids=lambda what: what[1],
)
def test_what_compiles_is_in_the_key(folder, monkeypatch, what):
    before = key()
    monkeypatch.setattr(*what)

    assert key() != before


def test_versions_of_packages_of_all_forms(tmp_path, monkeypatch):
    """Debian has packages with egg-info, whose version is in the name or not; the first of two in the path is imported."""
    first, second = tmp_path / "first", tmp_path / "second"
    for place, version in (
        (first / "numpy-1.24.2.egg-info", "1.24.2"),
        (first / "ml_dtypes.egg-info", "0.5.1"),
        (first / "onnx-1.21.0.dist-info", "1.21.0"),
        (second / "numpy-2.1.0.dist-info", "2.1.0"),
        (second / "llvmlite-0.45.0.dist-info", "0.45.0"),
        (second / "Jinja2-3.1.6.dist-info", "3.1.6"),
    ):
        place.mkdir(parents=True)
        name = "PKG-INFO" if place.suffix == ".egg-info" else "METADATA"
        (place / name).write_text(f"Name: {place.stem.partition('-')[0]}\nVersion: {version}\n")
    monkeypatch.setattr(sys, "path", [str(first), str(second)])

    _, *found = model_cache._versions.__wrapped__()
    assert found == ["numpy 1.24.2", "onnx 1.21.0", "llvmlite 0.45.0", "ml_dtypes 0.5.1", "jinja2 3.1.6"]

    monkeypatch.setattr(sys, "path", [str(first)])
    with pytest.raises(LookupError, match="llvmlite"):
        model_cache._versions.__wrapped__()


def test_another_compiler_of_cuda_has_another_key(folder, monkeypatch):
    before = key("cuda:sm_80")
    monkeypatch.setattr("gpucomp.targets.cuda.compiler_version", lambda: "nvrtc 1.0")

    assert key("cuda:sm_80") != before


def test_a_changed_file_of_the_package_is_another_package(tmp_path, monkeypatch):
    (tmp_path / "a.py").write_text("1")
    os.utime(tmp_path / "a.py", (1e9, 1e9))
    monkeypatch.setattr(model_cache, "PACKAGE", tmp_path)
    before = model_cache._fingerprint()
    (tmp_path / "a.py").write_text("2")
    os.utime(tmp_path / "a.py", (1e9 + 1, 1e9 + 1))

    assert model_cache._fingerprint() != before


def test_nothing_is_kept_after_a_file_of_the_package_was_edited(folder, monkeypatch, compilations):
    monkeypatch.setattr(model_cache, "_imported", 0.0)
    monkeypatch.setattr(model_cache, "_code", lambda: "as it was")

    gpucomp.compile(scaled())
    assert not models_in(folder)


def with_data(folder, weight):
    folder.mkdir(exist_ok=True)
    onnx.save(scaled(weight), folder / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    os.utime(folder / "m.data", (time.time() - 9,) * 2)
    return folder / "m.onnx"


def test_data_beside_the_model_counts(folder, tmp_path, compilations):
    path = with_data(tmp_path / "m", WEIGHT)
    gpucomp.compile(path)
    gpucomp.compile(path)
    assert len(compilations) == 1

    data = tmp_path / "m" / "m.data"
    data.write_bytes((WEIGHT + 2).tobytes().ljust(data.stat().st_size, b"\0"))
    found = gpucomp.compile(path).run(FEED)["y"]
    assert len(compilations) == 2
    np.testing.assert_allclose(found, np.tanh(FEED["x"] * (WEIGHT + 2)), rtol=1e-6)


def test_data_that_became_a_link_is_refused_as_without_a_cache(folder, tmp_path):
    path = with_data(tmp_path / "m", WEIGHT)
    gpucomp.compile(path)
    assert models_in(folder)
    (tmp_path / "m" / "m.data").rename(tmp_path / "elsewhere")
    (tmp_path / "m" / "m.data").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(gpucomp.ModelError, match="symbolic link"):
        gpucomp.compile(path)


def test_a_model_that_changes_while_it_is_compiled_is_not_kept(folder, tmp_path, monkeypatch):
    path, compile = with_data(tmp_path / "m", WEIGHT), compiler.compile

    def disturbed(model, **options):
        exe = compile(model, **options)
        (tmp_path / "m" / "m.data").touch()
        return exe

    monkeypatch.setattr(compiler, "compile", disturbed)
    gpucomp.compile(path)

    assert not models_in(folder)


@pytest.mark.parametrize("setting", [{"verify": True}, {"debug": 1}, {"cache": None}])
def test_who_watches_or_wants_no_cache_gets_a_compilation(folder, compilations, setting):
    gpucomp.compile(scaled())
    with config.using(**setting):
        gpucomp.compile(scaled())

    assert len(compilations) == 2


def test_an_observer_sees_the_passes(folder, compilations):
    seen = []
    gpucomp.compile(scaled())
    gpucomp.compile(scaled(), observer=seen.append)

    assert len(compilations) == 2
    assert seen


def test_plug_ins_change_what_compile_means(folder, compilations, monkeypatch):
    gpucomp.compile(scaled())
    monkeypatch.setattr(plugins, "_loaded", {"some"})
    gpucomp.compile(scaled())

    assert len(compilations) == 2


def test_wrong_calls_raise_what_they_raise_without_a_cache(folder):
    for call in (
        {"shapes": {"x": object()}},
        {"target": "nothing"},
        {"target": 8},
        {"records": 7},
        {"records": "/no/such/place"},
    ):
        with pytest.raises(gpucomp.GpucompError):
            gpucomp.compile(scaled(), **call)
    with pytest.raises(gpucomp.UsageError):
        gpucomp.compile(object())


@pytest.mark.parametrize(
    "damage",
    [
        ("gpuc", lambda p: p.write_bytes(p.read_bytes()[:-5])),
        ("gpuc", lambda p: p.write_bytes(p.read_bytes().replace(WEIGHT.tobytes(), (WEIGHT + 1).tobytes()))),
        ("gpuc", lambda p: p.write_bytes(b"")),
        ("gpuc", lambda p: p.unlink()),
        ("gpuc", lambda p: p.chmod(0o666)),
        ("json", lambda p: p.write_text("{")),
        ("json", lambda p: p.write_text("[" * 100_000)),
        ("json", lambda p: p.write_text(json.dumps({"key": "0", "data": {}}))),
        ("json", lambda p: p.write_text(json.dumps({**json.loads(p.read_text()), "data": {"../x": "0"}}))),
        ("json", lambda p: p.chmod(0o620)),
    ],
)
def test_a_damaged_entry_is_compiled_again_and_mended(folder, compilations, damage):
    gpucomp.compile(scaled())
    (entry,) = models_in(folder)
    suffix, harm = damage
    harm(next(path for path in entry.paths if path.suffix == f".{suffix}"))

    assert gpucomp.compile(scaled()).run(FEED)["y"].shape == (7, 3)
    gpucomp.compile(scaled())
    assert len(compilations) == 2


EXPORT = b"a model" * 99


@pytest.mark.parametrize(
    "damage",
    [lambda b: b[:-1], lambda b: b[:40], lambda b: b"", lambda b: bytes([b[0] ^ 1]) + b[1:], lambda b: EXPORT],
    ids=["cut", "short", "empty", "digest", "without a digest"],
)
def test_a_damaged_export_is_made_again_and_mended(tmp_path, damage):
    key = "ab" * 32
    assert files.export(tmp_path, key, lambda: EXPORT) == (EXPORT, False)
    (place,) = (path for path in (tmp_path / "exports").rglob("*") if path.is_file())
    place.write_bytes(damage(place.read_bytes()))

    assert files.export(tmp_path, key, lambda: EXPORT) == (EXPORT, False)
    assert files.export(tmp_path, key, lambda: b"") == (EXPORT, True)


def test_an_export_of_something_else_by_now_is_not_kept(tmp_path):
    for _ in range(2):
        assert files.export(tmp_path, "ab" * 32, lambda: EXPORT, lambda: False) == (EXPORT, False)


def test_a_kernel_that_the_device_refused_is_told_every_time(folder, monkeypatch, compilations):
    """An executable with a smaller schedule came with a warning, and the next one has to."""
    from dataclasses import replace

    def smaller(model, **options):
        compilations.append(options)
        exe = genuine(model, **options)
        exe._plan = replace(exe.plan, kernels=tuple(replace(k, tier="smaller") for k in exe.plan.kernels))
        return exe

    genuine = compiler.compile
    monkeypatch.setattr(compiler, "compile", smaller)
    gpucomp.compile(scaled())

    assert not models_in(folder)


def test_the_least_recently_used_goes_first(folder, compilations):
    for rows in (5, 6):
        gpucomp.compile(scaled(rows=rows))
    first, second = models_in(folder)
    for age, entry in ((300, first), (200, second)):
        for path in entry.paths:
            os.utime(path, (time.time() - age,) * 2)
    gpucomp.compile(scaled(rows=5))  # used now
    assert len(compilations) == 2

    abandoned = first.paths[0].with_name(".left.tmp")
    abandoned.write_bytes(b"x")
    os.utime(abandoned, (1e9, 1e9))
    kernels = sum(e.nbytes for e in files.entries(folder) if e.kind == "kernels")
    files.trim(folder, first.nbytes + kernels)
    assert [entry.key for entry in models_in(folder)] == [first.key]
    assert not abandoned.exists()


def test_a_model_larger_than_half_the_cache_is_not_kept(folder):
    with config.using(cache_bytes=2 * WEIGHT.nbytes - 1):
        gpucomp.compile(scaled())
    assert not models_in(folder)


def test_a_folder_that_cannot_be_written_is_told(folder, caplog):
    folder.write_text("in the way")

    assert gpucomp.compile(scaled()).run(FEED)
    assert "the compiled model is not cached" in caplog.text


def _compile_and_run(folder, die):
    with config.using(cache=folder, verify=False, records=None):
        if die:  # as if killed between the file's bytes and its name
            container.os = type("Killed", (), {**vars(os), "replace": staticmethod(lambda a, b: os._exit(9))})
        return gpucomp.compile(scaled()).run(FEED)["y"]


def test_processes_share_it_and_die_in_it(folder):
    context = multiprocessing.get_context("spawn")
    victim = context.Process(target=_compile_and_run, args=(folder, True))
    victim.start()
    victim.join()
    assert victim.exitcode == 9
    assert [p.name for p in folder.rglob("*") if p.is_file() and p.parts[-3] == "models"]
    assert not models_in(folder)

    with context.Pool(3) as pool:
        found = pool.starmap(_compile_and_run, [(folder, False)] * 6)
    assert all(np.array_equal(one, found[0]) for one in found)
    assert len(models_in(folder)) == 1


def test_the_command_lists_and_clears(folder, tmp_path, capsys, monkeypatch):
    onnx.save(scaled(), tmp_path / "scaled.onnx")
    gpucomp.compile(tmp_path / "scaled.onnx")

    assert main(["cache", "list"]) == 0
    told = capsys.readouterr().out
    assert "scaled.onnx" in told
    assert "x:7x3" in told
    assert "1 model and" in told
    assert main(["cache", "clear"]) == 0
    assert "2 entries" in capsys.readouterr().out
    assert not files.entries(folder)
    with config.using(cache=None):
        assert main(["cache", "list"]) == 2


BIG = np.linspace(-1, 1, 3 << 17, dtype=np.float32).reshape(1 << 17, 3)  # 1.5 MB: files of this size are noted


@pytest.fixture
def no_wait(monkeypatch):
    monkeypatch.setattr(known, "REST_NS", 20_000_000)  # more than a tick here


def test_bytes_of_a_large_model_are_read_once(folder, tmp_path, compilations, no_wait, monkeypatch):
    monkeypatch.setattr(known, "_file_system", lambda descriptor: "ext4")
    path = tmp_path / "m.onnx"
    onnx.save(scaled(BIG, rows=1 << 17), path)
    time.sleep(0.03)
    gpucomp.compile(path)
    digested = []
    monkeypatch.setattr(model_cache, "mmap", None)  # what reads the bytes of a model
    monkeypatch.setattr(artifact, "_digest", digested.append)
    feed = {"x": BIG}

    found = gpucomp.compile(path)

    assert len(compilations) == 1
    assert not digested
    assert_matches(found.run(feed)["y"], np.tanh(BIG * BIG))


def test_a_large_model_that_is_written_in_place_is_another(folder, tmp_path, compilations, no_wait):
    path = tmp_path / "m.onnx"
    onnx.save(scaled(BIG, rows=1 << 17), path)
    status = os.stat(path)
    time.sleep(0.03)
    gpucomp.compile(path)
    with open(path, "r+b") as file:
        file.write(scaled(-BIG, rows=1 << 17).SerializeToString())
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert os.stat(path).st_size == status.st_size

    found = gpucomp.compile(path)

    assert len(compilations) == 2
    assert_matches(found.run({"x": BIG})["y"], np.tanh(-BIG * BIG))


def test_large_data_beside_a_model_that_is_written_in_place_counts(folder, tmp_path, compilations, no_wait):
    path = tmp_path / "m.onnx"
    onnx.save(scaled(BIG, 1 << 17), path, save_as_external_data=True, location="m.data", size_threshold=0)
    os.utime(tmp_path / "m.data", (time.time() - 9,) * 2)
    time.sleep(0.03)
    gpucomp.compile(path)
    gpucomp.compile(path)
    assert len(compilations) == 1
    with open(tmp_path / "m.data", "r+b") as file:
        file.write((-BIG).tobytes())
    os.utime(tmp_path / "m.data", (time.time() - 9,) * 2)

    found = gpucomp.compile(path)

    assert len(compilations) == 2
    assert_matches(found.run({"x": BIG})["y"], np.tanh(-BIG * BIG))


def test_large_data_that_is_stored_into_through_a_mapping_counts(folder, tmp_path, compilations, no_wait):
    path = tmp_path / "m.onnx"
    onnx.save(scaled(BIG, 1 << 17), path, save_as_external_data=True, location="m.data", size_threshold=0)
    mapped = np.memmap(tmp_path / "m.data", np.float32, "r+", shape=BIG.shape)
    for count, weight in enumerate((2 * BIG, 3 * BIG, -BIG), 1):
        mapped[:] = weight  # all pages are dirty from the first time on
        time.sleep(0.03)

        found = gpucomp.compile(path)

        assert len(compilations) == count
        assert_matches(found.run({"x": BIG})["y"], np.tanh(weight * BIG))


def test_a_large_artefact_that_was_damaged_is_compiled_again(folder, compilations):
    gpucomp.compile(scaled(BIG, rows=1 << 17))
    (entry,) = models_in(folder)
    (path,) = (path for path in entry.paths if path.suffix == ".gpuc")
    status, content = os.stat(path), path.read_bytes()
    at = content.index(BIG[100:140].tobytes())
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(bytes(160))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    found = gpucomp.compile(scaled(BIG, rows=1 << 17))

    assert len(compilations) == 2
    assert_matches(found.run({"x": BIG})["y"], np.tanh(BIG * BIG))

"""Reads and writes tensors: .npy, .npz, ONNX's .pb, photos, recordings. Also matches files to inputs."""

from __future__ import annotations

import importlib
import re
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpucomp.cli import sounds
from gpucomp.errors import DeviceError, InputError, UsageError, quote
from gpucomp.extras import install
from gpucomp.ir.dim import NAME, Dim
from gpucomp.runtime.inputs import TensorSpec, fits

IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
KINDS = (".npy", ".npz", ".pb", *IMAGES, *sounds.SOUNDS)
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_DEVIATION = (0.229, 0.224, 0.225)
MAX_PIXELS = 100_000_000
# errors of numpy and zipfile; numpy parses array headers with Python's own parser
_UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    OverflowError,
    AttributeError,
    TypeError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    SyntaxError,
    RecursionError,
    MemoryError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


SIZE = rf"(?:[0-9]{{1,18}}|\{{{NAME}(?::[0-9]{{1,10}}\.\.[0-9]{{1,10}}(?::[0-9]{{1,10}})?)?\}})"
SIZES = rf"({SIZE}(x{SIZE})*)?"


def parse_shapes(texts: Sequence[str]) -> dict[str, Any]:
    """``["x:1x3x224x224"]`` to ``{"x": (1, 3, 224, 224)}``. A name may hold colons; ``x:`` is a scalar.

    ``s:[2x3,4x3]`` gives the list of shapes of a sequence's tensors; ``o:none`` is an optional that holds nothing. Several
    may stand in one text, with commas between them, as for trtexec and polygraphy. ``x:{n}x3x{h:32..1536:32}`` has sizes that
    each run decides.
    """
    shapes: dict[str, Any] = {}
    for text in (part for given in texts for part in _apart(given)):
        whole = re.fullmatch(rf"(?s:(.+)):(\[{SIZES}(?:,{SIZES})*\]|none|{SIZES})", text)
        front, brace, back = text.partition("{")
        name, sizes = (whole[1], whole[2]) if whole else front.rpartition(":")[::2]
        sizes += "" if whole else brace + back
        listed = re.fullmatch(rf"\[({SIZES}(,{SIZES})*)\]", sizes)
        if not whole:
            raise UsageError(
                f"--shapes {quote(text)}: NAME:1x3x224x224 expected, NAME:[2x3,4x3] for a sequence"
                f"{_advice(name, sizes)}",
                code="GPC2024",
            )
        if name in shapes:
            raise _given_twice("--shapes", name)
        if listed:
            shapes[name] = [_extents(part) for part in listed[1].split(",")] if listed[1] else []
        else:
            shapes[name] = None if sizes == "none" else _extents(sizes)
    return shapes


def _apart(text: str) -> list[str]:
    """The shapes in ``x:1x3,s:[2x3,4x3],y:5``; the whole text if it is not a list of such."""
    one = rf".+?:(?:\[{SIZES}(?:,{SIZES})*\]|none|{SIZES})"
    parts = [found[0] for found in re.finditer(rf"{one}(?=,|$)", text)]
    return [part.removeprefix(",") for part in parts] if "".join(parts) == text else [text]


def _advice(name: str, sizes: str) -> str:
    """What is meant by sizes as other programs write them."""
    if not name:
        return ""
    if "{" in sizes:
        given = re.search(r"\{[^{}]*\}?", sizes)
        said = quote(given[0]) if given else quote(sizes)
        return f"; {said}: a size that each run decides is {{n}}, {{n:1..8}}, or with a multiple {{n:32..1536:32}}"
    if word := _word(sizes):
        return f"; {word} is no number: write a number for it, or {{{word}}} for a size that each run decides"
    if re.search(r"-\s*\d|\bdyn|\?|\*", sizes):
        return "; give a number for each open dimension, or {n} for a size that each run decides"
    if re.fullmatch(r"[\[(]?\s*\d+(\s*[,;X*]\s*\d+)*\s*,?[\])]?", sizes):
        return f"; sizes have x between them: --shapes {name}:{'x'.join(re.findall(r'[0-9]+', sizes))}"
    return ""


def _word(sizes: str) -> str:
    """The first word in ``Nx3x224x224``, if the other sizes are numbers or words too."""
    parts = sizes.split("x")
    words = [part for part in parts if re.fullmatch(r"[^\W\d]\w*", part)]
    return words[0] if len(parts) > 1 and words and all(part.isdigit() or part in words for part in parts) else ""


def parse_constants(texts: Sequence[str]) -> dict[str, Any]:
    """``["sr=8000", "scales=1,1,2,2"]`` to ``{"sr": 8000, "scales": [1, 1, 2, 2]}``. A name may hold equals signs."""
    constants: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        try:
            numbers = [_number(part) for part in value.split(",")]
        except ValueError:
            numbers = []
        if not equals or not name or not numbers:
            raise UsageError(
                f"--constants {quote(text)}: NAME=VALUE expected, with a number, true, false, or a list: 1,1,2,2",
                code="GPC2025",
            )
        if name in constants:
            raise _given_twice("--constants", name)
        constants[name] = numbers if "," in value else numbers[0]
    return constants


def parse_states(texts: Sequence[str]) -> dict[str, str]:
    """``["past.*=present.*"]`` to ``{"past.*": "present.*"}``."""
    states: dict[str, str] = {}
    for text in texts:
        name, _, output = text.partition("=")
        if not name or not output:
            raise UsageError(
                f"--states {quote(text)}: auto alone, or IN=OUT expected: 'past.*=present.*'", code="GPC2040"
            )
        if name in states:
            raise _given_twice("--states", name)
        states[name] = output
    return states


def _given_twice(option: str, name: str) -> UsageError:
    return UsageError(f"{option}: input {quote(name)} is given twice; give it once", code="GPC2026")


def _number(text: str) -> int | float | bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return int(text)
    except ValueError:
        return float(text)


def _extents(text: str) -> tuple[Any, ...]:
    return tuple(map(_extent, re.findall(SIZE, text)))


def _extent(text: str) -> Any:
    """``7``, or a size that each run decides: ``{h}``, ``{h:32..1536}``, ``{h:32..1536:32}``."""
    if not text.startswith("{"):
        return int(text)
    name, *numbers = text[1:-1].split(":")
    if not numbers:
        return name
    low, high = numbers[0].split("..")
    return Dim(name, int(low), int(high), *map(int, numbers[1:]))


def shapes_in_files(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays in ``NAME=FILE`` arguments, by name. A photo has none: it is resized to the input."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, equals, file = text.partition("=")
        path = Path(file)
        match path.suffix.lower() if equals else "":
            case ".npy":
                shapes[name] = _array(path).shape
            case ".pb":
                shapes[name] = _protobuf(path).shape
            case ".npz":
                shapes.update({key: shape for key, (shape, _) in _contents(path).items() if key == name})
    return shapes


def shapes_of_media(texts: Sequence[str], declared: Mapping[str, tuple[int | None, ...]]) -> dict[str, tuple[int, ...]]:
    """The shapes of inputs that are given as a photo and leave only the batch open: a photo is a batch of 1. A recording has
    the shape of its samples."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, _, file = text.rpartition("=")
        if not name and len(declared) == 1:
            (name,) = declared
        batch, *rest = declared.get(name) or (0,)
        sizes = tuple(size for size in rest if size is not None)
        if Path(file).suffix.lower() in IMAGES and batch is None and len(sizes) == len(rest) == 3:
            shapes[name] = (1, *sizes)
        elif Path(file).suffix.lower() in sounds.SOUNDS and (places := sounds.axes(declared.get(name, ()))):
            shapes[name] = sounds.sized(declared[name], places, _length(Path(file)))
    return shapes


def _length(recording: Path) -> int:
    try:
        return len(sounds.samples(recording))
    except (OSError, ValueError) as error:
        raise _unreadable(recording, error) from None


def check_files(texts: Sequence[str]) -> None:
    """Raise ``UsageError`` if a file of the ``NAME=FILE`` arguments is missing, or of a kind that cannot be read."""
    for text in texts:
        splits = [Path(text[k + 1 :]) for k, character in enumerate(text) if character == "="]  # a name can contain "="
        if not splits:
            continue
        path = next((path for path in splits if path.exists()), splits[0])
        if path.suffix.lower() not in KINDS:
            raise _unknown_kind(path)
        try:
            path.stat()
        except OSError as error:
            raise _unreadable(path, error) from None


def read_inputs(texts: Sequence[str], specs: Sequence[TensorSpec], preprocess: str) -> dict[str, np.ndarray]:
    """The arrays of ``NAME=FILE`` arguments. The name can be left out for a model with one input, and for an .npz."""
    given: dict[str, np.ndarray] = {}

    def add(name: str, array: np.ndarray) -> None:
        if name in given:
            raise _given_twice("--input", name)
        given[name] = array

    for text in texts:
        named = [spec for spec in specs if text.startswith(f"{spec.name}=")]
        if named:
            spec = max(named, key=lambda s: len(s.name))  # a name can contain "="
            add(spec.name, read_tensor(Path(text[len(spec.name) + 1 :]), spec, preprocess))
        elif "=" not in text and text.lower().endswith(".npz"):
            for name, array in _archive(Path(text), {spec.name: spec for spec in specs}, only=True).items():
                add(name, array)
        elif "=" not in text and len(specs) == 1:
            add(specs[0].name, read_tensor(Path(text), specs[0], preprocess))
        else:
            names = ", ".join(quote(spec.name) for spec in specs)
            code, what = ("GPC2101", "no such input") if "=" in text else ("GPC2003", "NAME=FILE expected")
            raise InputError(f"--input {quote(text)}: {what}; the model's inputs are {names}", code=code)
    return given


def read_tensor(path: Path, spec: TensorSpec, preprocess: str) -> np.ndarray:
    """The array in ``path`` for the input ``spec``. A photo is resized to it; other arrays are not changed."""
    match path.suffix.lower():
        case ".npy":
            return _array(path)
        case ".npz":
            there = _contents(path)
            if spec.name not in there and len(there) != 1:
                raise UsageError(f"{quote(path)} has no array {quote(spec.name)}", code="GPC2003")
            (only,) = (spec.name,) if spec.name in there else there
            return _archive(path, {only: spec})[only]
        case ".pb":
            return _protobuf(path)
        case suffix if suffix in IMAGES:
            return photo(path, spec, preprocess)
        case suffix if suffix in sounds.SOUNDS:
            try:
                return sounds.sound(path, spec)
            except (OSError, ValueError) as error:
                raise _unreadable(path, error) from None
    raise _unknown_kind(path)


def _unknown_kind(path: Path) -> UsageError:
    return UsageError(f"{quote(path)}: a file of one of these kinds expected: {', '.join(KINDS)}", code="GPC2003")


def _unreadable(path: Path, error: BaseException) -> UsageError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return UsageError(f"cannot read {quote(path)}: {reason}", code="GPC2004")


def _array(path: Path) -> np.ndarray:
    try:
        found = np.load(path, allow_pickle=False, mmap_mode="r")
    except _UNREADABLE as error:
        raise _unreadable(path, error) from None
    if not isinstance(found, np.ndarray):
        raise UsageError(f"cannot read {quote(path)}: it is not a .npy file", code="GPC2004")
    return np.asarray(found)


def _contents(path: Path) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shape and element type of each array in an .npz, by name. Only the headers are read."""
    try:
        with zipfile.ZipFile(path) as file:
            found = {}
            for member in file.namelist():
                with file.open(member) as stream:
                    version = np.lib.format.read_magic(stream)
                    read = (
                        np.lib.format.read_array_header_1_0
                        if version == (1, 0)
                        else np.lib.format.read_array_header_2_0
                    )
                    shape, _, dtype = read(stream)
                    found[member.removesuffix(".npy")] = shape, dtype
            return found
    except _UNREADABLE as error:
        raise _unreadable(path, error) from None


def _archive(path: Path, specs: Mapping[str, TensorSpec], *, only: bool = False) -> dict[str, np.ndarray]:
    """The arrays of an .npz for inputs, by their names in the file; with ``only``, any other array is an error.

    Headers are checked before anything is unpacked: a few bytes of an archive can hold gigabytes.
    """
    there = _contents(path)
    for name, (shape, dtype) in there.items():
        if name not in specs and only:
            names = ", ".join(map(quote, specs))
            raise InputError(
                f"{quote(path)}: there is no input {quote(name)}; the model's inputs are {names}", code="GPC2101"
            )
        if name in specs:
            _check_header(specs[name], shape, dtype, path)
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in there if name in specs}
    except _UNREADABLE as error:
        raise _unreadable(path, error) from None


def _check_header(spec: TensorSpec, shape: Sequence[int], dtype: np.dtype, path: Path) -> None:
    where = f"{quote(path)}: input {quote(spec.name)}"
    if not fits(shape, spec.shape):
        raise InputError(
            f"{where}: shape [{', '.join(map(str, spec.shape))}] expected, found {list(shape)}", code="GPC2103"
        )
    for axis, (size, wanted) in enumerate(zip(shape, spec.shape, strict=True)):
        if isinstance(wanted, Dim) and size not in wanted:
            raise InputError(
                f"{where}: dimension {axis}, {quote(wanted)}, is {size}, {wanted.range} expected", code="GPC2111"
            )
    if dtype.itemsize > 16:
        raise InputError(f"{where}: an array of {dtype} is not a tensor", code="GPC2105")


def _protobuf(path: Path) -> np.ndarray:
    import onnx
    from google.protobuf.message import DecodeError
    from onnx import numpy_helper

    tensor = onnx.TensorProto()
    try:
        tensor.ParseFromString(path.read_bytes())
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise UsageError(f"cannot read {quote(path)}: its data are in another file", code="GPC2004")
        return numpy_helper.to_array(tensor)
    except (OSError, DecodeError, ValueError, TypeError) as error:
        raise _unreadable(path, error) from None


def require_pillow() -> None:
    """Raise ``DeviceError`` if Pillow, which reads photos, is not installed."""
    try:
        importlib.import_module("PIL.Image")
    except ImportError:
        raise DeviceError(f"photos need Pillow: {install('image')}", code="GPC5003") from None


def photo(path: Path, spec: TensorSpec, preprocess: str) -> np.ndarray:
    """A photo as the input ``spec``: RGB, or grey for one channel, resized to its height and width, batch 1.

    Where each run decides height or width, it is the photo's own, or the next that is in the range.

    ``imagenet`` divides by 255, subtracts ImageNet's mean and divides by its deviation; a grey photo is only divided by 255.
    ``none`` keeps 0 to 255. Channels come first, or last if the input's last axis is 1 or 3 long.
    """
    require_pillow()
    from PIL import Image, UnidentifiedImageError

    shape = spec.shape
    first = len(shape) == 4 and shape[1] in (1, 3)
    if len(shape) != 4 or not _may_be_one(shape[0]) or not (first or shape[3] in (1, 3)):
        raise UsageError(
            f"input {quote(spec.name)} is {spec.type}; for a photo [1, C, H, W] or [1, H, W, C] expected, with C 1 or 3",
            code="GPC2003",
        )
    channels, height, width = shape[1:] if first else (shape[3], shape[1], shape[2])
    try:
        with Image.open(path) as image:
            if image.width * image.height > MAX_PIXELS:
                raise UsageError(f"{quote(path)} has more than {MAX_PIXELS} pixels", code="GPC2004")
            height, width = (
                size.nearest(own) if isinstance(size, Dim) else size
                for size, own in ((height, image.height), (width, image.width))
            )
            coloured = image.convert("RGB" if channels == 3 else "L")
            pixels = np.asarray(coloured.resize((width, height), Image.Resampling.BILINEAR), np.float32)
    except (OSError, UnidentifiedImageError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise _unreadable(path, error) from None
    pixels = pixels.reshape(height, width, channels)
    if preprocess == "imagenet":
        pixels = pixels / np.float32(255)
        if channels == 3:
            mean, deviation = np.array([IMAGENET_MEAN, IMAGENET_DEVIATION], np.float32)
            pixels = (pixels - mean) / deviation
    if first:
        pixels = pixels.transpose(2, 0, 1)
    return pixels[None].astype(spec.type.dtype.numpy)


def _may_be_one(size: Any) -> bool:
    return 1 in size if isinstance(size, Dim) else bool(size == 1)


def write_outputs(folder: Path, outputs: Mapping[str, np.ndarray]) -> dict[str, Path]:
    """Write one .npy for each output, or for each tensor of a sequence. Strings are numpy strings. Types that .npy cannot name
    (bf16, f8, f4, i4, i2) are widened to f32 or i8.

    A file's name is the output's, with everything but letters, digits, ``_``, ``.`` and ``-`` replaced, so that no name of
    a model becomes a path.
    """
    written: dict[str, Path] = {}
    taken: set[str] = set()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in _single(outputs):
            stem = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:100].strip(".") or "output"
            base, number = stem, 1
            while stem.lower() in taken:
                number += 1
                stem = f"{base}-{number}"
            taken.add(stem.lower())
            written[name] = folder / f"{stem}.npy"
            np.save(written[name], _plain(array), allow_pickle=False)
    except OSError as error:
        raise UsageError(f"cannot write to {quote(folder)}: {error.strerror}", code="GPC2005") from None
    return written


def _single(outputs: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    """Every tensor with a name: those of a sequence ``name`` are ``name-0``, ``name-1``, ...; an empty optional has none.

    A sequence of maps, which all have the same keys, becomes ``name.keys`` and ``name.values``.
    """
    for name, found in outputs.items():
        if isinstance(found, list) and found and isinstance(found[0], dict):
            yield f"{name}.keys", np.array(list(found[0]))
            yield f"{name}.values", np.array([list(row.values()) for row in found], np.float32)
        elif isinstance(found, list):
            yield from _single({f"{name}-{k}": item for k, item in enumerate(found)})
        elif found is not None:
            yield name, found


def _plain(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind in "biufcU":
        return array
    if array.dtype.kind in "OS":
        return array.astype(str)
    return array.astype(np.int8 if "int" in array.dtype.name else np.float32)

"""What ``torch.export.save`` writes: read once, checked, and copied, so that torch reads nothing but what was checked.

torch runs parts of such a file as it reads it: pickles, guards and formulas are Python, names of inputs and weights become
source text, types and operators are looked up by their names, and machine code is loaded. Two readers of one ZIP archive can
also see two archives. So the copy has only members that are known, in which each text fits what torch writes in its place.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpucomp.errors import ModelError, quote

MOST_JSON = 1 << 28  # bytes
MODEL = "models/model.json"
CONFIGS = {"data/weights/model_weights_config.json": "weight", "data/constants/model_constants_config.json": "tensor"}
FORMAT, VERSION = "archive_format", "archive_version"
SAMPLES = "data/sample_inputs/model.pt"  # a pickle that nothing here needs
_VALUES = re.compile(r"data/(?:weights/weight|constants/tensor)_\d+")
_UNREAD = re.compile(
    rf"extra/.*|{re.escape(SAMPLES)}|\.data/\w+|\.format_version|\.storage_alignment|byteorder", re.DOTALL
)
_MACHINE_CODE = re.compile(r"data/aotinductor/.*|.*\.(?:so|cubin|cpp|ptx|o)", re.DOTALL | re.IGNORECASE)

_NAME = re.compile(r"(?:[^\W\d]\w*)?")
_PATH = re.compile(r"(?!.*(?:^|\.)__)[\w.:/ -]*")  # of a weight: it stands between quotes in what torch generates
_FUNCTIONS = (
    "Symbol|Integer|Float|Rational|Add|Mul|Pow|Max|Min|Mod|Abs|Piecewise|ExprCondPair|And|Or|Not|Xor|ceiling|floor"
    "|Equality|Unequality|StrictGreaterThan|StrictLessThan|GreaterThan|LessThan|FloorDiv|ModularIndexing|Where|PythonMod"
    "|CleanDiv|CeilToInt|FloorToInt|CeilDiv|LShift|RShift|PowByNatural|FloatPow|FloatTrueDiv|IntTrueDiv|TruncToFloat"
    "|IsNonOverlappingAndDenseIndicator|TruncToInt|RoundToInt|RoundDecimal|ToFloat|Identity"
    r"|OpaqueUnaryFn_[a-z0-9]+|BitwiseFn_bitwise_[a-z]+"
)
# of this length a number is computed with at once; more digits than a whole number of 64 bits has are no size
_DIGITS = r"-?\d{1,19}(?:\.\d{1,19})?(?:e[+-]?\d{1,3})?"
# what sympy writes for a formula of sizes; it reads such texts by running them as Python
_FORMULA = re.compile(
    rf"(?:(?:{_FUNCTIONS})\(|'[a-z]{{1,4}}\d*'|'{_DIGITS}'|{_DIGITS}(?![\w.])"
    r"|[a-z_]{1,20}=(?:True|False|\d{1,2})(?!\w)|(?:true|false|oo)(?!\w)|[\s,()])*+"
)
_POWERS = {"Pow", "PowByNatural", "FloatPow", "LShift"}  # each computes a number of many digits from two of few
_EXPONENT = re.compile(
    r"(?:Integer|Float)\('?-?\d{1,2}(?:\.0*)?'?(?:, precision=\d+)?\)|Rational\(-?\d, \d\)|Symbol\('.*\)"
)
MOST_NESTED = 2  # powers
_CALLS = (
    "eq|ne|le|ge|lt|gt|neg|pos|mul|add|sub|floordiv|mod|pow|truediv|and_|or_|lshift|rshift"  # of numbers, by Python
)
_HIGHER = "cond|while_loop|scan|associative_scan|map_impl|wrap_with_set_grad_enabled|wrap_with_autocast|hints_wrapper|out_dtype"
_OPERATOR = re.compile(
    rf"_operator\.(?:{_CALLS})|math\.(?:trunc|ceil|floor)|torch\._?sym_[a-z]+|torch\.ops\.higher_order\.(?:{_HIGHER})"
    r"|torch\.ops\.(?P<space>aten|prims|quantized_decomposed|torchvision)\.(?P<name>(?!from_file\b)\w+)\.(?P<overload>(?!_)\w+)"
)
_DUNDER = (
    "__and__",
    "__or__",
    "__xor__",
    "__lshift__",
    "__rshift__",
)  # of the names that Python gives, these are operators
# of numbers, which are neither tensors nor make any
_ASSERTIONS = ("aten::_assert_scalar", "aten::sym_constrain_range", "aten::sym_constrain_range_for_size")
_NUMBER = re.compile("-?Infinity|NaN")
_ANY = re.compile(".*", re.DOTALL)  # a value that is a text, and stays one
_TEXTS: Mapping[str, re.Pattern[str]] = {
    **dict.fromkeys(("name", "as_name", "forward_arg_names"), _NAME),
    **dict.fromkeys(("parameter_name", "buffer_name", "tensor_constant_name", "user_input_name", "fqn"), _PATH),
    **dict.fromkeys(("as_float", "as_floats", "as_float_lists", "real", "imag"), _NUMBER),
    **dict.fromkeys(("as_string", "as_strings"), _ANY),
    **dict.fromkeys(("target", "as_operator"), _OPERATOR),
    "expr_str": _FORMULA,
    "path_name": re.compile(r"(?:weight|tensor)_\d+"),
    "type": re.compile("[a-z]*"),  # of a device
    "verifiers": re.compile(r"\w*"),
    "torch_version": re.compile(r"[\w.+<=-]*"),
}
_LISTS = ("forward_arg_names", "as_floats", "as_float_lists", "as_strings", "verifiers")
_TOLD = {
    "expr_str": "in the place of a size",
    "target": "in the place of an operator",
    "as_operator": "in the place of an operator",
}
# whose keys are names in the program, and not the fields of a record
_BY_NAME = (
    *("tensor_values", "sym_int_values", "sym_float_values", "sym_bool_values", "custom_obj_values"),
    *("config", "range_constraints", "opset_version", "as_string_to_argument"),
)
_TREES = ("builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict")
_FRAME = re.compile(r'File "[^"\n\r]+", line \d+')


class _RefusedError(ValueError):
    """Why an archive is not read."""


def checked_copy(source: Path, target: Path) -> None:
    """Write what torch has to read of ``source``. Raises ``ModelError`` (GPC3091) if there is anything in it that it may not."""
    writer = importlib.import_module("torch.export.pt2_archive._package").PT2ArchiveWriter
    try:
        with open(source, "rb") as file, zipfile.ZipFile(file) as archive:
            members = _members(archive, os.fstat(file.fileno()).st_size)
            with writer(str(target)) as copy:
                for name, info in members.items():
                    copy.write_bytes(name, _content(name, archive.read(info), members))
                copy.write_bytes(SAMPLES, b"")
    except _RefusedError as error:
        raise ModelError(f"{quote(source)} {error}", code="GPC3091") from None
    except (
        OSError,
        ValueError,
        RecursionError,
        NotImplementedError,
        EOFError,
        struct.error,
        zipfile.BadZipFile,
    ) as error:
        raise ModelError(f"{quote(source)} is no archive of torch.export: {error}", code="GPC3091") from error


def _members(archive: zipfile.ZipFile, nbytes: int) -> dict[str, zipfile.ZipInfo]:
    """What is copied, by its name without the folder that everything is in."""
    infos = archive.infolist()
    if sum(info.file_size for info in infos) > nbytes:
        raise _RefusedError("says that it has more bytes than the file")
    if len({info.filename.partition("/")[0] for info in infos}) > 1:
        raise _RefusedError("is no archive of torch.export: it has more than one folder")
    members: dict[str, zipfile.ZipInfo] = {}
    seen = set()
    for info in infos:
        name = info.filename.partition("/")[2]
        _require_known(name, info)
        if name.lower() in seen:
            raise _RefusedError(f"has {quote(name)} twice")
        seen.add(name.lower())
        if name == "byteorder" and archive.read(info) != b"little":
            raise _RefusedError("was written on a machine with another order of bytes")
        if not _UNREAD.fullmatch(name):
            members[name] = info
    for name in (MODEL, *CONFIGS, FORMAT, VERSION):
        if name not in members:
            raise _RefusedError(f"is no archive of torch.export: it has no {name}; one of torch 2.9 or newer expected")
    return members


def _require_known(name: str, info: zipfile.ZipInfo) -> None:
    if _MACHINE_CODE.fullmatch(name) and not name.startswith("extra/"):
        raise _RefusedError(f"has machine code, {quote(name)}")
    if re.search(r"/(?:custom|opaque)_obj_", name):
        raise _RefusedError(f"has a pickle, {quote(name)}, which would run code as it is read")
    known = name in (MODEL, *CONFIGS, FORMAT, VERSION) or _VALUES.fullmatch(name) or _UNREAD.fullmatch(name)
    if not known:
        raise _RefusedError(
            f"has {quote(name)}, which is not known here; torch.export.save of torch 2.9 or newer expected"
        )
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
        raise _RefusedError(f"has {quote(name)} compressed or encrypted, and torch.export.save writes no such thing")
    if name.endswith(".json") and info.file_size > MOST_JSON:
        raise _RefusedError(f"is too large: {quote(name)} has {info.file_size} bytes")


def _content(name: str, content: bytes, members: Mapping[str, zipfile.ZipInfo]) -> bytes:
    if not name.endswith(".json"):
        return content
    plain = _plain("", json.loads(content))
    if not isinstance(plain, dict):
        raise _RefusedError(f"is no archive of torch.export: {name} is no object")
    if name == MODEL:
        plain |= {"guards_code": []}  # Python, about sizes whose ranges the program has as numbers too
    else:
        _require_values(plain.get("config"), CONFIGS[name], name.rpartition("/")[0], members)
    return json.dumps(plain).encode()


def _require_values(config: object, kind: str, folder: str, members: Mapping[str, zipfile.ZipInfo]) -> None:
    """Raise for a tensor that is pickled, that is no file of its kind, or that has no values."""
    entries = list(config.values()) if isinstance(config, dict) else [None]
    for given in entries:
        entry = given if isinstance(given, dict) else {}
        place = entry.get("path_name")
        if not isinstance(place, str) or not place.startswith(f"{kind}_"):
            raise _RefusedError(f"has {quote(place)} in the place of a tensor's file")
        if entry.get("use_pickle") is not False:
            raise _RefusedError(
                f"has a pickle, {quote(place)}, which would run code as it is read; tensors of plain types have none"
            )
        info, meta = members.get(f"{folder}/{place}"), entry.get("tensor_meta")
        sizes = meta.get("sizes") if isinstance(meta, dict) else None
        empty = isinstance(sizes, list) and any(isinstance(size, dict) and size.get("as_int") == 0 for size in sizes)
        if info is None or (info.file_size == 0 and not empty):
            raise _RefusedError(f"has no values for {quote(place)}")


def _plain(key: str, value: object) -> Any:
    """A value of the field ``key``, each text in it checked; what only describes a program is left out."""
    if key in _TEXTS:
        return _text(key, value)
    if key in ("in_spec", "out_spec"):
        return _tree_text(value, is_input=key == "in_spec")
    if key == "metadata":  # of an operator, or of the program
        trace = value.get("stack_trace") if isinstance(value, dict) else None
        return {"stack_trace": "\n".join(_FRAME.findall(trace))} if isinstance(trace, str) else {}
    if key in ("guards_code", "treespec_namedtuple_fields"):
        return [] if key == "guards_code" else {}
    if isinstance(value, dict) and key in _BY_NAME:
        return {_text("fqn", name): _plain("", one) for name, one in value.items()}
    if isinstance(value, dict):
        return {name: _plain(name, one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(key, one) for one in value]
    if isinstance(value, str):
        raise _RefusedError(f"has {quote(value)} in the place of {quote(key)}, where torch writes no text")
    return value


def _text(key: str, value: object) -> Any:
    if isinstance(value, list) and key in _LISTS:
        return [_text(key, one) for one in value]
    if isinstance(value, str) and _fits(key, value):
        return value
    if value is None or (isinstance(value, int | float) and _TEXTS[key] is _NUMBER):
        return value
    raise _RefusedError(f"has {quote(value)} {_TOLD.get(key, f'in the place of {quote(key)}')}")


def _fits(key: str, text: str) -> bool:
    found = _TEXTS[key].fullmatch(text)
    if found is None or _TEXTS[key] not in (_OPERATOR, _FORMULA):
        return found is not None
    return _is_operator(**found.groupdict()) if _TEXTS[key] is _OPERATOR else _is_small(text)


def _is_operator(space: str | None, name: str, overload: str) -> bool:
    """Whether a name of ``torch.ops`` is of an operator on tensors. TorchScript's others write files, among other things."""
    if space is None:  # no name of torch.ops
        return True
    if name.startswith("__") and name not in _DUNDER:
        return False
    ops: Any = importlib.import_module("torch").ops
    found: Any = getattr(getattr(getattr(ops, space), name, None), overload, None)
    if type(found).__name__ != "OpOverload":
        return False
    schema = found._schema
    tensors = any("Tensor" in str(one.type) for one in (*schema.arguments, *schema.returns))
    return tensors or schema.name in _ASSERTIONS


def _is_small(formula: str) -> bool:
    """Whether no power in a formula has a large exponent, or is of many others."""
    try:
        tree = ast.parse(formula.strip(), mode="eval")
    except (SyntaxError, MemoryError):  # the latter of too many brackets
        return False
    return _powers(tree) <= MOST_NESTED


def _powers(node: ast.AST) -> int:
    """How many powers are nested in each other, or one more than may be if an exponent is large."""
    inside = max(map(_powers, ast.iter_child_nodes(node)), default=0)
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _POWERS):
        return inside
    few = len(node.args) == 2 and _EXPONENT.fullmatch(ast.unparse(node.args[1]))
    return inside + 1 if few else MOST_NESTED + 1


def _tree_text(text: object, is_input: bool) -> str:
    """How inputs or results are nested, as torch writes it: types in it are imported by their names, so few are known."""
    told = json.loads(text) if isinstance(text, str) else None
    if not isinstance(told, list) or len(told) != 2 or told[0] != 1:
        raise _RefusedError(f"has {quote(text)} in the place of a structure of inputs or results")
    tree = _tree(told[1])
    if is_input:  # the keys of its second part are names of arguments, in what torch generates
        named = tree["children_spec"][1:2]
        keys = json.loads(named[0]["context"] or "null") if named else None
        for name in keys or ():
            _text("name", str(name))
    return json.dumps([1, tree])


def _tree(given: object) -> dict[str, Any]:
    tree: Mapping[str, Any] = given if isinstance(given, dict) else {}
    kind, context, parts = tree.get("type"), tree.get("context"), tree.get("children_spec")
    if not isinstance(parts, list):
        raise _RefusedError(f"has {quote(given)} in the place of a structure of inputs or results")
    if kind is None and context is None and not parts:
        return {"type": None, "context": None, "children_spec": []}
    keys = json.loads(context) if kind in _TREES and isinstance(context, str) else 0
    plain = keys is None or (isinstance(keys, list) and all(isinstance(one, str | int | float | None) for one in keys))
    if not plain:
        raise _RefusedError(f"has inputs or results of type {quote(kind)}; tensors in tuples, lists and dicts expected")
    return {"type": kind, "context": json.dumps(keys), "children_spec": [_tree(part) for part in parts]}

"""Names of a C program: identifiers from a model's names, and what comments may say of these."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from gpucomp.errors import quote, wrong_argument
from gpucomp.ir.types import NAMED
from gpucomp.lazy_dataclass import dataclass
from gpucomp.runtime.inputs import TensorSpec

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
# keywords and macros of C11 and of C++20, which may include the header
_WORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class co_await co_return
co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete do double dynamic_cast
else enum explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
nullptr operator or or_eq private protected public register reinterpret_cast requires restrict return short signed sizeof
static static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename union
unsigned using virtual void volatile wchar_t while xor xor_eq NULL linux unix main errno
"""
# macros of the headers that programs include, and types of stdint.h, after which C++ lets no member be named
_MACROS = """
BUFSIZ CLOCKS_PER_SEC EOF EXIT_FAILURE EXIT_SUCCESS HUGE_VAL HUGE_VALF HUGE_VALL I INFINITY NAN SEEK_CUR SEEK_END SEEK_SET
TIME_UTC assert complex errno imaginary noreturn offsetof stderr stdin stdout
int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t intptr_t uintptr_t size_t ptrdiff_t
"""
RESERVED = frozenset(f"{_WORDS} {_MACROS}".split())
_LIMIT = re.compile(r"[A-Z0-9_]+_(MAX|MIN|WIDTH)|U?INT(8|16|32|64|MAX)_C")  # of stdint.h, limits.h and float.h
# Names of the project's other files and programs, headers of C and POSIX, which NAME.h would hide, libraries that compilers link
# on their own, targets of cmake (policy CMP0037) and of its generators, and NAMEs of a function NAME_init of C libraries
_TAKEN = """
gpucomp_share gpucomp_pool selftest selftest_data example
assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic stdbit stdbool
stdckdint stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype
aio alloca byteswap cpio cpuid dirent dlfcn elf endian fcntl features fmtmsg fnmatch ftw getopt glob grp iconv langinfo libgen
libintl malloc memory monetary mqueue ndbm netdb nl_types poll pwd regex sched search semaphore spawn strings stropts syslimits
syslog tar termios trace ulimit unistd utime utmpx values wordexp
atomic c dl gcc gcc_eh gcc_s m pthread rt ssp util
ALL_BUILD INSTALL PACKAGE RUN_TESTS ZERO_CHECK all clean depend edit_cache help install list_install_components package
package_source preinstall rebuild_cache test
cnd mtx sem
"""
TAKEN = frozenset(_TAKEN.split())
_C_TYPES = {
    "f64": "double",
    "f32": "float",
    "f16": "uint16_t",
    "bf16": "uint16_t",
    **{f"{sign}{bits}": f"{'u' if sign == 'u' else ''}int{bits}_t" for sign in "iu" for bits in (8, 16, 32, 64)},
    "i4": "int8_t",
    "i2": "int8_t",
}  # any other type is uint8_t
# how the self-test compares numbers of a type
_LETTERS = {"f64": "d", "f32": "f", "f16": "h", "bf16": "b", "i8": "s", "u8": "u"}


@dataclass(frozen=True)
class CTensor:
    """An input or output of the C program. An extent that each run decides is a text."""

    kind: str
    name: str
    member: str
    dtype: str
    extents: tuple[int | str, ...]

    @property
    def fixed(self) -> bool:
        """Whether all runs have the same extents."""
        return all(isinstance(n, int) for n in self.extents)

    @property
    def elements(self) -> int:
        """Of a ``fixed`` tensor."""
        return math.prod(n for n in self.extents if isinstance(n, int))

    @property
    def itemsize(self) -> int:
        return NAMED[self.dtype].nbytes

    @property
    def nbytes(self) -> int:
        return self.elements * self.itemsize

    @property
    def ctype(self) -> str:
        return _C_TYPES.get(self.dtype, "uint8_t")

    @property
    def letter(self) -> str:
        return _LETTERS.get(self.dtype, "x")

    @property
    def shape(self) -> str:
        return commented(" x ".join(map(str, self.extents))) or "one number"

    @property
    def told(self) -> str:
        size = f", {self.nbytes} bytes" if self.fixed else ""
        return f"{commented(self.name)}: {self.dtype}[{commented(','.join(map(str, self.extents)))}]{size}"


def commented(text: str) -> str:
    """``text`` for a comment, which it cannot end, or a page."""
    return re.sub(r"[^A-Za-z0-9 .,:+=_x\[\]()/-]|/(?=\*)", "?", text)[:100]


def project_name(given: str, stem: str) -> str:
    """The name of the C program: ``given``, or one from the name of the model's file.

    Raises ``UsageError`` (GPC2060) for a given name that is no identifier of C, or that something else has.
    """
    if not given:
        found = re.sub(r"[^A-Za-z0-9_]+", "_", stem).strip("_").lower()[:40]
        found = found if found[:1].isalpha() else f"model_{found}".rstrip("_")
        return f"{found}_model" if found in RESERVED | TAKEN else found
    if not NAME.fullmatch(given) or given in RESERVED:
        raise wrong_argument(
            f"name {quote(given)}: an identifier of C expected, which begins all names of the project", code="GPC2060"
        )
    if given in TAKEN:
        raise wrong_argument(
            f"name {quote(given)}: a header, a library or a target of cmake has this name: choose another one",
            code="GPC2060",
        )
    return given


def identifiers(kind: str, names: Sequence[str]) -> list[str]:
    """An identifier of C for each name, no two alike."""
    found: list[str] = []
    for number, given in enumerate(names):
        base = re.sub(r"[^A-Za-z0-9_]+", "_", given).strip("_")[:60]
        if not base[:1].isalpha() or base in RESERVED or _LIMIT.fullmatch(base):
            base = f"{kind.lower()}_{base or number}"
        name, more = base, 2
        while name in found:
            name, more = f"{base}_{more}", more + 1
        found.append(name)
    return found


def members(kind: str, specs: Sequence[TensorSpec]) -> list[CTensor]:
    """The tensors with an identifier each."""
    names = identifiers(kind, [spec.name for spec in specs])
    return [
        CTensor(kind, spec.name, name, spec.dtype, tuple(n if isinstance(n, int) else str(n) for n in spec.shape))
        for name, spec in zip(names, specs, strict=True)
    ]


@dataclass(frozen=True)
class Picture:
    """An input that a picture fits: of ``width`` x ``height`` pixels; ``last`` if the channels are the last dimension."""

    member: str
    ctype: str
    channels: int
    height: int
    width: int
    last: bool


def picture_in(inputs: Sequence[CTensor]) -> Picture | None:
    """The only input as a picture, if it can be one: of one or three channels, of f32 or of bytes."""
    if len(inputs) != 1 or inputs[0].dtype not in ("f32", "u8") or len(inputs[0].extents) != 4:
        return None
    tensor = inputs[0]
    batch, a, b, c = (n if isinstance(n, int) else 0 for n in tensor.extents)
    if batch != 1 or (a not in (1, 3) and c not in (1, 3)) or not tensor.elements:
        return None
    last = a not in (1, 3)
    channels, height, width = (c, a, b) if last else (a, b, c)
    return Picture(tensor.member, tensor.ctype, channels, height, width, last)

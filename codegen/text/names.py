"""C identifiers for Python names: any Python identifier, and names derived from it with dots."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...kernels.ir.ops import OPS

# Keywords, macros of the headers and of GNU C, and functions and variables that the text itself uses.
_OF_MATH = (f"{op.c}{f}" for op in OPS.values() if op.c for f in ("", "f"))
RESERVED = frozenset(_OF_MATH) | frozenset(
    """
    auto break case char const continue default do double else enum extern float for goto if inline int long register restrict
    return short signed sizeof static struct switch typedef union unsigned void volatile while asm typeof linux unix i386
    _Alignas _Alignof _Atomic _Bool _Complex _Generic _Imaginary _Noreturn _Static_assert _Thread_local
    NAN INFINITY VECTORISED ANY_ORDER IN_ORDER KEEPS_ORDER HAS_LIBMVEC LANES_AVX512 LANES_SHUFFLE main
    args tid n_threads are_aligned workspace run_sequence run_unit check_indices find_index take_part
    ks_part ks_team_run ks_team_meet team given g uintptr_t late_thread hold_back
    ks_fail ks_stopped ks_message printf dprintf stdin stdout stderr EOF NULL BUFSIZ FILENAME_MAX FOPEN_MAX TMP_MAX L_tmpnam
    P_tmpdir SEEK_SET SEEK_CUR SEEK_END va_start va_arg va_end va_copy
    """.split()  # noqa: SIM905  (a list of literals would be four times as long)
)
# Further words reserved by C++ and CUDA, and names that the text of kernels uses.
RESERVED_CUDA = frozenset(
    """
    alignas alignof and bitand bitor bool catch class compl concept const_cast consteval constexpr constinit decltype delete
    dynamic_cast explicit export false friend mutable namespace new noexcept not nullptr operator or private protected public
    reinterpret_cast requires static_assert static_cast template this thread_local throw true try typeid typename using
    virtual wchar_t xor threadIdx blockIdx blockDim gridDim warpSize meeting
    """.split()  # noqa: SIM905
)
_SHAPED = re.compile(
    r"lane_\w+|mask\d+|launch_\d+(_thread|_part|_given|_closed_\d+)?|_?_mm.*|__.*|_[A-Z].*|cuda\w*|u?int\w*_t|(INT|UINT|FP_|M_|HUGE_|FLT_|DBL_|MATH_|SIZE_|PTRDIFF_|SIG_|WCHAR_|WINT_)\w*"
    r"|(\w+_)?(f16|f32|f64|[iu](8|16|32|64))(x\d+)?(_\w+)?"
)

_INLINE = re.compile(r"^(?:IN_ORDER )?static inline (?:\w+ )+\**(\w+)\(", re.MULTILINE)
_MACRO = re.compile(r"^\s*#\s*define (\w+)", re.MULTILINE)


def own_names(prelude: str, defined: Iterable[str]) -> tuple[str, ...]:
    """Returns the names with file scope that a text defines, and that another text of the same file may define too.

    They are `defined`, and the functions of the prelude. Macros are left out: all texts define the
    same macros, and `#if defined` tests which of them exist.
    """
    macros = set(_MACRO.findall(prelude))
    names = dict.fromkeys((*defined, *_INLINE.findall(prelude)))
    return tuple(name for name in names if name not in macros)


def identifier(name: str) -> str:
    """Returns a C identifier as close to `name` as possible; different names may give the same."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    if plain in RESERVED or _SHAPED.fullmatch(plain) or plain[:1].isdigit() or not plain.strip("_"):
        return f"v_{plain.strip('_')}_"
    return plain


def c_names(names: Iterable[str], avoid: frozenset[str] = frozenset()) -> dict[str, str]:
    """Returns a unique C identifier for each name, none of them in `avoid`. Valid names stay as they are."""
    wanted = list(names)
    found = {name: name for name in wanted if identifier(name) == name and name not in avoid}
    taken = set(found)
    for name in wanted:
        if name not in found:
            stem = new = f"v_{name}_" if name in avoid else identifier(name)
            k = 0
            while new in taken:
                k += 1
                new = f"{stem}{k}"
            found[name] = new
            taken.add(new)
    return found

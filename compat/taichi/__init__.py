"""Taichi's names, for programs that were written with it: `import kernelscape.compat.taichi as ti`.

Its modules are modules here: `import kernelscape.compat.taichi.math as tm`. A name is looked up when it is used: first in the table
below, then among the public names of this package, which has most of Taichi's under the same name. A name of Taichi that this
package lacks raises `MissingNameError`, or `MissingImportError` if it is imported: a LanguageError of one sentence. `install` puts
all of it into `sys.modules` under the name `taichi`, so that programs run as they are.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Final, final

from ...kernels.fields.caller_location import caller
from ...kernels.ir.errors import LanguageError
from ..names import MATH, REASONS

_PACKAGE: Final = __name__.removesuffix(".compat.taichi")

# Where a name is that this package has elsewhere, or under another name.
_TABLE: Final = {
    "GUI": "compat.display.gui:GUI",
    "rgb_to_hex": "compat.display.picture:rgb_to_hex",
    "hex_to_rgb": "compat.display.picture:hex_to_rgb",
    "root": "kernels.fields.fields_builder:root",
    "extension": "compat.facts:Extension",
    "Field": "kernels.fields.field:AbstractField",
    "ScalarNdarray": "kernels.fields.ndarray:Ndarray",
    "VectorNdarray": "kernels.fields.ndarray:VectorNdarray",
    "MatrixNdarray": "kernels.fields.ndarray:MatrixNdarray",
    "ref": "kernels.frontend.intrinsics:ref",
    "cache_read_only": "kernels.frontend.sparse:cache_read_only",
    "logical_not": "kernels.frontend.intrinsics:logical_not",
    "assume_in_range": "kernels.frontend.intrinsics:assume_in_range",
    "ArgPack": "kernels.frontend.packs:Pack",
    "ArgPackType": "kernels.frontend.packs:PackType",
    "int8": ":i8",
    "int16": ":i16",
    "int32": ":i32",
    "int64": ":i64",
    "uint8": ":u8",
    "uint16": ":u16",
    "uint32": ":u32",
    "uint64": ":u64",
    "float16": ":f16",
    "float32": ":f32",
    "float64": ":f64",
    "x86_64": ":x64",
    "TaichiCompilationError": "kernels.ir.errors:KernelError",
    "TaichiSyntaxError": "kernels.ir.errors:KernelSyntaxError",
    "TaichiTypeError": "kernels.ir.errors:KernelTypeError",
    "TaichiNameError": "kernels.ir.errors:KernelNameError",
    "TaichiIndexError": "kernels.ir.errors:KernelIndexError",
    "TaichiRuntimeError": "kernels.ir.errors:KernelRuntimeError",
    "TaichiRuntimeTypeError": "kernels.ir.errors:KernelArgumentError",
    "TaichiAssertionError": "kernels.ir.errors:KernelAssertionError",
}
# Modules of `ti.lang`, all of which have Taichi's names, and what they have beside these.
_LANG: Final = (
    *("impl", "exception", "misc", "util", "ops", "matrix", "struct", "field", "snode", "enums"),
    *("kernel_impl", "kernel_arguments", "expr", "any_array", "_ndarray"),
)
_FACTS: Final = (
    *("get_runtime", "get_host_arch_list", "is_arch_supported", "has_pytorch", "has_paddle"),
    *("to_numpy_type", "to_taichi_type", "AutodiffMode", "SNodeGradType"),
)
# Functions of `ti.lang.ops` that are operators, by their names in Python's module `operator`.
_OPERATORS: Final = {
    **{name: name for name in ("add", "sub", "mul", "neg", "mod", "truediv", "floordiv", "pow")},
    **{f"cmp_{name}": name for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    "bit_and": "and_",
    "bit_or": "or_",
    "bit_xor": "xor",
    "bit_not": "invert",
    "bit_shl": "lshift",
    "bit_sar": "rshift",
}
_CONVERSIONS: Final = {"ti_float": float, "ti_int": int, "ti_bool": bool}
_MODULES: Final = (
    "ad",
    "profiler",
    "math",
    "types",
    "types.primitive_types",
    "algorithms",
    "graph",
    "linalg",
    "sparse",
    "ui",
    "tools",
    "experimental",
    "lang",
    *(f"lang.{name}" for name in _LANG),
    "_lib",
    "_lib.core",
)
_TYPES: Final = ["i8", "i16", "i32", "i64", "u1", "u8", "u16", "u32", "u64", "f16", "f32", "f64"]
_REAL: Final = ["f16", "f32", "f64", float]
_INTEGER: Final = ["i8", "i16", "i32", "i64", "u1", "u8", "u16", "u32", "u64", int, bool]
_GROUPS: Final[dict[str, list[Any]]] = {
    "real_types": _REAL,
    "integer_types": _INTEGER,
    "all_types": [*_REAL, *_INTEGER],
}
_LEVELS: Final = {
    "TRACE": "trace",
    "DEBUG": "debug",
    "INFO": "info",
    "WARN": "warn",
    "ERROR": "error",
    "CRITICAL": "critical",
}

__version__ = (1, 7, 4)


class MissingNameError(LanguageError, AttributeError):
    """Name of Taichi that this package lacks. It is an AttributeError, too, so that `hasattr` returns False."""


class MissingImportError(LanguageError, ImportError):
    """Import of a name that this package lacks. It is an ImportError, too, so that programs can catch it."""


def _public(name: str) -> Any:
    """Returns a public name of this package. Raises AttributeError."""
    return getattr(import_module(_PACKAGE), name)


def _reason(name: str) -> str:
    """Returns the message on a name of Taichi that this package lacks."""
    reason = REASONS.get(name) or REASONS.get(name.split(".")[0])
    return f"ti.{name} is not here" + ("" if reason is None else f": {reason}")


def _missing(name: str) -> MissingNameError:
    return MissingNameError(_reason(name), caller())


def _found(name: str) -> Any:
    """Returns the object that `ti.NAME` stands for."""
    if name in _MODULES:
        return _module(name)
    if name in _TABLE:
        module, _, attribute = _TABLE[name].partition(":")
        if not module:
            return _found(attribute)
        return getattr(import_module(f"{_PACKAGE}.{module}"), attribute)
    if name in _LEVELS:
        return _LEVELS[name]
    if name in _OWN:
        return _OWN[name]
    try:
        return _public(name)
    except AttributeError:
        raise _missing(name) from None


def _of_math(name: str) -> Any:
    """Returns the object that `ti.math.NAME` stands for: one of `ks.math`, or of `ti`."""
    own = getattr(_public("math"), name, None)
    return _found_in("math", name) if own is None else own


def _found_in(module: str, name: str) -> Any:
    """Returns the object that `ti.NAME` stands for, in a module of Taichi that has these names, too."""
    try:
        return _found(name)
    except MissingNameError:
        raise _missing(f"{module}.{name}") from None


def _of_types(name: str) -> Any:
    if name == "primitive_types":
        return _module("types.primitive_types")
    if name in _GROUPS:
        return [x for t in _GROUPS[name] for x in ([_found(t)] if isinstance(t, str) else [t])]
    if f"types.{name}" in REASONS:
        raise _missing(f"types.{name}")
    if name in _TYPES or name in _TABLE:
        return _found(name)
    own = getattr(_public("types"), name, None)
    if own is None:
        raise _missing(f"types.{name}")
    return own


def _of_file(file: str, module: str) -> Callable[[str], Any]:
    """Returns the function that finds names of the Taichi module `module`, defined in `compat/{file}.py`."""

    def find(name: str) -> Any:
        own = getattr(import_module(f"{_PACKAGE}.compat.{file}"), name, None)
        if own is None:
            raise _missing(f"{module}.{name}")
        return own

    return find


def _of_inner(module: str, name: str) -> Any:
    """Returns the object that `ti.lang.MODULE.NAME` stands for."""
    if name == "current_cfg":
        return lambda: _public("cfg")
    if name in _CONVERSIONS:
        return _CONVERSIONS[name]
    if name in _FACTS:
        return getattr(import_module(f"{_PACKAGE}.compat.facts"), name)
    if module == "lang.ops" and name in _OPERATORS:
        return getattr(operator, _OPERATORS[name])
    return _found_in(module, name)


def _of_core(name: str) -> Any:
    """Returns a fact of Taichi's core about this machine: no GPU and no screen, but windows are available."""
    if name.startswith("with_"):
        return lambda: False
    if name == "GGUI_AVAILABLE":
        return True
    if name == "get_max_num_indices":
        return lambda: 12
    if name == "is_extension_supported":
        return import_module(f"{_PACKAGE}.compat.facts").is_extension_supported
    raise _missing(f"_lib.core.{name}")


def _of_profiler(name: str) -> Any:
    """Returns a function of Taichi's profiler; those that print tables print that kernels are not measured."""
    if name.startswith("print_"):
        return lambda *args, **kwargs: print(f"ti.profiler.{name}: kernels are not measured here")
    if name.startswith("clear_"):
        return _do_nothing
    raise _missing(f"profiler.{name}")


def _of_lib(name: str) -> Any:
    if name == "core":
        return _module("_lib.core")
    raise _missing(f"_lib.{name}")


def _of_lang(name: str) -> Any:
    return _module(f"lang.{name}") if name in _LANG else _found_in("lang", name)


def _of_ad(name: str) -> Any:
    own = getattr(_public("ad"), name, None)
    if own is None:
        raise _missing(f"ad.{name}")
    return own


_FINDERS: Final[dict[str, Callable[[str], Any]]] = {
    "ad": _of_ad,
    "profiler": _of_profiler,
    "math": _of_math,
    "types": _of_types,
    "types.primitive_types": _of_types,
    "algorithms": _of_file("algorithms", "algorithms"),
    "graph": _of_file("compute_graph", "graph"),
    "linalg": _of_file("linear_algebra", "linalg"),
    "sparse": _of_file("sparse_grid", "sparse"),
    "ui": _of_file("display.window", "ui"),
    "tools": _of_file("display.tools", "tools"),
    "experimental": partial(_found_in, "experimental"),
    "lang": _of_lang,
    **{f"lang.{name}": partial(_of_inner, f"lang.{name}") for name in _LANG},
    "_lib": _of_lib,
    "_lib.core": _of_core,
}


@final
class _Module(ModuleType):
    """The module `taichi`, or a module in it, whose names are looked up when they are used."""

    def __init__(self, name: str, find: Callable[[str], Any]) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self._find = find
        if name == "taichi.math":
            self.__all__ = list(MATH)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._find(name)


_made: dict[str, ModuleType] = {}


def _module(name: str) -> ModuleType:
    if name not in _made:
        _made[name] = _Module(f"taichi.{name}", _FINDERS[name])
    return _made[name]


def _do_nothing(*args: Any, **kwargs: Any) -> None:
    """Does nothing, in place of a function that sets the level of messages of Taichi's compiler."""


_OWN: Final[dict[str, Any]] = {
    "abs": abs,
    "set_logging_level": _do_nothing,
    "is_logging_effective": lambda level: False,
}


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _found(name)


@final
class _Missing(MetaPathFinder):
    """Import finder behind all others, for modules of `taichi` that are missing: raises MissingImportError."""

    def __init__(self, package: str) -> None:
        self._begin = f"{package}."

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.startswith(self._begin):
            raise MissingImportError(_reason(name.removeprefix(self._begin)), caller())


@contextmanager
def install(examples: Path | None = None) -> Iterator[None]:
    """Context in which `import taichi`, and imports of its modules, give this package.

    `examples`: folder that is `taichi.examples`; None: no such module.
    """
    whole = _Module("taichi", _found)
    whole.__version__ = __version__  # type: ignore[attr-defined]
    names = {"taichi": whole} | {f"taichi.{name}": _module(name) for name in _MODULES}
    if examples is not None:
        beside = ModuleType("taichi.examples")
        beside.__path__ = [str(examples)]
        names["taichi.examples"] = beside
    before = _taken()
    sys.modules.update(names)
    last = _Missing("taichi")
    sys.meta_path.append(last)
    try:
        yield
    finally:
        if sys.meta_path is not None:  # Python's own end takes it away first
            sys.meta_path.remove(last)
            _taken()
            sys.modules.update(before)


def _taken() -> dict[str, ModuleType]:
    """Removes all modules named `taichi` or `taichi.*` from `sys.modules`, and returns them."""
    names = [n for n in list(sys.modules) if n.split(".")[0] == "taichi"]  # other threads import
    return {n: sys.modules.pop(n) for n in names}


sys.modules.update({f"{__name__}.{name}": _module(name) for name in _MODULES})
sys.meta_path.append(_Missing(__name__))

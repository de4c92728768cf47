"""Calls of loaded C from Python at the price of a function call: `call.c`, built once for this Python and this NumPy.

Where Python's header is missing there is no such extension; calls then go through ctypes, are as right, and take some microseconds.
"""

from __future__ import annotations

import ctypes
import math
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend import AbstractCaller
from ..device import DeviceOptions
from ..worker.outcome import Failure
from .compiler import Compiler, build_library
from .memory import address_of

if TYPE_CHECKING:
    from ..records.stored import Parameter
    from ..signature import Signature
    from .runner import CpuModule

_NAME = "call"
PACKAGE = "apt install python3-dev"  # of Debian


def header_folders() -> tuple[str, ...]:
    """Where the headers of this Python and of NumPy are; () where those of Python are not installed."""
    paths = sysconfig.get_paths()
    own = tuple(dict.fromkeys((paths["include"], paths["platinclude"])))
    if not any((Path(folder) / "Python.h").exists() for folder in own):
        return ()
    return (*own, np.get_include())


def load_extension(compiler: Compiler, options: DeviceOptions) -> Any | None:
    """The extension, built at first; None where it cannot be."""
    built = build_extension(compiler, options)
    return None if isinstance(built, Failure) else _import(built)


def build_extension(compiler: Compiler, options: DeviceOptions) -> Path | Failure:
    """Build it unless it is there."""
    folders = header_folders()
    if not folders:
        return Failure("compile", f"Python.h is not installed (Debian: {PACKAGE})")
    # Equal texts are one file: it must tell the versions apart that it is built for.
    version = f"{sysconfig.get_config_var('SOABI')} {sys.version_info.micro} {np.__version__}"
    extra = (*(f"-I{folder}" for folder in folders), f'-DBUILT_FOR="{version}"')
    plain = replace(compiler, flags=("-O2", "-std=gnu11"), native="", linked=())
    text = (Path(__file__).parent / f"{_NAME}.c").read_text()
    built = build_library(plain, text, extra, options.build_folder, options.compile_timeout_s)
    return built if isinstance(built, Failure) else built.path


@cache
def _import(path: Path) -> Any:
    loader = ExtensionFileLoader(_NAME, str(path))
    spec = spec_from_file_location(_NAME, path, loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def make_caller(extension: Any | None, module: CpuModule, signature: Signature) -> AbstractCaller:
    """The quickest calls of a module that there are."""
    if extension is None:
        return PlainCaller(module, signature)
    entry = ctypes.cast(module.entry, ctypes.c_void_p).value or 0
    check = 0 if module.index_check is None else module.index_check.address
    places = {name: k for k, name in enumerate((*signature.arrays, *signature.scalars))}
    rows = tuple(_row(p, signature, places) for p in signature.parameters)
    pool = module.pool if module.artifact.workspace_bytes else None
    caller: AbstractCaller = extension.Caller(entry, check, rows, pool, module.make_workspace)
    return caller


class PlainCaller(AbstractCaller):
    """What call.c does, in Python: for calls that give everything by position. Most of its time are the addresses of the arrays."""

    def __init__(self, module: CpuModule, signature: Signature) -> None:
        self._module = module
        self._n_places = len(signature.arrays) + len(signature.scalars)
        places = {name: k for k, name in enumerate((*signature.arrays, *signature.scalars))}
        self._rows = [_plain_row(p, signature, places) for p in signature.parameters]
        self._has_workspace = module.artifact.workspace_bytes > 0
        self._accepted: dict[int, Any] = {}

    def __call__(self, *args: Any, **named: Any) -> bool:
        if named or len(args) != len(self._rows):
            return False
        pointers: list[int] = [0] * self._n_places
        spans, kept = [], []
        for k, (value, row) in enumerate(zip(args, self._rows, strict=True)):
            if row.number is not None:
                held = row.held(value)
                if held is None:
                    return False
                kept.append(held)
                pointers[row.place] = ctypes.addressof(held)
            elif row.dtype is None:
                if k not in self._accepted or value is not self._accepted[k]:
                    return False
            else:
                if not row.fits(value):
                    return False
                begin = pointers[row.place] = address_of(value)
                spans.append((begin, begin + value.nbytes, row.is_written))
        if _overlap(spans):
            return False
        if not self._has_workspace:
            return self._run(pointers)
        with self._module.lent() as workspace:
            return self._run([*pointers, *map(address_of, workspace)])

    def _run(self, pointers: list[int]) -> bool:
        vector = (ctypes.c_void_p * len(pointers))(*pointers)
        check = self._module.index_check
        if check is not None and not check.passes(vector):
            return False
        self._module.entry(vector)
        return True

    def accept(self, k: int, value: Any) -> None:
        self._accepted[k] = value


@dataclass(frozen=True)
class _PlainRow:
    """A parameter: of an array `dtype` is given, of a scalar `number`, of a constant neither."""

    place: int = -1
    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] = ()
    flags: int = 0  # of NumPy, which must be set
    is_written: bool = False
    number: Any = None  # its type in ctypes
    python: type = float

    def fits(self, value: Any) -> bool:
        """Whether that is such an array."""
        return (
            type(value) is np.ndarray
            and value.dtype == self.dtype
            and value.shape == self.shape
            and value.flags.num & self.flags == self.flags
        )

    def held(self, value: Any) -> Any | None:
        """The number in memory; None where it is no such number, does not fit, or is infinite now."""
        if type(value) is not self.python:
            return None
        held = self.number(value)
        if self.python is int:
            return held if held.value == value else None
        return None if math.isinf(held.value) else held


_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400  # NPY_ARRAY_*
_NUMBERS = {
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
}


def _plain_row(p: Parameter, signature: Signature, places: Mapping[str, int]) -> _PlainRow:
    if p.kind == "constant":
        return _PlainRow()
    if p.kind == "scalar":
        dtype = signature.scalars[p.name].dtype
        python = int if dtype.is_integer else float
        return _PlainRow(places[p.name], number=_NUMBERS[dtype.value], python=python)
    a, is_written = signature.arrays[p.name], signature.is_written(p.name)
    flags = _CONTIGUOUS | _ALIGNED | (_WRITEABLE if is_written else 0)
    return _PlainRow(places[p.name], a.dtype.numpy, a.shape, flags, is_written)


def _overlap(spans: Sequence[tuple[int, int, bool]]) -> bool:
    """Whether a span that is written shares memory with another."""
    for k, (begin, end, is_written) in enumerate(spans):
        if is_written:
            for j, (other, other_end, _) in enumerate(spans):
                if begin < other_end and other < end and j != k:
                    return True
    return False


def _row(p: Parameter, signature: Signature, places: Mapping[str, int]) -> tuple[Any, ...]:
    """What `read_parameter` of call.c reads."""
    if p.kind == "constant":
        return p.name, "c", "-", 0, -1, False, ()
    is_array = p.kind == "array"
    found = signature.arrays[p.name] if is_array else signature.scalars[p.name]
    dtype = found.dtype.numpy
    shape = signature.arrays[p.name].shape if is_array else ()
    is_written = is_array and signature.is_written(p.name)
    kind = "a" if is_array else "s"
    return p.name, kind, dtype.kind, dtype.itemsize, places[p.name], is_written, shape

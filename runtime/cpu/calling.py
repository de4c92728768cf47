"""Fast calls of loaded C code from Python, at the cost of a function call.

The extension `call.c` is built once for this Python and this NumPy. Without Python's headers it cannot be built, and calls go
through ctypes: as correct, but some microseconds slower.
"""

from __future__ import annotations

import ctypes
import math
import sys
import sysconfig
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ...kernels.ir.kernel import DType
from ..api.backend import AbstractCaller
from ..api.outcome import Failure
from ..device import DeviceOptions
from ..host import flush_stdout
from ..library import load_module
from .compiler import Compiler, build_library
from .guarded_arrays import address_of, in_memory

if TYPE_CHECKING:
    from ..api.backend import CallSignature
    from ..library import LoadedLibrary
    from .index_check import IndexCheck

_NAME = "call"
PACKAGE = "apt install python3-dev"  # of Debian


def header_folders() -> tuple[str, ...]:
    """Returns the include folders of this Python and of NumPy; () if Python's headers are not installed."""
    paths = sysconfig.get_paths()
    own = tuple(dict.fromkeys((paths["include"], paths["platinclude"])))
    if not any((Path(folder) / "Python.h").exists() for folder in own):
        return ()
    return (*own, np.get_include())


def load_extension(compiler: Compiler, options: DeviceOptions) -> Any | None:
    """Returns the extension module, built on first use; None if it cannot be built."""
    built = build_extension(compiler, options)
    return None if isinstance(built, Failure) else _import(built)


def build_extension(compiler: Compiler, options: DeviceOptions) -> Path | Failure:
    """Builds the extension unless it exists, and returns its path."""
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
    return load_module(_NAME, path)


class LoadedCode(Protocol):
    """Loaded code whose entry takes a vector of pointers: arrays, then scalars, then a workspace if it needs one."""

    library: LoadedLibrary
    entry: Any  # a function of ctypes
    index_check: IndexCheck | None


class Workspaces(Protocol):
    """Pool of workspaces, one per concurrent call."""

    pool: list[NDArray[Any]]  # that no call uses now

    def make_workspace(self) -> NDArray[Any]: ...

    def lent(self) -> AbstractContextManager[tuple[NDArray[Any], ...]]: ...


@dataclass(frozen=True)
class CallerParameter:
    """A parameter of a caller: an array, a scalar, or a constant of the code.

    `place` is its position among the entry's arguments, None for a constant.
    """

    name: str
    kind: Literal["array", "scalar", "constant"]
    place: int = -1
    dtype: DType = DType.f64
    shape: tuple[int, ...] = ()
    is_written: bool = False

    @property
    def flags(self) -> int:
        """NumPy array flags that an argument must have."""
        return _CONTIGUOUS | _ALIGNED | (_WRITEABLE if self.is_written else 0)

    def fits(self, value: Any) -> bool:
        """True if the value is an array with the dtype, shape and flags of this parameter."""
        return (
            type(value) is np.ndarray
            and value.dtype == self.dtype.numpy
            and value.shape == self.shape
            and value.flags.num & self.flags == self.flags
        )

    def held(self, value: Any) -> NDArray[Any] | None:
        """Returns a number as stored in memory; None if the value has another type or is out of range."""
        return in_memory(self.dtype, value) if self.takes(value) else None

    def takes(self, value: Any) -> bool:
        """True if the value has the Python type of this parameter and is in its range."""
        kind, least, most = self.limits
        return type(value) is kind and not (
            (value < least or value > most) and abs(value) != math.inf
        )

    @cached_property
    def limits(self) -> tuple[Any, float, float]:
        """Returns the Python type of numbers for this parameter, and the least and greatest allowed value."""
        if self.dtype.is_float:
            most = float(np.finfo(self.dtype.value).max)
            return float, -most, most
        return (int, *self.dtype.range) if self.dtype.is_integer else (bool, 0, 1)

    @property
    def for_c(self) -> tuple[Any, ...]:
        """Returns the parameter as the tuple that `read_parameter` of call.c parses."""
        if self.kind == "constant":
            return self.name, "c", "-", 0, -1, False, ()
        dtype = self.dtype.numpy
        kind = self.kind[0]
        return self.name, kind, dtype.kind, dtype.itemsize, self.place, self.is_written, self.shape


_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400  # NPY_ARRAY_*


def rows_of(signature: CallSignature) -> tuple[CallerParameter, ...]:
    """Returns the parameters of a sequence as caller parameters, in the order of its function."""
    places = {name: k for k, name in enumerate((*signature.arrays, *signature.scalars))}
    rows = []
    for p in signature.parameters:
        if p.kind in ("constant", "unseen"):
            rows.append(CallerParameter(p.name, "constant"))
        elif p.kind == "scalar":
            rows.append(
                CallerParameter(p.name, "scalar", places[p.name], signature.scalars[p.name].dtype)
            )
        else:
            a, is_written = signature.arrays[p.name], signature.is_written(p.name)
            rows.append(
                CallerParameter(p.name, "array", places[p.name], a.dtype, a.shape, is_written)
            )
    return tuple(rows)


def make_caller(
    extension: Any | None,
    code: LoadedCode,
    rows: Sequence[CallerParameter],
    workspaces: Workspaces | None = None,
    asserting: tuple[object, ...] = (),
) -> AbstractCaller:
    """Returns the fastest available caller of loaded code.

    `extension`: the module of call.c, None without it. `rows`: its parameters. `workspaces`: pool for code that needs workspaces.
    `asserting`: what the extension must know of code with assertions.
    """
    if extension is None:
        return PlainCaller(code, rows, workspaces)
    entry = ctypes.cast(code.entry, ctypes.c_void_p).value or 0
    check = 0 if code.index_check is None else code.index_check.address
    pool, make = (
        (None, None) if workspaces is None else (workspaces.pool, workspaces.make_workspace)
    )
    table = tuple(row.for_c for row in rows)
    held = (code.library.handle, code.index_check and code.index_check.library.handle)
    caller: AbstractCaller = extension.Caller(entry, check, table, pool, make, held, *asserting)
    return caller


class PrintingCaller(AbstractCaller):
    """Caller of code that prints: flushes Python's output before it."""

    def __init__(self, caller: AbstractCaller) -> None:
        self._caller = caller

    def __call__(self, *args: Any, **named: Any) -> bool:
        flush_stdout()
        return self._caller(*args, **named)

    def accept(self, k: int, value: Any) -> None:
        self._caller.accept(k, value)


class PlainCaller(AbstractCaller):
    """Python version of the caller in call.c, for calls with positional arguments only.

    Most of its time goes to array addresses.
    """

    def __init__(
        self,
        code: LoadedCode,
        rows: Sequence[CallerParameter],
        workspaces: Workspaces | None = None,
    ) -> None:
        self._code, self._rows, self._workspaces = code, rows, workspaces
        self._n_places = sum(row.kind != "constant" for row in rows)
        self._accepted: dict[int, Any] = {}

    def __call__(self, *args: Any, **named: Any) -> bool:
        if named or len(args) != len(self._rows):
            return False
        pointers: list[int] = [0] * self._n_places
        spans, kept = [], []
        for k, (value, row) in enumerate(zip(args, self._rows, strict=True)):
            if row.kind == "scalar":
                held = row.held(value)
                if held is None:
                    return False
                kept.append(held)
                pointers[row.place] = address_of(held)
            elif row.kind == "constant":
                if k not in self._accepted or value is not self._accepted[k]:
                    return False
            else:
                if not row.fits(value):
                    return False
                begin = pointers[row.place] = address_of(value)
                spans.append((begin, begin + value.nbytes, row.is_written))
        if _overlap(spans):
            return False
        if self._workspaces is None:
            return self._run(pointers)
        with self._workspaces.lent() as workspace:
            return self._run([*pointers, *map(address_of, workspace)])

    def _run(self, pointers: list[int]) -> bool:
        vector = (ctypes.c_void_p * len(pointers))(*pointers)
        check = self._code.index_check
        if check is not None and not check.passes(vector):
            return False
        self._code.entry(vector)
        return True

    def accept(self, k: int, value: Any) -> None:
        self._accepted[k] = value


def _overlap(spans: Sequence[tuple[int, int, bool]]) -> bool:
    """True if a span that is written shares memory with another one; spans are (first, end, is written)."""
    for k, (begin, end, is_written) in enumerate(spans):
        if is_written:
            for j, (other, other_end, _) in enumerate(spans):
                if begin < other_end and other < end and j != k:
                    return True
    return False

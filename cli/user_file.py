"""Sequences in a user's file, FILE.py:function, with arguments from its make_arguments(sizes, dtype, rng) if needed."""

from __future__ import annotations

import importlib.util
import inspect
import traceback
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ..compat.display.frames import LastFrame, Reel, recorded
from ..compat.program import around
from ..explorer.entry import library_workload
from ..explorer.workload import Workload, make_workload
from ..kernels.frontend.errors import LanguageError
from ..kernels.library import load, names
from .sequence_name import Named, WorkloadError

_DTYPES = {"f32": np.float32, "f64": np.float64}


def find_workload(
    named: Named,
    sizes: Mapping[str, int],
    dtype: str,
    seed: int,
    *,
    compare: bool = True,
    measures: bool = True,
    tell: Callable[[str], None] = lambda sentence: None,
) -> Workload:
    """Returns the workload of a library sequence, or of a function of a file (FILE.py:function).

    `compare`: with a NumPy function to compare with. `measures`: the contents of fields matter, since they are measured on.
    `tell` receives sentences on inputs that may not be as the user means them. Raises WorkloadError and LanguageError.
    """
    text = named.text
    if named.file is not None:
        with around(named.file):
            found = _file_workload(named, sizes, dtype, seed, compare, tell)
        if measures and found.begins_with_zeros:
            tell(
                f"all fields that {text} reads are zero: call your reset in the module, or by --before NAME"
            )
        return found
    for option, given in (("--before", named.before), ("--unseen", named.unseen)):
        if given:
            raise WorkloadError(f"{option} is of FILE.py:function: {text} is of the library")
    try:
        entry = load(text)
    except KeyError:
        raise WorkloadError(
            f"there is no library sequence {text!r}{_nearest(text, names())}"
        ) from None
    try:
        return library_workload(entry, sizes, dtype, seed, without=named.without)
    except ValueError as e:
        raise WorkloadError(f"{e}{_nearest_size(sizes, entry.sizes)}") from e


def _file_workload(
    named: Named,
    sizes: Mapping[str, int],
    dtype: str,
    seed: int,
    compare: bool,
    tell: Callable[[str], None],
) -> Workload:
    path, _, name = named.text.partition(":")
    module = _load_module(Path(path), tell)
    function = _function(module, name, path)
    if _needs_none(function, module):
        _check_sizes(module, sizes, path)
    for first in named.before:
        _begin(_function(module, first, path), first, path)
    sets = [()] if _needs_none(function, module) else _given(module, name, path, sizes, dtype, seed)
    _check_fit(sets, function, path)
    try:
        return make_workload(
            function,
            sets[0],
            sequence=f"{Path(path).stem}:{name}",
            name=name,
            sizes=dict(sizes) or None,
            reference=_reference(module, name, path) if compare else None,
            more=sets[1:],
            unseen=named.unseen,
            without=named.without,
        )
    except LanguageError:
        raise
    except (Exception, SystemExit) as e:
        raise WorkloadError(f"{path}:{name} cannot be called: {_where(e, path)}") from e


def _begin(function: Callable[..., Any], name: str, path: str) -> None:
    """Runs a function of the user's file before the explored one, for example to fill fields."""
    try:
        function()
    except LanguageError:
        raise
    except (Exception, SystemExit) as e:
        raise WorkloadError(f"{path}:{name} (--before) failed: {_where(e, path)}") from e


def _needs_none(function: Callable[..., Any], module: ModuleType) -> bool:
    """True if a function has no parameters and its file has no make_arguments: it works on fields only."""
    return not hasattr(module, "make_arguments") and not inspect.signature(function).parameters


def _check_sizes(module: ModuleType, sizes: Mapping[str, int], path: str) -> None:
    """Raises WorkloadError if `sizes` differ from those of a file that creates its fields itself."""
    for name, size in sizes.items():
        held = getattr(module, name, None)
        if held != size:
            has = f"{name} is {held!r:.40}" if isinstance(held, int) else f"there is no {name}"
            raise WorkloadError(
                f"{path} has no make_arguments and makes its fields itself: {has} there, not {size}"
            )


def _given(
    module: ModuleType, name: str, path: str, sizes: Mapping[str, int], dtype: str, seed: int
) -> list[tuple[Any, ...]]:
    """Calls the file's make_arguments and returns the sets of arguments."""
    make_arguments = _function(module, "make_arguments", path)
    try:
        args = make_arguments(dict(sizes), _DTYPES[dtype], np.random.default_rng(seed))
    except KeyError as e:
        raise WorkloadError(
            f"{path} needs the size {e.args[0]}: give --size {e.args[0]}=..."
        ) from e
    except (Exception, SystemExit) as e:
        raise WorkloadError(f"make_arguments of {path} failed: {_where(e, path)}") from e
    return _sets(args, name, path)


def _sets(made: Any, name: str, path: str) -> list[tuple[Any, ...]]:
    """Returns the sets of arguments in the result of make_arguments: a tuple is one set, a list of tuples several."""
    if isinstance(made, list) and made and all(isinstance(x, tuple) for x in made):
        return made
    if not isinstance(made, (tuple, list)):
        raise WorkloadError(
            f"make_arguments of {path} gives {type(made).__name__}: it must give a tuple of the"
            f" arguments of {name}, or a list of such tuples"
        )
    return [tuple(made)]


def _check_fit(sets: list[tuple[Any, ...]], function: Callable[..., Any], path: str) -> None:
    """Raises WorkloadError if a set of arguments does not match the function's parameters."""
    name = getattr(function, "__name__", "the function")
    for args in sets:
        try:
            inspect.signature(function).bind(*args)
        except TypeError as e:
            kinds = ", ".join(type(x).__name__ for x in args)
            raise WorkloadError(
                f"make_arguments of {path} gives {len(args)} arguments ({kinds}), which {name} does not take: {e}"
            ) from e


def _reference(module: ModuleType, name: str, path: str) -> Callable[..., Any] | None:
    """Returns the NumPy function for the sequence `name`: reference_NAME, else `reference`.

    `reference` is not used if another function of the file has its own. None if there is none.
    """
    own = f"reference_{name}"
    if hasattr(module, own):
        return _function(module, own, path)
    others = [n for n in vars(module) if n.startswith("reference_")]
    return (
        None if others or not hasattr(module, "reference") else _function(module, "reference", path)
    )


def _load_module(path: Path, tell: Callable[[str], None]) -> ModuleType:
    """Loads a file as a module. A program that shows pictures runs up to its first one, since most never end.

    `tell` receives a sentence if so.
    """
    if not path.is_file():
        raise WorkloadError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise WorkloadError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        with recorded(Reel(limit=1)):
            spec.loader.exec_module(module)
    except LastFrame as e:
        (line, *_) = _lines(e, str(path)) or [0]
        tell(
            f"{path} is loaded up to the picture that it shows in line {line}: the rest is not run"
        )
    except LanguageError:
        raise
    except (Exception, SystemExit) as e:
        raise WorkloadError(f"{path} cannot be loaded: {_where(e, str(path))}") from e
    return module


def _function(module: ModuleType, name: str, path: str) -> Callable[..., Any]:
    found = getattr(module, name, None) if name else None
    if not callable(found):
        public = [n for n, x in vars(module).items() if callable(x) and not n.startswith("_")]
        if not name:
            raise WorkloadError(
                f"name the function: {path}:NAME; there are {', '.join(sorted(public))}"
            )
        raise WorkloadError(f"{path} has no function {name!r}{_nearest(name, public)}")
    function: Callable[..., Any] = found
    return function


def _where(error: BaseException, path: str) -> str:
    """Returns one sentence on an error of the user's code, with its line."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__} in line {error.lineno}: {error.msg}"
    lines = _lines(error, path)
    place = f" in line {lines[-1]}" if lines else ""
    if isinstance(error, SystemExit):
        return f"it ends the program{place}"
    return f"{type(error).__name__}{place}: {error}"


def _lines(error: BaseException, path: str) -> list[int | None]:
    """Returns the line numbers of a file in an error's traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f.lineno for f in frames if Path(f.filename).resolve() == Path(path).resolve()]


def _nearest(name: str, known: Any) -> str:
    near = get_close_matches(name.lower(), list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(sorted(known))}"


def _nearest_size(given: Mapping[str, int], known: Mapping[str, int]) -> str:
    near = [m for g in given if g not in known for m in get_close_matches(g, known, n=1)]
    return f"; did you mean {near[0]}?" if near else ""

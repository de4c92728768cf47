"""Sequences of the user's own: FILE.py:function, with make_arguments(sizes, dtype, rng) beside it where it takes any."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ..explorer.entry import library_workload
from ..explorer.workload import Workload, make_workload
from ..kernels.language.errors import LanguageError
from ..kernels.library import load, names

_DTYPES = {"f32": np.float32, "f64": np.float64}


class WorkloadError(Exception):
    """There is no such sequence, or it cannot be called; one sentence."""


def find_workload(
    text: str, sizes: Mapping[str, int], dtype: str, seed: int, *, compare: bool = True
) -> Workload:
    """The library sequence of that name, or the function of a file: FILE.py:function.

    Raises WorkloadError and LanguageError. `compare` says whether a NumPy reference is of interest.
    """
    if ":" in text or text.endswith(".py"):
        return _file_workload(text, sizes, dtype, seed, compare)
    try:
        entry = load(text)
    except KeyError:
        raise WorkloadError(
            f"there is no library sequence {text!r}{_nearest(text, names())}"
        ) from None
    try:
        return library_workload(entry, sizes, dtype, seed)
    except ValueError as e:
        raise WorkloadError(f"{e}{_nearest_size(sizes, entry.sizes)}") from e


def _file_workload(
    text: str, sizes: Mapping[str, int], dtype: str, seed: int, compare: bool
) -> Workload:
    path, _, name = text.partition(":")
    module = _load_module(Path(path))
    function = _function(module, name, path)
    sets = [()] if _needs_none(function, module) else _given(module, name, path, sizes, dtype, seed)
    try:
        return make_workload(
            function,
            sets[0],
            sequence=f"{Path(path).stem}:{name}",
            name=name,
            sizes=dict(sizes) or None,
            reference=_reference(module, name, path) if compare else None,
            more=sets[1:],
        )
    except LanguageError:
        raise
    except (Exception, SystemExit) as e:
        raise WorkloadError(f"{path}:{name} cannot be called: {_where(e, path)}") from e


def _needs_none(function: Callable[..., Any], module: ModuleType) -> bool:
    """Whether a function works on the fields of its program alone."""
    return not hasattr(module, "make_arguments") and not inspect.signature(function).parameters


def _given(
    module: ModuleType, name: str, path: str, sizes: Mapping[str, int], dtype: str, seed: int
) -> list[tuple[Any, ...]]:
    """The sets of arguments that the file makes."""
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
    """The sets of arguments that make_arguments gave: a tuple is one, a list of tuples are several."""
    if isinstance(made, list) and made and all(isinstance(x, tuple) for x in made):
        return made
    if not isinstance(made, (tuple, list)):
        raise WorkloadError(
            f"make_arguments of {path} gives {type(made).__name__}: it must give a tuple of the"
            f" arguments of {name}, or a list of such tuples"
        )
    return [tuple(made)]


def _reference(module: ModuleType, name: str, path: str) -> Callable[..., Any] | None:
    """The NumPy function of the one that runs: reference_NAME, or `reference` where no other function of the file has its own."""
    own = f"reference_{name}"
    if hasattr(module, own):
        return _function(module, own, path)
    others = [n for n in vars(module) if n.startswith("reference_")]
    return (
        None if others or not hasattr(module, "reference") else _function(module, "reference", path)
    )


def _load_module(path: Path) -> ModuleType:
    if not path.is_file():
        raise WorkloadError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise WorkloadError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # As with `python FILE.py`: what lies beside the file can be imported by it.
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except LanguageError:
        raise
    except (Exception, SystemExit) as e:
        raise WorkloadError(f"{path} cannot be loaded: {_where(e, str(path))}") from e
    finally:
        del sys.path[0]
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
    """An error of the user's code in one sentence with its line."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__} in line {error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if Path(f.filename).resolve() == Path(path).resolve()]
    place = f" in line {lines[-1]}" if lines else ""
    if isinstance(error, SystemExit):
        return f"it ends the program{place}"
    return f"{type(error).__name__}{place}: {error}"


def _nearest(name: str, known: Any) -> str:
    near = get_close_matches(name.lower(), list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(sorted(known))}"


def _nearest_size(given: Mapping[str, int], known: Mapping[str, int]) -> str:
    near = [m for g in given if g not in known for m in get_close_matches(g, known, n=1)]
    return f"; did you mean {near[0]}?" if near else ""

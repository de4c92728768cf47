"""Runs the small programs of `behaviours/`, here or with Taichi itself, and compares what both show.

    python -m kernelscape.testing.observing ours|emulator|taichi [FILE[:NAME] ...]

prints one line of JSON a behaviour: file, name, and "value" or "error". `emulator` is ours on the emulator of a GPU; lines
then have "runs", the calls of each kernel by backend. A line with "begun" stands before each, so that one that ends the process is
known. Needs NumPy only, and taichi for `taichi`.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "behaviours"
_PATH = re.compile(r"\S*\.py:\d+: |(?<![\w.])/\S*/")  # a place, and the folders of a file
# Greatest relative difference that counts as equal: floats that are no arrays are f32 as a rule.
PRECISION = {"float64": 1e-12, "float32": 4e-6, "float16": 2e-3}


def files() -> list[str]:
    """The files of behaviours, by their stems: one a topic."""
    return sorted(p.stem for p in FOLDER.glob("*.py") if p.stem not in ("__init__", "seeing"))


def taichi_of(who: str) -> AbstractContextManager[Any]:
    """Within it `import taichi` means ours, or Taichi itself."""
    if who == "taichi":
        return nullcontext()
    from ..compat.taichi import install

    return install()


def ks() -> Any:
    """This package."""
    return import_module(__package__.partition(".")[0])


def behaviours(file: str) -> dict[str, Callable[[], Any]]:
    """The behaviours of a file, by name, in the order of the file."""
    module = import_module(f"{__package__}.behaviours.{file}")
    return {
        name: f
        for name, f in vars(module).items()
        if inspect.isfunction(f) and f.__module__ == module.__name__ and not name.startswith("_")
    }


def title(file: str) -> str:
    """The topic of a file."""
    first = (FOLDER / f"{file}.py").read_text().splitlines()[0]
    return first.strip('"').rstrip(".")


def plain(x: Any) -> Any:
    """Returns the result of a behaviour as JSON has it. Arrays keep type and shape. TypeError for anything else."""
    if isinstance(x, np.ndarray):
        return {
            "dtype": x.dtype.name,
            "shape": list(x.shape),
            "values": [plain(v) for v in x.ravel().tolist()],
        }
    if isinstance(x, np.generic):
        return {"dtype": x.dtype.name, "shape": "", "values": [plain(x.item())]}
    if isinstance(x, Mapping):
        return {str(k): plain(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    if x is None or isinstance(x, (bool, int, float, str)):
        return x
    raise TypeError(f"a behaviour returned a {type(x).__name__}")


def is_like(a: Any, b: Any, precision: float = PRECISION["float32"]) -> bool:
    """True if two plain values are the same: types, keys and lengths too; floats within a precision."""
    if isinstance(a, float) and isinstance(b, float):
        return bool(np.isclose(a, b, rtol=precision, atol=precision * 0.1, equal_nan=True))
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        of = PRECISION.get(str(b.get("dtype")), precision)
        return a.keys() == b.keys() and all(is_like(a[k], b[k], of) for k in b)
    if isinstance(a, list):
        return len(a) == len(b) and all(is_like(x, y, precision) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def sentence(text: str) -> str:
    """Returns the sentence of an error without the place before it, and without Taichi's lines of source and of a traceback."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    quoted = (k + 2 for k, line in enumerate(lines) if line.startswith('File "'))
    marked = (k + 1 for k, line in enumerate(lines) if set(line) == {"^"})
    begin = max((0, *quoted, *marked))
    return _PATH.sub("", " ".join(lines[begin:]))[:300]


def observe(call: Callable[[], Any], arch: Any = None) -> dict[str, Any]:
    """Returns the observation of a behaviour in a program of its own, on the CPU if no `arch` is given."""
    ti: Any = import_module("taichi")
    ti.init(arch=arch or ti.cpu, random_seed=7)
    try:
        said: dict[str, Any] = {"value": plain(call())}
    except Exception as e:  # what it is, is the answer
        said = {"error": f"{type(e).__name__}: {sentence(str(e))}"}
    try:
        return said if arch is None else said | {"runs": ks().engine.stats().runs}
    finally:
        ti.reset()


def run(who: str, asked: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Lines of what was asked for: files, or single behaviours."""
    arch = ks().emulator if who == "emulator" else None
    with taichi_of(who):
        for what in asked:
            file, _, one = what.partition(":")
            for name, call in behaviours(file).items():
                if one in ("", name):
                    yield {"begun": f"{file}:{name}"}
                    yield {"file": file, "name": name, **observe(call, arch)}


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    who, *asked = arguments
    for line in run(who, asked or files()):
        print("\n" + json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

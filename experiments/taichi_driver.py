"""Runs one program that was written with Taichi, here or in the Python of Taichi itself, and keeps what its fields hold.

    python -m kernelscape.experiments.taichi_driver ours|taichi|quadrants PROGRAM.py --frames 10 --state STATE.npz

Both have the same windows without a screen (compat/display), which draw nothing here, and a clock of 60 frames a second. The last
line of stdout is one JSON object: frames, seconds from the start to the first frame, and the median from one frame to the next; or
"why" the program failed. The start is before the first import of the library that is asked for; NumPy is there already, and for the
others our windows, which are none of their own. `quadrants` is a fork of Taichi without windows: programs have it under Taichi's
name. Needs NumPy only, and the library.
"""

from __future__ import annotations

import argparse
import builtins
import json
import math
import random
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

# What Taichi's programs are run with, too: it costs Taichi nothing.
_WINDOWS = ("..compat.program", "..compat.display.window", "..compat.display.tools")
FRAME_RATE = 60.0  # frames a second, by the clock that programs see
MOST_ELEMENTS = (
    1 << 28
)  # of a field that is kept: the box of a sparse one may be larger than memory
DEPTH = 3  # objects in objects whose fields are kept


@contextmanager
def theirs(module: str) -> Iterator[None]:
    """Taichi itself or its fork, with our windows; this process runs one program and ends."""
    from ..compat.display import tools as our_tools
    from ..compat.display import window
    from ..compat.display.gui import GUI

    taichi: Any = import_module(module)
    tools: Any = import_module(f"{module}.tools")
    if module != "taichi":
        parts = {key.removeprefix(module): x for key, x in sys.modules.items()}
        sys.modules.update({f"taichi{key}": x for key, x in parts.items() if key[:1] in ("", ".")})
        taichi.ui, tools.imresize = SimpleNamespace(), our_tools.imresize
    windows = ("Window", "Scene", "Camera", "make_camera")
    keys = ("LMB", "MMB", "RMB", "PRESS", "RELEASE", "ESCAPE", "SPACE")
    vars(taichi.ui).update({name: getattr(window, name) for name in (*windows, *keys)})
    taichi.GUI = GUI
    tools.imshow = our_tools.imshow
    yield


@contextmanager
def steady_clock(frames: Sequence[float]) -> Iterator[None]:
    """While this lasts, what the program itself imports as `time` has a clock that each of the `frames` moves on by a 60th of a
    second: what it computes from the time is then the same everywhere.
    """

    def seconds() -> float:
        return len(frames) / FRAME_RATE

    def nanoseconds() -> int:
        return round(seconds() * 1e9)

    clocks = ("time", "perf_counter", "monotonic", "process_time")
    steady = SimpleNamespace(**vars(time))
    vars(steady).update(dict.fromkeys(clocks, seconds))
    vars(steady).update({f"{name}_ns": nanoseconds for name in clocks})

    def importing(name: str, *given: Any, **named: Any) -> Any:
        found = steady if name == "time" else __import__(name, *given, **named)
        if name == "cv2":  # without a screen its windows are errors
            vars(found).update(dict.fromkeys(("imshow", "waitKey", "destroyAllWindows"), _nothing))
        return found

    # Only names of the program see it: libraries, ours among them, wait by the clock of the machine.
    vars(sys.modules["__main__"])["__builtins__"] = {**vars(builtins), "__import__": importing}
    yield


def _nothing(*given: Any) -> int:
    return 0


def state_of(names: Mapping[str, Any], depth: int = DEPTH) -> dict[str, np.ndarray]:
    """Fields and arrays that names reach, by dotted names: also members of structs, elements of lists, attributes of objects."""
    found: dict[str, np.ndarray] = {}
    for name, x in names.items():
        if name.startswith("__"):
            continue
        if isinstance(x, np.ndarray):
            parts: Any = x
        elif type(x).__name__.endswith(("Field", "Ndarray")):
            try:
                if math.prod(x.shape) > MOST_ELEMENTS:
                    continue
                parts = x.to_numpy()
            except (RuntimeError, AttributeError):  # it has no place yet
                continue
        elif depth and isinstance(x, (list, tuple)) and len(x) <= 64:
            parts = state_of({str(k): y for k, y in enumerate(x)}, depth - 1)
        elif depth and type(x).__module__ == "__main__" and hasattr(x, "__dict__"):
            parts = state_of(vars(x), depth - 1)
        else:
            continue
        if isinstance(parts, dict):
            found |= {f"{name}.{k}": np.asarray(v) for k, v in _flat(parts).items()}
        elif parts.dtype.kind in "iufb":
            found[name] = parts.copy()
    return found


def _flat(parts: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, x in parts.items():
        if isinstance(x, Mapping):
            flat |= {f"{key}.{k}": v for k, v in _flat(x).items()}
        else:
            flat[key] = x
    return flat


def names_in_reach() -> dict[str, Any]:
    """Names of the program where it stands: its global ones, and those of functions that are being called."""
    names: dict[str, Any] = {}
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "__main__":
            names = {**frame.f_globals, **frame.f_locals, **names}
        if frame.f_code.co_name == "<module>" and names:
            break
        frame = frame.f_back  # type: ignore[assignment]
    return names


def drive(frontend: str, path: Path, frames: int, state: Path | None) -> dict[str, Any]:
    """Runs the program; what is known of it then."""
    np.random.seed(1)
    random.seed(1)
    if frontend != "ours":
        for module in _WINDOWS:
            import_module(module, __package__)
    started_s = time.perf_counter()
    from ..compat.display.frames import Reel
    from ..compat.program import read_program, run_program
    from ..compat.taichi import install
    from ..kernels.ir.errors import LanguageError

    kept: dict[str, np.ndarray] = {}
    reel = Reel(frames, at_end=lambda: kept.update(state_of(names_in_reach())))

    @contextmanager
    def names(examples: Path | None) -> Iterator[None]:
        under = install(examples) if frontend == "ours" else theirs(frontend)
        with under, steady_clock(reel.shown_s):
            yield

    try:
        ran = run_program(read_program(path), path, (), reel, names)
        if not ran.is_cut:
            kept.update(state_of(ran.names))
    except LanguageError as e:
        return {"why": str(e)}
    except Exception as e:
        lines = [f for f in traceback.extract_tb(e.__traceback__) if f.filename == str(path)]
        place = f"{path.name}:{lines[-1].lineno}: " if lines else ""
        return {"why": f"{place}{type(e).__name__}: {e}", "trace": traceback.format_exc()}
    total_s = time.perf_counter() - started_s
    if state is not None:
        save: Any = np.savez  # names of arrays are ours, none is one of its own
        save(state, **kept)
    between = np.diff(reel.shown_s)
    return {
        "frames": len(reel.shown_s),
        "is_cut": ran.is_cut,
        "first_s": reel.shown_s[0] - started_s if reel.shown_s else total_s,
        "frame_s": float(np.median(between)) if len(between) else None,
        "fields": len(kept),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("frontend", choices=("ours", "taichi", "quadrants"))
    parser.add_argument("path", type=Path, metavar="PROGRAM.py")
    parser.add_argument("--frames", type=int, default=10)
    parser.add_argument("--state", type=Path)
    given = parser.parse_args(arguments)
    print("\n" + json.dumps(drive(given.frontend, given.path, given.frames, given.state)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

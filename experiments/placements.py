"""Does a tuned convolution take as long on ordinary arrays as its search said?

    python -m kernelscape.experiments.placements [--seconds 20] [--rounds 9] [--images 8]

Searches once, then times calls from Python in turn on arrays of NumPy, on aligned ones, and on ones at odd offsets from a line of
memory. Writes experiments/results/placements.md.
"""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..explorer.entry import explore
from ..kernels.ir.kernel import DType
from ..kernels.language.kernel import kernel, ndrange, types
from ..runtime.cpu.device import CpuDevice
from ..runtime.cpu.memory import empty
from ..runtime.device import open_device
from .conditions import stamp, stamp_text
from .measuring import median
from .writing import table, time_text, write_results

_CALLS = 40  # in a row, of which the median counts
_SETS = 5  # of arrays, of each placement
_OFFSETS = (4, 8, 20, 36, 60)  # bytes behind a line
_LINE = 64

Shape = tuple[int, ...]


@kernel
def convolve(
    x: types.ndarray(), w: types.ndarray(), b: types.ndarray(), y: types.ndarray()
) -> None:
    for n, i, j, c in ndrange(y.shape[0], y.shape[1], y.shape[2], y.shape[3]):
        acc = 0.0
        for p in range(w.shape[0]):
            for q in range(w.shape[1]):
                for d in range(w.shape[2]):
                    acc += x[n, i + p, j + q, d] * w[p, q, d, c]
        y[n, i, j, c] = acc + b[c]


def conv2d(x: Any, w: Any, b: Any, y: Any) -> None:
    """y = x * w + b, as convolutional networks mean it: channels last, windows of 2 x 2, 3 to 16 channels."""
    convolve(x, w, b, y)


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    seconds: float = 20.0
    rounds: int = 9
    images: int = 8


def _behind_a_line(shape: Shape, offset: int) -> Any:
    n_bytes = 4 * int(np.prod(shape))
    room = np.empty(n_bytes + 2 * _LINE, np.uint8)
    begin = -room.ctypes.data % _LINE + offset
    return room[begin : begin + n_bytes].view(np.float32).reshape(shape)


def _arguments(images: int, make: Callable[[Shape], Any]) -> list[Any]:
    made = [make(s) for s in ((images, 32, 32, 3), (2, 2, 3, 16), (16,), (images, 31, 31, 16))]
    rng = np.random.default_rng(1)
    for array in made:
        array[...] = rng.random(array.shape, np.float32)
    return made


def measure(effort: Effort) -> dict[str, Any]:
    """Nanoseconds that the search said, and those of each placement: the median of each set of arrays in each round."""
    n = effort.images
    ordinary = [_arguments(n, lambda s: np.empty(s, np.float32)) for _ in range(_SETS)]
    placed = {
        "NumPy's": ordinary,
        "aligned": [_arguments(n, lambda s: empty(s, DType.f32)) for _ in range(_SETS)],
        "odd offsets": [_arguments(n, lambda s, o=o: _behind_a_line(s, o)) for o in _OFFSETS],  # type: ignore[misc]
    }
    with tempfile.TemporaryDirectory() as folder:
        run = explore(conv2d, *ordinary[0], time_limit=effort.seconds, directory=f"{folder}/run")
        assert run.best is not None
        call = run.best.compile()
        found: dict[str, list[float]] = {name: [] for name in placed}
        for _ in range(effort.rounds):
            for name, sets in placed.items():
                found[name] += [_median_ns(call, arrays) for arrays in sets]
        return {"said_ns": run.best.time_ns, "doubts": list(run.doubts), "found_ns": found}


def _median_ns(call: Callable[..., Any], arrays: Sequence[Any]) -> float:
    taken = []
    for _ in range(_CALLS):
        started_ns = time.perf_counter_ns()
        call(*arrays)
        taken.append(float(time.perf_counter_ns() - started_ns))
    return median(taken)


def report(values: dict[str, Any]) -> str:
    """The results as Markdown."""
    said = values["said_ns"]
    rows = [
        [name, time_text(median(ns)), time_text(max(ns)), f"{median(ns) / said:.2f}"]
        for name, ns in values["found_ns"].items()
    ]
    return "\n".join(
        [
            "# A convolution on ordinary arrays",
            "",
            stamp_text(values["stamp"]),
            f"- the search said {time_text(said)}; {'; '.join(values['doubts']) or 'without a doubt'}",
            "",
            f"Calls from Python, {_CALLS} in a row on each of {_SETS} sets of arrays; medians of all sets and rounds.",
            "",
            table(["arrays", "a call", "the slowest set of a round", "x said"], rows),
            "",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=Effort.seconds)
    parser.add_argument("--rounds", type=int, default=Effort.rounds)
    parser.add_argument("--images", type=int, default=Effort.images)
    parser.add_argument("--results", type=Path, help="folder of the results")
    given = parser.parse_args(arguments)
    device = open_device("cpu")
    assert isinstance(device, CpuDevice)
    values = measure(Effort(given.seconds, given.rounds, given.images))
    values["stamp"] = stamp(device)
    print(write_results("placements", report, values, given.results))
    return 0


if __name__ == "__main__":
    sys.exit(main())

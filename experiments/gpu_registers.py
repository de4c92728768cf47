"""What do the registers that a GPU's space counts say of those that the compiler gives?

    python -m kernelscape.experiments.gpu_registers [--n 600] [--seed 1] [--profile h200]

writes experiments/results/gpu_registers.md. Random candidates of all library sequences, of the space without its cut on
registers, are compiled by NVRTC for the GPU of a data sheet. Half of the kernels teach the model of search/learn/registers.py,
which is then tried on the other half.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from ..codegen.lower import lower, print_source
from ..explorer.registers import Registers
from ..kernels.language.record import record_sequence
from ..kernels.library import load, names
from ..kernels.tasks.pipeline import normalise
from ..runtime.api.backend import AbstractDevice
from ..runtime.api.outcome import Failure
from ..runtime.building.queue import report_many
from ..runtime.device import DeviceOptions, open_device
from ..search.bound.bounder import Bounder
from ..search.learn.registers import Compiled, RegisterModel
from ..space.build import build_space, widened
from ..space.candidate import Candidate
from ..space.values import REGISTER_ROOMS
from ..testing.checking import random_candidate
from .conditions import stamp
from .writing import table, write_results

_EXTENT = 1024  # of every loop
_AT_ONCE = 8  # candidates of a problem, compiled two at a time
_EDGES = (1, 2, 5, 17, 65, 129, 193, 257)  # of the groups of counts in the table


@dataclass(frozen=True)
class Kernel:
    """One kernel with sums, compiled. `is_cut`: the cut, as it is before any report, leaves its candidate out."""

    sequence: str
    dtype: str
    threads: int
    counted: int
    registers: int
    spill_bytes: int
    is_cut: bool

    @property
    def compiled(self) -> Compiled:
        return Compiled(self.counted, self.registers, self.spill_bytes)


def sample(device: AbstractDevice, n: int, seed: int) -> list[Kernel]:
    """At least `n` kernels with sums, sequence by sequence, in f32 and f64 in turn."""
    rng, kernels = np.random.default_rng(seed), list[Kernel]()
    for k in count():
        dtype = ("f32", "f64")[k % 2]
        for name in names():
            if len(kernels) >= n:
                return kernels
            kernels += _of_sequence(device, name, dtype, rng)
    raise AssertionError("counting has no end")


def _of_sequence(
    device: AbstractDevice, name: str, dtype: str, rng: np.random.Generator
) -> list[Kernel]:
    entry = load(name)
    sizes = entry.complete(dict.fromkeys(entry.sizes, _EXTENT))
    numpy_type = np.dtype({"f32": np.float32, "f64": np.float64}[dtype])
    arguments = entry.make_arguments(sizes, numpy_type, np.random.default_rng(0))
    problem = normalise(record_sequence(entry.sequence, arguments, name))
    space = build_space(problem, device.machine.facts())
    root = widened(space, REGISTER_ROOMS[-1]).root()
    assert isinstance(root, Candidate)
    if not any(task.is_reduction for task in problem.tasks):
        return []
    drawn = (random_candidate(root, rng) for _ in range(_AT_ONCE))
    candidates = [c for c in drawn if isinstance(c, Candidate)]
    sources = [print_source(lower(c), device.builder.dialect()) for c in candidates]
    registers = Registers(device.reporter, space, Bounder(space))
    kernels = []
    reports = report_many(device.builder, device.reporter, sources, 2)
    for c, source, report in zip(candidates, sources, reports, strict=True):
        assert not isinstance(report, Failure), report
        is_cut = not isinstance(space.candidate(c.domains.copy()), Candidate)
        kernels += [
            Kernel(name, dtype, x.threads, x.counted, x.registers, x.spill_bytes, is_cut)
            for x in registers.launches(c, source, report)
            if x.counted
        ]
    return kernels


def summary(kernels: Sequence[Kernel]) -> dict[str, Any]:
    """What the kernels say: the model of them all, and how far off counts and expectations are on those that did not teach it."""
    whole, taught = RegisterModel(), RegisterModel()
    whole.note(k.compiled for k in kernels)
    taught.note(k.compiled for k in kernels[::2])
    others = [k.compiled for k in kernels[1::2]]
    cut = [k for k in kernels if k.is_cut]
    base, slope = whole.line
    return {
        "kernels": len(kernels),
        "spilled": sum(k.spill_bytes > 0 for k in kernels),
        "least_ratio": whole.least_ratio,
        "room": whole.room,
        "base": base,
        "slope": slope,
        "error_of_counts": median(abs(k.needed - k.counted) for k in others),
        "error_of_expectations": median(abs(k.needed - taught.expected(k.counted)) for k in others),
        "cut": len(cut),
        "cut_that_fit": sum(k.spill_bytes == 0 for k in cut),
        "groups": list(_groups(kernels)),
    }


def _groups(kernels: Sequence[Kernel]) -> Iterator[dict[str, Any]]:
    for first, end in pairwise(_EDGES):
        group = [k for k in kernels if first <= k.counted < end]
        if group:
            registers = sorted(k.registers for k in group)
            yield {
                "counted": f"{first} to {end - 1}",
                "kernels": len(group),
                "least": registers[0],
                "median": median(registers),
                "most": registers[-1],
                "spilled": sum(k.spill_bytes > 0 for k in group),
            }


def report(found: dict[str, Any]) -> str:
    """The summary as Markdown."""
    lines = [
        ("kernels with sums", f"{found['kernels']}"),
        ("that spill", f"{found['spilled']}"),
        ("least registers / counted without spills", f"{found['least_ratio']:.2f}"),
        ("so the cut counts registers so many times", f"{found['room']}"),
        ("registers to expect", f"{found['base']:.1f} + {found['slope']:.2f} x counted"),
        ("median error of counts, other half", f"{found['error_of_counts']:.1f}"),
        ("median error of expectations, other half", f"{found['error_of_expectations']:.1f}"),
        ("kernels of candidates that the first cut leaves out", f"{found['cut']}"),
        ("of these without spills", f"{found['cut_that_fit']}"),
    ]
    heads = ["registers counted", "kernels", "least", "median", "most", "spilled"]
    made = f"`python -m kernelscape.experiments.gpu_registers --n {found['n']} --seed {found['seed']} --profile {found['profile']}`"
    return "\n".join(
        [
            "# Registers counted and registers given",
            "",
            "Random candidates of the library's sequences, all extents 1024, of the space without its cut on registers,"
            f" compiled by NVRTC. Made by {made} in {found['seconds']:.0f} s.",
            "",
            table(["", "value"], [list(line) for line in lines]),
            "",
            table(heads, [[str(v) for v in group.values()] for group in found["groups"]]),
            "",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=600, help="kernels with sums")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--profile", default="h200")
    parser.add_argument("-o", type=Path, help="folder of the results")
    given = parser.parse_args(arguments)
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpu_registers-") as folder:
        options = DeviceOptions(build_folder=Path(folder), profile=given.profile)
        kernels = sample(open_device("cuda", options), given.n, given.seed)
    asked = {"n": given.n, "seed": given.seed, "profile": given.profile}
    asked["seconds"] = time.monotonic() - started_s
    values = {**asked, **summary(kernels), "conditions": stamp()}
    write_results("gpu_registers", report, values, given.o)
    print(report(values))
    return 0


if __name__ == "__main__":
    sys.exit(main())

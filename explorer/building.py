"""Building without running: device resources of compiled implementations. The device itself need not be present."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from ..codegen.lower import lower, print_source
from ..codegen.plan.candidates import plan_of
from ..codegen.text.source import Source
from ..runtime.api.artifact import BuildReport
from ..runtime.api.errors import DeviceError
from ..runtime.api.outcome import Failure
from ..runtime.building.queue import report_many
from ..runtime.device import DeviceOptions, open_device
from ..runtime.records.replay import dialect_of
from ..runtime.worker.channel import available_cores
from ..search.bound.bounder import Bounder
from ..search.starts.complete import first_candidates
from ..space.candidate import Candidate, Space
from .registers import Launches, Registers
from .workload import Options, Workload, space_for


@dataclass(frozen=True)
class BuiltOnly:
    """An implementation that was compiled and not run. `tag` is the name of a first candidate, or "random"."""

    tag: str
    candidate: Candidate
    bound_ns: float
    report: BuildReport | Failure
    launches: Launches = ()  # with the registers that the space counts, beside the report
    expected: tuple[
        float, ...
    ] = ()  # registers, by launch, that were expected by the reports before this one


PROFILE = "h200"  # where none is named


def build_only(workload: Workload, options: Options, profile: str) -> Iterator[BuiltOnly]:
    """Compiles first candidates, then random ones, until the time or evaluation limit of `options`.

    `profile` names the data sheet that stands for a GPU if none is present. Raises DeviceError.
    """
    device = open_device(
        options.target,
        DeviceOptions(
            compiler=options.compiler,
            compile_timeout_s=options.compile_timeout_s,
            profile=profile,
        ),
    )
    if not device.reporter.reports:
        raise DeviceError(f"the backend {device.name!r} does not report what code takes")
    space = space_for(workload.problem, device.machine.facts(), options)
    bounder, dialect = Bounder(space), dialect_of(device)
    registers = Registers(device.reporter, space, bounder)
    end = time.monotonic() + (60.0 if options.time_limit_s is None else options.time_limit_s)
    left = options.max_evals
    drawn = _candidates(space, registers, options.seed)
    while (left is None or left > 0) and time.monotonic() < end:
        n = available_cores() if left is None else min(available_cores(), left)
        batch = list(islice(drawn, n))
        if not batch:
            return
        sources = [print_source(lower(plan_of(c)), dialect) for _, c in batch]
        reports = report_many(device.builder, device.reporter, sources, n)
        for (tag, c), source, report in zip(batch, sources, reports, strict=True):
            yield _built(tag, c, source, report, registers)
        left = None if left is None else left - len(batch)


def _built(
    tag: str, c: Candidate, source: Source, report: BuildReport | Failure, registers: Registers
) -> BuiltOnly:
    if isinstance(report, Failure):
        return BuiltOnly(tag, c, registers.bound_ns(c, ()), report)
    launches = registers.launches(c, source, report)
    expected = tuple(registers.model.expected(x.counted) for x in launches)
    registers.note(launches)
    return BuiltOnly(tag, c, registers.bound_ns(c, launches), report, launches, expected)


def _candidates(space: Space, registers: Registers, seed: int) -> Iterator[tuple[str, Candidate]]:
    """Yields distinct implementations: first candidates, then random ones, until no new one is found.

    Random candidates are drawn from the space at its current width (`Registers.widened`).
    """
    seen: set[bytes] = set()
    for tag, c in first_candidates(space):
        seen.add(c.key)
        yield tag, c
    rng, root, n_known = np.random.default_rng(seed), space.root(), 0
    while isinstance(root, Candidate) and n_known < 100:
        root = registers.widened() or root
        made = root.random_completion(rng)
        if not isinstance(made, Candidate) or made.key in seen:
            n_known += 1
            continue
        n_known = 0
        seen.add(made.key)
        yield "random", made

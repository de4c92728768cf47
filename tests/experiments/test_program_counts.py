"""Launches, lists and activations of a period of each program of the table of whole programs, as its text is run there, small.

Calls wait, and periods run by plans. Kernels are interpreted, or not run at all where that takes too long.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import kernelscape as ks
import pytest
from kernelscape.compat import taichi
from kernelscape.experiments.program_texts import TEXTS
from kernelscape.kernels.ir.kernel import KernelIR
from kernelscape.runtime import engine as engine_room
from kernelscape.testing.sparse_windows import InterpretingEngine


class Counts(NamedTuple):
    n_launches: int
    n_lists: int = 0
    n_activations: int = 0


SHORT: tuple[tuple[str, int, Counts], ...] = (
    ("chain_copy", 1 << 12, Counts(1)),
    ("increments", 1 << 12, Counts(1)),
    ("fill_array", 1 << 12, Counts(1)),
    ("simple_advection", 32, Counts(20)),
    ("sparse_saxpy", 8, Counts(2)),
    ("stencil_reduction", 512, Counts(2)),
    ("multires", 128, Counts(3)),
    ("deep_hierarchy", 1 << 12, Counts(5)),
    ("derivatives", 1 << 12, Counts(30)),
    ("texture", 64, Counts(2)),
)
# Iterations of mgpcg that follow one another have one launch less each: the last loop joins the first one of the next.
# A substep of mls_mpm adds to cells that depend on particles: it activates them, and tests the lists of two levels.
LONG: tuple[tuple[str, int, Counts], ...] = (
    ("mpm_splitted", 16, Counts(295)),
    ("maccormack", 16, Counts(3)),
    ("mgpcg_2d", 8, Counts(237)),
    ("mgpcg_3d", 4, Counts(237)),
    ("mls_mpm", 8, Counts(4, 2, 108)),
)


class IdleEngine(InterpretingEngine):
    """Engine that runs no kernel."""

    @staticmethod
    def _called(ir: KernelIR, *values: Any) -> bool:
        return True


@pytest.fixture(autouse=True)
def _no_program_is_left() -> Iterator[None]:
    yield
    ks.reset()


def test_all_programs_have_counts() -> None:
    assert {name for name, _, _ in (*SHORT, *LONG)} == set(TEXTS)


def run(name: str, shrink: int, folder: Path, **options: Any) -> tuple[Counts, dict[str, Any]]:
    """Returns the counts of the last one of some periods, and the names of the program."""
    ks.init(**options)
    file = folder / f"{name}.py"  # kernels are read from a file
    file.write_text(TEXTS[name])
    names = {"ti": taichi, "shrink": shrink, "__name__": name}
    exec(compile(TEXTS[name], file, "exec"), names)
    before = now = ks.engine.stats()
    for _ in range(4):
        before = ks.engine.stats()
        names["step"]()
        ks.sync()
        now = ks.engine.stats()
    return Counts(*(getattr(now, f) - getattr(before, f) for f in Counts._fields)), names


@pytest.mark.parametrize(("name", "shrink", "wanted"), SHORT)
def test_a_period_has_the_least_launches_and_lists(
    name: str, shrink: int, wanted: Counts, tmp_path: Path
) -> None:
    with engine_room.using(InterpretingEngine()):
        _, called = run(name, shrink, tmp_path)
        result = called["result"]()
        counts, planned = run(name, shrink, tmp_path, async_mode=True)
        assert counts == wanted
        assert planned["result"]() == pytest.approx(result, rel=1e-5)


@pytest.mark.parametrize(("name", "shrink", "wanted"), LONG)
def test_a_long_period_has_the_least_launches_and_lists(
    name: str, shrink: int, wanted: Counts, tmp_path: Path
) -> None:
    with engine_room.using(IdleEngine()):
        counts, _ = run(name, shrink, tmp_path, async_mode=True)
    assert counts == wanted

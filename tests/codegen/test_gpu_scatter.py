"""Updates of elements that blocks and threads of a GPU share: atomic, in every order of threads."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernelscape.space import choices as ch
from kernelscape.space.candidate import Candidate

from .gpu_cases import NEEDS_COMPILER, drawn, gpu, nvrtc_is_there, root_of
from .scatter_cases import problem_of

pytestmark = NEEDS_COMPILER


@pytest.mark.parametrize("name", ["particles", "keys", "meshes"])
def test_updates_of_threads_are_atomic(name: str, tmp_path: Path, nvrtc_folder: Path) -> None:
    problem, inputs = problem_of(name)
    root = root_of(problem)
    v = root.space.variables
    assert {a for _, a in v.scatter} == {
        "particles": {"grid", "mass"},
        "keys": {"bins", "most", "f"},
        "meshes": {"f", "count", "g"},
    }[name]
    # Threads of a GPU have neither colours nor sorts.
    assert not v.of_tasks["colouring"] and not v.of_tasks["sorting"] and not v.scatter_cells
    for how in (ch.BY_ATOMICS, ch.SERIAL):
        now = root
        for var in v.scatter.values():
            decided = now.decide(var, 1 << how)
            assert isinstance(decided, Candidate)
            now = decided
        (candidate,) = drawn(now, 1, 1)
        kinds = {ch.DIM_KIND[candidate.value(x)] for x in v.kind.values()}
        assert bool(kinds & {"PARALLEL", "THREAD"}) == (how == ch.BY_ATOMICS)
        source = gpu.source_of(candidate)
        assert gpu.check(source, inputs, tmp_path) == "", source.text
        if nvrtc_is_there():
            assert gpu.compiler_says(source, nvrtc_folder) == ""

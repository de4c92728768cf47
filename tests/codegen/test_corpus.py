"""One corpus of random programs as random candidates, drawn and built once: everything that must hold of any of them.

What is wrong in it is of a kind; experiments/random_bodies.py and correctness.py have many more programs of the same grammar.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernelscape.codegen.describe import describe
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.archive import ArchiveError, from_values, to_values
from kernelscape.kernels.tasks.bounds_check import first_outside
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.bound.bounder import Bounder
from kernelscape.space.choices import SCATTER
from kernelscape.space.decisions import restore, to_names
from kernelscape.testing import checking
from kernelscape.testing.batches import Work, faults
from kernelscape.testing.checking import Way
from kernelscape.testing.corpus import Drawn, candidates, corpus, machine, wrong
from kernelscape.testing.generator.features import (
    CHAINS,
    INTEGERS,
    MIXED,
    OPEN,
    PRODUCTS,
    SMALL,
    SMALL_BODIES,
    SMALL_STEPS,
)
from kernelscape.testing.generator.sequences import program
from kernelscape.testing.interpreted import run_reference
from kernelscape.testing.legality import illegal
from kernelscape.testing.violations import violations

ONE = replace(OPEN, name="one element", extents=(1,), sides=(1,))
# Programs of each corpus, and candidates of a program. Candidates of the bodies have all ways of scatters.
DRAWN = {
    SMALL_BODIES: (range(120, 300), 1), SMALL_STEPS: (range(45), 1), OPEN: (range(20), 2), MIXED: (range(20), 2),
    CHAINS: (range(12), 3), PRODUCTS: (range(10), 2), INTEGERS: (range(14), 2), ONE: (range(12), 2),
}  # fmt: skip
FLAGS = ("-fopenmp-simd", "-O0")  # of many optimisers the experiment asks
SILENT = (*FLAGS, "-w")  # what is drawn may compare, or compute, what is of no use
nd: Any = types.ndarray()


@pytest.fixture(scope="module")
def drawn() -> dict[str, list[Drawn]]:
    return {f.name: corpus(f, numbers, k) for f, (numbers, k) in DRAWN.items()}


@pytest.fixture(scope="module")
def everything(drawn: dict[str, list[Drawn]]) -> list[Drawn]:
    return [d for some in drawn.values() for d in some]


def problems(some: list[Drawn]) -> Iterator[Drawn]:
    """A candidate of each program."""
    return iter({(d.program.features.name, d.program.number): d for d in some}.values())


@pytest.mark.compiler
@pytest.mark.parametrize("name", [f.name for f in DRAWN])
def test_texts_compute_what_the_interpreter_or_python_does(
    name: str, drawn: dict[str, list[Drawn]], tmp_path: Path
) -> None:
    """On one thread, two and three, each of which is late once. Few are left out because rounding decides what comes out."""
    some = drawn[name]
    assert sum(bool(d.inputs) for d in some) > 0.85 * len(some)
    has_statements = bool(some[0].program.features.statements)
    found = wrong(some, tmp_path / "c", SILENT if has_statements else FLAGS)
    assert not found, found[0]


@pytest.mark.compiler
def test_teams_leave_out_threads_that_are_late(
    drawn: dict[str, list[Drawn]], tmp_path: Path
) -> None:
    """As in a user's process, and compiled as there."""
    some = [d for name in ("open", "chains") for d in drawn[name] if d.inputs and d.source.team][
        ::9
    ]
    built = checking.build_all([d.source for d in some], tmp_path, "late")
    for d, b in zip(some, built, strict=True):
        assert b.library is not None and not b.log, f"{b.log}\n{d.program}"
        said = checking.check(b, d.inputs, Way(repeats=8, adapts=True))
        assert not said, f"{said}\n{d.program}"


def test_candidates_are_legal() -> None:
    """By rules that share nothing with the filters; where all tasks are open, and small enough to enumerate."""
    for number in range(60):
        one = program(SMALL, number)
        for made in candidates(one.problem, machine(number), np.random.default_rng(number), 6):
            assert illegal(made, 3) == "", one


def test_decisions_hold_and_bounds_grow_with_them(everything: list[Drawn]) -> None:
    """No completion of a candidate has a smaller bound."""
    for d in everything:
        assert violations(d.candidate.space.model, d.candidate.assignment()) == [], d.program
    for d in problems(everything[::9]):
        space = d.candidate.space
        bounder = Bounder(space)
        assert bounder.ns(space.root()) <= bounder.ns(d.candidate) * (1 + 1e-9), d.program


def test_records_give_the_same_program_and_candidate(everything: list[Drawn]) -> None:
    """A file is not believed: of a loop that never runs it may seem that its accesses are outside, and the file is refused then."""
    n_refused = 0
    for d in problems(everything):
        again = restore(d.candidate.space, to_names(d.candidate))
        assert again.key == d.candidate.key
        values = json.loads(json.dumps(to_values(d.program.recording)))
        try:
            assert normalise(from_values(values)) == d.program.problem, d.program
        except ArchiveError:
            n_refused += 1
            assert "empty range" in d.program.traits, d.program
    assert n_refused <= 3


def test_accesses_are_inside_of_their_arrays(everything: list[Drawn]) -> None:
    """Those that are drawn are: none of them is refused."""
    for d in problems(everything):
        for call in d.program.recording.calls:
            assert first_outside(call.ir) is None, d.program


def test_equal_words_mean_equal_texts(everything: list[Drawn]) -> None:
    seen: dict[tuple[str, int, str], str] = {}
    for d in everything:
        key = d.program.features.name, d.program.number, str(describe(d.candidate))
        assert seen.setdefault(key, d.source.text) == d.source.text, d.program


def traits_of(some: list[Drawn]) -> set[str]:
    return set[str]().union(*(d.program.traits | d.traits for d in some))


def test_programs_have_what_they_are_for(drawn: dict[str, list[Drawn]]) -> None:
    bodies, steps = (traits_of(drawn[f.name]) for f in (SMALL_BODIES, SMALL_STEPS))
    wanted = {"branch", "select", "while", "window", "triangle", "rows of data", "length of data"}
    wanted |= {"time loop", "reduction", "recurrence", "computed index", "min", "max"}
    wanted |= {f"scatter {x}" for x in ("add", "min", "max", "float32", "float64", "int64", "int8")}
    wanted |= {f"{way} of threads" for way in ("ATOMIC", "PRIVATE", "SORTED", "TILE", "GREEDY")}
    assert wanted <= bodies, wanted - bodies
    wanted = {"range of a step", "index of a step", "triangle", "empty range", "range backwards"}
    wanted |= {"guard", "guard of data", "rows of data", "while", "in order", "time loop inside"}
    wanted |= {"sum inside", "shared sum", "steps few", "steps many", "sequence swapped"}
    wanted |= {"schedule CYCLIC", "dim_kind PARALLEL", "dim_kind VECTOR", "dim_kind UNROLL"}
    assert wanted <= steps, wanted - steps


def test_inputs_have_what_they_are_for(drawn: dict[str, list[Drawn]]) -> None:
    some = drawn[SMALL_BODIES.name]
    given = [a for d in some for x in d.inputs for a in x.arrays.values()]
    assert not all(np.isfinite(a).all() for a in given)
    assert {len(a) for a in given} >= {0, 1, 3, 7, 64}


def test_a_number_gives_one_program() -> None:
    program.cache_clear()
    before = program(SMALL_BODIES, 7)
    program.cache_clear()
    assert program(SMALL_BODIES, 7).text == before.text != program(SMALL_BODIES, 8).text


@pytest.mark.parametrize("features", [SMALL_STEPS, OPEN])
def test_python_and_the_interpreter_agree(features: Any) -> None:
    for number in (1, 6, 7):
        one = program(features, number)
        if sum(a.size for a in one.arrays.values()) > 1000:
            continue
        want = one.in_python(one.arrays)
        found = run_reference(one.recording, one.arrays, one.scalars, dtype=np.float64)
        for name, a in want.items():
            np.testing.assert_allclose(found[name], a, rtol=1e-12, atol=1e-12)


@pytest.mark.compiler
def test_what_is_wrong_is_said_of_the_text_that_it_is_of(
    drawn: dict[str, list[Drawn]], tmp_path: Path
) -> None:
    works = [Work(d.source, d.inputs) for d in drawn[SMALL_BODIES.name] if d.inputs][:4]
    crash = "#include <math.h>\nvoid crash(void **args) { (void)args; __builtin_trap(); }\n"
    source = replace(works[1].source, text=crash, entry="crash", team="")
    works[1] = replace(works[1], source=source)
    (inputs,) = works[2].inputs
    other = {name: a + 1 for name, a in inputs.want.items()}
    works[2] = replace(works[2], inputs=(replace(inputs, want=other),))
    works[3] = replace(works[3], source=replace(works[3].source, text="#include <math.h>\nno C;"))
    said = faults(works, tmp_path / "planted", SILENT)
    assert said[0] == ""
    assert said[1].startswith("crashed with signal")
    assert "should be" in said[2]
    assert said[3].startswith("not compiled")


@kernel
def with_and_without_a_window(key: nd, near: nd, far: nd):
    for i in range(key.shape[0]):
        near[key[i] + 1, 0] += 1.0
        far[key[i]] += 1.0
        far[7 - key[i]] += 1.0


def both(key: Any, near: Any, far: Any) -> None:
    with_and_without_a_window(key, near, far)


def test_what_has_a_window_and_what_has_none_are_updated_in_one_body() -> None:
    key = np.arange(5, dtype=np.int32)
    given = (key, np.zeros((8, 2), np.float32), np.zeros(8, np.float32))
    recording = record_sequence(both, given)
    (one,) = candidates(normalise(recording), machine(0), np.random.default_rng(1))
    ways = {a: SCATTER[one.value(var)] for (_, a), var in one.space.variables.scatter.items()}
    assert ways.keys() == {"near", "far"}

"""Copies of fields of trees become renaming: which are left out, and that programs compute what their calls compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.fields.canonical_state import canonical
from kernelscape.kernels.frontend.recorder import record_program
from kernelscape.kernels.ir.task import Problem
from kernelscape.kernels.tasks import copies
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.decisions import fix
from kernelscape.testing import checking, sparse_candidates, sparse_periods
from kernelscape.testing.interpreted import run_reference
from kernelscape.testing.run_tasks import run_tasks

PERIODS = 2
Calls = Callable[[], None]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small arrays are worth a step that is written out twice."""
    monkeypatch.setattr(copies, "_LEAST_BYTES", 1)
    ks.init(arch=ks.cpu)
    yield
    ks.reset()


@ks.kernel
def around(x: ks.template(), y: ks.template()):
    for i in x:
        y[i] = (x[i - 1] + 2 * x[i + 1] + i) % 97


@ks.kernel
def copy(y: ks.template(), x: ks.template()):
    for i in x:
        x[i] = y[i]


@ks.kernel
def copy_some(y: ks.template(), x: ks.template()):
    for i in x:
        if i % 3 != 1:
            x[i] = y[i]


@ks.kernel
def copy_near(y: ks.template(), x: ks.template()):
    for i in x:
        x[i] = y[i + 1]


@ks.kernel
def add(x: ks.template(), y: ks.template()):
    for i in x:
        y[i] += x[i]


@ks.kernel
def store(x: ks.template(), n: ks.template()):
    for i in range(4):
        x[(5 * i + n) % 24] += i + 1


@ks.kernel
def grow(x: ks.template(), y: ks.template()):
    for i in x:
        if x[i] > 40 and i < 22:
            y[i + 2] += 3


@ks.kernel
def thin(node: ks.template(), n: ks.template()):
    for i in range(2):
        ks.deactivate(node, (3 * i + n) % node.shape[0])


@ks.kernel
def down(x: ks.template(), total: ks.template()):
    for i in x:
        total[i // 2] += x[i]


def made(kind: str) -> SimpleNamespace:
    """Fields x, y and w of one node, z of another one, vectors a and b, and plain numbers."""
    p = SimpleNamespace(x=0, y=0, w=0, z=0, total=ks.field(ks.i32, 12), after=ks.field(ks.i32, 24))
    p.x, p.y, p.w, p.z = (ks.field(ks.i32) for _ in range(4))
    p.a, p.b = (ks.Vector.field(2, ks.i32) for _ in range(2))
    p.node = getattr(ks.root, kind)(ks.i, 24 if kind == "bitmasked" else 6)
    leaf = p.node if kind == "bitmasked" else p.node.dense(ks.i, 4)
    leaf.place(p.x, p.y, p.w, p.a, p.b)
    ks.root.pointer(ks.i, 6).dense(ks.i, 4).place(p.z)
    store(p.x, 3)
    store(p.w, 17)
    store(p.z, 3)
    return p


def checked(calls: Calls) -> Problem:
    """The problem of a program; the states behind each of its periods are those of its calls."""
    recording, given = record_program(calls, ())
    problem = normalise(recording)
    state = wanted = {name: np.array(a) for name, a in given.items()}
    for _ in range(PERIODS):
        wanted = run_reference(recording, wanted, {})
        state = state | run_tasks(problem, state, {})
        found, right = (canonical(recording.trees, x) for x in (state, wanted))
        for name, array in right.items():
            np.testing.assert_array_equal(found[name], array, err_msg=name)
    return problem


def n_runs(problem: Problem, kernel: str) -> int:
    return sum(t.n_runs for t in problem.tasks if t.kernel == kernel and t.loops)


@pytest.mark.parametrize(
    ("kind", "n"),
    [
        *(("pointer", n) for n in (1, 2, 7, 10, 11)),
        ("hash", 10),
        ("bitmasked", 7),
        ("bitmasked", 11),
    ],
)
def test_a_program_that_swaps_by_copies_makes_one(kind: str, n: int) -> None:
    """One is left as both fields outlive the program."""
    p = made(kind)

    def calls() -> None:
        for _ in range(n):
            around(p.x, p.y)
            copy(p.y, p.x)

    problem = checked(calls)
    assert n_runs(problem, "copy") == 1
    assert n_runs(problem, "around") == n


def test_fields_that_take_turns_need_no_copy() -> None:
    p = made("pointer")

    def calls() -> None:
        for _ in range(10):
            copy(p.x, p.y)
            around(p.y, p.x)

    assert n_runs(checked(calls), "copy") == 0


def test_vectors_are_copied_whole() -> None:
    p = made("pointer")

    @ks.kernel
    def turn():
        for i in p.a:
            p.b[i] = [p.a[i - 1][1] + i, p.a[i + 1][0]]

    @ks.kernel
    def copy_back():
        for i in p.a:
            p.a[i] = p.b[i]

    @ks.kernel
    def copy_half():
        for i in p.a:
            p.a[i][1] = p.b[i][1]

    def swapped(back: Calls) -> Calls:
        def calls() -> None:
            for _ in range(10):
                turn()
                back()

        return calls

    assert n_runs(checked(swapped(copy_back)), "copy_back") == 1
    assert n_runs(checked(swapped(copy_half)), "copy_half") == 10


@pytest.mark.parametrize(
    ("between", "n_copies"),
    [
        ("nothing", 1),
        ("growth", 1),
        ("changed", 10),  # the values at the end are no copy
        ("other cells", 10),  # deactivated before the source is overwritten
        ("some", 10),
        ("near", 10),
        ("another node", 10),
        ("read again", 10),
    ],
)
def test_copies_stay_whose_fields_are_not_interchangeable(between: str, n_copies: int) -> None:
    p = made("pointer")

    def calls() -> None:
        for _ in range(10):
            around(p.x, p.y)
            match between:
                case "some":
                    copy_some(p.y, p.x)
                case "near":
                    copy_near(p.y, p.x)
                case "another node":
                    copy(p.y, p.z)
                    add(p.z, p.x)
                case _:
                    copy(p.y, p.x)
            match between:
                case "growth":
                    grow(p.x, p.w)
                case "changed":
                    grow(p.x, p.x)
                case "other cells":
                    thin(p.node, 1)
                    store(p.x, 8)
                case "read again":
                    down(p.y, p.total)

    kernel = {"some": "copy_some", "near": "copy_near"}.get(between, "copy")
    assert n_runs(checked(calls), kernel) == n_copies


def test_dense_copies_beside_loops_on_trees() -> None:
    """A loop on a tree reads an array that is in the memory of another one."""
    p = made("pointer")
    plain = ks.field(ks.i32, 24)

    @ks.kernel
    def turn():
        for i in plain:
            p.after[i] = (plain[23 - i] + i) % 97

    @ks.kernel
    def copy_plain():
        for i in plain:
            plain[i] = p.after[i]

    @ks.kernel
    def gather():
        for i in p.x:
            p.x[i] = (p.x[i] + plain[i]) % 97

    def calls() -> None:
        for _ in range(10):
            turn()
            copy_plain()
            gather()

    assert n_runs(checked(calls), "copy_plain") == 1


@pytest.mark.parametrize("kind", ["pointer", "hash", "bitmasked"])
@pytest.mark.parametrize("number", range(4))
def test_random_programs_with_copies_compute_what_their_calls_compute(
    kind: str, number: int
) -> None:
    rng, n_less = np.random.default_rng((number, len(kind))), 0
    for _ in range(3):
        p = made(kind)
        fields = p.x, p.y, p.w

        def drawn(n: int) -> list[tuple[int, int, int]]:
            return [
                (int(rng.integers(12)), *map(int, rng.choice(3, 2, replace=False)))
                for _ in range(n)
            ]

        parts = [(int(rng.choice([1, 1, 2, 9])), drawn(int(rng.integers(1, 6)))) for _ in "12"]

        def call(what: int, x: Any, y: Any, p: SimpleNamespace = p) -> None:
            match what:
                case 0 | 1 | 2:
                    around(x, y)
                case 3:
                    add(x, y)
                case 4:
                    down(x, p.total)
                case 5:
                    grow(x, y)
                case 6:
                    thin(p.node, 1)
                case 7:
                    copy_some(x, y)
                case _:
                    copy(x, y)

        def calls(
            parts: list[Any] = parts, fields: Any = fields, call: Callable[..., None] = call
        ) -> None:
            for times, some in parts:
                for _ in range(times):
                    for what, x, y in some:
                        call(what, fields[x], fields[y])

        problem = checked(calls)
        asked = sum(times * (what > 7) for times, some in parts for what, _, _ in some)
        n_less += n_runs(problem, "copy") < asked
        ks.reset()
        ks.init(arch=ks.cpu)
    assert n_less > 0


@pytest.mark.compiler
def test_candidates_of_programs_without_copies_leave_what_their_calls_do(tmp_path: Path) -> None:
    """Bodies are lowered again, for fields that are in the memory of others, in tiles and with activations in each iteration."""
    p = made("pointer")

    def calls() -> None:
        for _ in range(10):
            around(p.x, p.y)
            copy(p.y, p.x)
            grow(p.x, p.w)

    recording, before = record_program(calls, ())
    before = {name: np.array(a) for name, a in before.items()}
    problem = normalise(recording)
    assert n_runs(problem, "copy") == 1
    wanted = sparse_periods.periods(recording, before)
    works = []
    for k in range(4):
        space = build_space(problem, sparse_candidates.machine(k))
        sites = [space.choices[v].name for v in range(len(space.choices))]
        tiles = [(name, "HALO") for name in sites if name.startswith("staged") and k < 2]
        made_of = checking.random_candidate(fix(space, tiles).root(), np.random.default_rng(k))
        assert isinstance(made_of, Candidate)
        works.append(sparse_candidates.Work(checking.source_of(made_of), recording, before, wanted))
    assert sparse_candidates.faults_built(works, tmp_path / "copies") == [""] * 4

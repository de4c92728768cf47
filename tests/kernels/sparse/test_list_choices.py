"""Choices about lists of active cells: who has them, what is taken without a search, what a user may fix, what runs."""

import json
import linecache
from collections.abc import Iterator
from math import prod
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.describe import describe
from kernelscape.codegen.loops.ir import loops_in
from kernelscape.codegen.passes.pipeline import launches_of
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.fields.canonical_state import canonical
from kernelscape.kernels.frontend.recorder import Recording, record_program
from kernelscape.kernels.ir.kernel import Const, For, If, Local, UpdateLocal
from kernelscape.kernels.ir.on_trees import compactions
from kernelscape.kernels.ir.walk import nested_statements
from kernelscape.kernels.tasks.archive import from_values, to_values
from kernelscape.kernels.tasks.naive_activation import cell_by_cell
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space import choices as ch
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, Space
from kernelscape.space.decisions import DecisionError, fix, restore, to_names
from kernelscape.testing import (
    checking,
    emulated_periods,
    gpu_checking,
    sparse_emulation,
    sparse_periods,
)
from kernelscape.testing.interpreted import run_reference
from kernelscape.testing.sparse_emulation import Shape

HASHED = Shape((("dense", (2, 1)), ("hash", (3, 5)), ("dense", (2, 2))), 1, 3)
POINTERS = Shape((("pointer", (2, 3)), ("bitmasked", (3, 2))), 0, 2)


@pytest.fixture
def recording() -> Iterator[Recording]:
    ks.init(arch=ks.cpu)
    x, y = ks.field(ks.f32), ks.field(ks.f32)
    ks.root.pointer(ks.i, 4).dense(ks.i, 8).place(x, y)

    @ks.kernel
    def fill(n: ks.template()) -> None:
        for i in range(n):
            x[i] = 1.0 + i

    @ks.kernel
    def add(x: ks.template(), y: ks.template()) -> None:
        for i in x:
            y[i] += 2.0 * x[i]

    def step() -> None:
        add(x, y)
        add(y, x)
        fill(16)
        add(x, y)

    yield record_program(step, ())[0]
    ks.reset()


def space_of(recording: Recording) -> Space:
    return build_space(normalise(recording), checking.target(2, 32))


def named(space: Space, kind: str) -> dict[str, tuple[str, ...]]:
    """The values that each choice of a kind can have, by the name of its site."""
    root: Any = space.open_root()
    found = (int(v) for v in space.searchable if space.choices[int(v)].kind == kind)
    return {
        space.choices[v].name: tuple(space.choices[v].values[k] for k in root.values(v))
        for v in found
    }


def drawn(space: Space) -> Candidate:
    made = None
    while not isinstance(made, Candidate):
        made = checking.random_candidate(space.root(), np.random.default_rng(1))
    return made


def test_lists_that_are_right_may_be_reused_and_others_are_made(recording: Recording) -> None:
    found = named(space_of(recording), "listgen")
    assert list(found.values()) == [
        ("GENERATE", "IF_CHANGED"),
        ("GENERATE", "IF_CHANGED", "REUSE"),
        ("GENERATE", "IF_CHANGED"),  # behind `fill`
    ]
    assert all(name.startswith("listgen(add") for name in found)


def test_a_search_takes_the_best_way_and_a_user_may_fix_another(recording: Recording) -> None:
    space = space_of(recording)
    names = list(named(space, "listgen"))
    default = drawn(space)
    taken = dict(to_names(default))
    assert [taken[n] for n in names] == ["IF_CHANGED", "REUSE", "IF_CHANGED"]
    fixed = fix(space, [(names[1], "GENERATE")])
    other = drawn(fixed)
    assert dict(to_names(other))[names[1]] == "GENERATE"
    assert any("is made again" in said for said in describe(other)["lists"])
    assert not any("is made again" in said for said in describe(default)["lists"])
    for candidate in (default, other):
        again = restore(space, to_names(candidate))
        assert isinstance(again, Candidate)
        assert (again.domains == candidate.domains).all()
    with pytest.raises(DecisionError, match="cannot be REUSE"):
        fix(space, [(names[2], "REUSE")])


def test_decisions_of_before_mean_the_best_way(recording: Recording) -> None:
    space = space_of(recording)
    default = drawn(space)
    older = [(n, v) for n, v in to_names(default) if not n.startswith("listgen")]
    again = restore(space, older)
    assert isinstance(again, Candidate)
    assert (again.domains == default.domains).all()


@pytest.mark.parametrize(
    ("value", "tests"), [("GENERATE", [False, False]), ("IF_CHANGED", [True, True])]
)
def test_each_loop_that_takes_a_list_has_it_made_as_it_says(
    recording: Recording, value: str, tests: list[bool]
) -> None:
    plan = plan_of(drawn(fix(space_of(recording), [("listgen", value)])))
    body = next(
        t.task.body for t in plan.tasks if t.task.body is not None and t.task.body.trees.lists
    )
    whole = [s for s in body.statements if isinstance(s, If)]
    assert [True] * len(whole) == [t for t in tests if t]
    counts = [s for s in body.sites if s.writes and "counters" in s.state.name]
    assert len(counts) == 2 * len(tests)  # COUNT and CHANGED, each time


def test_a_loop_over_hash_nodes_makes_no_list_of_the_nodes_above() -> None:
    """Lists of hash nodes are made of their directory: a loop over the nodes above has its list made again."""
    ks.init(arch=ks.cpu)
    x = ks.field(ks.i32)
    upper = ks.root.pointer(ks.i, 4)
    upper.hash(ks.i, 4).place(x)
    seen = ks.field(ks.i32, 4)

    @ks.kernel
    def put(c: ks.i32) -> None:
        x[c] = 1

    @ks.kernel
    def add() -> None:
        for i in x:
            x[i] += 1

    @ks.kernel
    def look() -> None:
        for i in upper:
            seen[i] += 1

    def first() -> None:
        add()
        look()

    def old() -> None:
        look()
        put(9)
        add()
        look()

    recorded = [record_program(f, ()) for f in (first, old)]
    ks.reset()
    anew = ("GENERATE", "IF_CHANGED")
    assert [list(named(space_of(r), "listgen").values()) for r, _ in recorded] == [
        [anew, anew],
        [anew, anew, anew],
    ]


@pytest.mark.compiler
def test_all_ways_leave_what_the_reference_leaves(tmp_path: Path) -> None:
    calls = [("bump", 0), ("bump", 0), ("store", 5), ("bump", 0)]
    recording, before = sparse_emulation.recorded(POINTERS, calls)
    kinds = ["listgen", "activate", "compaction"]
    space = space_of(recording)
    n_values = [len(v) for kind in kinds for v in named(space, kind).values()]
    assert len(list(sparse_periods.combinations(space, kinds))) == prod(n_values) > 100
    sources = sparse_periods.combined_sources(recording, kinds, 6)
    assert len(sources) > 4
    assert sparse_periods.fault(recording, before, sources, tmp_path) == ""


@pytest.fixture
def growing() -> Iterator[tuple[Recording, dict[str, Any]]]:
    """A loop that activates cells in another tree, twice: the second time they surely are active."""
    ks.init(arch=ks.cpu)
    x, y = ks.field(ks.i32), ks.field(ks.i32)
    ks.root.pointer(ks.i, 16).dense(ks.i, 4).place(x)
    ks.root.pointer(ks.i, 2).dense(ks.i, 16).place(y)

    @ks.kernel
    def fill() -> None:
        for i in range(64):
            x[i] = 1 + i

    @ks.kernel
    def down() -> None:
        for i in x:
            y[i // 2] += x[i]

    def step() -> None:
        fill()
        down()
        down()

    yield record_program(step, ())
    ks.reset()


def test_activations_that_are_needless_are_left_out_unless_a_user_wants_them(
    growing: tuple[Recording, dict[str, Any]],
) -> None:
    space = space_of(growing[0])
    found = named(space, "activate")
    ways = [("ACTIVATE",), ("ACTIVATE", "ELEMENT"), ("ACTIVATE", "DEMOTED")]
    assert list(found.values()) == ways
    name = list(found)[-1]

    def tables(candidate: Candidate) -> list[bool]:
        tasks = plan_of(candidate).tasks[: len(space.problem.tasks)]  # others convert
        bodies = [t.task.body for t in tasks if t.loops]
        return [
            any(s.op == "update" and "table" in s.state.name for s in b.sites) for b in bodies if b
        ]

    assert tables(drawn(space)) == [True, True, False]
    fixed = drawn(fix(space, [(name, "ACTIVATE")]))
    assert tables(fixed) == [True, True, True]
    restored = restore(space, to_names(fixed))
    assert isinstance(restored, Candidate)
    assert restored.key == fixed.key


def test_loops_that_activate_cells_are_shared_out_to_threads(
    growing: tuple[Recording, dict[str, Any]],
) -> None:
    """Stores are apart by the coordinates of their cells, sums are atomic, and so are the states of the trees."""
    space = space_of(growing[0])
    for each in (space, build_space(space.problem, gpu_checking.target())):
        root: Any = each.root()
        loops = [d for d in each.backbone.dims if d.level == 0]
        kinds = [root.values(each.variables.kind[d]) for d in loops]
        assert all(ch.PARALLEL in found for found in kinds)


@pytest.mark.compiler
def test_blocks_of_a_gpu_activate_cells_that_are_active_already(
    growing: tuple[Recording, dict[str, Any]], tmp_path: Path
) -> None:
    """Who fixes the body that looks at each cell gets blocks and threads, as with the one that takes these cells as they are."""
    recording, before = growing[0], {name: a.copy() for name, a in growing[1].items()}
    space = build_space(normalise(recording), gpu_checking.target())
    decided = [("activate(*)", "ACTIVATE"), ("dim_kind(*.outer)", "PARALLEL")]
    candidate = drawn(fix(space, decided))
    activating = [t for t in plan_of(candidate).tasks if t.activates]
    assert len(activating) == 3
    assert all(t.is_parallel and t.states for t in activating)
    source = gpu_checking.source_of(candidate)
    assert emulated_periods.fault(recording, before, source, tmp_path) == ""


@pytest.mark.compiler
def test_two_threads_activate_one_block(
    growing: tuple[Recording, dict[str, Any]], tmp_path: Path
) -> None:
    """Each of the two blocks of `y` is activated by iterations of both threads, whichever of them is late."""
    space = space_of(growing[0])
    outer = [("dim_kind(*.outer)", "PARALLEL")]
    recording, before = growing[0], {name: a.copy() for name, a in growing[1].items()}
    sources = [
        checking.source_of(drawn(fix(space, [*outer, ("activate", way)])))
        for way in ("ACTIVATE", "DEMOTED", "ELEMENT")
    ]
    assert all(s.team for s in sources)
    assert sparse_periods.fault(recording, before, sources, tmp_path) == ""


def once_or_not(body: str, leaf: str = "dense") -> tuple[Recording, dict[str, Any]]:
    """A loop over a list, with leaves of 4 x 2 cells, whose body is `body`; `z` is in blocks of 4 x 3."""
    ks.init(arch=ks.cpu)
    x, y, z = ks.field(ks.i32), ks.field(ks.i32), ks.field(ks.i32)
    getattr(ks.root.pointer(ks.ij, (3, 2)), leaf)(ks.ij, (4, 2)).place(x, y)
    blocks = ks.root.dense(ks.i, 2).pointer(ks.ij, (3, 3)).bitmasked(ks.ij, (2, 1))
    blocks.dense(ks.ij, (4, 3)).place(z)
    source = f"def body():\n    for i, j in x:\n{indent(dedent(body), ' ' * 8)}\n"
    program: dict[str, Any] = {"ks": ks, "x": x, "y": y, "z": z}
    linecache.cache["<body>"] = (len(source), None, source.splitlines(True), "<body>")
    exec(compile(source, "<body>", "exec"), program)
    kernel = ks.kernel(program["body"])

    @ks.kernel
    def fill() -> None:
        for k in range(3):
            x[4 * k, 3 - k] = 1 + k

    def step() -> None:
        fill()
        kernel()

    found = record_program(step, ())
    ks.reset()
    return found


ONCE = [
    "z[i, j * 3 // 2] += x[i, j]",
    "k = i // 2\nz[k, 0] += x[i, j]\nz[k, j // 2] += 1",
    "for k in range(3):\n    z[i, k] += x[i, j] + k",
    "z[47 - i, 8 - j // 2 * 2] += x[i, j]\ny[i, j] = z[i, 0]",
    "if i % 2 == 0 and j % 2 != 0:\n    z[i // 2 * 2, 0] += x[i, j]",
    "if i % 4 < 3:\n    z[i + 1, 0] += x[i, j]\nelse:\n    z[i, j // 2] += 1",
    "k = i % 4\nif k > 1:\n    if k < 3:\n        z[i, 0] += x[i, j]",
]
EACH_TIME = [
    "z[i + 1, 0] += x[i, j]",  # the last row of a leaf is in another block
    "z[i, j * 2] += x[i, j]",
    "z[x[i, j] % 8, 0] += 1",
    "if x[i, j] > 1:\n    z[i, 0] += 1",
    "if i % 8 == 0:\n    z[i, 0] += 1",  # not in every other leaf
    "if i < 4:\n    z[i, j] += 1",
    "if i % 4 > 1:\n    z[i + 1, 0] += 1",
    "k = i % 4\nif x[i, j] > 1:\n    k = 0\nif k == 0:\n    z[i, 0] += 1",
    "if i % 2 == 0:\n    if x[i, j] > 1:\n        z[i, 0] += 1",
    "if i % 2 == 0:\n    for k in range(x[i, j]):\n        z[i, 0] += 1",
    "for k in range(4):\n    z[i, k] += 1",
    "z[i * 1073741824 // 1073741824 + 4, 0] += 1",  # the product wraps: 4, 5, 2, 3
    "z[i // 4 * 4 + ks.i32(0.5 * j), 0] += 1",  # floats may be rounded otherwise
    "if ks.is_active(z.parent(), [i // 4, 0]):\n    y[i, j] = 1\nz[i, 0] += 1",
]


def ways_of_body(recording: Recording) -> tuple[str, ...]:
    found = named(space_of(recording), "activate")
    return next(v for n, v in found.items() if n.startswith("activate(body"))


@pytest.mark.parametrize("body", EACH_TIME)
def test_cells_that_are_not_the_same_for_a_leaf_are_made_active_each_time(body: str) -> None:
    recording, _ = once_or_not(body)
    assert ways_of_body(recording) == ("ACTIVATE",)
    assert cell_by_cell(recording) == recording  # as it runs when it is called by itself


def test_leaves_of_which_cells_are_left_out_activate_each_time() -> None:
    assert ways_of_body(once_or_not(ONCE[0], "bitmasked")[0]) == ("ACTIVATE",)


@pytest.mark.compiler
@pytest.mark.parametrize("body", ONCE)
def test_cells_that_are_the_same_for_a_leaf_are_made_active_once(body: str, tmp_path: Path) -> None:
    recording, before = once_or_not(body)
    assert ways_of_body(recording) == ("ACTIVATE", "ELEMENT")
    each, plain = (run_reference(r, before, {}) for r in (cell_by_cell(recording), recording))
    assert cell_by_cell(recording).calls[1].ir != recording.calls[1].ir
    for kept in (
        recording,
        cell_by_cell(recording),
    ):  # a run of this version, and of an earlier one
        assert from_values(json.loads(json.dumps(to_values(kept)))) == recording
    wanted = canonical(recording.trees, each)
    np.testing.assert_equal(canonical(recording.trees, plain), wanted)
    space = fix(space_of(recording), [("activate(body*)", "ELEMENT")])
    outer = [("dim_kind(body*.outer)", "PARALLEL")]
    assert "once for each leaf" in " ".join(describe(drawn(space))["lists"])
    made = [drawn(space), *([drawn(fix(space, outer))] if body in ONCE[:2] else [])]
    sources = [checking.source_of(c) for c in made]
    assert sparse_periods.fault(recording, before, sources, tmp_path) == ""


def test_a_list_of_one_cell_is_made_by_one_task() -> None:
    ks.init(arch=ks.cpu)
    x = ks.field(ks.f32)
    ks.root.pointer(ks.i, 1).dense(ks.i, 4).place(x)

    @ks.kernel
    def double() -> None:
        for i in x:
            x[i] *= 2.0

    space = space_of(record_program(double, ())[0])
    ks.reset()
    assert list(named(space, "listgen").values()) == [("GENERATE", "IF_CHANGED")]


def test_loops_over_lists_end_with_them_and_uneven_ones_have_schedules(
    growing: tuple[Recording, dict[str, Any]],
) -> None:
    """`down` reads the count of the list of `x`, so threads share out the elements that there are."""
    space = space_of(growing[0])
    plan = plan_of(drawn(space))
    loops = [n for x in launches_of(plan, space.target) for n in loops_in(x.nodes)]
    ended = [n for n in loops if n.members[0].loop == "element"]
    assert ended
    assert all(len(n.ends) == 1 for n in ended)
    recording = sparse_emulation.recorded(POINTERS, [("bump", 0)])[0]
    (values,) = named(space_of(recording), "schedule").values()
    assert values == ("BLOCKED", "CYCLIC", "GUIDED")


@pytest.mark.compiler
def test_elements_are_shared_out_by_every_schedule(tmp_path: Path) -> None:
    recording, before = sparse_emulation.recorded(POINTERS, [("bump", 0), ("add", 2), ("bump", 0)])
    space = fix(space_of(recording), [("dim_kind(bump*.outer)", "PARALLEL")])
    ways = ("BLOCKED", "CYCLIC", "GUIDED")
    sources = [checking.source_of(drawn(fix(space, [("schedule(bump*)", w)]))) for w in ways]
    assert all(s.team for s in sources)
    assert sparse_periods.fault(recording, before, sources, tmp_path) == ""


@pytest.mark.compiler
@pytest.mark.parametrize("shape", [POINTERS, HASHED])
def test_threads_make_a_list_together(shape: Shape, tmp_path: Path) -> None:
    """Made again in each period, after cells have become active and inactive, whichever thread is late."""
    calls = [("bump", 0), ("drop", 3), ("store", 5), ("bump", 0)]
    recording, before = sparse_emulation.recorded(shape, calls)
    space = fix(space_of(recording), [("listgen", "GENERATE")])
    found = named(space, "compaction")
    assert set(found.values()) == {("SERIAL", "TWO_PASS", "APPEND")}
    made = [drawn(fix(space, [("compaction", way)])) for way in ("TWO_PASS", "APPEND")]
    assert all("by all threads" in " ".join(describe(c)["lists"]) for c in made)
    sources = [checking.source_of(c) for c in made]
    assert all(s.team for s in sources)
    assert sparse_periods.fault(recording, before, sources, tmp_path) == ""


# More than one word, the last of which is not whole; and a table that is looked at in groups.
WORDS = Shape((("bitmasked", (9, 12)), ("pointer", (1, 2))), 1, 2)
GROUPS = Shape((("pointer", (2, 16)), ("dense", (2, 1))), 0, 2)


@pytest.mark.compiler
@pytest.mark.parametrize("shape", [WORDS, GROUPS])
def test_lists_are_made_of_words_of_masks_and_of_groups_of_entries(
    shape: Shape, tmp_path: Path
) -> None:
    calls = [("bump", 0), ("drop", 3), ("store", 35), ("bump", 0)]
    recording, before = sparse_emulation.recorded(shape, calls)
    space = fix(space_of(recording), [("listgen", "GENERATE")])
    made = [drawn(fix(space, [("compaction", way)])) for way in ("SERIAL", "TWO_PASS", "APPEND")]
    sources = [checking.source_of(c) for c in made]
    assert sparse_periods.fault(recording, before, sources, tmp_path) == ""
    making = next(t for t in space.problem.tasks if t.body is not None and t.body.trees.lists)
    assert making.body is not None
    extents = [s.extent for s in nested_statements(making.body.statements) if isinstance(s, For)]
    assert max(x.value for x in extents if isinstance(x, Const)) < 17  # of all that is looked at


def test_bits_that_nothing_else_asks_of_are_counted_word_by_word() -> None:
    ks.init(arch=ks.cpu)
    x = ks.field(ks.i32)
    ks.root.bitmasked(ks.i, 100).bitmasked(ks.i, 9).place(x)

    @ks.kernel
    def spread() -> None:
        for i in x:
            x[i + 10] = 1

    problem = normalise(record_program(spread, ())[0])
    ks.reset()
    body = problem.tasks[0].body
    assert body is not None
    (made,) = compactions(body.statements)
    bits = [s for s in nested_statements(made.loop.body) if isinstance(s, For)]
    assert len(bits) == 2  # bits that are 1, of the words above and of those below
    (counted,) = [s for s in nested_statements(made.counting) if isinstance(s, UpdateLocal)]
    assert isinstance(counted.value, Local)  # how many bits are 1
    assert sum(isinstance(s, For) for s in nested_statements(made.counting)) == 1


@pytest.mark.compiler
def test_lists_of_loops_that_are_one_task_with_other_statements_are_no_choice(
    tmp_path: Path,
) -> None:
    """A local ties the loop to what is before it; the last loop takes the list that is made there."""
    ks.init(arch=ks.cpu)
    x, y = ks.field(ks.i32), ks.field(ks.i32)
    counts = ks.field(ks.i32, shape=2)
    ks.root.pointer(ks.i, 8).dense(ks.i, 8).place(x, y)
    x[60], counts[0] = 1, 5

    @ks.kernel
    def tied() -> None:
        n = counts[0]
        for i in range(n):
            x[i * 3] = 1
        for i in x:
            y[i] += n
        counts[1] = n

    @ks.kernel
    def plain() -> None:
        for i in x:
            x[i] += y[i]

    def step() -> None:
        tied()
        plain()
        tied()

    recording, before = record_program(step, ())
    ks.reset()
    assert not named(space_of(recording), "listgen")
    assert sum(len(t.loops) for t in normalise(recording).tasks) == 1
    sources = sparse_periods.drawn_sources(recording, 2, 1)
    assert sparse_periods.fault(recording, before, sources, tmp_path) == ""

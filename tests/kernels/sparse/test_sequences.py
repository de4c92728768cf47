"""Sequences of kernels on sparse fields: what becomes tasks, what is needless, what is kept in files."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.cli.tree_view import tree_lines
from kernelscape.kernels.fields.canonical_state import canonical, unsound, without_inactive
from kernelscape.kernels.fields.storage import TreeStorage
from kernelscape.kernels.frontend.recorder import Recording, record_program
from kernelscape.kernels.ir.task import Problem
from kernelscape.kernels.sparse.layout import COUNT, FRESH
from kernelscape.kernels.sparse.naming import in_terms_of_trees
from kernelscape.kernels.tasks import recorded_calls
from kernelscape.kernels.tasks.archive import ArchiveError, from_values, to_values
from kernelscape.kernels.tasks.dependence import dependences
from kernelscape.kernels.tasks.non_affine import SETTLING
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.worker import evaluator as evaluator_module
from kernelscape.runtime.worker.evaluator import Evaluator
from kernelscape.runtime.worker.inputs import Arguments, make_input_sets
from kernelscape.testing.interpreted import run_reference
from kernelscape.testing.run_tasks import run_tasks


@pytest.fixture(autouse=True)
def program() -> Iterator[None]:
    ks.init(arch=ks.cpu)
    yield
    ks.reset()


def tree(kind: str = "pointer") -> tuple[Any, Any, Any]:
    x, y = ks.field(ks.f32), ks.field(ks.f32)
    block = getattr(ks.root, kind)(ks.i, 4)
    block.dense(ks.i, 8).place(x, y)
    return x, y, block


def recorded(step: Callable[[], None]) -> tuple[Recording, dict[str, Any], Problem]:
    recording, arrays = record_program(step, ())
    return recording, arrays, normalise(recording)


@ks.kernel
def fill(x: ks.template(), n: ks.template()) -> None:
    for i in range(n):
        x[i] = 1.0 + i


@ks.kernel
def add(x: ks.template(), y: ks.template()) -> None:
    for i in x:
        y[i] += 2.0 * x[i]


@ks.kernel
def down(x: ks.template(), y: ks.template()) -> None:
    for i in x:
        y[i // 2] += x[i]


@ks.kernel
def clear(block: ks.template()) -> None:
    for i in range(4):
        ks.deactivate(block, i)


def lists_made(problem: Problem) -> list[str]:
    return [t.name for t in problem.tasks if "_list" in t.target.array]


def settlings(problem: Problem) -> int:
    return sum(t.body is not None and t.body.reason.text == SETTLING for t in problem.tasks)


def test_loops_over_one_list_share_it_and_may_be_one() -> None:
    x, y, _ = tree()

    def step() -> None:
        add(x, y)
        add(y, x)
        add(x, y)

    problem = recorded(step)[2]
    assert len(lists_made(problem)) == 1
    loops = [k for k, t in enumerate(problem.tasks) if t.loops]
    found = [d for d in dependences(problem) if d.source in loops and d.sink in loops]
    assert len(loops) == 3
    assert found
    assert all(d.mapped for d in found)


def test_a_list_is_made_again_where_cells_became_active_between() -> None:
    x, y, _ = tree()

    def step() -> None:
        add(x, y)
        fill(x, 16)
        add(x, y)

    assert len(lists_made(recorded(step)[2])) == 2


def test_an_activation_that_was_made_before_is_needless_unless_cells_became_inactive() -> None:
    x, _, _ = tree()
    y = ks.field(ks.f32)
    below = ks.root.pointer(ks.i, 2)
    below.dense(ks.i, 8).place(y)

    def plain() -> None:
        down(x, y)
        down(x, y)

    def shrinking() -> None:
        down(x, y)
        clear(below)
        down(x, y)

    def growing() -> None:
        down(x, y)
        fill(x, 32)
        down(x, y)

    assert settlings(recorded(plain)[2]) == 1
    assert settlings(recorded(shrinking)[2]) == 3
    assert settlings(recorded(growing)[2]) == 3


def test_one_loop_may_activate_cells_and_make_them_inactive() -> None:
    x, _, block = tree()

    @ks.kernel
    def blink() -> None:
        for i in range(4):
            x[8 * i] = 1.0
            ks.deactivate(block, i)

    assert settlings(recorded(lambda: (blink(), blink()))[2]) == 2


def test_another_range_activates_other_cells() -> None:
    x, _, _ = tree()

    def step() -> None:
        fill(x, 8)
        fill(x, 32)
        fill(x, 8)

    assert settlings(recorded(step)[2]) == 2


def test_a_loop_over_no_active_cell_activates_nothing() -> None:
    """So that what it would activate, the same for each cell, is not needless behind it."""
    x, _, _ = tree()
    y = ks.field(ks.f32)
    ks.root.pointer(ks.i, 4).dense(ks.i, 8).place(y)

    @ks.kernel
    def first() -> None:
        for _ in x:
            for j in range(3):
                y[8 * j] += 1.0

    @ks.kernel
    def second() -> None:
        for j in range(3):
            y[8 * j] += 2.0

    assert settlings(recorded(lambda: (first(), second()))[2]) == 2


@pytest.mark.parametrize("kind", ["pointer", "bitmasked", "hash"])
def test_what_the_tasks_of_a_sequence_do_is_what_its_kernels_do(kind: str) -> None:
    x, y, block = tree(kind)

    def step() -> None:
        fill(x, 20)
        add(x, y)
        fill(x, 20)
        add(y, x)
        clear(block)
        fill(y, 9)
        add(x, y)

    recording, arrays, _ = recorded(step)
    before = {name: a.copy() for name, a in arrays.items()}
    found = canonical(recording.trees, run_reference(recording, before, {}))
    with ks.interpret():
        step()
    wanted = canonical(recording.trees, arrays)
    assert found.keys() == wanted.keys()
    for name, a in wanted.items():
        np.testing.assert_array_equal(found[name], a)
    assert not found[f"{recording.trees[0].tree.name}.sound"].any()


@ks.kernel
def weighted(
    x: ks.template(),
    y: ks.template(),
    a: ks.types.ndarray(),
    b: ks.types.ndarray(),
    o: ks.types.ndarray(),
) -> None:
    for i in x:
        y[i] += a[i] * b[i] * x[i]
    for i in range(o.shape[0]):
        o[i] += b[i]


def test_one_array_may_be_given_twice_to_kernels_on_sparse_fields() -> None:
    """Kind: what a call outside of a sequence may have, and one inside was refused."""
    x, y, _ = tree()
    fill(x, 20)
    w, v = np.linspace(0, 1, 32, dtype=np.float32), np.linspace(1, 2, 32, dtype=np.float32)

    def step(w: Any, v: Any) -> None:
        for _ in range(10):
            weighted(x, y, w, w, v)
            weighted(x, y, v, w, w)
            weighted(x, y, v, v, v)

    recording, fields = record_program(step, (w, v))
    assert [(r.first, r.stop, r.count) for r in recording.repeats] == [(0, 3, 10)]
    again, _ = record_program(step, (w, v))
    assert [c.ir for c in again.calls] == [c.ir for c in recording.calls]
    assert from_values(to_values(recording)) == recording
    problem = normalise(recording)
    before = {name: a.copy() for name, a in {"w": w, "v": v, **fields}.items()}
    found = run_reference(recording, before, {})
    by_tasks = run_tasks(problem, {name: a.copy() for name, a in before.items()}, {})
    sums, at_x = np.zeros(32), np.arange(1.0, 33.0) * (np.arange(32) < 20)
    other_w, other_v = w.astype(float), v.astype(float)
    for _ in range(10):
        for a, b, o in (
            (other_w, other_w, other_v),
            (other_v, other_w, other_w),
            (other_v, other_v, other_v),
        ):
            sums += a * b * at_x
            o += b
    for tried in (found, by_tasks):
        np.testing.assert_allclose(tried["w"], other_w, rtol=1e-5)
        np.testing.assert_allclose(tried["v"], other_v, rtol=1e-5)
    step(w, v)
    np.testing.assert_allclose(v, other_v, rtol=1e-5)
    np.testing.assert_allclose(y.to_numpy(), sums, rtol=1e-5)


def test_the_canonical_form_sees_what_is_not_sound() -> None:
    x, y, _ = tree()
    fill(x, 20)

    def step() -> None:
        add(x, y)

    recording, arrays, _ = recorded(step)
    name = recording.trees[0].tree.name
    where = recording.trees[0].arrays
    step()
    ks.sync()
    assert not canonical(recording.trees, arrays)[f"{name}.sound"].any()
    twice = {n: a.copy() for n, a in arrays.items()}
    twice[where["list0"]][0, 0] = twice[where["list0"]][0, 1]
    assert canonical(recording.trees, twice)[f"{name}.sound"].any()
    inactive = {n: a.copy() for n, a in arrays.items()}
    inactive[where["field0"]][3] = 1.0  # not the first of the cells that inactive ones share
    assert canonical(recording.trees, inactive)[f"{name}.sound"].any()
    assert f"not active were written: {where['field0']}" in unsound(recording.trees, inactive)
    assert not without_inactive(recording.trees, inactive)[where["field0"]][3]
    growing, arrays, _ = recorded(lambda: fill(y, 30))
    fill(y, 30)
    ks.sync()
    assert unsound(growing.trees, arrays) == ""
    lost = {n: a.copy() for n, a in arrays.items()}
    lost[growing.trees[0].arrays["counters"]][0, FRESH] += 1
    assert "are lost" in unsound(growing.trees, lost)


def test_a_candidate_is_verified_in_one_walk_of_each_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: walks were most of the time for a candidate of a short program: two, with the indices of all cells of leaves."""
    x, y, _ = tree()
    fill(x, 20)

    def step() -> None:
        add(x, y)

    recording, arrays, _ = recorded(step)
    step()
    ks.sync()
    found = canonical(recording.trees, arrays)
    evaluator = Evaluator(SimpleNamespace(), SimpleNamespace(), 1)  # type: ignore[arg-type]
    evaluator._trees = recording.trees
    places = {
        name: SimpleNamespace(trespass=lambda: None, download=lambda a=a: a)
        for name, a in arrays.items()
    }
    expected = {name: SimpleNamespace(want=x) for name, x in found.items()}
    monkeypatch.setattr(evaluator_module, "find_mismatch", lambda got, want: None)
    walked: list[int] = []
    plain = TreeStorage.active_in

    def counted(self: TreeStorage, node: int, *above: Any) -> Any:
        walked.append(node)
        return plain(self, node, *above)

    monkeypatch.setattr(TreeStorage, "active_in", counted)
    placed: Any = SimpleNamespace(arrays=places, expected=expected, number=0)
    assert evaluator._find_wrong(placed, None) is None
    assert walked == [0]  # the blocks, not the cells in them
    arrays[recording.trees[0].arrays["field0"]][3] = 1.0
    wrong = evaluator._find_wrong(placed, None)
    assert wrong is not None and "not active were written" in wrong.advice


def test_lists_are_compared_as_sets() -> None:
    x, y, _ = tree()
    fill(x, 20)

    def step() -> None:
        add(x, y)

    recording, arrays, _ = recorded(step)
    (used,) = recording.trees
    step()
    ks.sync()
    kept = arrays[used.arrays["list0"]]
    n = int(arrays[used.arrays["counters"]][0, COUNT])
    assert n > 1
    turned = {**arrays, used.arrays["list0"]: kept.copy()}
    turned[used.arrays["list0"]][:, :n] = kept[:, :n][:, ::-1]
    assert unsound(recording.trees, turned) == ""
    turned[used.arrays["list0"]][:, 0] = kept[:, 0]
    assert "has other cells" in unsound(recording.trees, turned)


def test_what_is_appended_is_compared_as_a_multiset() -> None:
    pair = ks.types.struct(a=ks.i32, b=ks.i32)
    pairs = pair.field()
    cells = ks.root.pointer(ks.i, 4).dynamic(ks.j, 8, chunk_size=2)
    cells.place(pairs)

    @ks.kernel
    def collect() -> None:
        for k in range(6):
            ks.append(cells, k % 2, pair(k + 1, 10 * k))

    @ks.kernel
    def read() -> None:
        for i, j in pairs:
            pairs[i, j].b += pairs[i, j].a

    recording, arrays, _ = recorded(collect)
    other, _, _ = recorded(read)
    collect()
    (used,) = recording.trees
    assert used.appended == (1,)
    assert from_values(to_values(recording)).trees == recording.trees
    names = [used.arrays[f"field{k}"] for k in range(2)]
    plain = canonical(recording.trees, arrays)
    items = [int(np.flatnonzero(arrays[names[0]] == x)[0]) for x in (1, 3, 5)]  # of one list
    turned = {n: a.copy() for n, a in arrays.items()}
    for name in names:
        turned[name][items] = arrays[name][items[::-1]]
    same = canonical(recording.trees, turned)
    assert all(np.array_equal(same[n], a) for n, a in plain.items())
    mixed = {n: a.copy() for n, a in arrays.items()}
    mixed[names[1]][items] = arrays[names[1]][items[::-1]]  # values of other cells
    assert not np.array_equal(canonical(recording.trees, mixed)[names[1]], plain[names[1]])
    in_order = [canonical(other.trees, a)[names[0]] for a in (arrays, turned)]
    assert not np.array_equal(*in_order)  # a sequence that does not append has an order


def test_bytes_of_pools_are_named_in_messages() -> None:
    x, y, _ = tree()

    def step() -> None:
        add(x, y)

    recording, _, _ = recorded(step)
    (used,) = recording.trees
    field, unit = used.arrays["field0"], used.layout.items[1] // used.layout.slots[0]
    said = in_terms_of_trees(recording.trees, f"writes byte {4 * unit * 3} of {field}, which")
    assert f"of {field} (field 0 in the pool of pointer" in said
    assert "slot 3), which" in said
    assert "slot 0, which inactive cells share" in in_terms_of_trees(
        recording.trees, f"writes byte 4 of {field}"
    )
    table = used.arrays["table0"]
    assert "(the table of pointer" in in_terms_of_trees(recording.trees, f"past the end of {table}")


def test_a_sequence_on_sparse_fields_is_kept_in_files_which_are_not_trusted() -> None:
    x, y, _ = tree()

    def step() -> None:
        fill(x, 20)
        add(x, y)

    recording = recorded(step)[0]
    values = to_values(recording)
    assert from_values(values) == recording
    assert "trusted" not in str(values)
    other = replace(recording.calls[1], ir=replace(recording.calls[1].ir, body=()))
    with pytest.raises(ArchiveError, match="not what its sparse fields are lowered to"):
        from_values(to_values(replace(recording, calls=(recording.calls[0], other))))


def test_trees_that_grow_are_verified_until_they_are_full() -> None:
    x = ks.field(ks.i32)
    lists = ks.root.pointer(ks.i, 2).dynamic(ks.j, 8, chunk_size=2)
    lists.place(x)

    @ks.kernel
    def collect() -> None:
        for i in range(6):
            ks.append(lists, i % 2, i)

    recording, arrays, problem = recorded(lambda: (collect(), collect()))
    given = Arguments(arrays, {})
    sets = make_input_sets(recording, problem, given, np.random.default_rng(1), n_sets=1).sets
    assert len(sets) == 1  # the second period appends 12 more to 12 of 16


def test_the_trees_of_a_sequence_are_shown_with_what_their_lists_cost() -> None:
    x, y, _ = tree()
    fill(x, 12)

    def step() -> None:
        add(x, y)
        add(y, x)

    recording, arrays, problem = recorded(step)
    lines = list(tree_lines(recording, problem, Arguments(arrays, {})))
    assert "bytes in use" in lines[0]
    assert "pointer 4" in lines[2]
    assert "50.0%" in lines[2]
    assert lines[2].endswith("table0, list0; 1 x 4 cells looked at")
    assert "dense 8" in lines[3]
    assert "100.0%" in lines[3]


def test_each_tree_is_shown_an_empty_one_and_one_that_is_only_looked_up_too() -> None:
    x, y, z = (ks.field(ks.i32) for _ in range(3))
    ks.root.hash(ks.ij, (64, 64)).dense(ks.ij, 2).place(x)
    ks.root.pointer(ks.i, 4).hash(ks.i, 8).place(y)
    ks.root.pointer(ks.i, 8).bitmasked(ks.i, 4).place(z)
    for k in range(3):
        x[40 * k, 9] = y[10 * k] = 1

    @ks.kernel
    def each() -> None:
        for i, j in x:
            x[i, j] += y[i % 32]
        for i in z:
            z[i] += 1

    recording, arrays, problem = recorded(each)
    text = "\n".join(tree_lines(recording, problem, Arguments(arrays, {})))
    shown = {line.split()[0].strip(",:"): line for line in text.splitlines() if "tree" in line[:4]}
    assert len(shown) == 3
    assert sum("bytes in use" in line for line in shown.values()) == 2
    assert sum("do not take all" in line for line in shown.values()) == 1
    assert re.search(r"hash 64x64 +1 +4096 +3 .*keys0; 1 x 3 cells looked at", text)
    assert re.search(r"pointer 8 +1 +8 +0 +0.0%.*; 1 x 8 cells looked at", text)
    assert re.search(r"pointer 4  table0\n +hash 8  table1, keys1", text)


def test_what_is_known_of_a_loop_stays_with_it() -> None:
    """Behind loops that are one task because of a local, and behind one that never runs."""
    _, y, _ = tree()
    limit = ks.field(ks.i32, shape=2)

    @ks.kernel
    def tied(y: ks.template()) -> None:
        n = limit[0]
        for i in range(n):
            limit[1] += i
        for i in range(n):
            y[i] = 1.0
        for i in range(32):
            y[i // 8] += 1.0 + i

    @ks.kernel
    def never(y: ks.template(), n: ks.template()) -> None:
        for i in range(n):
            y[i] = 1.0
        for i in range(32):
            y[i // 8] += 1.0 + i

    for step in (lambda: tied(y), lambda: never(y, 0)):
        last = recorded(step)[2].tasks[-1]
        assert last.loops
        assert last.body is not None
        assert not last.body.trees.apart
    (only,) = (t for t in recorded(lambda: never(y, 32))[2].tasks if t.body and t.body.trees.apart)
    assert only.loops[0].name == "i"


def test_equal_calls_under_equal_facts_are_normalised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: work that is done again for each call of a long sequence, though few of its calls differ."""
    x, y, _ = tree()
    z, w, _ = tree("bitmasked")

    def step() -> None:
        for fields in ((x, y), (z, w), (x, y), (y, x), (x, y), (z, w), (x, y)):
            add(*fields)

    normalised = []
    call_tasks = recorded_calls._tasks_of_call
    monkeypatch.setattr(
        recorded_calls, "_tasks_of_call", lambda *of: normalised.append(of[1]) or call_tasks(*of)
    )
    _, _, problem = recorded(step)
    # The second call on (x, y) finds its list made; a bitmasked node has none.
    assert normalised == ["add0", "add1", "add2", "add3"]
    bodies = {t.name: t.body for t in problem.tasks}
    assert bodies["add4"] is bodies["add2"] is bodies["add6"]


@ks.kernel
def raise_by(x: ks.template(), n: ks.template()) -> None:
    for i in x:
        x[i] += n


@ks.kernel
def shift_into(x: ks.template(), y: ks.template()) -> None:
    for i in x:
        y[i] = x[i - 1]


@pytest.mark.parametrize(("grows", "n_lists"), [(False, 1), (True, 2)])
def test_facts_before_a_repeat_hold_in_it_if_each_step_leaves_them(
    grows: bool, n_lists: int
) -> None:
    """Kind: facts are lost at the head of a repeat, so that each of its steps makes its lists anew."""
    x, y, _ = tree()

    def step() -> None:
        for n in range(14):
            raise_by(x, n)
        for _ in range(2):
            shift_into(x, y)
            if grows:
                fill(x, 8)
            shift_into(y, x)
        raise_by(x, 1)

    fill(x, 20)
    _, _, problem = recorded(step)
    assert problem.repeats
    assert sum(t.target.array.endswith("list0") for t in problem.tasks) == n_lists


@ks.kernel
def zero(x: ks.template()) -> None:
    for i in x:
        x[i] = 0.0


@ks.kernel
def clear_some(x: ks.template()) -> None:
    for i in x:
        if i % 3 == 0:
            x[i] = 0.0


@ks.kernel
def empty_some(x: ks.template(), block: ks.template()) -> None:
    for i in block:
        if i % 2 == 0:
            ks.deactivate(block, [i])


@pytest.mark.parametrize(
    ("then", "is_dead"),
    [
        (lambda x, y, block: zero(x), True),
        (lambda x, y, block: (fill(x, 30), zero(x)), True),  # more cells, which are cleared, too
        (lambda x, y, block: (add(x, y), zero(x)), False),
        (lambda x, y, block: clear_some(x), False),
        (lambda x, y, block: zero(y), False),
        (lambda x, y, block: (empty_some(x, block), zero(x)), False),
    ],
)
def test_stores_that_a_loop_over_active_cells_overwrites_are_dead(then: Any, is_dead: bool) -> None:
    """Kind: dead stores are known of dense arrays alone. Cells that were deactivated between are not covered."""
    x, y, block = tree()

    def step() -> None:
        zero(x)
        raise_by(x, 2)
        then(x, y, block)

    fill(x, 20)
    recording, arrays, problem = recorded(step)
    stored = [t.name for t in problem.tasks if t.kernel == "raise_by"]
    assert (not stored) == is_dead
    wanted = canonical(recording.trees, run_reference(recording, arrays, {}))
    got = canonical(recording.trees, run_tasks(problem, arrays, {}))
    for name, array in got.items():
        np.testing.assert_array_equal(array, wanted[name], err_msg=name)


def test_slots_are_zero_when_cells_take_them_behind_a_loop_over_the_others() -> None:
    """The kind: zeros of returned slots as stores to active cells, which a loop over these overwrites."""
    x, y, block = tree()

    @ks.kernel
    def put() -> None:
        for i in y:
            y[i] = 7.0

    def step() -> None:
        clear(block)
        fill(x, 8)  # reclaims four slots and takes one
        put()
        fill(x, 16)

    fill(y, 32)
    recording, arrays, problem = recorded(step)
    wanted = canonical(recording.trees, run_reference(recording, arrays, {}))
    got = canonical(recording.trees, run_tasks(problem, arrays, {}))
    for name, array in wanted.items():
        np.testing.assert_array_equal(got[name], array, err_msg=name)

"""Tapes whose calls change the active cells of trees over which others loop: adjoints visit the cells of their calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.recorder import record_program
from kernelscape.kernels.interpret.executor import interpret
from kernelscape.program import changed_cells
from kernelscape.testing.interpreted import run_reference

N = 12
BEGIN = 3  # cells that are active before the tape, the first ones
NODES: dict[str, Callable[[], ks.SNode]] = {
    "pointer": lambda: ks.root.pointer(ks.i, N),
    "pointer, dense": lambda: ks.root.pointer(ks.i, N // 3).dense(ks.i, 3),
    "hash": lambda: ks.root.hash(ks.i, N),
    "bitmasked": lambda: ks.root.bitmasked(ks.i, N),
    "dynamic": lambda: ks.root.dynamic(ks.i, N, chunk_size=4),
}
Runs = Callable[["Program"], None]


class Program:
    """Fields on one kind of node, of which the first cells are active and 1, and kernels by name."""

    def __init__(self, kind: str) -> None:
        ks.reset()
        ks.init(default_fp=ks.f64)
        self.x, self.y = ks.field(float), ks.field(float)
        NODES[kind]().place(self.x, self.x.grad, self.y, self.y.grad)
        self.w = ks.field(float, (), needs_grad=True)
        self.loss = ks.field(float, (), needs_grad=True)
        self.kernels = kernels(self.x, self.y, self.w, self.loss)
        for i in range(BEGIN):
            self.x[i] = 1.0
        self.w[None] = 0.5

    def __getattr__(self, name: str) -> Any:
        return self.kernels[name]

    def tape(self, block: Runs) -> None:
        with ks.ad.Tape(self.loss):
            block(self)


def sparse_node(x: Any) -> Any:
    """Returns the node of a field, or the one above, whose cells may be inactive."""
    node = x.parent()
    return node.parent() if node.kind == "dense" else node


def kernels(x: Any, y: Any, w: Any, loss: Any) -> dict[str, Any]:
    node, sparse = x.parent(), sparse_node(x)
    at_first = [] if sparse.kind == "dynamic" else [0]

    @ks.kernel
    def affine():
        for i in x:
            y[i] = x[i] * w[None] + w[None]

    @ks.kernel
    def more():
        for i in x:
            loss[None] += w[None] * (i + 1)

    @ks.kernel
    def pairs():
        for i in x:
            loss[None] += w[None] * x[i] * x[i + 1]

    @ks.kernel
    def firsts():
        for i in range(BEGIN):
            loss[None] += w[None] * x[i] * x[i]

    @ks.kernel
    def drop():
        for _ in range(1):
            ks.deactivate(sparse, at_first)

    @ks.kernel
    def activate(n: int):
        for i in range(n):
            ks.activate(node, i)

    @ks.kernel
    def affine_then_activate(n: int):
        for i in x:
            y[i] = x[i] * w[None] + w[None]
        for i in range(n):
            ks.activate(node, i)

    @ks.kernel
    def activate_then_affine(n: int):
        for i in range(n):
            ks.activate(node, i)
        for i in x:
            y[i] = x[i] * w[None] + w[None]

    @ks.kernel
    def between():
        for i in range(6):
            ks.activate(node, i)
        for i in x:
            y[i] = x[i] * w[None] + w[None]
        for i in range(N):
            ks.activate(node, i)

    @ks.kernel
    def twice():
        for i in x:
            loss[None] += w[None] * (i + 1)
        for i in range(N):
            ks.activate(node, i)
        for i in x:
            loss[None] += w[None] * (i + 1) * 10.0

    @ks.kernel
    def sine():
        for i in x:
            x[i] = ks.sin(x[i] * w[None]) + w[None]

    @ks.kernel
    def squares():
        for i in range(N):
            loss[None] += x[i] ** 2 + x[i]

    @ks.kernel
    def deactivate_first():
        ks.deactivate(sparse, at_first)

    @ks.kernel
    def exchange():
        ks.deactivate(sparse, at_first)
        for i in range(BEGIN):
            ks.activate(node, i)

    @ks.kernel
    def total():
        for i in range(N):
            loss[None] += y[i]

    @ks.kernel
    def asking():
        for i in range(N):
            if ks.is_active(node, i):
                loss[None] += w[None]

    @ks.kernel
    def measuring():
        for _ in range(1):
            for i in range(ks.length(node, [])):
                loss[None] += w[None] * (i + 1)

    found = (
        affine,
        more,
        activate,
        affine_then_activate,
        activate_then_affine,
        between,
        twice,
        pairs,
        firsts,
        drop,
    )
    found += (sine, squares, deactivate_first, exchange, total, asking)
    found += (measuring,) if node.kind == "dynamic" else ()
    return {k.__name__: k for k in found}


@pytest.fixture(autouse=True)
def _program():
    yield
    ks.reset()


def record(program: Program, block: Runs) -> tuple[Any, dict[str, Any]]:
    """Returns a sequence, and its arrays, that consists of a tape."""
    return record_program(lambda: program.tape(block), ())


def called(kind: str, block: Runs) -> tuple[float, float]:
    """Returns the loss and the gradient of `w` of a program whose kernels run at once."""
    program = Program(kind)
    program.tape(block)
    return program.loss[None], program.w.grad[None]


def interpreted(kind: str, block: Runs) -> tuple[float, float]:
    with interpret():
        return called(kind, block)


def recorded(kind: str, block: Runs) -> tuple[float, float]:
    """Returns the same of a recorded sequence, which begins with other numbers in its temporaries."""
    program = Program(kind)
    recording, arrays = record(program, block)
    found = run_reference(recording, {n: np.array(a) for n, a in arrays.items()}, {})
    return float(found["loss"].item()), float(found["w_grad"].item())


def _later(p: Program) -> None:
    p.affine()
    p.activate(N)
    p.total()


def _same_kernel(p: Program) -> None:
    p.affine_then_activate(N)
    p.total()


def _before_in_one_kernel(p: Program) -> None:
    p.activate_then_affine(6)
    p.activate(N)
    p.total()


def _growing(p: Program) -> None:
    p.more()
    p.activate(6)
    p.more()
    p.more()
    p.activate(N)
    p.more()


def _ungraded(p: Program) -> None:
    p.affine()
    ks.ad.no_grad(lambda: p.activate(N))()
    p.total()


def _two_loops(p: Program) -> None:
    p.twice()


def _in_place(p: Program) -> None:
    p.sine()
    p.activate(N)
    p.squares()


def _unchanged(p: Program) -> None:
    p.affine()
    p.activate(BEGIN)
    p.affine()
    p.total()


_X = np.sin(0.5) + 0.5  # of an element behind `sine`
BY_HAND: dict[Runs, tuple[float, float]] = {
    _later: (3.0, 6.0),
    _same_kernel: (3.0, 6.0),
    _before_in_one_kernel: (4.5, 9.0),  # three of the six are 0
    _growing: (0.5 * (6 + 21 + 21 + 78), 6 + 21 + 21 + 78),
    _ungraded: (3.0, 6.0),
    _two_loops: (393.0, 786.0),
    _in_place: (3 * (_X**2 + _X), 3 * (2 * _X + 1) * (np.cos(0.5) + 1)),
    _unchanged: (3.0, 6.0),
}


@pytest.mark.parametrize("run", [called, interpreted, recorded])
@pytest.mark.parametrize("block", BY_HAND)
@pytest.mark.parametrize("kind", NODES)
def test_adjoints_visit_the_cells_of_their_calls(
    kind: str, block: Runs, run: Callable[[str, Runs], tuple[float, float]]
) -> None:
    """Kind: an adjoint visits cells that its call did not, so `w` got 15, not 6, in silence."""
    assert run(kind, block) == pytest.approx(BY_HAND[block], rel=1e-12)


def _deactivates(p: Program) -> None:
    p.affine()
    p.deactivate_first()


def _deactivates_marked_cells(p: Program) -> None:
    p.affine()
    p.activate(N)
    p.deactivate_first()


def _activates_again_what_it_deactivates(p: Program) -> None:
    p.affine()
    p.exchange()


def _asked_before(p: Program) -> None:
    p.asking()
    p.activate(N)


def _loop_between_changes(p: Program) -> None:
    p.between()


@pytest.mark.parametrize("run_tape", [Program.tape, record], ids=["called", "recorded"])
@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (_deactivates, "values and gradients of deactivated cells"),
        (_deactivates_marked_cells, "values and gradients of deactivated cells"),
        (_activates_again_what_it_deactivates, "values and gradients of deactivated cells"),
        (_asked_before, "is_active or a length"),
        (_loop_between_changes, "two kernels"),
    ],
)
@pytest.mark.parametrize("kind", NODES)
def test_changes_without_a_right_adjoint_are_refused_with_their_line(
    kind: str, block: Runs, reason: str, run_tape: Callable[[Program, Runs], object]
) -> None:
    """Kind: values are gone, or conditions have changed, when the adjoint runs, in silence."""
    program = Program(kind)
    with pytest.raises(ks.LanguageError, match=f"changes the active cells.*{reason}") as caught:
        run_tape(program, block)
    assert caught.value.where is not None
    assert caught.value.where.file == __file__


@pytest.mark.parametrize("run_tape", [Program.tape, record], ids=["called", "recorded"])
def test_a_later_change_of_a_length_is_refused(run_tape: Callable[[Program, Runs], object]) -> None:
    """Kind: the adjoint asks for the length that the list has when it runs."""
    program = Program("dynamic")

    def block(p: Program) -> None:
        p.measuring()
        p.activate(N)

    with pytest.raises(ks.LanguageError, match="is_active or a length"):
        run_tape(program, block)


def _python_activates(p: Program) -> None:
    ks.activate(p.x.parent(), 7)


def _python_stores(p: Program) -> None:
    p.x[7] = 2.0


def _python_deactivates(p: Program) -> None:
    sparse_node(p.x).deactivate_all()


@pytest.mark.parametrize("has_later_call", [False, True])
@pytest.mark.parametrize("change", [_python_activates, _python_stores, _python_deactivates])
@pytest.mark.parametrize("kind", NODES)
def test_changes_by_python_inside_a_tape_are_refused(
    kind: str, change: Runs, has_later_call: bool
) -> None:
    """Kind: the tape does not see what Python activates between two calls."""
    program = Program(kind)

    def block(p: Program) -> None:
        p.affine()
        change(p)
        if has_later_call:
            p.total()

    with pytest.raises(ks.LanguageError, match="Python activates or deactivates") as caught:
        program.tape(block)
    assert caught.value.where is not None
    assert caught.value.where.file == __file__


@pytest.mark.parametrize("kind", NODES)
def test_stores_by_python_to_active_cells_are_no_changes(kind: str) -> None:
    """Kind: programs that store to active elements between calls are refused."""

    def block(p: Program) -> None:
        p.affine()
        p.y[1] = 5.0
        ks.activate(p.x.parent(), 2)
        p.total()

    loss, by_w = called(kind, block)
    assert (loss, by_w) == (pytest.approx(7.0), pytest.approx(6.0))


@pytest.mark.parametrize("kind", NODES)
def test_deactivate_all_in_a_recorded_tape_is_refused(kind: str) -> None:
    """Kind: Python's operations are recorded in front of the tape, which does not see them."""
    program = Program(kind)

    def block(p: Program) -> None:
        p.affine()
        sparse_node(p.x).deactivate_all()
        p.total()

    with pytest.raises(ks.LanguageError, match="values and gradients of deactivated cells"):
        record(program, block)


@pytest.mark.parametrize("is_recorded", [False, True], ids=["called", "recorded"])
def test_masks_have_the_cells_of_nodes_on_two_axes_with_an_offset(is_recorded: bool) -> None:
    """Kind: the mask is read at the indices of the field, or of another node of its tree."""
    ks.reset()
    ks.init(default_fp=ks.f64)
    x, w = ks.Vector.field(2, float), ks.field(float, (), name="w", needs_grad=True)
    loss = ks.field(float, (), needs_grad=True)
    block = ks.root.pointer(ks.ij, (2, 3))
    cell = block.bitmasked(ks.ij, (2, 2))
    cell.place(x, x.grad, offset=(-2, 1))
    before = ((-2, 1), (1, 6), (0, 3))
    for at in before:
        x[at] = (1.0, 2.0)
    w[None] = 0.5

    @ks.kernel
    def scale():
        for i, j in x:
            loss[None] += (x[i, j][0] + x[i, j][1] + i * 10 + j) * w[None]
        for a, b in block:
            loss[None] += w[None] * (a * 1000 + b * 100)

    @ks.kernel
    def spread(n: int):
        for i, j in ks.ndrange(n, 6):
            ks.activate(cell, [i, j])

    def step() -> None:
        with ks.ad.Tape(loss):
            scale()
            spread(4)

    found = sum(3.0 + i * 10 + j for i, j in before)
    found += sum(a * 1000.0 + b * 100 for a, b in ((0, 0), (1, 2), (1, 1)))
    if is_recorded:
        recording, arrays = record_program(step, ())
        result = run_reference(recording, {n: np.array(a) for n, a in arrays.items()}, {})
        assert result["w_grad"].item() == pytest.approx(found)
    else:
        step()
        assert w.grad[None] == pytest.approx(found)


def test_marked_loops_have_marks_when_other_cells_are_visited_later() -> None:
    """Kind: each loop has the marks of the last change, or of the first."""
    sizes = (3, 5, 8, 12)

    def block(p: Program) -> None:
        for n in sizes:
            p.activate(n)
            p.more()

    assert called("hash", block)[1] == sum(n * (n + 1) // 2 for n in sizes)


def _n_masks(block: Runs) -> int:
    """Returns the number of masks of a recorded tape."""
    program = Program("pointer")
    recording, _ = record(program, block)
    calls = recording.calls_in_order()
    n_masks = sum(c.ir.name == "mask" for c in calls)
    assert n_masks == sum(a.dtype.name == "u8" for a in recording.temps)
    return n_masks


def test_only_loops_before_a_change_have_a_mask() -> None:
    """Kind: each tape on trees pays for masks, or each call has its own."""

    def without_changes(p: Program) -> None:
        p.activate(N)
        p.affine()
        p.more()
        p.total()

    assert _n_masks(without_changes) == 0
    assert _n_masks(_later) == 1
    assert _n_masks(_growing) == 2  # three loops before two changes


def test_a_mask_is_made_once_while_no_cell_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: a time loop whose calls activate nothing new keeps a mask a step."""
    made: list[Any] = []
    marked = changed_cells._marked
    monkeypatch.setattr(
        changed_cells, "_marked", lambda *args: made.append(marked(*args)) or made[-1]
    )

    def block(p: Program) -> None:
        for _ in range(4):
            p.affine()
            p.activate(BEGIN)
        p.total()

    assert called("bitmasked", block)[1] == 6.0
    assert len(made) == 1


def test_too_large_masks_are_refused_with_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: a byte for each cell of a box of 2048^3 ends in a lack of memory."""
    monkeypatch.setattr(changed_cells, "_MOST_BYTES", N - 1)
    with pytest.raises(ks.LanguageError, match="a mask of them would take"):
        called("pointer", _later)
    with pytest.raises(ks.LanguageError, match="a mask of them would take"):
        recorded("pointer", _later)
    assert called("pointer", _unchanged) == (3.0, 6.0)


def test_neighbours_that_become_active_are_refused() -> None:
    """Kind: an adjoint's loop has marks, and reads of other cells find what was activated since."""

    def block(p: Program) -> None:
        p.pairs()
        p.activate(N)

    with pytest.raises(ks.LanguageError, match="it reads cells beside its own"):
        called("pointer", block)

    def unchanged(p: Program) -> None:
        p.pairs()
        p.activate(BEGIN)

    assert called("pointer", unchanged)[1] == 2.0


@pytest.mark.parametrize("kind", ["pointer", "hash", "bitmasked"])
def test_cells_that_a_range_loop_reads_are_not_deactivated(kind: str) -> None:
    """Kind: only loops over active cells were known, and a gradient of what is gone was 0."""

    def block(p: Program) -> None:
        p.firsts()
        p.drop()

    with pytest.raises(ks.LanguageError, match="values and gradients of deactivated cells"):
        called(kind, block)


@pytest.mark.parametrize("change", ["activate", "drop"])
def test_cells_are_as_at_the_end_of_the_block(change: str) -> None:
    """Kind: a kernel between the block of a tape and its gradients is on no tape."""
    p = Program("pointer")
    tape = ks.ad.Tape()
    with tape:
        p.more()
    p.activate(N) if change == "activate" else p.drop()
    p.loss.grad[None] = 1.0
    with pytest.raises(ks.LanguageError, match="have changed behind the block of the tape"):
        tape.grad()


def test_gradients_by_hand_may_activate_cells() -> None:
    """Kind: the gradient of a later function runs before the adjoints of earlier kernels."""
    p = Program("pointer")

    @ks.ad.grad_replaced
    def nothing() -> None:
        pass

    @ks.ad.grad_for(nothing)
    def nothing_backwards() -> None:
        p.activate(N)

    def block(p: Program) -> None:
        p.more()
        nothing()

    p.tape(block)
    assert p.w.grad[None] == 6.0

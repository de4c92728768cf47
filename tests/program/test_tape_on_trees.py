"""Tapes of kernels that overwrite elements of sparse fields that they have read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.recorder import record_program
from kernelscape.kernels.interpret.executor import interpret
from kernelscape.kernels.ir.kernel import For
from kernelscape.testing.interpreted import run_reference

N = 12
ACTIVE = (0, 1, 4, 5, 9)
NODES: dict[str, Callable[[], ks.SNode]] = {
    "dense": lambda: ks.root.dense(ks.i, N),
    "pointer": lambda: ks.root.pointer(ks.i, N),
    "pointer, dense": lambda: ks.root.pointer(ks.i, N // 4).dense(ks.i, 4),
    "hash": lambda: ks.root.hash(ks.i, N),
    "bitmasked": lambda: ks.root.bitmasked(ks.i, N),
    "dynamic": lambda: ks.root.dynamic(ks.i, N, chunk_size=4),
}
SPARSE = [kind for kind in NODES if kind != "dense"]


class Program:
    """Fields of one kind of node, the number `w`, and kernels on them.

    `begin` sets the active cells. `gradient` runs kernels on a tape; it returns the loss and its gradients.
    """

    def __init__(self, kind: str) -> None:
        ks.reset()
        ks.init(default_fp=ks.f64)
        self.x, self.y = ks.field(float), ks.field(float)
        NODES[kind]().place(self.x, self.x.grad, self.y, self.y.grad)
        self.w = ks.field(float, (), needs_grad=True)
        self.loss = ks.field(float, (), needs_grad=True)
        self.kernels = kernels(self.x, self.y, self.w, self.loss)

    def gradient(self, names: tuple[str, ...], x: Any, w: float) -> tuple[float, Any, float]:
        self.begin(x, w)
        with ks.ad.Tape(self.loss):
            self.run(names)
        return self.loss[None], self.x.grad.to_numpy(), self.w.grad[None]

    def begin(self, x: Any, w: float) -> None:
        ks.root.deactivate_all()
        for i in ACTIVE:
            self.x[i] = x[i]
        self.w[None] = w

    def run(self, names: tuple[str, ...]) -> None:
        for name in (*names, "total"):
            self.kernels[name]()

    def value(self, names: tuple[str, ...], x: Any, w: float) -> float:
        self.begin(x, w)
        self.loss[None] = 0.0
        self.run(names)
        return self.loss[None]


def kernels(x: Any, y: Any, w: Any, loss: Any) -> dict[str, Any]:
    @ks.kernel
    def sine():
        for i in x:
            x[i] = ks.sin(x[i]) * w[None] + x[i] ** 2

    @ks.kernel
    def guarded():
        for i in x:
            if x[i] > 0.4:
                x[i] = ks.exp(x[i]) * w[None]

    @ks.kernel
    def greatest():
        for i in x:
            ks.atomic_max(x[i], w[None] * x[i] ** 2)

    @ks.kernel
    def activates():
        for i in range(N):
            x[i] = ks.cos(x[i]) * w[None]

    @ks.kernel
    def neighbours_first():
        for i in x:
            y[i] = x[i] * x[i + 1] + w[None] * x[i - 1]
        for i in x:
            x[i] = y[i] * ks.sin(x[i])

    @ks.kernel
    def neighbours():
        for i in x:
            x[i] = x[i] * x[i + 1]

    @ks.kernel
    def activates_beside():
        for i in x:
            y[(i + 1) % N] = 1.0
            x[i] = ks.cos(x[i]) * w[None]

    @ks.kernel
    def deactivates():
        for i in x:
            x[i] = ks.sin(x[i])
        for i in range(3):
            ks.deactivate(x.parent(), i)

    @ks.kernel
    def total():
        for i in x:
            loss[None] += x[i] ** 2 * (i + 1)

    found = (sine, guarded, greatest, activates, neighbours_first, neighbours, activates_beside)
    return {k.__name__: k for k in (*found, deactivates, total)}


@pytest.fixture(autouse=True)
def _program():
    yield
    ks.reset()


def start() -> tuple[Any, float]:
    return np.random.default_rng(5).random(N) + 0.1, 0.7


@pytest.mark.parametrize(
    "names",
    [
        ("sine",),
        ("guarded",),
        ("greatest",),
        ("activates",),
        ("neighbours_first",),
        ("sine", "sine"),
        ("activates", "sine", "guarded"),
    ],
    ids="-".join,
)
@pytest.mark.parametrize("kind", SPARSE)
def test_gradient_in_place_is_that_of_central_differences(
    kind: str, names: tuple[str, ...]
) -> None:
    """Kind: the adjoint reads what the kernel stored, or what another cell had."""
    (x, w), program, h = start(), Program(kind), 1e-6
    _, by_x, by_w = program.gradient(names, x, w)
    with interpret():
        _, by_x_interpreted, by_w_interpreted = program.gradient(names, x, w)
    np.testing.assert_allclose(by_x, by_x_interpreted, rtol=1e-12)
    assert by_w == pytest.approx(by_w_interpreted, rel=1e-12)
    for i in ACTIVE:
        step = h * np.eye(N)[i]
        ends = [program.value(names, x + s * step, w) for s in (1, -1)]
        assert by_x[i] == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-6, abs=1e-8)
    ends = [program.value(names, x, w + s * h) for s in (1, -1)]
    assert by_w == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("kind", SPARSE)
def test_gradient_in_place_is_that_of_a_dense_field(kind: str) -> None:
    """All cells become active: then a sparse field and a dense one have one gradient."""
    (x, w), names = start(), ("activates", "sine", "guarded")
    found = []
    for k in (kind, "dense"):
        program = Program(k)
        if k == "dense":
            x = np.where(np.isin(np.arange(N), ACTIVE), x, 0.0)
            program.begin = lambda at, w, p=program: (p.x.from_numpy(at), p.w.fill(w))
        found.append(program.gradient(names, x, w))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-12)
    np.testing.assert_allclose(found[0][1][list(ACTIVE)], found[1][1][list(ACTIVE)], rtol=1e-12)
    assert found[0][2] == pytest.approx(found[1][2], rel=1e-12)


@pytest.mark.parametrize("name", ["neighbours", "activates_beside", "deactivates"])
def test_refused_in_place_with_its_line(name: str) -> None:
    """Kind: loops over active cells visit others after the call, or neighbours are gone, in silence."""
    program = Program("bitmasked")
    program.begin(*start())
    tape = ks.ad.Tape(program.loss)
    with pytest.raises(ks.LanguageError, match="is overwritten after it was read") as caught, tape:
        program.run((name,))
    assert caught.value.where is not None
    assert caught.value.where.file == __file__


def test_copies_are_temporaries_of_a_recorded_sequence() -> None:
    """Kind: the copy has elements that a run before has left in it, where cells are inactive now."""
    program = Program("pointer, dense")
    program.begin(*start())

    def step():
        with ks.ad.Tape(program.loss):
            program.run(("activates", "sine"))

    recording, arrays = record_program(step, ())
    names = [c.ir.name for c in recording.calls_in_order()]
    assert names.count("copy") == 2
    copies = [c.ir for c in recording.calls_in_order() if c.ir.name == "copy"]
    assert all(isinstance(ir.body[0], For) and ir.body[0].extent.value == N for ir in copies)
    found = run_reference(recording, {n: np.array(a) for n, a in arrays.items()}, {})
    _, _, by_w = program.gradient(("activates", "sine"), *start())
    assert found["w_grad"] == pytest.approx(by_w, rel=1e-12)


def test_vectors_on_two_axes_with_an_offset_have_the_gradient_of_differences() -> None:
    """Kind: the copy has other indices than the field."""
    ks.reset()
    ks.init(default_fp=ks.f64)
    x, w = ks.Vector.field(2, float), ks.field(float, (), needs_grad=True)
    loss = ks.field(float, (), needs_grad=True)
    block = ks.root.pointer(ks.ij, (2, 3))
    block.dense(ks.ij, (2, 2)).place(x, x.grad, offset=(-2, 1))

    @ks.kernel
    def turn():
        for i, j in x:
            x[i, j] = ks.Vector([x[i, j][1] * w[None], ks.sin(x[i, j][0])])

    @ks.kernel
    def total():
        for i, j in x:
            loss[None] += x[i, j].norm_sqr() * (i + 3 * j + 5)

    def loss_of(now: float) -> float:
        ks.root.deactivate_all()
        for at in ((-2, 1), (1, 6), (0, 3)):
            x[at] = (0.3 + at[0], 0.1 * at[1])
        w[None] = now
        with ks.ad.Tape(loss):
            turn()
            turn()
            total()
        return loss[None]

    found = (loss_of(0.7 + 1e-6) - loss_of(0.7 - 1e-6)) / 2e-6
    loss_of(0.7)
    assert w.grad[None] == pytest.approx(found, rel=1e-7)

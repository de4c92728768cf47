"""Tapes of a program: gradients against central differences and formulas, in the engine and in recorded sequences."""

from __future__ import annotations

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.plan.nest_plan import NestPlan
from kernelscape.explorer.workload import Options, make_workload, space_for
from kernelscape.kernels.frontend import derivatives
from kernelscape.kernels.frontend.recorder import record_program
from kernelscape.kernels.interpret.executor import interpret
from kernelscape.kernels.ir.errors import ProgramRuntimeError
from kernelscape.kernels.ir.text import show
from kernelscape.program.tape import AutodiffMode
from kernelscape.runtime.engine.planning import default_plan
from kernelscape.search.starts.complete import sketched_candidates
from kernelscape.testing.checking import source_of, target
from kernelscape.testing.interpreted import run_reference


@pytest.fixture(autouse=True)
def _program():
    ks.init(default_fp=ks.f64)
    yield
    ks.reset()


def springs(n: int = 6):
    x = ks.Vector.field(2, float, n, needs_grad=True)
    energy = ks.field(float, (), needs_grad=True)
    x.from_numpy(np.random.default_rng(1).random((n, 2)))

    @ks.kernel
    def work(k: float):
        for i in range(n - 1):
            d = x[i + 1] - x[i]
            energy[None] += k * (d.norm() - 0.5) ** 2

    @ks.kernel
    def advance():
        for i in x:
            x[i] -= 0.1 * x.grad[i]

    return x, energy, work, advance


def test_gradient_of_springs_is_that_of_central_differences() -> None:
    x, energy, work, _ = springs()
    with ks.ad.Tape(energy):
        work(3.0)
    found, start, step = x.grad.to_numpy(), x.to_numpy(), 1e-6
    for at in np.ndindex(start.shape):
        values = []
        for h in (step, -step):
            moved = start.copy()
            moved[at] += h
            x.from_numpy(moved)
            energy[None] = 0.0
            work(3.0)
            values.append(energy[None])
        assert found[at] == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-8)


def test_sequence_with_a_tape_is_recorded_whole() -> None:
    """Clears, forward, backward and update are calls of one sequence, so that they are explored together."""
    _, energy, work, advance = springs()

    def step():
        with ks.ad.Tape(energy):
            work(3.0)
        advance()

    recording, _ = record_program(step, ())
    names = [c.ir.name for c in recording.calls_in_order()]
    assert names == ["clear_fields", "set_elements", "work", "set_elements", "work_grad", "advance"]


def test_energy_that_nobody_reads_is_not_computed() -> None:
    """An unseen energy: its sum and its store are gone, and the rest may be one launch."""
    _, energy, work, advance = springs()

    def step():
        with ks.ad.Tape(energy):
            work(3.0)
        advance()

    counts = []
    for unseen in ((), ("energy",)):
        made = make_workload(step, (), sequence="springs:step", name="step", unseen=unseen)
        space = space_for(made.problem, target(1, 32), Options())
        texts = [source_of(c).text for _, c in sketched_candidates(space, limit=2)]
        counts.append([(t.count("void launch_"), t.count("energy[0] =")) for t in texts])
    assert counts == [[(10, 1), (1, 1)], [(9, 0), (1, 0)]]


def test_state_that_is_updated_in_place_has_the_gradient_of_differences() -> None:
    """Each call keeps what it overwrites in a temporary of the tape, in a recorded sequence, too. Alone an adjoint has none."""
    ks.reset()
    ks.init(default_fp=ks.f64, debug=True)
    x, w = ks.Vector.field(2, float, 4, needs_grad=True), ks.field(float, 4, needs_grad=True)
    loss = ks.field(float, (), needs_grad=True)
    rng = np.random.default_rng(3)
    x_first, w_first = rng.random((4, 2)), rng.random(4)

    @ks.kernel
    def turn():
        for i in x:
            x[i] = ks.sin(x[i]) * w[i]

    @ks.kernel
    def total():
        for i in x:
            loss[None] += x[i].norm_sqr()

    def loss_of(w_now) -> float:
        x.from_numpy(x_first)
        w.from_numpy(w_now)
        with ks.ad.Tape(loss):
            turn()
            turn()
            total()
        return loss[None]

    found, h = [], 1e-6
    for k in range(4):
        step = h * np.eye(4)[k]
        found.append((loss_of(w_first + step) - loss_of(w_first - step)) / (2 * h))
    loss_of(w_first)
    assert w.grad.to_numpy() == pytest.approx(found, rel=1e-6)
    with pytest.raises(ks.LanguageError, match=r"call it in a ks\.ad\.Tape, which keeps"):
        turn.grad()


def test_gradient_of_a_stencil_has_no_atomics() -> None:
    """Updates at constant distances from the iteration are made in place by the thread of the iteration."""
    n = 512
    x, y = (ks.field(float, (n, n), needs_grad=True) for _ in "xy")

    @ks.kernel
    def smooth():
        for i, j in ks.ndrange((1, n - 1), (1, n - 1)):
            y[i, j] = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, ks.min(j + 1, n - 1)]

    def step():
        smooth()
        smooth.grad()

    recording, _ = record_program(step, ())
    (nest,) = default_plan(recording.calls[-1].ir, 4).tasks[0].steps
    assert isinstance(nest, NestPlan)
    assert nest.is_shared
    assert (nest.partition.overlap, nest.partition.copied, nest.atomics) == (2, (), frozenset())


def test_kernel_without_gradients_has_no_adjoint_and_its_own_ir() -> None:
    x = ks.field(float, 4)

    @ks.kernel
    def double():
        for i in x:
            x[i] *= 2

    double()
    (instance,) = double._instances.values()
    assert double.grad() is None
    assert [p.name for p in instance.ir.arrays] == ["x"]


def test_adjoint_on_a_sparse_tree_activates_no_cell() -> None:
    x, y = ks.field(float), ks.field(float)
    total = ks.field(float, (), needs_grad=True)
    block = ks.root.pointer(ks.ij, (4, 4))
    block.dense(ks.ij, (4, 4)).place(x, x.grad, y, y.grad)
    rng = np.random.default_rng(2)
    for i, j in ((3, 3), (4, 4), (5, 6), (9, 2)):
        x[i, j] = rng.random() + 0.5

    @ks.kernel
    def smooth():
        for i, j in x:
            if x[i, j] > 0:
                y[i, j] = x[i, j] * x[i + 1, j] + ks.sin(x[i, j - 1]) * x[i, j]

    @ks.kernel
    def norm():
        for i, j in y:
            total[None] += y[i, j] ** 2

    with ks.ad.Tape(total):
        smooth()
        norm()
    cells = str(x.stats())
    found = x.grad.to_numpy()
    with interpret(), ks.ad.Tape(total):
        smooth()
        norm()
    np.testing.assert_allclose(x.grad.to_numpy(), found, rtol=1e-12)
    assert str(x.stats()) == cells
    base, step, at = x.to_numpy(), 1e-6, (4, 4)
    values = []
    for h in (step, -step):
        x[at] = base[at] + h
        total[None] = 0.0
        smooth()
        norm()
        values.append(total[None])
    assert found[at] == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-7)
    assert not found[12:].any()


def test_random_numbers_of_the_adjoint_are_those_of_the_kernel() -> None:
    """Kind: what a kernel draws is no input that the adjoint may draw anew."""
    x = ks.field(float, 4, needs_grad=True)
    w = ks.field(float, 4)
    loss = ks.field(float, (), needs_grad=True)

    @ks.kernel
    def f():
        for i in x:
            a = ks.random()
            w[i] = a
            loss[None] += a * x[i]

    with ks.ad.Tape(loss):
        f()
    np.testing.assert_array_equal(x.grad.to_numpy(), w.to_numpy())


def powers(n_of_x: int):
    """A kernel with a loop of a length that a field says, times the number of the iteration around it."""
    x = ks.field(float, n_of_x, needs_grad=True)
    length = ks.field(int, ())
    loss = ks.field(float, (), needs_grad=True)

    @ks.kernel
    def f():
        for i in x:
            v = 1.0
            for _ in range(length[None] * i):
                v *= x[i] + 1.0
            loss[None] += v

    return f, x, length, loss


@pytest.mark.parametrize("tape", ["tape", "snapshots", "grad"])
def test_longer_loops_are_kept_where_no_number_is_given(
    tape: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Kind: a call fails, or adds to gradients twice, where a loop is longer than those before."""
    monkeypatch.setattr(derivatives, "N_KEPT", 2)
    f, x, length, loss = powers(3)
    for n, n_warnings in ((1, 0), (4, 2), (4, 0), (2, 0)):
        caplog.clear()
        length[None] = n
        before = 5.0 if tape == "grad" else 0.0
        x.grad.fill(before)
        if tape == "grad":
            loss.grad[None] = 1.0
            f.grad()
        else:
            with ks.ad.Tape(loss, **({"snapshot_every": 1} if tape == "snapshots" else {})):
                f()
        np.testing.assert_allclose(x.grad.to_numpy() - before, [0.0, n, 2.0 * n])
        assert len(caplog.messages) == n_warnings


def test_a_loop_beyond_what_a_local_array_has_room_for_is_a_sentence() -> None:
    f, _, length, loss = powers(2)
    length[None] = 10_000_000
    with pytest.raises(AssertionError, match=r"more than .* iterations"), ks.ad.Tape(loss):
        f()


def test_stack_size_is_that_of_the_program() -> None:
    ks.init(default_fp=ks.f64, ad_stack_size=2)
    f, x, length, loss = powers(2)
    length[None] = 3
    with pytest.raises(AssertionError, match="more than 2 iterations"), ks.ad.Tape(loss):
        f()
    length[None] = 2
    with ks.ad.Tape(loss):
        f()
    np.testing.assert_allclose(x.grad.to_numpy(), [0.0, 2.0])


def test_validation_names_the_kernel_the_line_and_the_field() -> None:
    ks.init(default_fp=ks.f64, debug=True)
    x = ks.field(float, 3, needs_grad=True)
    loss = ks.field(float, (), needs_grad=True)

    @ks.kernel
    def read():
        for i in x:
            loss[None] += x[i] ** 2

    @ks.kernel
    def overwrite():
        for i in x:
            x[i] = 1.0

    sentence = (
        r"test_tape.py:\d+: the kernel overwrite stores to an element of the field x that was read"
    )
    with ks.ad.Tape(loss, validation=True):
        read()
        with pytest.raises(AssertionError, match=sentence):
            overwrite()


def test_validation_refuses_kernels_that_overwrite_what_they_read() -> None:
    ks.init(default_fp=ks.f64, debug=True)
    x = ks.field(float, (), needs_grad=True)
    loss = ks.field(float, (), needs_grad=True)

    @ks.kernel
    def double():
        loss[None] += x[None] ** 2
        x[None] *= 2.0

    with (
        ks.ad.Tape(loss, validation=True),
        pytest.raises(AssertionError, match="the field x that was read before, which the access"),
    ):
        double()


def test_check_of_gradients_takes_a_gradient_of_zero() -> None:
    x = ks.field(float, 3, needs_grad=True)
    loss = ks.field(float, (), needs_grad=True)
    x.fill(0.1)

    @ks.kernel
    def f():
        for i in x:
            loss[None] += (x[i] - 0.1) ** 2

    with ks.ad.Tape(loss, grad_check=[x]):
        f()
    assert not x.grad.to_numpy().any()


def test_gradient_by_hand_is_that_of_all_tapes_around() -> None:
    x = ks.field(float, 3, needs_grad=True)
    loss = ks.field(float, (), needs_grad=True)

    @ks.kernel
    def f():
        for i in x:
            loss[None] += x[i] ** 2

    @ks.ad.grad_replaced
    def forward():
        f()

    @ks.ad.grad_for(forward)
    def backward():
        x.grad.fill(x.grad[0] + 7.0)

    with ks.ad.Tape(loss), ks.ad.Tape(loss):
        forward()
    assert (x.grad.to_numpy() == 14.0).all()


def test_temporary_array_beside_a_tape_is_one_of_the_sequence() -> None:
    """Kind: an executor in front of the recorder is not seen through."""
    _, energy, work, _ = springs()

    @ks.kernel
    def fill(a: ks.types.ndarray()):
        for i in range(4):
            a[i] = energy[None]

    def step():
        with ks.ad.Tape(energy):
            work(3.0)
            fill(ks.ndarray(ks.f64, 4))

    recording, _ = record_program(step, ())
    assert [t.name for t in recording.temps] == ["tmp0"]


def test_check_of_gradients_finds_a_wrong_one() -> None:
    x = ks.field(float, 3, needs_grad=True)
    loss = ks.field(float, (), needs_grad=True)
    x.fill(0.5)

    @ks.kernel
    def f():
        for i in x:
            loss[None] += x[i] ** 3

    @ks.ad.grad_replaced
    def forward():
        f()

    @ks.ad.grad_for(forward)
    def backward():
        x.grad.fill(7.0)

    with ks.ad.Tape(loss, grad_check=[x]):
        f()
    with (
        pytest.raises(AssertionError, match="the gradient of the field x differs"),
        ks.ad.Tape(loss, grad_check=[x]),
    ):
        forward()


def graded():
    return ks.field(float, (), needs_grad=True)


@pytest.mark.parametrize(
    ("use", "sentence"),
    [
        (lambda x, n: ks.ad.Tape(x).__enter__(), "a field of one number: the field x has the shape"),
        (lambda x, n: ks.ad.Tape(n).__enter__(), "the field n has no grad: make it with needs_grad=True"),
        (lambda x, n: ks.ad.Tape(3).__enter__(), "is a field of one number, not 3"),
        (lambda x, n: ks.ad.Tape().grad(), "a tape has no gradients before its block"),
        (lambda x, n: ks.ad.FwdMode(n, x).__enter__(), "the field x has 3 elements: give seed="),
        (lambda x, n: ks.ad.FwdMode(n, x, [1]).__enter__(), "seed= has 1 numbers, the field x has 3"),
        (lambda x, n: ks.ad.Tape(graded(), grad_check=[x]).__enter__(), "a list of whole fields with gradients, not"),
        (lambda x, n: ks.ad.Tape(graded(), grad_check=3).__enter__(), "a list of whole fields with gradients, not 3"),
        (lambda x, n: ks.ad.grad_for(print)(print), "takes a function of Python below @ks.ad.grad_repl"),
    ],
)  # fmt: skip
def test_wrong_use_is_one_sentence(use, sentence) -> None:
    x = ks.field(float, 3)
    n = ks.field(float, ())
    with pytest.raises(ks.LanguageError, match=sentence) as caught:
        use(x, n)
    assert caught.value.where is not None
    assert caught.value.where.file == __file__


@pytest.mark.parametrize("rows", [2, 3])
@pytest.mark.parametrize("name", ["svd", "turn", "polar", "eigenvectors", "system"])
def test_decompositions_have_derivatives_of_their_own(name: str, rows: int) -> None:
    """In both modes, by central differences; where a product has a limit at equal singular values, there, too.

    Kind: derivatives of sweeps, which divide by differences that are zero.
    """
    E = ks.field(float, (), needs_grad=True, needs_dual=True)
    a = ks.field(float, (rows, rows), needs_grad=True, needs_dual=True)
    b = ks.Vector(np.arange(1.0, rows + 1).tolist())

    @ks.kernel
    def energy():
        for _ in range(1):
            M = ks.Matrix([[a[i, j] for j in range(rows)] for i in range(rows)])
            if ks.static(name == "svd"):
                U, S, V = ks.svd(M)
                E[None] += (U * U * U).sum() + (S @ S @ S)[0, 0] + (V * V * V)[0, 1]
            elif ks.static(name == "turn"):
                U, S, V = ks.svd(M)
                E[None] += (U @ V.transpose())[0, 1] + S.trace() ** 2
            elif ks.static(name == "polar"):
                U, P = ks.polar_decompose(M)
                E[None] += U[0, 1] + P[1, 0] * P[0, 0]
            elif ks.static(name == "eigenvectors"):
                values, Q = ks.sym_eig(M + M.transpose())
                E[None] += (Q * Q * Q).sum() + values[0] ** 3
            else:
                x = ks.solve(M, b)
                E[None] += x.norm_sqr() + x[0]

    def value(given) -> float:
        a.from_numpy(given)
        E[None] = 0
        energy()
        return E[None]

    rng = np.random.default_rng(rows)
    v, h = rng.normal(size=(rows, rows)), 1e-5
    given = [rng.normal(size=(rows, rows))]
    given += [np.eye(rows)] if name in ("turn", "polar") else []
    with interpret():
        for at in given:
            wanted = (value(at + h * v) - value(at - h * v)) / (2 * h)
            a.from_numpy(at)
            with ks.ad.Tape(E):
                energy()
            assert np.vdot(a.grad.to_numpy(), v) == pytest.approx(wanted, rel=1e-6)
            with ks.ad.FwdMode(E, a, v.ravel()):
                energy()
            assert E.dual[None] == pytest.approx(wanted, rel=1e-6)


def test_values_may_stop_gradients_and_kernels_are_the_same() -> None:
    """A field in the loop around, as in Taichi, and a value; alone the kernel has neither trace nor cost of it."""
    x = ks.field(float, 3, needs_grad=True)
    total = ks.field(float, (), needs_grad=True)
    x.from_numpy(np.array([1.0, 2.0, 3.0]))

    @ks.kernel
    def work():
        for i in x:
            total[None] += ks.stop_grad(x[i] * x[i]) * x[i]
        for i in x:
            ks.stop_grad(x)
            total[None] += x[i] ** 2
        for i in x:
            total[None] += 2 * x[i]

    with ks.ad.Tape(total):
        work()
    assert x.grad.to_numpy() == pytest.approx([3.0, 6.0, 11.0])
    (instance,) = work._instances.values()
    assert "bitcast" not in show(instance.ir).lower()


def oscillators(n: int = 5):
    """Particles whose steps overwrite what each has read, and their energy."""
    x, v, f = (ks.field(float, n, needs_grad=True) for _ in range(3))
    loss = ks.field(float, (), needs_grad=True)

    @ks.kernel
    def forces():
        for i in x:
            f[i] = -ks.sin(x[i]) + 0.3 * x[(i + 1) % n]

    @ks.kernel
    def advance(dt: float):
        for i in x:
            v[i] += dt * f[i]
            x[i] += dt * v[i]

    @ks.kernel
    def energy():
        for i in x:
            loss[None] += x[i] * x[i] + 0.5 * v[i] * v[i]

    def steps(every: int | str, n_steps: int) -> None:
        with ks.ad.Tape(loss, snapshot_every=every):
            for k in range(n_steps):
                forces()
                advance(0.1 + 0.05 * k)
            energy()

    def run(x_first, every: int | str) -> float:
        x.from_numpy(x_first)
        v.fill(0.1)
        steps(every, 4)
        return loss[None]

    return x, steps, run


@pytest.mark.parametrize("every", [1, 2, 3, 9, 100, "auto"])
def test_snapshots_give_time_loops_in_place_their_gradients(every: int | str) -> None:
    x, _, run = oscillators()
    first, h = np.random.default_rng(5).random(5), 1e-6
    found = [(run(first + h * e, every) - run(first - h * e, every)) / (2 * h) for e in np.eye(5)]
    run(first, every)
    gradient, after = x.grad.to_numpy(), x.to_numpy()
    assert gradient == pytest.approx(found, rel=1e-6)
    run(
        first, 0
    )  # leaves the same state, and other gradients: the steps overwrite what they have read
    assert np.array_equal(x.to_numpy(), after)
    assert x.grad.to_numpy() != pytest.approx(found, rel=1e-3)


@pytest.mark.parametrize("n_calls", [1, 9, 50, 199, 200])
def test_automatic_snapshots_keep_about_twice_the_root_of_all_calls(n_calls: int) -> None:
    x, _, loss, grow, total = growing()
    tape = ks.ad.Tape(snapshot_every="auto")
    kept = copies_of(tape)
    with tape:
        for _ in range(n_calls):
            grow()
        n_snapshots = len(kept)
        total()
    loss.grad.fill(1.0)
    tape.grad()
    assert np.isfinite(x.grad.to_numpy()).all()
    # Besides: the last state of x, its state behind a segment, and the loss.
    assert n_snapshots <= len(kept) <= 2.13 * n_calls**0.5 + 5


def copies_of(tape) -> dict[int, object]:
    """The memory of all copies that a tape makes from now on, by its id."""
    snapshots, found = tape._snapshots, {}
    copied = snapshots._copied

    def counted(call, name):
        made = copied(call, name)
        found[id(made.copy)] = made.copy  # holds it: no other gets its id
        return made

    snapshots._copied = counted
    return found


def test_automatic_snapshots_refuse_overlapping_views_also_where_they_join_segments() -> None:
    memory = np.ones(6)

    @ks.kernel
    def halve(a: ks.types.ndarray()):
        for i in range(a.shape[0]):
            a[i] *= 0.5

    with ks.ad.Tape(snapshot_every="auto"):
        halve(memory)
        halve(memory[2:])
        with pytest.raises(ks.LanguageError, match="arrays that do not overlap"):
            halve(memory)


def test_snapshots_are_calls_of_a_recorded_sequence() -> None:
    x, steps, _ = oscillators()
    x.from_numpy(np.linspace(0.1, 1.0, 5))
    recording, arrays = record_program(lambda: steps(2, 1), ())
    found = run_reference(recording, arrays, {})
    steps(2, 1)
    gradients = [a for n, a in found.items() if n.startswith("field_grad")]
    assert len(gradients) == 3
    assert any(np.allclose(x.grad.to_numpy(), a, rtol=1e-12) for a in gradients)
    names = [c.ir.name for c in recording.calls_in_order()]
    assert names.count("forces") == names.count("advance") == 2
    assert names.count("forces_grad") == names.count("energy_grad") == 1


def test_fields_that_change_outside_of_kernels_are_found() -> None:
    x = ks.field(float, 4, needs_grad=True)
    loss = ks.field(float, (), needs_grad=True)

    @ks.kernel
    def turn():
        for i in x:
            x[i] = ks.sin(x[i])

    @ks.kernel
    def total():
        for i in x:
            loss[None] += x[i]

    x.fill(0.5)
    tape = ks.ad.Tape(snapshot_every=3)
    with tape:
        turn()
        x[2] = 3.0
        total()
    with pytest.raises(
        ks.errors.KernelAssertionError, match="field x differs when the calls of a tape run"
    ):
        tape.grad()


def growing():
    """A state that is small beside 1, and grows by a number that Python may change between calls."""
    x = ks.field(float, 4, needs_grad=True)
    rate, loss = ks.field(float, ()), ks.field(float, (), needs_grad=True)

    @ks.kernel
    def grow():
        for i in x:
            x[i] += rate[None] * x[i] * x[i]

    @ks.kernel
    def total():
        for i in x:
            loss[None] += x[i]

    x.fill(1e-5)
    return x, rate, loss, grow, total


def test_small_changes_by_python_are_found_and_leave_fields_as_they_are() -> None:
    x, rate, loss, grow, total = growing()
    tape = ks.ad.Tape(snapshot_every=1)
    with tape:
        for k in range(3):
            rate[None] = 0.1 * k
            grow()
        total()
    loss.grad.fill(1.0)
    after = x.to_numpy()
    with pytest.raises(ks.errors.KernelAssertionError, match="differs when the calls of a tape"):
        tape.grad()
    assert np.array_equal(x.to_numpy(), after)
    with pytest.raises(ks.LanguageError, match="gradients of a tape are computed once"):
        tape.grad()


def test_snapshots_refuse_views_that_overlap_and_uses_of_gradients() -> None:
    x, _, loss, *_ = growing()
    memory = np.ones(6)

    @ks.kernel
    def halve(a: ks.types.ndarray()):
        for i in range(a.shape[0]):
            a[i] *= 0.5

    @ks.kernel
    def descend():
        for i in x:
            x[i] -= x.grad[i]

    with ks.ad.Tape(snapshot_every=4):
        halve(memory)
        with pytest.raises(ks.LanguageError, match="arrays that do not overlap"):
            halve(memory[2:])
    with (
        pytest.raises(ks.LanguageError, match="a gradient, so call it outside"),
        ks.ad.Tape(loss, snapshot_every=4),
    ):
        descend()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"snapshot_every": 1.5}, 'is a number of calls or "auto", not 1.5'),
        ({"snapshot_every": "often"}, 'is a number of calls or "auto", not .often'),
        ({"snapshot_every": -1}, "is a number of calls, not -1"),
        ({"snapshot_every": 2, "validation": True}, "no validation= and no grad_check="),
    ],
)
def test_snapshots_refuse_what_makes_no_sense(options, words: str) -> None:
    loss = ks.field(float, (), needs_grad=True)
    with pytest.raises(ks.LanguageError, match=words):
        ks.ad.Tape(loss, **options)


@pytest.mark.parametrize(("outer", "inner"), [(0, 2), (2, 0)])
def test_snapshots_refuse_tapes_in_one_another(outer: int, inner: int) -> None:
    with (
        ks.ad.Tape(snapshot_every=outer),
        pytest.raises(ks.LanguageError, match="inside of no other tape"),
    ):
        ks.ad.Tape(snapshot_every=inner).__enter__()


def test_snapshots_refuse_functions_with_gradients_of_their_own_and_trees() -> None:
    x, loss = ks.field(float, needs_grad=True), ks.field(float, (), needs_grad=True)
    ks.root.pointer(ks.i, 4).dense(ks.i, 4).place(x, x.grad)

    @ks.ad.no_grad
    def none():
        pass

    @ks.kernel
    def touch():
        for i in x:
            x[i] += 1.0

    with (
        pytest.raises(ks.LanguageError, match="none has a gradient of its own"),
        ks.ad.Tape(loss, snapshot_every=2),
    ):
        none()
    with (
        pytest.raises(ks.LanguageError, match="touch has a sparse field"),
        ks.ad.Tape(loss, snapshot_every=2),
    ):
        touch()


def test_kernels_use_gradients_of_their_arrays_or_say_why_not() -> None:
    @ks.kernel
    def descend(x: ks.types.ndarray(), y: ks.types.ndarray()) -> None:
        for i in x:
            x[i] -= y[i] + x.grad[i]

    x, y = (ks.ndarray(ks.f64, 3, needs_grad=n) for n in (True, False))
    x.grad.fill(2.0)
    descend(x, y)
    assert x.to_numpy().tolist() == [-2, -2, -2]
    with pytest.raises(ProgramRuntimeError, match="the argument x has no grad"):
        descend(y, x)
    with pytest.raises(ProgramRuntimeError, match=r"uses x\.grad, which is also an argument"):
        descend(x, x.grad)
    with pytest.raises(ProgramRuntimeError, match=r"uses x\.grad: it has no derivative"):
        descend.grad(x, y)


@pytest.mark.parametrize("validation", [False, True])
def test_a_tape_lists_its_calls_with_their_modes(validation):
    """In the block of a tape that validates, kernels run with checks, and behind it as they are."""
    ks.init(debug=True)
    x = ks.field(ks.f64, shape=3, needs_grad=True)
    loss = ks.field(ks.f64, shape=(), needs_grad=True)

    @ks.kernel
    def total(factor: ks.f64):
        for i in x:
            loss[None] += factor * x[i]

    inside = AutodiffMode.VALIDATION if validation else AutodiffMode.NONE
    with ks.ad.Tape(loss, validation=validation) as tape:
        total(2.0)
        total(3.0)
        ((first, given), (second, _)) = tape.calls
        assert (first.name, second.name) == ("total", "total")
        assert [first.autodiff_mode, second.autodiff_mode] == tape.modes == [inside] * 2
        assert given[-1] == 2.0
    assert first.autodiff_mode is AutodiffMode.NONE
    assert np.array_equal(x.grad.to_numpy(), [5.0] * 3)
    ks.reset()

"""Kernels whose loops threads share, whatever they cost: the same as the interpreter, at sizes of none, one and many iterations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape import runtime
from kernelscape.codegen.plan import default_lanes
from kernelscape.codegen.plan.nest_plan import NestPlan
from kernelscape.kernels.interpret.kernel import run_kernel
from kernelscape.kernels.ir.kernel import (
    KernelIR,
)
from kernelscape.kernels.tasks import work
from kernelscape.runtime.engine import building
from kernelscape.runtime.engine.engine import Engine, EngineOptions
from kernelscape.runtime.engine.planning import default_plan
from kernelscape.testing.generator.features import order_free
from kernelscape.testing.generator.sequences import kernels_of
from kernelscape.testing.sparse_model import plain_ir

pytestmark = pytest.mark.compiler
CORES, SIZES = 4, (0, 1, 1009)
A = ks.types.ndarray


@ks.kernel
def unwanted(r: A(), x: A(), k: ks.i32):
    for i in x:
        if k >= 0:
            r[k] += x[i]


@ks.kernel
def counted(r: A(), n: ks.i32, k: ks.i32):
    for _ in range(n):
        r[k] += 1.0


@ks.kernel
def crossed(a: A()):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            a[i, j] += 1.0
            a[j, i] += 2.0


@ks.kernel
def own_and_drawn(a: A(), index: A()):
    for i in a:
        a[i] += 1.0
        a[index[i]] += 2.0


@ks.kernel
def halves(a: A()):
    for i in range(a.shape[0]):
        if i % 2 == 0:
            a[i // 2] += 1.0
        else:
            a[i // 2] += 2.0


@ks.kernel(fast_math=False)
def in_order(out: A(), x: A()):
    s = 0.0
    for i in x:
        s += x[i]
    out[0] = s


@ks.kernel
def told(out: A(), old: A(), x: A()):
    for i in x:
        out[0] += x[i]
        old[i] = 0.0 * ks.atomic_add(out[0], x[i])


@ks.kernel
def total(out: A(), x: A()):
    s = 0.0
    for i in x:
        s += x[i]
        out[1] = max(out[1], x[i])
    out[0] = s


@ks.kernel
def smooth(y: A(), x: A()):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] * 2.0 + i + j


def cases() -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Kernels with arguments."""
    rng = np.random.default_rng(0)
    far = -(10**9)  # nothing is there
    for n in SIZES:
        x, index = rng.integers(-9, 9, n).astype(float), rng.integers(0, max(1, n), n)
        out, side = np.arange(4.0), n // 10
        yield unwanted, (out, x, far)
        yield unwanted, (out, x, 2)
        yield counted, (out, n, 3 if n else far)
        yield crossed, (np.zeros((side, side)),)
        yield own_and_drawn, (x, index)
        yield halves, (x,)
        yield in_order, (out, x)
        yield told, (out, np.zeros(n), x)
        yield total, (out, x)
        yield smooth, (np.zeros((side, 3 * side)), np.ones((side, 3 * side)))


def atomics(fn: Any, *args: Any) -> list[str]:
    """The updates that are atomic, as `operator array` each."""
    (step,) = default_plan(fn.instantiate(*args), CORES).tasks[0].steps
    assert isinstance(step, NestPlan) and step.is_shared
    return sorted(f"{u.op} {u.array}" for u in step.atomics)


@ks.kernel
def parts(v: A(), x: A()):
    for i in x:
        v[i, 0] += x[i]
        v[i, 1] += 2.0 * x[i]


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each loop is worth a team, and each update that threads meet in."""
    for name in ("TEAM_PAYS_NS", "CAS_NS", "FETCH_ADD_NS"):
        monkeypatch.setattr(work, name, 0.0)


@pytest.fixture
def engine(tmp_path, shared) -> Iterator[Engine]:
    made = Engine(EngineOptions(folder=tmp_path / "kernels", cores=CORES))
    yield made
    made.close()


def assert_same(engine: Engine, ir: KernelIR, given: list[np.ndarray], scalars: list[Any]) -> None:
    wanted = [a.copy() for a in given]
    run_kernel(
        ir,
        dict(zip((p.name for p in ir.arrays), wanted, strict=True)),
        dict(zip((p.name for p in ir.scalars), scalars, strict=True)),
    )
    for _ in range(4):  # what races is wrong in some runs only
        found = [a.copy() for a in given]
        engine.run(ir, found, scalars)
        for p, x, y in zip(ir.arrays, found, wanted, strict=True):
            assert np.array_equal(x, y), (ir.name, p.name)


def test_threads_compute_what_the_interpreter_computes(engine):
    calls = []
    for fn, args in cases():
        arrays = [x for x in args if isinstance(x, np.ndarray)]
        scalars = [x for x in args if not isinstance(x, np.ndarray)]
        calls.append((fn.instantiate(*args), arrays, scalars))
    engine.prepare(ir for ir, _, _ in calls)
    for ir, arrays, scalars in calls:
        assert_same(engine, ir, arrays, scalars)


def test_updates_of_an_array_are_atomic_all_or_none(shared):
    """Each of them touches elements of its own, but not of its own alone."""
    x = np.ones(1009)
    assert atomics(own_and_drawn, x, np.zeros(1009, int)) == ["add a", "add a"]
    assert atomics(crossed, np.ones((100, 100))) == ["add a", "add a"]
    assert atomics(halves, x) == ["add a", "add a"]
    assert atomics(parts, np.ones((1009, 2)), x) == []


@ks.kernel
def splat(a: ks.types.ndarray(), at: ks.types.ndarray(), x: ks.types.ndarray()):
    for i in x:
        for k in ks.static(range(9)):
            a[at[i] + k] += x[i] * x[i] * (0.5 * k + x[i]) / (1.0 + x[i] * x[i])


def test_a_few_cores_do_not_wait_for_each_other_in_updates_of_what_they_share():
    """Updates by compare and swap cost more than two cores save: each adds to a copy of its own, if it is not too large."""
    given = np.zeros(65536, int), np.ones(65536)
    for cores, n, n_atomics, copied in (
        (2, 4096, 0, ("a",)),
        (64, 4096, 9, ()),
        (2, 1 << 22, 0, ()),
    ):
        (step,) = default_plan(splat.instantiate(np.zeros(n), *given), cores).tasks[0].steps
        assert isinstance(step, NestPlan)
        assert (len(step.atomics), step.partition.copied) == (n_atomics, copied)
        assert step.is_shared == (n_atomics > 0 or bool(copied))


@ks.kernel
def tally(a: A(), b: A(), at: A(), x: A()):
    for i in x:
        if at[i] > 0:
            a[at[i], 1] += x[i]
            a[at[i], 2] += 2.0 * x[i]
        b[at[i] % 7] += 1


@pytest.mark.parametrize("vector_bytes", [0, 32])
def test_threads_add_to_copies_of_their_own(vector_bytes, tmp_path, monkeypatch):
    """By lanes, too; a loop for one thread has no copies."""
    monkeypatch.setattr(building, "vector_bytes", lambda: vector_bytes)
    monkeypatch.setattr(default_lanes, "_pays", lambda loop, problem: True)
    for name, ns in (("TEAM_PAYS_NS", 0.0), ("COPY_NS_PER_BYTE", 0.0), ("CAS_NS", 1e6)):
        monkeypatch.setattr(work, name, ns)
    engine = Engine(EngineOptions(folder=tmp_path / "kernels", cores=CORES))
    rng = np.random.default_rng(3)
    for n in (1000, 1):
        at, x = rng.integers(0, 40, n), rng.integers(-9, 9, n).astype(np.float32)
        arrays = [np.ones((40, 3), np.float32), np.ones(7, np.int32), at, x]
        ir = tally.instantiate(*arrays)
        (step,) = default_plan(ir, CORES, vector_bytes).tasks[0].steps
        assert isinstance(step, NestPlan) and (step.lanes is None) == (vector_bytes == 0 or n == 1)
        assert step.partition.copied == (("a", "b") if n > 1 else ())
        for _ in range(3):
            assert_same(engine, ir, arrays, [])
    engine.close()


def test_copies_of_threads_leave_alone_what_inactive_cells_share(tmp_path, monkeypatch):
    """Where zeros are added to the zeros of slot 0, a negative one turns."""
    for name, ns in (("TEAM_PAYS_NS", 0.0), ("COPY_NS_PER_BYTE", 0.0), ("CAS_NS", 1e6)):
        monkeypatch.setattr(work, name, ns)
    ks.init(arch=ks.cpu)
    v, x, at, n = ks.Vector.field(2, ks.f32), ks.field(ks.f32), ks.field(ks.i32), 1000
    leaf = ks.root.pointer(ks.i, 6)
    leaf.dense(ks.i, 8).place(v, x)
    ks.root.dense(ks.i, n).place(at)

    @ks.kernel
    def tally():
        ks.no_activate(leaf)
        for k in at:
            x[at[k]] += 1.0
            v[at[k]][1] += 2.0

    at.from_numpy(np.random.default_rng(3).integers(8, 24, n).astype(np.int32))
    for k in range(8, 24):
        x[k], v[k] = 1.0, [3.0, 4.0]
    storage = leaf.structure.storage
    ir = plain_ir(tally)
    (step,) = (s for s in default_plan(ir, CORES).tasks[0].steps if isinstance(s, NestPlan))
    assert len(step.partition.copied) == 2 and [n for _, n in ir.shared if n == 8]
    for k in range(2):
        storage.arrays[f"field{k}"][..., :8] = -0.0
    engine = Engine(EngineOptions(folder=tmp_path / "kernels", cores=CORES))
    monkeypatch.setattr(runtime.engine, "_engine", engine)
    tally()
    for k in range(2):
        assert np.signbit(storage.arrays[f"field{k}"][..., :8]).all()
    engine.close()
    ks.reset()


# Sparse nodes of 64 cells, and those below them that hold fields.
NODES: dict[str, Callable[[], tuple[Any, Any]]] = {
    "pointer": lambda: (node := ks.root.pointer(ks.i, 16), node.dense(ks.i, 4)),
    "pointers": lambda: (node := ks.root.pointer(ks.i, 4).pointer(ks.i, 8), node.dense(ks.i, 2)),
    "bitmasked": lambda: (node := ks.root.pointer(ks.i, 4).bitmasked(ks.i, 16), node),
    "mask": lambda: (node := ks.root.bitmasked(ks.i, 64), node),
    "hash": lambda: (node := ks.root.hash(ks.i, 16), node.dense(ks.i, 4)),
    "dynamic": lambda: (node := ks.root.dynamic(ks.i, 64, chunk_size=4), node),
}


@pytest.mark.parametrize("kind", NODES)
def test_threads_activate_the_cells_that_they_add_to_in_copies(kind, tmp_path, monkeypatch):
    for name, ns in (("TEAM_PAYS_NS", 0.0), ("COPY_NS_PER_BYTE", 0.0), ("CAS_NS", 1e6)):
        monkeypatch.setattr(work, name, ns)
    ks.init(arch=ks.cpu)
    v, x, at, n = ks.Vector.field(2, ks.f32), ks.field(ks.f32), ks.field(ks.i32), 3000
    node, leaf = NODES[kind]()
    leaf.place(v, x)
    ks.root.dense(ks.i, n).place(at)

    @ks.kernel
    def tally():
        for k in at:
            for j in range(3):
                if (at[k] + j) % 5 != 4:
                    x[at[k] + j] += 1.0
                    v[at[k] + j][1] += 2.0 * j

    ir = plain_ir(tally)
    steps = [s for s in default_plan(ir, CORES).tasks[0].steps if isinstance(s, NestPlan)]
    (step,) = (s for s in steps if s.partition.copied)
    fields = {name for name in (p.name for p in ir.arrays) if "_field" in name}
    assert step.is_shared and len(step.partition.copied) == 2
    assert step.atomics and fields.isdisjoint(u.array for u in step.atomics)
    engine = Engine(EngineOptions(folder=tmp_path / "kernels", cores=CORES))
    monkeypatch.setattr(runtime.engine, "_engine", engine)
    rng, extent = np.random.default_rng(7), leaf.shape[0] // node.shape[0]
    for _ in range(4):  # what races is wrong in some runs only
        drawn = rng.integers(0, 61, n) // 16 * 16
        drawn += rng.integers(0, 14, n)
        at.from_numpy(drawn.clip(0, 61).astype(np.int32))
        cells = at.to_numpy()[:, None] + np.arange(3)
        is_made = cells % 5 != 4
        wanted, second = np.zeros(64, np.float32), np.zeros(64, np.float32)
        np.add.at(wanted, cells[is_made], 1.0)
        np.add.at(second, cells[is_made], np.broadcast_to(2.0 * np.arange(3), cells.shape)[is_made])
        ks.deactivate_all_snodes()
        tally()
        assert np.array_equal(x.to_numpy(), wanted)
        assert np.array_equal(v.to_numpy()[:, 1], second) and not v.to_numpy()[:, 0].any()
        last = int(cells[is_made].max())
        made = range(last + 1) if kind == "dynamic" else np.unique(cells[is_made] // extent)
        active = [k for k in range(node.shape[0]) if ks.is_active(node, k)]
        assert active == [*made]
    engine.close()
    ks.reset()


def test_threads_compute_what_random_kernels_mean(engine):
    drawn = [
        one
        for k in range(8)
        for n in (SIZES[k % 2], 61)
        for one in kernels_of(order_free(n, "float64"), [k])
    ]
    engine.prepare([ir for ir, _ in drawn])
    n_shared = 0
    for ir, arrays in drawn:
        n_shared += any(
            isinstance(s, NestPlan) and s.is_shared for s in default_plan(ir, CORES).tasks[0].steps
        )
        assert_same(engine, ir, [*arrays.values()], [])
    assert n_shared >= len(drawn) // 3


@ks.kernel
def chain(f: A(), x: A()):
    for i in range(x.shape[0] - 1):
        d = x[i + 1] - x[i]
        f[i] += d
        f[i + 1] -= d


@ks.kernel
def clamped(f: A(), x: A()):
    for i in x:
        f[max(i - 2, 0)] += x[i]
        f[min(i + 1, x.shape[0] - 1)] += 2 * x[i]
        f[i if x[i] > 0 else max(0, i - 1)] += 3


@ks.kernel
def columns(f: A(), x: A()):
    for i in range(1, x.shape[0]):
        for k in range(4):
            f[k, i - 1] += x[i]
            f[3 - k, i] += k * x[i]


@ks.kernel
def periodic(f: A(), x: A()):
    for i in x:
        f[i] += x[i]
        f[(i + 1) % x.shape[0]] += 2


@ks.kernel
def seen(f: A(), x: A()):
    for i in range(x.shape[0] - 1):
        f[i] += x[i]
        f[i + 1] += f[i]


@pytest.mark.parametrize(
    ("kernel", "rows", "overlap"),
    [(chain, (), 1), (clamped, (), 3), (columns, (4,), 1), (periodic, (), 0), (seen, (), 0)],
)
def test_threads_update_near_elements_in_place(kernel, rows, overlap, shared, tmp_path):
    """Updates in a window around the iteration need neither atomics nor copies: of each part the last iterations wait.

    Parts of the least length are among the sizes. Where the window is not known, updates are as they were.
    """
    engine = Engine(EngineOptions(folder=tmp_path / "kernels", cores=CORES))
    rng = np.random.default_rng(3)
    for n in (2 * CORES * max(1, overlap) + 1, 2 * CORES * max(1, overlap) - 2, 1009):
        x = rng.integers(-9, 9, n)
        ir = kernel.instantiate(np.ones((*rows, n)), x)
        (step,) = default_plan(ir, CORES).tasks[0].steps
        assert isinstance(step, NestPlan)
        is_long = n > 2 * CORES * max(1, overlap)
        assert step.partition.overlap == (overlap if is_long else 0)
        assert not (is_long and overlap and (step.atomics or step.partition.copied))
        if kernel is not seen:
            assert_same(engine, ir, [np.ones((*rows, n)), x], [])
    engine.close()

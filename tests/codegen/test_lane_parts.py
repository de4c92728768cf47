"""Bodies of which a front runs in lanes and the rest lane by lane: what the interpreter computes, in its order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.plan.nest_plan import ONE_BY_ONE, NestPlan
from kernelscape.codegen.plan.plan import Plan
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_program, record_sequence
from kernelscape.kernels.interpret.kernel import run_kernel
from kernelscape.kernels.ir import kernel as nodes
from kernelscape.kernels.ir.kernel import DType, For, KernelIR
from kernelscape.kernels.ir.walk import children, nested_statements, walk
from kernelscape.kernels.tasks.distribute import unique_loops
from kernelscape.kernels.tasks.lane_parts import parts_in
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.engine import building, toolchain
from kernelscape.runtime.engine.engine import Engine, EngineOptions
from kernelscape.runtime.engine.planning import decided_plan, default_plan
from kernelscape.space.backbone import INNER, OUTER
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.decisions import fix
from kernelscape.space.families.lane_parts import FRONT, WHOLE_BODY
from kernelscape.space.families.tiling import ABSENT, VECTOR
from kernelscape.testing import checking, sparse_candidates, sparse_periods
from kernelscape.testing.generator.features import STATEMENTS, Features, order_free
from kernelscape.testing.generator.sequences import kernels_of
from kernelscape.testing.syntax import loops, program_of

pytestmark = pytest.mark.compiler
ORDERED = replace(
    STATEMENTS, name="two parts", extents=(9, 37), depths=(1,), main_extent=1.0, computed=0.1,
    statements={**STATEMENTS.statements, "local": 8, "scatter": 2},
)  # fmt: skip
A = ks.types.ndarray
nd: Any = types.ndarray()


def fronts(width: int, vector_bytes: int) -> Callable[..., Plan]:
    """Plans in which fronts of outermost loops run in lanes, whatever their bodies, and the rest in program order."""

    def plan(ir: KernelIR, cores: int, _: int) -> Plan:
        decisions: dict[str, dict[Any, Any]] = {"nests": {0: ONE_BY_ONE}}
        for loop in (s for s in unique_loops(ir.body) if isinstance(s, For)):
            outer, inner = ((0, loop.loop, level) for level in (OUTER, INNER))
            decisions.setdefault("dim_kind", {}).update({outer: "LOOP", inner: "VECTOR"})
            decisions.setdefault("size", {})[inner] = str(width)
            decisions.setdefault("lane_parts", {})[0, loop.loop] = "FRONT"
        return decided_plan(ir, decisions, cores, vector_bytes)

    return plan


def parts_of(plan: Plan) -> list[Any]:
    steps = (s for t in plan.tasks for s in t.steps if isinstance(s, NestPlan))
    return [s.lanes.parts for s in steps if s.lanes is not None and s.lanes.parts is not None]


def assert_same(engine: Engine, ir: KernelIR, arrays: dict[str, np.ndarray]) -> None:
    given = [*arrays.values()]
    wanted = {p.name: a.copy() for p, a in zip(ir.arrays, given, strict=True)}
    with np.errstate(all="ignore"):
        run_kernel(ir, wanted, {})
    engine.run(ir, given, [])
    for p, x in zip(ir.arrays, given, strict=True):
        assert np.array_equal(x, wanted[p.name], equal_nan=x.dtype.kind == "f"), (p.name, ir)


@pytest.mark.parametrize(
    ("corpus", "width", "vector_bytes"),
    [(ORDERED, 4, 32), (ORDERED, 16, 64), (order_free(37, "float64"), 8, 32)],
    ids=lambda x: getattr(x, "name", str(x)),
)
def test_random_bodies_in_two_parts(
    corpus: Features, width: int, vector_bytes: int, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(toolchain, "_FLAGS", ("-O1", *toolchain._FLAGS[1:]))
    plan = fronts(width, vector_bytes)
    monkeypatch.setattr(building, "default_plan", plan)
    engine = Engine(EngineOptions(folder=tmp_path, cores=1))
    drawn = [
        (ir, arrays)
        for ir, arrays in kernels_of(corpus, range(60))
        if any(x.front and x.rest for x in parts_of(plan(ir, 1, 0)))
    ]
    assert len(drawn) >= 12
    drawn = drawn[::3]
    engine.prepare([ir for ir, _ in drawn])
    for ir, arrays in drawn:
        assert_same(engine, ir, arrays)
    engine.close()


@ks.kernel
def sorted_in(x: A(), n: A(), kept: A(), where: A()):
    for i in range(x.shape[0]):
        y = x[i]
        for _ in range(3):
            y = ks.sqrt(abs(y) + 0.5) - 0.25 * y
            y += 0.125 * ks.sqrt(y * y + 1.0) - 0.25 * y / (abs(y) + 1.0)
        if y > 0.5 and n[0] < 50:
            at = ks.atomic_add(n[0], 1)
            kept[at] = y
            where[i] = at
        y = y * 0.5
        n[1] = max(n[1], ks.i32(y * 100.0))


def test_what_old_values_decide_keeps_its_order(tmp_path: Path) -> None:
    """The local y has another value behind the branch that reads it."""
    rng = np.random.default_rng(1)
    arrays = {
        "x": rng.uniform(-3, 3, 77).astype(np.float32),
        "n": np.zeros(2, np.int32),
        "kept": np.zeros(77, np.float32),
        "where": np.full(77, -1, np.int32),
    }
    ir = sorted_in.instantiate(*arrays.values())
    plan = default_plan(ir, 1, 32)
    (parts,) = parts_of(plan)
    assert parts.front and parts.rest and len(parts.kept) <= 3
    engine = Engine(EngineOptions(folder=tmp_path, cores=1))
    given = [a.copy() for a in arrays.values()]
    wanted = dict(zip(arrays, (a.copy() for a in given), strict=True))
    run_kernel(ir, wanted, {})
    engine.run(ir, given, [])
    engine.close()
    assert given[1].tolist() == wanted["n"].tolist() and given[1][0] == 50
    assert given[3].tolist() == wanted["where"].tolist()
    assert np.allclose(given[2], wanted["kept"], rtol=1e-6)


@ks.kernel
def deposits(x: A(), cell: A(), total: A(), seen: A()):
    for i in range(x.shape[0]):
        w = x[i]
        for _ in range(3):
            w = ks.sqrt(abs(w) + 0.5) - 0.25 * w
        q = ks.cast(w * 1e12, ks.i64)
        seen[i] = ks.atomic_add(total[cell[i]], q)


def test_whole_numbers_that_the_rest_reads_keep_all_their_bits(tmp_path, monkeypatch) -> None:
    """Kind: locals of a front that are narrowed since nothing in the front itself reads more than their last bits."""
    rng = np.random.default_rng(2)
    arrays = {
        "x": rng.uniform(1, 3, 77),
        "cell": rng.integers(0, 5, 77).astype(np.int32),
        "total": np.zeros(5, np.int64),
        "seen": np.zeros(77, np.int64),
    }
    ir = deposits.instantiate(*arrays.values())
    plan = fronts(4, 32)
    (parts,) = parts_of(plan(ir, 1, 0))
    assert DType.i64 in {dtype for _, dtype in parts.kept}
    monkeypatch.setattr(building, "default_plan", plan)
    engine = Engine(EngineOptions(folder=tmp_path, cores=1))
    given = [a.copy() for a in arrays.values()]
    engine.run(ir, given, [])
    engine.close()
    w = arrays["x"].copy()
    for _ in range(3):
        w = np.sqrt(np.abs(w) + 0.5) - 0.25 * w
    wanted = np.bincount(arrays["cell"], weights=np.floor(w * 1e12), minlength=5)
    assert np.allclose(given[2], wanted, rtol=1e-9)
    assert given[2].max() > 1 << 33


@pytest.mark.parametrize("cores", [1, 2])
def test_particles_that_activate_cells_compute_in_lanes(cores: int) -> None:
    """Against NumPy. Each particle adds to four cells of a tree."""
    ks.init(arch=ks.cpu, cpu_max_num_threads=cores)
    n = 1009
    x, mass = ks.Vector.field(2, ks.f32, shape=n), ks.field(ks.f32)
    top = ks.root.pointer(ks.ij, 8)
    top.pointer(ks.ij, 2).dense(ks.ij, 4).place(mass)

    @ks.kernel
    def scatter():
        for p in x:
            base = ks.cast(ks.floor(x[p] * 32.0), ks.i32)
            f = x[p] * 32.0 - ks.cast(base, ks.f32)
            w = f
            for _ in range(4):
                w = 0.5 * w + 0.25 * w * w + f * 0.125
            for i, j in ks.static(ks.ndrange(2, 2)):
                mass[base + ks.Vector([i, j])] += (w[0] + i) * (w[1] + 2.0 * j)

    rng = np.random.default_rng(3)
    at = rng.uniform(0.1, 1.9, (n, 2)).astype(np.float32)
    x.from_numpy(at)
    scatter()
    base = np.floor(at * 32).astype(int)
    f = at * np.float32(32) - base
    w = f.copy()
    for _ in range(4):
        w = 0.5 * w + 0.25 * w * w + f * 0.125
    wanted = np.zeros((64, 64))
    for i in range(2):
        for j in range(2):
            np.add.at(wanted, (base[:, 0] + i, base[:, 1] + j), (w[:, 0] + i) * (w[:, 1] + 2.0 * j))
    assert np.allclose(mass.to_numpy(), wanted, atol=1e-4)


def masses(n: int) -> tuple[Any, Any, Any, Callable[[], None]]:
    """Places and masses of `n` particles, the masses of the cells of a tree, and a kernel that adds to four cells each."""
    x, m, mass = ks.Vector.field(2, ks.f32, shape=n), ks.field(ks.f32, shape=n), ks.field(ks.f32)
    ks.root.pointer(ks.ij, 4).dense(ks.ij, 4).place(mass)

    @ks.kernel
    def scatter():
        for p in x:
            base = ks.cast(ks.floor(x[p]), ks.i32)
            f = x[p] - ks.cast(base, ks.f32)
            w = f * (1.5 - f) + 0.25
            for i, j in ks.static(ks.ndrange(2, 2)):
                mass[base + ks.Vector([i, j])] += (w[0] + i) * (w[1] + 2.0 * j) * m[p]

    def run() -> None:
        scatter()
        ks.sync()

    return x, m, mass, run


def test_cells_that_lanes_find_outside_are_refused() -> None:
    """Lanes compute the places of all cells, those beyond the tree too; cells inside get what they should. Against NumPy."""
    ks.init(arch=ks.cpu, cpu_max_num_threads=1)
    x, m, mass, run = masses(50)
    rng = np.random.default_rng(7)
    at = rng.integers(-8, 17 * 4, (50, 2)).astype(np.float32) / 4
    each = rng.integers(1, 9, 50).astype(np.float32)
    x.from_numpy(at)
    m.from_numpy(each)
    with pytest.raises(AssertionError, match="an index of a sparse field is outside"):
        run()
    base = np.floor(at).astype(int)
    f = at - base
    w, wanted = f * (1.5 - f) + 0.25, np.zeros((24, 24))
    for i in range(2):
        for j in range(2):
            value = (w[:, 0] + i) * (w[:, 1] + 2.0 * j) * each
            np.add.at(wanted, (base[:, 0] + i + 4, base[:, 1] + j + 4), value)
    assert wanted[:4].any() and wanted[20:].any()
    assert np.allclose(mass.to_numpy(), wanted[4:20, 4:20], atol=1e-4)


def test_each_lane_is_left_with_look_ups_and_sums() -> None:
    """The front has all tests of indices and all places of cells in their tables."""
    ks.init(arch=ks.cpu)
    *_, run = masses(50)
    recording, _ = record_program(run, ())
    problem = normalise(recording)
    parts = parts_in(problem, problem.tasks[-1])
    of_axes = {
        nodes.Const(16, dtype) for dtype in (nodes.DType.i32, nodes.DType.i64)
    }  # cells along an axis

    def bounds(body: tuple[nodes.Stmt, ...]) -> list[nodes.Expr]:
        found = [x for s in nested_statements(body) for e in children(s) for x in walk(e)]
        return [
            x for x in found if isinstance(x, nodes.Compare) and x.op == "lt" and x.b in of_axes
        ]

    assert len(bounds(parts.front)) >= 8 and not bounds(parts.rest)


def particles(dtype: Any) -> Any:
    """A recording of particles that activate the cells to which they add, in numbers that are exact, and their count."""
    mass, momentum = ks.field(dtype), ks.Vector.field(2, dtype)
    top = ks.root.pointer(ks.ij, 5)
    top.pointer(ks.ij, 2).dense(ks.ij, 2).place(mass, momentum)
    x, v = ks.Vector.field(2, ks.f32, shape=77), ks.Vector.field(2, dtype, shape=77)

    @ks.kernel
    def begin() -> None:
        for p in x:
            x[p] = [0.125 * (p * 37 % 140), 0.25 * (p * 11 % 69)]
            v[p] = [p % 5, 3 - p % 7]

    @ks.kernel
    def scatter() -> None:
        for p in x:
            base = ks.cast(ks.floor(x[p]), ks.i32)
            f = x[p] - ks.cast(base, ks.f32)
            for i, j in ks.static(ks.ndrange(2, 2)):
                w = (f[0] + i) * (f[1] + 2 * j)
                if w > 0.0:
                    momentum[base + ks.Vector([i, j])] += w * v[p]
                    mass[base + ks.Vector([i, j])] += w
            v[p] = v[p] * 2.0 - 1.0

    begin()
    return record_program(lambda: scatter(), ())


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_fronts_are_a_choice_of_scatters_to_trees(dtype: str, tmp_path: Path) -> None:
    ks.init(arch=ks.cpu)
    recording, before = particles(getattr(ks, dtype))
    problem, works = normalise(recording), []
    wanted = sparse_periods.periods(recording, before)
    for k, cores in enumerate((2, 1, 3, 2)):
        space = build_space(problem, checking.target(cores, 32))
        (t,) = space.variables.of_tasks["lane_parts"]
        name = problem.tasks[t].name
        fixed = [(f"dim_kind({name}.{problem.tasks[t].loops[-1].name}.inner)", "VECTOR")]
        made = checking.random_candidate(fix(space, fixed).root(), np.random.default_rng(k))
        assert isinstance(made, Candidate)
        assert made.value(space.variables.of_tasks["lane_parts"][t]) == FRONT
        source = checking.source_of(made)
        works.append(sparse_candidates.Work(source, recording, before, wanted))
    assert sparse_candidates.faults_built(works, tmp_path) == [""] * 4


def test_either_parts_of_a_scatter_compute_the_same(tmp_path: Path) -> None:
    @kernel
    def deposit(x: nd, grid: nd, last: nd) -> None:
        for p in range(x.shape[0]):
            i = min(max(ks.i32(ks.floor(x[p] * 2.0)), 0), 16)
            f = x[p] * 2.0 - ks.f32(i)
            for k in ks.static(range(3)):
                grid[i + k] += (f + k) * (1.5 - 0.5 * f)
            last[p] = f * 0.5

    x = (np.random.default_rng(5).integers(0, 64, 83) / 8).astype(np.float32)
    arrays = {"x": x, "grid": np.ones(19, np.float32), "last": np.zeros(83, np.float32)}
    recording = record_sequence(
        lambda x, grid, last: deposit(x, grid, last), tuple(arrays.values()), name="one"
    )
    problem = normalise(recording)
    space = build_space(problem, checking.target(2, 32))
    ((t, var),) = space.variables.of_tasks["lane_parts"].items()
    root: Any = space.root()
    kind = space.variables.kind[next(d for d in space.backbone.dims_of(t) if d.level == INNER)]
    assert root.decide(kind, 1 << ABSENT).value(var) == WHOLE_BODY
    rng, vectors = np.random.default_rng(6), root.decide(kind, 1 << VECTOR)
    candidates = [vectors.decide(var, 1 << x) for x in (WHOLE_BODY, FRONT, FRONT)]
    candidates = [checking.random_candidate(c, rng) for c in candidates]
    lane_by_lane = [any(x.var == "lane" for x in loops(program_of(c))) for c in candidates]
    assert lane_by_lane == [False, True, True]
    sources = [checking.source_of(c) for c in candidates]
    inputs = checking.make_inputs(recording, problem, arrays, {})
    assert not checking.fault(sources, inputs, tmp_path, may_warn=True)

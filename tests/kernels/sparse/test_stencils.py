"""Elements beside the own one, within a leaf and in those around."""

import itertools

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.lower import lower
from kernelscape.codegen.plan.nest_plan import NestPlan
from kernelscape.codegen.text import csyntax as c
from kernelscape.runtime.engine.planning import default_plan
from kernelscape.testing.sparse_model import plain_ir
from kernelscape.testing.syntax import nodes

pytestmark = pytest.mark.usefixtures("program")


@pytest.mark.parametrize("leaf", [(4, 8), (3, 5), (1, 4), (4, 1), (2, 2)])
@pytest.mark.parametrize("dtype", [ks.f32, ks.i64, ks.i16])
def test_neighbours_are_those_of_the_whole_array(leaf: tuple[int, int], dtype: ks.f32) -> None:
    """Offsets up to 2 along both axes, of leaves that are smaller and larger than that; some leaves are not there."""
    x, y = ks.field(dtype), ks.field(dtype)
    ks.root.pointer(ks.ij, 4).dense(ks.ij, leaf).place(x, y)
    far = [(a, b) for a, b in itertools.product(range(-2, 3), repeat=2)]
    offsets = [(a, b) for a, b in far if abs(a) != 2 or abs(b) != 1]

    @ks.kernel
    def gather():
        for i, j in x:
            total = x[i, j] * 0
            for n in ks.static(range(len(offsets))):
                total += x[i + offsets[n][0], j + offsets[n][1]] * (n + 1)
            y[i, j] = total

    given = np.zeros(x.shape, dtype.numpy)
    for a, b in ((0, 0), (0, 1), (1, 1), (2, 3), (3, 2), (3, 3)):
        at = np.s_[a * leaf[0] : (a + 1) * leaf[0], b * leaf[1] : (b + 1) * leaf[1]]
        x[a * leaf[0], b * leaf[1]] = 1
        given[at] = np.arange(np.prod(leaf)).reshape(leaf) % 7 + a + 1
    x.from_numpy(given)
    gather()
    padded = np.pad(given, 2)
    n, m = given.shape
    expected = sum(
        padded[2 + a : 2 + a + n, 2 + b : 2 + b + m] * (k + 1) for k, (a, b) in enumerate(offsets)
    )
    np.testing.assert_array_equal(y.to_numpy(), expected.astype(dtype.numpy) * (given != 0))


@pytest.mark.parametrize("leaf", [(1, 2, 3), (3, 1, 5)])
def test_diagonal_neighbours_along_three_axes(leaf: tuple[int, int, int]) -> None:
    """Offsets that leave the leaf along two and three axes at once, of leaves of one cell along some axis."""
    x, y = ks.field(ks.f32), ks.field(ks.f32)
    ks.root.pointer(ks.ijk, 2).dense(ks.ijk, leaf).place(x, y)
    reach = [range(-min(2, n), min(2, n) + 1) for n in leaf]
    offsets = [o for o in itertools.product(*reach) if sum(map(abs, o)) in (3, 5)][::2]

    @ks.kernel
    def gather():
        for i, j, k in x:
            total = 0.0
            for n in ks.static(range(len(offsets))):
                total += x[i + offsets[n][0], j + offsets[n][1], k + offsets[n][2]] * (n + 1)
            y[i, j, k] = total

    given = np.zeros(x.shape, np.float32)
    for cell in ((0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 1)):
        first = [c * n for c, n in zip(cell, leaf, strict=True)]
        x[tuple(first)] = 1
        at = tuple(slice(a, a + n) for a, n in zip(first, leaf, strict=True))
        given[at] = np.arange(np.prod(leaf)).reshape(leaf) % 7 + 1
    x.from_numpy(given)
    gather()
    padded = np.pad(given, 2)
    n, m, o = given.shape
    expected = sum(
        padded[2 + a : 2 + a + n, 2 + b : 2 + b + m, 2 + c : 2 + c + o] * (k + 1)
        for k, (a, b, c) in enumerate(offsets)
    )
    np.testing.assert_array_equal(y.to_numpy(), expected * (given != 0))


def test_neighbours_that_the_loop_activates_are_seen() -> None:
    """Then slots of leaves around are not found once for all cells."""
    x = ks.field(ks.f32)
    ks.root.pointer(ks.i, 4).dense(ks.i, 4).place(x)

    @ks.kernel
    def move():
        for i in x:
            if x[i] == 1:
                x[i + 1] = 5
                x[i] = x[i + 1] + 1

    x[3] = 1
    move()
    assert list(x.to_numpy()[:6]) == [0, 0, 0, 6, 5, 0]


@pytest.mark.parametrize("dtype", [ks.f32, ks.f64, ks.i32])
def test_rows_of_three_axes_and_two_fields_of_one_leaf(dtype: ks.f32) -> None:
    """A 7-point stencil, of which the loop runs over the cells of another field."""
    x, y = ks.field(dtype), ks.field(dtype)
    block = ks.root.pointer(ks.ijk, (2, 3, 2))
    block.dense(ks.ijk, (4, 4, 8)).place(x)
    block.dense(ks.ijk, (4, 4, 8)).place(y)

    @ks.kernel
    def smooth():
        for i, j, k in y:
            near = x[i - 1, j, k] + x[i + 1, j, k] + x[i, j - 1, k] + x[i, j + 1, k]
            y[i, j, k] = near + x[i, j, k - 1] - 2 * x[i, j, k + 1]

    generator = np.random.default_rng(2)
    given = generator.integers(-8, 8, x.shape).astype(dtype.numpy)
    given[:4, 4:8] = 0
    for cell in itertools.product((0, 4), (0, 4, 8), (0, 8)):
        if cell[:2] != (0, 4):
            x[cell] = 1
    x.from_numpy(given)
    smooth()
    p = np.pad(given, 1)
    near = p[:-2, 1:-1, 1:-1] + p[2:, 1:-1, 1:-1] + p[1:-1, :-2, 1:-1] + p[1:-1, 2:, 1:-1]
    expected = near + p[1:-1, 1:-1, :-2] - 2 * p[1:-1, 1:-1, 2:]
    expected[:4, 4:8] = 0
    np.testing.assert_array_equal(y.to_numpy(), expected)


def test_rows_whose_neighbours_an_index_decides_are_written_out() -> None:
    """The loop over rows of a leaf, not the rows themselves: those are vectors."""
    x, y = ks.field(ks.f32), ks.field(ks.f32)
    ks.root.pointer(ks.ij, 4).dense(ks.ij, (4, 8)).place(x, y)

    @ks.kernel
    def smooth():
        for i, j in x:
            y[i, j] = x[i - 1, j] + x[i + 1, j] + x[i, j - 1]

    steps = [s for s in default_plan(plain_ir(smooth), 1).tasks[0].steps if isinstance(s, NestPlan)]
    (copies,) = (s.copies for s in steps if s.copies)
    assert sorted(copies.values()) == [1, 4]
    made = lower(default_plan(plain_ir(smooth), 1))
    loops = [s for s in nodes(made) if isinstance(s, c.For)]
    assert len([s for s in loops if s.copies == 1]) == 4 and not any(s.copies > 1 for s in loops)


def test_a_loop_that_only_looks_at_its_own_cells_is_left_to_the_compiler() -> None:
    x = ks.field(ks.f32)
    ks.root.pointer(ks.ij, 4).dense(ks.ij, (4, 8)).place(x)

    @ks.kernel
    def double():
        for i, j in x:
            x[i, j] *= 2

    steps = [s for s in default_plan(plain_ir(double), 1).tasks[0].steps if isinstance(s, NestPlan)]
    assert steps and not any(s.copies for s in steps)


def test_cells_of_a_leaf_that_update_one_element_all_count() -> None:
    """Kind: iterations that are parallel by definition are not apart: a compiler that runs them at once loses updates."""
    ks.init()
    fine, coarse = ks.field(ks.f32), ks.field(ks.f32)
    ks.root.pointer(ks.ij, 4).dense(ks.ij, 8).place(fine)
    ks.root.pointer(ks.ij, 2).dense(ks.ij, 8).place(coarse)

    @ks.kernel
    def fill(given: ks.types.ndarray()):
        for i, j in ks.ndrange(32, 32):
            fine[i, j] = given[i, j]

    @ks.kernel
    def restrict():
        for i, j in fine:
            res = fine[i, j] - 0.25 * (fine[i, j - 1] + fine[i, j + 1])
            coarse[i // 2, j // 2] += 0.5 * res

    values = np.random.default_rng(2).uniform(-1, 1, (32, 32)).astype(np.float32)
    fill(values)
    restrict()
    beside = np.pad(values.astype(np.float64), ((0, 0), (1, 1)))
    res = values - 0.25 * (beside[:, :-2] + beside[:, 2:])
    wanted = 0.5 * res.reshape(16, 2, 16, 2).sum(axis=(1, 3))
    np.testing.assert_allclose(coarse.to_numpy(), wanted, rtol=0, atol=1e-5)

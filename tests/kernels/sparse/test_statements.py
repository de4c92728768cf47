"""One statement after the other: what one of them changed is so for the next one, in loops and beside the own cell too."""

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.ir.kernel import Compare
from kernelscape.kernels.ir.walk import children, nested_statements, walk
from kernelscape.testing.sparse_model import plain_ir

pytestmark = pytest.mark.usefixtures("program")


def test_loops_that_change_an_index_activate_other_cells() -> None:
    """A cell that is active before a loop is not the one that a later iteration writes to."""
    x, y = ks.field(ks.i32), ks.field(ks.i32)
    ks.root.pointer(ks.i, 16).place(x)
    ks.root.pointer(ks.i, 16).place(y)

    @ks.kernel
    def count():
        for _ in range(1):
            i, j = 0, 0
            x[i] = 5
            y[j] = 5
            while i < 4:
                x[i] += 1
                i += 1
            for _k in range(4):
                y[j] += 1
                j += 1

    count()
    assert list(x.to_numpy()[:5]) == list(y.to_numpy()[:5]) == [6, 1, 1, 1, 0]


def test_indices_within_known_limits_are_not_compared() -> None:
    """Locals that one statement clamps are inside of a field; others may be outside, where reads give 0."""
    x, y = ks.field(ks.f32), ks.field(ks.f32)
    ks.root.pointer(ks.ij, 4).dense(ks.ij, 4).place(x, y)

    @ks.kernel
    def fill(f: ks.types.ndarray()):
        for i, j in ks.ndrange(16, 16):
            x[i, j] = f[i, j]

    @ks.kernel
    def clamped(u: ks.types.ndarray()):
        for i, j in x:
            k = max(0, min(15, int(u[i, j])))
            n = k // 2 + 7
            y[i, j] = x[k, n]

    @ks.kernel
    def not_clamped(u: ks.types.ndarray()):
        for i, j in x:
            k = max(0, int(u[i, j]))
            n = 3
            if u[i, j] > 0.0:
                n = int(u[i, j])
            y[i, j] = x[k, n] + x[k - 2, 1]

    filled, u = np.random.default_rng(1).random((2, 16, 16)).astype(np.float32)
    u = u * 40 - 12
    fill(filled)
    k = np.maximum(0, u.astype(int))
    clamped(u)
    at = np.minimum(k, 15)
    np.testing.assert_array_equal(y.to_numpy(), filled[at, at // 2 + 7])
    wide = np.zeros((64, 64), np.float32)
    wide[2:18, 2:18] = filled
    not_clamped(u)
    found = wide[k + 2, np.where(u > 0, u.astype(int), 3) + 2] + wide[k, 3]
    np.testing.assert_array_equal(y.to_numpy(), found)
    for kernel, n_compared in ((clamped, 0), (not_clamped, 5)):
        statements = nested_statements(plain_ir(kernel, u).body)
        every = (x for s in statements for e in children(s) for x in walk(e))
        compared = [x for x in every if isinstance(x, Compare) and x.op in ("ge", "lt")]
        assert len(compared) == n_compared


def test_cells_that_an_iteration_deactivates_are_activated_by_the_next() -> None:
    x = ks.field(ks.i32)
    node = ks.root.pointer(ks.i, 16)
    node.place(x)

    @ks.kernel
    def change():
        for _ in range(1):
            x[3] = 5
            for k in range(3):
                x[3] += k + 1
                if k < 2:
                    ks.deactivate(node, [3])

    change()
    assert x[3] == 3


def test_indices_that_ask_what_is_active_are_asked_again() -> None:
    x, y, n = ks.field(ks.i32), ks.field(ks.i32), ks.field(ks.i32)
    node = ks.root.pointer(ks.i, 4)
    node.place(x)
    ks.root.dynamic(ks.i, 20, chunk_size=3).place(n)
    ks.root.pointer(ks.i, 20).place(y)

    @ks.kernel
    def ask():
        for _ in range(1):
            y[ks.is_active(node, [3])] += 1
            x[3] = 1
            y[ks.is_active(x, [3])] += 10
            n.append(2)
            y[n.length() + 1] += 100
            n.append(2)
            y[n.length() + 1] += 1000

    ask()
    assert list(y.to_numpy()[:4]) == [1, 10, 100, 1000]


def test_components_of_neighbours_by_an_index() -> None:
    """One that is only known inside the loop over a row."""
    v, y = ks.Vector.field(3, ks.f32), ks.field(ks.f32)
    ks.root.pointer(ks.i, 4).dense(ks.i, 4).place(v, y)

    @ks.kernel
    def gather():
        for i in v:
            own = i % 3
            y[i] = 100 * v[i + 1][own]
            for c in range(3):
                y[i] += v[i + 1][c] * (c + 1)

    given = np.zeros((16, 3), np.float32)
    given[:8] = np.arange(24).reshape(8, 3)
    v[0], v[4] = [0, 0, 0], [0, 0, 0]
    v.from_numpy(given)
    gather()
    after = np.roll(given, -1, axis=0)
    expected = 100 * after[np.arange(16), np.arange(16) % 3] + after @ [1, 2, 3]
    expected[8:] = 0
    np.testing.assert_array_equal(y.to_numpy(), expected)


def test_neighbours_that_were_written_without_activation_are_seen() -> None:
    x, y = ks.field(ks.i32), ks.field(ks.i32)
    ks.root.pointer(ks.i, 4).dense(ks.i, 4).place(x, y)

    @ks.kernel
    def push():
        ks.no_activate(x)
        for i in y:
            x[i + 1] = i + 5
            y[i] = x[i + 1]

    x[0], x[4] = 1, 1
    push()
    assert list(y.to_numpy()) == [5, 6, 7, 8, 9, 10, 11, 0] + [0] * 8


@pytest.mark.parametrize("is_kernel", [True, False])
def test_lists_have_all_cells_before_one_that_is_written(is_kernel: bool) -> None:
    """As those of Taichi; chunks that no store was made to read as zero."""
    x, seen, active = ks.field(ks.i32), ks.field(ks.i32, (2, 40)), ks.field(ks.i32, 2)
    node = ks.root.dense(ks.i, 2).dynamic(ks.j, 40, chunk_size=3)
    node.place(x)

    @ks.kernel
    def write(i: ks.i32):
        for _ in range(1):
            x[1, i] = 4

    @ks.kernel
    def visit():
        for i, j in x:
            seen[i, j] += 1
        for _ in range(1):
            active[0] = ks.is_active(node, [1, 1])
            active[1] = ks.length(node, [1])

    for at in (10, 5, 31):
        if is_kernel:
            write(at)
        else:
            x[1, at] = 4
    visit()
    assert list(active.to_numpy()) == [1, 32]
    assert not seen.to_numpy()[0].any() and list(seen.to_numpy()[1]) == [1] * 32 + [0] * 8
    assert x.stats().nodes[1].active == 32 and x.to_numpy().sum() == 12


def test_truth_values() -> None:
    x, y = ks.field(ks.u1), ks.field(ks.u1)
    ks.root.pointer(ks.i, 4).dense(ks.i, 5).place(x, y)

    @ks.kernel
    def shift():
        for i in x:
            y[i] = x[i - 1]

    given = np.zeros(20, bool)
    given[[0, 1, 4, 7]] = True
    x[0], x[5] = True, True
    x.from_numpy(given.astype(np.int32) * 256)
    shift()
    expected = np.zeros(20, bool)
    expected[[1, 2, 5, 8]] = True
    np.testing.assert_array_equal(y.to_numpy(), expected)
    assert y.to_numpy().dtype == bool
    x.fill(True)
    assert x.to_numpy().sum() == 10


def test_slots_that_a_loop_gives_back_are_taken_by_the_next(limit_layouts) -> None:
    """Of a pool with as many slots as it has cells, and as many to spare."""
    limit_layouts("_SPARE_SLOTS", ())
    x = ks.field(ks.i32)
    node = ks.root.pointer(ks.i, 4)
    node.dense(ks.i, 2).place(x)

    @ks.kernel
    def renew():
        for _ in ks.static(range(4)):
            for i in range(4):
                ks.deactivate(node, [i])
            for i in range(8):
                x[i] += i + 1

    for _ in range(3):
        renew()
        assert list(x.to_numpy()) == list(range(1, 9))


@pytest.mark.parametrize("extents", [(4, 8), (2, 32), (2, 64), (3, 6), (5, 1), (16, 16)])
def test_masks_of_rows_of_any_length(extents: tuple[int, int]) -> None:
    """Rows that are a part of a word, that are one, and that begin in any place; cells become inactive as they are visited."""
    x = ks.field(ks.i32)
    node = ks.root.pointer(ks.ij, 2).bitmasked(ks.ij, extents)
    node.place(x)

    @ks.kernel
    def fill() -> None:
        for i, j in ks.ndrange(x.shape[0], x.shape[1]):
            if (5 * i + 3 * j) % 7 < 3:
                x[i, j] = 1

    @ks.kernel
    def halve() -> None:
        for i, j in x:
            x[i, j] += 1
            if j % 2 == 1:
                ks.deactivate(node, [i, j])

    @ks.kernel
    def count() -> ks.i32:
        n = 0
        for i, j in x:
            n += x[i, j]
        return n

    fill()
    there = np.add.outer(5 * np.arange(x.shape[0]), 3 * np.arange(x.shape[1])) % 7 < 3
    assert count() == there.sum()
    halve()
    assert count() == 2 * there[:, ::2].sum()
    np.testing.assert_array_equal(x.to_numpy(), 2 * there * (np.arange(x.shape[1]) % 2 == 0))

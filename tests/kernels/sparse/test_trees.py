"""Sparse fields: what is active, what is read, what loops visit; compiled and interpreted."""

import itertools
from collections.abc import Callable

import kernelscape as ks
import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("program")

LEAVES: dict[str, Callable[[], ks.SNode]] = {
    "pointer": lambda: ks.root.pointer(ks.ij, (4, 3)),
    "bitmasked": lambda: ks.root.bitmasked(ks.ij, (4, 3)),
    "hash": lambda: ks.root.hash(ks.ij, (4, 3)),
    "pointer, dense": lambda: ks.root.pointer(ks.ij, (2, 3)).dense(ks.ij, (3, 2)),
    "pointer, bitmasked": lambda: ks.root.pointer(ks.ij, 2).bitmasked(ks.ij, (3, 5)),
    "dense, pointer": lambda: ks.root.dense(ks.ij, 2).pointer(ks.ij, (3, 5)),
    "dense, bitmasked, dense": lambda: ks.root.dense(ks.i, 2).bitmasked(ks.ij, 3).dense(ks.j, 2),
    "bitmasked, bitmasked": lambda: ks.root.bitmasked(ks.ij, 2).bitmasked(ks.ij, (9, 10)),
    "pointer, pointer, dense": lambda: (
        ks.root.pointer(ks.ij, 2).pointer(ks.ij, (2, 3)).dense(ks.i, 2)
    ),
    "pointer, bitmasked, pointer": lambda: (
        ks.root.pointer(ks.i, 3).bitmasked(ks.j, 5).pointer(ks.ij, 2)
    ),
}
CELLS = [(0, 0), (1, 2), (3, 1), (1, 2)]


def written(shape: tuple[int, ...]) -> np.ndarray:
    """What stores of 1, 2, 3, ... to `CELLS` leave in a field of zeros."""
    expected = np.zeros(shape, np.int32)
    for n, cell in enumerate(CELLS):
        expected[cell] = n + 1
    return expected


@pytest.mark.parametrize("kind", LEAVES)
def test_what_is_stored_is_read_and_loops_visit_what_is_active(kind: str) -> None:
    """Cells come in no order; those that are active and were not written are zero."""
    x, y = ks.field(ks.i32), ks.field(ks.f32)
    leaf = LEAVES[kind]()
    leaf.place(x, y)
    places = ks.field(ks.i32, (len(CELLS), 2))
    places.from_numpy(np.array(CELLS, np.int32))
    visits = ks.field(ks.i32, x.shape)

    @ks.kernel
    def write(scale: ks.i32):
        ks.loop_config(serialize=True)
        for n in range(4):
            x[places[n, 0], places[n, 1]] = (n + 1) * scale

    @ks.kernel
    def visit():
        for i, j in x:
            visits[i, j] += 1
            y[i, j] = x[i, j] + 0.5

    @ks.kernel
    def visit_grouped() -> ks.i32:
        found = 0
        for _ in ks.grouped(leaf):
            found += 1
        return found

    write(1)
    expected = written(x.shape)
    np.testing.assert_array_equal(x.to_numpy(), expected)
    assert x[1, 2] == 4 and x[3, 2] == 0
    visit()
    counts = visits.to_numpy()
    assert counts.max() == 1 and counts[tuple(np.array(CELLS).T)].all()
    np.testing.assert_array_equal(y.to_numpy(), np.where(counts, expected + 0.5, 0))
    assert visit_grouped() == counts.sum()
    assert (counts.sum() == 3) == (leaf.kind != "dense")
    ks.deactivate_all_snodes()
    assert visit_grouped() == 0 and not x.to_numpy().any() and not y.to_numpy().any()
    write(2)
    np.testing.assert_array_equal(x.to_numpy(), 2 * expected)
    assert not y.to_numpy().any()


@pytest.mark.parametrize("kind", LEAVES)
def test_python_reads_and_writes_as_kernels_do(kind: str) -> None:
    x = ks.field(ks.i32)
    LEAVES[kind]().place(x)
    for n, cell in enumerate(CELLS):
        x[cell] = n + 1

    @ks.kernel
    def total() -> ks.i32:
        found = 0
        for i, j in x:
            found += x[i, j]
        return found

    assert total() == 4 + 3 + 1
    np.testing.assert_array_equal(x.to_numpy(), written(x.shape))
    active = ks.field(ks.i32, x.shape)

    @ks.kernel
    def visit():
        for i, j in x:
            active[i, j] = 1

    visit()
    x.fill(7)
    np.testing.assert_array_equal(x.to_numpy(), 7 * active.to_numpy())
    x.from_numpy(np.arange(np.prod(x.shape), dtype=np.int32).reshape(x.shape))
    given = np.arange(np.prod(x.shape)).reshape(x.shape)
    np.testing.assert_array_equal(x.to_numpy(), given * active.to_numpy())
    dense = ks.field(ks.i32, x.shape)
    dense.copy_from(x)
    np.testing.assert_array_equal(dense.to_numpy(), x.to_numpy())
    dense.fill(3)
    x.copy_from(dense)
    assert (x.to_numpy() == 3).all() and total() == 3 * x.to_numpy().size


def test_vectors_structs_offsets_and_several_trees() -> None:
    a = ks.Vector.field(2, ks.f32)
    b = ks.Struct.field({"p": ks.types.vector(3, ks.f32), "n": ks.i32})
    ks.root.pointer(ks.i, 4).dense(ks.i, 4).place(a, offset=-8)
    ks.root.pointer(ks.i, 8).bitmasked(ks.i, 2).place(b)

    @ks.kernel
    def write():
        for k in range(3):
            a[k - 8] = [k, -k]
            b[k * 5].p = [k, 1, 2]
            b[k * 5].n += 2

    @ks.kernel
    def move():
        for i in a:
            a[i].x += i
        for i in b:
            b[i].n += i

    write()
    move()
    assert list(a[-6]) == [-4, -2] and list(a[-5]) == [-5, 0] and list(a[0]) == [0, 0]
    assert [b[i].n for i in (0, 1, 5, 10)] == [2, 0, 7, 12] and list(b[10].p) == [2, 1, 2]
    a[3][1] = 9
    assert list(a[3]) == [0, 9] and a.to_numpy().shape == (16, 2)


def test_neighbours_outside_read_zero_and_writes_there_are_an_error() -> None:
    x, y = ks.field(ks.f32), ks.field(ks.f32)
    ks.root.pointer(ks.i, 4).dense(ks.i, 3).place(x, y)

    @ks.kernel
    def smooth():
        for i in x:
            y[i] = x[i - 1] + x[i + 1]

    @ks.kernel
    def write(at: ks.i32):
        for _ in range(1):
            x[at] = 1.0

    x[0], x[11] = 2.0, 3.0
    smooth()
    assert y[1] == 2 and y[10] == 3 and y[0] == 0 and y[11] == 0 and y[4] == 0
    with pytest.raises((AssertionError, IndexError), match="outside"):
        write(12)
    write(5)
    assert x[5] == 1 and x.to_numpy().sum() == 6


def test_no_activate_and_updates_with_their_old_values() -> None:
    x = ks.field(ks.i32)
    ks.root.pointer(ks.i, 4).bitmasked(ks.i, 2).place(x)
    old = ks.field(ks.i32, ())

    @ks.kernel
    def without():
        ks.no_activate(x)
        for i in range(8):
            x[i] += 10

    @ks.kernel
    def add():
        for _ in range(1):
            old[None] = ks.atomic_add(x[3], 4)

    x[3] = 1
    without()
    assert list(x.to_numpy()) == [0, 0, 0, 11, 0, 0, 0, 0]
    add()
    assert old[None] == 11 and x[3] == 15


def test_memory_of_deactivated_cells_is_used_again() -> None:
    x = ks.field(ks.i32)
    block = ks.root.pointer(ks.i, 64)
    block.dense(ks.i, 8).place(x)

    @ks.kernel
    def write(at: ks.i32):
        for k in range(8):
            x[at * 8 + k] += 1

    @ks.kernel
    def clear(at: ks.i32):
        ks.deactivate(block, at)

    generator = np.random.default_rng(1)
    expected = np.zeros((64, 8), np.int32)
    for at in generator.integers(0, 64, 100):
        if generator.random() < 0.5:
            write(int(at))
            expected[at] += 1
        else:
            clear(int(at))
            expected[at] = 0
    np.testing.assert_array_equal(x.to_numpy().reshape(64, 8), expected)
    structure = block.structure
    assert structure is not None
    structure.storage.settle(0)
    free, taken, fresh = structure.storage.arrays["counters"][0][:3]
    assert taken == 0 and fresh - 1 - free == np.count_nonzero(expected.any(axis=1)) and fresh <= 65


def test_lists_of_dynamic_nodes() -> None:
    x, n = ks.field(ks.i32), ks.field(ks.i32, 5)
    ks.root.dense(ks.i, 5).dynamic(ks.j, 7, chunk_size=3).place(x)

    @ks.kernel
    def make():
        for i in range(5):
            for j in range(i):
                x[i].append(j * 10 + i)
            n[i] = ks.length(x.parent(), i)

    @ks.kernel
    def total() -> ks.i32:
        found = 0
        for i, j in x:
            found += x[i, j]
        return found

    @ks.kernel
    def clear(i: ks.i32):
        x[i].deactivate()

    make()
    assert list(n.to_numpy()) == [0, 1, 2, 3, 4]
    expected = np.zeros((5, 7), np.int32)
    for i, j in itertools.product(range(5), range(4)):
        expected[i, j] = (j * 10 + i) * (j < i)
    np.testing.assert_array_equal(x.to_numpy(), expected)
    assert total() == expected.sum()
    clear(4)
    expected[4] = 0
    np.testing.assert_array_equal(x.to_numpy(), expected)
    make()
    assert n[4] == 4 and n[3] == 6 and x[3, 5] == 23
    with pytest.raises((AssertionError, ks.LanguageError), match="full"):
        make()
    x.parent().deactivate_all()
    assert total() == 0 and not x.to_numpy().any()


@pytest.mark.parametrize(
    ("use", "sentence"),
    [
        (lambda: ks.root.pointer(ks.ij, (1, 2, 3)), "is given 2 axes and 3 dimensions"),
        (lambda: ks.root.pointer(ks.i, 0), "not positive"),
        (lambda: ks.root.pointer(ks.i, 1 << 20).dense(ks.i, 1 << 12), r"at most 2\^31 cells"),
        (lambda: ks.root.dynamic(ks.ij, 4), "a dynamic node has one axis"),
        (lambda: ks.activate(1, 2), "ks.activate takes a node of a tree, or a field in one, not 1"),
        (lambda: ks.no_activate(1), "ks.no_activate was called outside a kernel"),
    ],
)
def test_what_is_wrong_with_a_tree_is_one_sentence(use: Callable[[], None], sentence: str) -> None:
    with pytest.raises(ks.LanguageError, match=sentence):
        use()


def test_words_about_cells_mean_the_same_outside_of_kernels() -> None:
    x, q = ks.field(ks.f32), ks.field(ks.i32)
    block = ks.root.pointer(ks.ij, (5, 3))
    pixel = block.bitmasked(ks.ij, (3, 5))
    pixel.place(x, offset=(-2, 4))
    lists = ks.root.pointer(ks.j, 3).dynamic(ks.i, 9, chunk_size=2)
    lists.place(q, offset=(-1, 5))
    ks.activate(pixel, (4, 6))
    assert (ks.is_active(block, [1, 1]), ks.is_active(x, (4, 6)), ks.is_active(block, (0, 1))) == (1, 1, 0)  # fmt: skip
    x[2, 10] = 4
    ks.deactivate(block, ks.rescale_index(x, block, (4, 6)))
    assert (ks.is_active(pixel, (4, 6)), x[2, 10]) == (0, 0)
    ks.activate(pixel, (4, 6))
    assert x[2, 10] == 0
    assert [ks.append(lists, 2, k * k) for k in range(5)] == list(range(5))
    assert (ks.length(q, [2]), ks.length(lists, [1]), q[2, 7]) == (5, 0, 9)
    ks.deactivate(lists, [2])
    assert ks.length(lists, [2]) == 0
    for use, sentence in [
        (lambda: ks.append(block, [1, 1], 1), "takes a dynamic node, not a pointer one"),
        (lambda: ks.activate(block, [5, 1]), "has indices 0 to 4 along axis 0, not 5"),
        (lambda: ks.length(lists, [1, 2]), "takes 1 index of that node, not 2"),
        (lambda: ks.deactivate(ks.root.dense(ks.i, 3), [1]), "a dense node are always active"),
    ]:
        with pytest.raises(ks.LanguageError, match=sentence):
            use()


def test_rows_that_are_written_out_and_only_add_up() -> None:
    x = ks.field(ks.i32)
    pixel = ks.root.pointer(ks.ijk, (1, 2, 2)).bitmasked(ks.ijk, (4, 2, 3))
    pixel.place(x)

    @ks.kernel
    def counted() -> ks.i32:
        n = 0
        for i, j, k in ks.ndrange(4, 4, 6):
            n += ks.is_active(pixel, [i, j, k]) * (i + k)
        return n

    x[1, 2, 5] = 1
    assert counted() == 6


def test_trees_in_use_get_no_more_fields() -> None:
    x = ks.field(ks.i32)
    block = ks.root.pointer(ks.i, 4)
    block.place(x)
    x[1] = 2
    with pytest.raises(ks.LanguageError, match="place all fields of a tree before"):
        block.place(ks.field(ks.i32))
    with pytest.raises(ks.LanguageError, match="is sparse: it is no array"):
        _ = x.array
    ks.init()
    with pytest.raises(ks.LanguageError, match="its program has ended"):
        _ = x[1]


def test_loops_over_active_cells_stand_alone() -> None:
    x = ks.field(ks.i32)
    ks.root.pointer(ks.i, 4).place(x)

    @ks.kernel
    def inside():
        for k in range(2):
            for i in x:
                x[i] += k

    with pytest.raises(ks.LanguageError, match="stands in no other loop"):
        inside()


@pytest.mark.parametrize(
    "kinds",
    [
        ("pointer", "dense"),
        ("bitmasked", "dense"),
        ("pointer", "bitmasked"),
        ("dense", "bitmasked", "dense"),
        ("bitmasked", "pointer", "dense", "bitmasked"),
        ("hash", "dense"),
        ("pointer", "hash"),
    ],
)
def test_whole_fields_are_their_cells_one_by_one(kinds: tuple[str, ...]) -> None:
    """Arrays are copied in boxes of memory, elements by numbers of Python: both are what arrays of cells say."""
    x = ks.Vector.field(2, ks.i32)
    node, extents = ks.root, [(2, 3), (3, 1), (1, 2), (2, 2)]
    for k, kind in enumerate(kinds):
        node = getattr(node, kind)([ks.ij, ks.axes(1, 0)][k % 2], extents[k])
    node.place(x)
    cells, shape = x.cells, x.shape
    every = [c.ravel() for c in np.indices(shape)]
    wanted = np.zeros((*shape, 2), np.int32)
    for c in [(0, 0), (1, 2), (shape[0] - 1, shape[1] - 1), (1, 1)]:
        x[c] = [c[0] + 1, c[1] + 7]
        wanted[c] = [c[0] + 1, c[1] + 7]
        item, active = cells.storage.find(cells.node, [np.asarray([i]) for i in c])
        assert active[0] and cells.values[:, item[0]].tolist() == wanted[c].tolist()
    np.testing.assert_array_equal(x.to_numpy(), wanted)
    active = cells.storage.find(cells.node, every)[1].reshape(*shape, 1)
    given = np.arange(wanted.size, dtype=np.int32).reshape(wanted.shape) + 1
    x.from_numpy(given)
    np.testing.assert_array_equal(x.to_numpy(), np.where(active, given, 0))
    x.fill([5, 6])
    np.testing.assert_array_equal(x.to_numpy(), np.where(active, [5, 6], 0))
    dense = ks.Vector.field(2, ks.i32, shape)
    dense.from_numpy(given)
    x.copy_from(dense)
    np.testing.assert_array_equal(x.to_numpy(), given)
    assert cells.storage.find(cells.node, every)[1].all()

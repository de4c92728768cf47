"""Hash nodes: cells by key, in nodes that no table has room for."""

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.sparse.layout import CLAIMED

SIDE = 1 << 20
REFUSED = (AssertionError, ks.LanguageError)  # behind a compiled kernel, and at once


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("axes", [1, 2])
def test_a_node_of_2_to_the_40_cells(axes: int) -> None:
    x, n = ks.field(ks.i32), ks.field(ks.i32, 3)
    node = ks.root.hash(ks.ij if axes == 2 else ks.j, (SIDE,) * axes)
    if axes == 1:
        node = node.hash(ks.i, SIDE)
    node.dense(ks.ij, 2).place(x)
    places = np.array([[0, 0], [5, 2 * SIDE - 1], [SIDE, SIDE + 7], [2 * SIDE - 1, 3], [6, 9]])
    at = ks.field(ks.i32, places.shape)
    at.from_numpy(places.astype(np.int32))

    @ks.kernel
    def write():
        for k in range(5):
            x[at[k, 0], at[k, 1]] = k + 1

    @ks.kernel
    def visit():
        for i, j in x:
            n[0] += 1
            if x[i, j] > 0:
                k = x[i, j] - 1
                n[1] += at[k, 0] == i and at[k, 1] == j
        for I in ks.grouped(node):
            n[2] += ks.is_active(node, I)

    @ks.kernel
    def clear(i: ks.i32, j: ks.i32):
        ks.deactivate(node, [i, j])

    def seen() -> list[int]:
        n.fill(0)
        visit()
        return list(n.to_numpy())

    write()
    assert seen() == [20, 5, 5]
    assert x[5, 2 * SIDE - 1] == 2 and x[7, 7] == 0
    clear(SIDE // 2, (SIDE + 7) // 2)
    clear(77, 77)
    assert seen() == [16, 4, 4]
    write()
    x[12345, 54321] = 1
    assert seen() == [24, 5, 6]
    assert x.stats().nodes[-1].cells == 6 * 4
    with pytest.raises(ks.LanguageError, match=r"takes 16,384 GiB"):
        x.to_numpy()
    node.deactivate_all()
    assert seen() == [0, 0, 0] and x[0, 0] == 0


def test_threads_claim_places_of_the_same_cells() -> None:
    ks.init(arch=ks.cpu)
    x = ks.field(ks.i32)
    node = ks.root.hash(ks.i, 1 << 30)
    node.place(x)

    @ks.kernel
    def add(n: ks.i32):
        for k in range(n):
            x[k % 1000 * 1048573] += 1

    @ks.kernel
    def total() -> ks.i32:
        found = 0
        for i in x:
            found += x[i] * (i % 1048573 == 0)
        return found

    @ks.kernel
    def count() -> ks.i32:
        found = 0
        for _ in node:
            found += 1
        return found

    for _ in range(10):
        node.deactivate_all()
        add(1 << 15)
        assert total() == 1 << 15 and count() == 1000
    ks.reset()


def test_cells_that_come_and_go_leave_no_place_behind() -> None:
    """Others each time, many more than there are places."""
    ks.init(arch=ks.cpu)
    x = ks.field(ks.i32)
    node = ks.root.pointer(ks.i, 4).hash(ks.i, 200)
    node.place(x)

    @ks.kernel
    def work(first: ks.i32):
        for k in range(50):
            x[(first + 7 * k) % 800] = first

    @ks.kernel
    def clear():
        for i in x:
            if i % 5:
                ks.deactivate(node, [i])

    for first in range(0, 8000, 40):
        work(first)
        clear()
    structure = node.structure
    assert structure is not None
    structure.storage.settle(0)
    keys = structure.storage.arrays["keys1"]
    assert np.count_nonzero(keys) == len(structure.storage.active(1)[0]) == 160
    ks.reset()


@pytest.mark.usefixtures("program")
def test_a_cell_whose_places_others_have_is_refused_by_a_sentence_though_slots_are_left() -> None:
    x = ks.field(ks.i32)
    node = ks.root.hash(ks.i, 200)
    node.place(x)

    @ks.kernel
    def write(i: ks.i32):
        x[i] = 3

    x[7] = 5
    structure = node.structure
    assert structure is not None
    keys = structure.storage.arrays["keys0"]
    before = keys.copy()
    keys[keys == 0] = CLAIMED - 1
    with pytest.raises(REFUSED, match=r"the tree is full|a tree of sparse fields is full"):
        write(9)
    with pytest.raises(ks.LanguageError, match=r"a hash node has no place for one of its cells"):
        x[9] = 3
    write(7)
    assert (x[7], x[9]) == (3, 0)
    keys[:] = before
    write(9)
    assert (x[7], x[9], np.count_nonzero(keys)) == (3, 3, 2)


@pytest.mark.usefixtures("program")
def test_cells_beyond_the_slots_leave_no_place_behind_when_all_are_cleared(limit_layouts) -> None:
    limit_layouts("MOST_HASHED", 1 << 6)
    x = ks.field(ks.i32)
    node = ks.root.hash(ks.i, 1 << 20)
    node.place(x)

    @ks.kernel
    def write(first: ks.i32, n: ks.i32):
        for i in range(first, first + n):
            x[3 * i] = 1

    for _ in range(3):
        with pytest.raises(REFUSED, match=r"the tree is full|a tree of sparse fields is full"):
            write(0, 500)
        structure = node.structure
        assert structure is not None
        with pytest.raises(ks.LanguageError, match="the tree is full: it has room for 63 cells"):
            structure.storage.activate(0, [np.arange(1000, 1100)])
        assert len(structure.storage.active(0)[0]) == 63
        node.deactivate_all()
        keys = structure.storage.arrays["keys0"]
        assert not keys.any()
        with pytest.raises(ks.LanguageError, match="the tree is full: it has room for 63 cells"):
            structure.storage.activate(0, [np.arange(1000, 1100)])
        assert not keys.any()
    write(0, 63)
    assert len(structure.storage.active(0)[0]) == 63


@pytest.mark.parametrize(
    ("axes", "n", "sentence"),
    [
        (ks.ijkl, 1 << 16, r"more than 2\^62 cells"),
        (ks.i, 1 << 32, r"indices are i32, so an axis has at most 2\^31 cells"),
    ],
)
def test_hash_nodes_that_are_too_large_are_refused(axes, n: int, sentence: str) -> None:
    ks.init(arch=ks.cpu)
    x = ks.field(ks.i32)

    def use() -> None:
        ks.root.hash(axes, n).place(x)
        x[(0,) * len(axes)] = 1

    with pytest.raises(ks.LanguageError, match=sentence):
        use()
    ks.reset()

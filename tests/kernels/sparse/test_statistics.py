"""What trees say of their nodes."""

import kernelscape as ks
import pytest

pytestmark = pytest.mark.usefixtures("program")


def test_nodes_say_what_is_active_and_its_bytes() -> None:
    x = ks.field(ks.f32)
    v = ks.Vector.field(3, ks.f64)
    block = ks.root.pointer(ks.ij, (8, 4))
    cell = block.bitmasked(ks.ij, (4, 4))
    cell.place(x, v)
    x[0, 0] = x[1, 1] = x[17, 5] = 1.0
    upper, lower = x.stats().nodes
    assert (upper.kind, upper.containers, upper.cells, upper.active) == ("pointer", 1, 32, 2)
    assert (lower.kind, lower.containers, lower.cells, lower.active) == ("bitmasked", 2, 32, 3)
    assert (upper.fields, lower.fields) == ((), ("x", "v"))
    assert upper.table_bytes == 32 * 4
    assert lower.table_bytes == 2 * 8
    assert lower.value_bytes == 32 * (4 + 3 * 8)
    assert lower.fill == 3 / 32

    @ks.kernel
    def shrink():
        ks.deactivate(block, [4, 1])

    shrink()
    assert [n.active for n in cell.stats().nodes] == [1, 2]
    block.deactivate_all()
    assert [n.active for n in v.stats().nodes] == [0, 0]


def test_lists_have_memory_for_whole_chunks() -> None:
    x = ks.field(ks.i32)
    ks.root.dense(ks.i, 3).dynamic(ks.j, 100, chunk_size=8).place(x)
    for k in range(10):
        x[1, k] = k
    rows = x.stats().nodes
    assert [(n.containers, n.cells, n.active) for n in rows] == [(1, 3, 3), (3, 300, 10)]
    assert rows[1].value_bytes == 16 * 4
    assert rows[1].table_bytes == 3 * (13 * 4 + 4)


def test_dense_nodes_are_full() -> None:
    x = ks.field(ks.f32, shape=(6, 5))
    (node,) = x.stats().nodes
    assert (node.cells, node.active, node.fill, node.value_bytes) == (30, 30, 1.0, 120)


def test_as_text_it_is_a_table() -> None:
    x = ks.field(ks.f32)
    ks.root.pointer(ks.i, 4).dense(ks.i, 8).place(x)
    x[9] = 1.0
    assert str(x.stats()).splitlines() == [
        "node       fields  containers  cells  active    fill  tables  values",
        "pointer 4                   1      4       1   25.0%    16 B     0 B",
        "  dense 8  x                1      8       8  100.0%     0 B    32 B",
    ]


def test_a_field_without_a_place_says_so() -> None:
    with pytest.raises(ks.LanguageError, match="place"):
        ks.field(ks.f32).stats()

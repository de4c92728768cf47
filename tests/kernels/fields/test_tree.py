"""Nodes of trees and the shapes that they give."""

from __future__ import annotations

import kernelscape as ks
import pytest


def test_levels_multiply_along_their_axes():
    x = ks.field(ks.f32)
    ks.root.dense(ks.ij, (2, 3)).dense(ks.ij, (4, 5)).place(x)
    assert x.shape == x.parent().shape == (8, 15)
    assert x.parent(2).shape == (2, 3) and x.parent(3) is x.parent(2).parent()
    assert x.parent(4) is None and x.parent(9) is None
    x[7, 14] = 2
    assert x.to_numpy()[7, 14] == 2


@pytest.mark.parametrize(
    ("levels", "shape"),
    [
        ([("i", 2), ("j", 3)], (2, 3)),
        ([("j", 2), ("i", 3)], (3, 2)),
        ([("j", 2)], (2,)),
        ([("ij", 4)], (4, 4)),
        ([("ik", (2, 3)), ("j", 5), ("k", 2)], (2, 5, 6)),
        ([("ijkl", (1, 2, 3, 4))], (1, 2, 3, 4)),
        ([], ()),
    ],
)
def test_shapes_are_in_the_order_of_axes(levels, shape):
    x, node = ks.field(ks.f32), ks.root
    for axes, extents in levels:
        node = node.dense(getattr(ks, axes), extents)
    node.place(x)
    assert x.shape == shape and x.to_numpy().shape == shape


def test_names_of_axes():
    assert ks.axes(0, 2) == ks.ik and ks.ijkl == (0, 1, 2, 3)


def test_a_node_takes_several_fields_and_lists():
    x, y, v = ks.field(ks.f32), ks.field(ks.i32), ks.Vector.field(2, ks.f32)
    node = ks.root.dense(ks.i, 4)
    assert node.place(x, [y, (v,)]) is node
    node.dense(ks.i, 2).place(finer := ks.field(ks.f32))
    assert x.shape == y.shape == v.shape == (4,) and finer.shape == (8,)
    assert x.snode.parent() is v.parent() is node
    assert node.snode is node and str(node) == "ks.root => dense [4]"
    assert (
        repr(ks.root) == repr(node.parent()) == "ks.root"
        and repr(node) == "<ks.SNode of type dense>"
    )


def test_offset_of_a_place():
    x = ks.field(ks.f32)
    ks.root.dense(ks.ij, 4).place(x, offset=(-2, 1))
    x[-2, 1] = 3
    assert x.offset == (-2, 1) and x.to_numpy()[0, 0] == 3


def test_the_order_of_a_field_is_its_nodes():
    x = ks.field(ks.f32, shape=(4, 3), order="ji")
    assert x.shape == (4, 3) and x.parent(2).shape == (3,)
    assert ks.field(ks.f32, shape=(4, 3), order="ij").parent(2).shape == (4,)


def test_components_may_be_placed_one_by_one():
    v = ks.Vector.field(2, ks.f32)
    ks.root.dense(ks.i, 4).place(v.get_scalar_field(0))
    with pytest.raises(ks.LanguageError, match="has no place"):
        _ = v.shape
    ks.root.dense(ks.i, 4).place(v.get_scalar_field(1))
    v[3] = [1, 2]
    assert v.shape == (4,) and v.get_scalar_field(1)[3] == 2
    w = ks.Vector.field(2, ks.f32)
    ks.root.dense(ks.i, 4).place(w.get_scalar_field(0))
    with pytest.raises(ks.LanguageError, match="are placed in different shapes"):
        ks.root.dense(ks.i, 5).place(w.get_scalar_field(1))


def test_a_builder_gives_its_fields_when_it_is_finalized():
    builder = ks.FieldsBuilder()
    x = ks.field(ks.f32)
    builder.dense(ks.i, 5).place(x)
    assert x.shape == (5,) and not builder.finalized
    with pytest.raises(ks.LanguageError, match=r"the field x is placed .* call its finalize\(\)"):
        x[1] = 2
    tree = builder.finalize()
    x[1] = 2
    assert builder.finalized and x[1] == 2
    for use in (builder.finalize, lambda: builder.dense(ks.i, 3)):
        with pytest.raises(ks.LanguageError, match="is finalized"):
            use()
    tree.destroy()
    with pytest.raises(ks.LanguageError, match="the field x is gone: its tree was destroyed"):
        _ = x[1]


def test_an_unplaced_field_is_named():
    x = ks.field(ks.f32)
    for use in (lambda: x[0], lambda: x.fill(0), lambda: x.shape, lambda: x.parent()):
        with pytest.raises(ks.LanguageError, match="the field x has no place: give it a shape="):
            use()
    assert str(x) == "<the field x>"


@pytest.mark.parametrize(
    ("use", "sentence"),
    [
        (
            lambda: ks.root.bit_struct(num_bits=32),
            "place the fields in a ks.BitpackedFields",
        ),
        (lambda: ks.root.dense(ks.ij, (1, 2, 3)), "is given 2 axes and 3 dimensions"),
        (lambda: ks.root.dense(ks.i, 0), "not positive"),
        (lambda: ks.root.place(3), "place takes fields, not 3"),
        (lambda: ks.root.place(ks.field(ks.f32, 3)), "has been placed already"),
    ],
)
def test_what_is_not_there_is_one_sentence_with_its_line(use, sentence):
    with pytest.raises(ks.LanguageError, match=sentence) as caught:
        use()
    assert caught.value.where.file == __file__
    with pytest.raises(AttributeError):
        _ = ks.root.nonsense


@pytest.mark.parametrize(
    ("use", "sentence"),
    [
        (lambda: ks.root.pointer("ij", 2), r"pointer: the axes 'ij' are not ks.i, ks.ij"),
        (lambda: ks.root.dense(0, 2), "dense: the axes 0 are not ks.i"),
        (lambda: ks.root.dynamic(0, 2), "dynamic: the axes 0 are not ks.i"),
        (lambda: ks.root.dense((0.5,), 2), "are not ks.i"),
        (lambda: ks.root.hash(ks.axes(1, 1), 2), r"the axes \(1, 1\) are not different"),
        (lambda: ks.root.bitmasked(ks.axes(-1), 2), "are not different numbers from 0 on"),
        (lambda: ks.root.pointer((), ()), "pointer is given no axes"),
    ],
)
def test_wrong_axes_are_one_sentence(use, sentence):
    with pytest.raises(ks.LanguageError, match=sentence):
        use()


@pytest.mark.parametrize("is_used", [True, False])
def test_nodes_of_a_tree_that_is_gone_say_so(is_used):
    builder, y = ks.FieldsBuilder(), ks.field(ks.i32)
    node = builder.pointer(ks.i, 4)
    for use in (node.stats, node.deactivate_all):
        with pytest.raises(ks.LanguageError, match="not finalized"):
            use()
    node.place(y)
    tree = builder.finalize()
    if is_used:
        y[1] = 1
    tree.destroy()
    for use in (y.stats, node.stats, node.deactivate_all):
        with pytest.raises(ks.LanguageError, match="gone: its tree was destroyed"):
            use()
    x = ks.field(ks.i32)
    other = ks.root.pointer(ks.i, 4)
    other.place(x)
    ks.init()
    for use in (x.stats, other.deactivate_all):
        with pytest.raises(ks.LanguageError, match="gone: its program has ended"):
            use()


def test_cells_of_dense_nodes_below_others_stay_when_all_are_deactivated():
    x, y = ks.field(ks.i32), ks.field(ks.i32)
    dense = ks.root.pointer(ks.i, 2).dense(ks.i, 2)
    dense.place(x)
    dense.bitmasked(ks.i, 2).place(y)
    x[1], y[2] = 3, 4
    dense.deactivate_all()
    assert x[1] == 3 and y[2] == 0
    assert [n.active for n in x.stats().nodes] == [1, 2, 0]


def test_fields_of_a_tree_begin_at_different_places_of_a_page():
    """Small ones and large ones, of which leaves would else lie in the same cache sets; at whole lines."""
    for n in (4, 1 << 17):
        fields = [ks.field(ks.f32) for _ in range(3)]
        block = ks.root.pointer(ks.i, n)
        block.dense(ks.i, 16).place(*fields)
        fields[0][0] = 1
        assert block.structure is not None
        arrays = [block.structure.storage.arrays[f"field{k}"] for k in range(3)]
        places = {a.ctypes.data % 4096 for a in arrays}
        assert len(places) == 3 and not any(place % 64 for place in places)

"""Known values of memory: an element is loaded once in a scope, and again behind a store that may have changed it."""

from __future__ import annotations

from kernelscape.codegen.bodies.c_vectors import CHelpers
from kernelscape.codegen.bodies.emitter import Builder
from kernelscape.codegen.bodies.memory import CMemory, Value
from kernelscape.codegen.bodies.vectors import Prelude
from kernelscape.codegen.text import csyntax as c
from kernelscape.kernels.ir.kernel import DType


def writer():
    return Builder(Prelude(CHelpers()), {"x": "x", "y": "y"}, CMemory())


def load(w, array, lanes=0, index="i"):
    return w.load(array, c.Id(array), c.Id(index), DType.f32, lanes, 1)


def test_a_load_is_done_once_in_a_scope():
    w = writer()
    assert load(w, "x") == load(w, "x")
    assert load(w, "x", lanes=4) != load(w, "x")
    assert load(w, "x", index="j") != load(w, "x")
    with w.scope():
        assert load(w, "x") != load(w, "y")


def test_a_stored_value_is_not_loaded_again():
    w = writer()
    w.store("x", c.Id("x"), c.Id("i"), Value(c.Num("1.0f"), DType.f32), DType.f32, stream=False)
    before = len(w.block.statements)
    load(w, "x")
    assert len(w.block.statements) == before


def test_a_store_makes_all_other_loads_of_its_array_stale():
    w = writer()
    vector, neighbour, other = load(w, "x", lanes=4), load(w, "x", index="j"), load(w, "y")
    with w.scope():
        one = Value(c.Num("1.0f"), DType.f32)
        w.store("x", c.Id("x"), c.Id("i"), one, DType.f32, stream=False)
    assert load(w, "x", lanes=4) != vector
    assert load(w, "x", index="j") != neighbour
    assert load(w, "y") == other


def test_names_are_never_given_twice():
    w = writer()
    assert len({w.fresh("x"), w.fresh("x"), w.fresh("x1"), "x", "x1"}) >= 4
    family = w.fresh_family("acc")
    w.used.add(f"{family}_0")
    assert w.fresh_family(family) != family


def test_what_an_index_is_a_multiple_of():
    w = writer()
    tile, row = c.Id(w.fresh("tile")), c.Id(w.fresh("row"))
    w.multiples[tile.name] = 8
    cases = [
        (c.Num("0"), 16, True),
        (c.linear(((tile, 1),), 4), 4, True),
        (c.linear(((tile, 1),), 4), 8, False),
        (c.linear(((tile, -1),), 16), 8, True),
        (c.linear(((row, 64), (tile, 1)), 0), 8, True),
        (c.linear(((row, 33), (tile, 1)), 0), 2, False),
        (c.Bin("*", c.Bin("*", row, c.Id("n_threads")), c.Num("4")), 4, True),
        (c.Bin("/", tile, c.Num("2")), 2, False),
        (c.Bin("^", tile, c.Num("24")), 8, True),
        (row, 1, True),
    ]
    assert [w.is_multiple(x, n) for x, n, _ in cases] == [known for _, _, known in cases]
    w.used.discard(tile.name)
    assert not w.is_multiple(c.Id(w.fresh("tile")), 2), "another variable of that name"

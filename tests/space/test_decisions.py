"""Decisions by name: there and back, and one sentence for what a space does not have."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelscape.space.candidate import DeadEnd
from kernelscape.space.decisions import DecisionError, fix, restore, to_names
from kernelscape.space.engine.builder import ModelBuilder
from kernelscape.testing.bare import bare_space


@pytest.fixture(scope="module")
def space():
    builder = ModelBuilder()
    for i in range(4):
        builder.add_object(f"d{i}", leaf=i == 3)
    sizes = [builder.add("size", (f"d{i}",), ("1", "2", "4")) for i in range(3)]
    builder.table2("ordered", sizes[0], sizes[1], lambda a, b: a <= b)
    return bare_space(builder.freeze())


def test_names_of_a_partial_candidate(space):
    assert to_names(space.root()) == ()
    candidate = space.root().decide(space.model.positions["size(d0)"], 0b110)
    assert to_names(candidate) == (("size(d0)", "2|4"), ("size(d1)", "2|4"))


@settings(deadline=None)
@given(seed=st.integers(0, 2**31), share=st.floats(0, 1))
def test_restore_gives_back_the_candidate(space, seed, share):
    rng = np.random.default_rng(seed)
    candidate = space.root()
    for var in rng.permutation(space.searchable):
        if rng.random() < share and not isinstance(candidate, DeadEnd):
            values = candidate.values(var)
            candidate = candidate.decide(var, 1 << int(rng.choice(values)))
    if isinstance(candidate, DeadEnd):
        return
    names = to_names(candidate)
    assert restore(space, names).key == candidate.key
    assert restore(space, names[::-1]).key == candidate.key
    assert len(names) == len(space.searchable) or not candidate.is_complete


def test_order_may_be_named_from_either_side(space):
    assert (
        restore(space, [("order(d1,d0)", "INNER")]).key
        == restore(space, [("order(d0,d1)", "OUTER")]).key
    )


def test_impossible_decisions_are_a_dead_end(space):
    dead = restore(space, [("size(d0)", "4"), ("size(d1)", "1")])
    assert isinstance(dead, DeadEnd)
    dead = restore(space, [("size(d0)", "4"), ("size(d0)", "1")])
    assert dead == DeadEnd("size(d0)", "1 is not possible here")


@pytest.mark.parametrize(
    ("decision", "sentence"),
    [
        (("sise(d0)", "1"), "this space has no choice sise(d0); the nearest is size(d0)"),
        (("size(d0)", "3"), "size(d0) has no value 3; the nearest is "),
        (("order(d0,d1)", "BEFOR"), "order(d0,d1) has no value BEFOR; the nearest is BEFORE"),
        (("qqqq", "1"), "this space has no choice qqqq"),
    ],
)
def test_unknown_names(space, decision, sentence):
    with pytest.raises(DecisionError) as caught:
        restore(space, [decision])
    assert str(caught.value).startswith(sentence)


def test_what_is_fixed_is_the_root_of_the_part(space):
    part = fix(space, [("size(d0)", "2|4"), ("order(d1,d0)", "INNER")])
    assert part.root().values(part.model.positions["size(d0)"]) == (1, 2)
    assert part.root().values(part.model.positions["size(d1)"]) == (1, 2)  # what follows from it
    assert part.fixed == (("size(d0)", "2|4"), ("order(d1,d0)", "INNER"))
    assert part.key == space.key
    assert restore(space, to_names(part.root())).key == part.root().key  # nothing is lost
    again = fix(part, [("size(d1)", "4")])
    assert again.fixed == (*part.fixed, ("size(d1)", "4"))
    assert again.whole is space


@pytest.mark.parametrize("name", ["size", "size(*)", "size(d?)", "s*"])
def test_kinds_and_patterns_fix_all_that_can_have_the_value(space, name):
    part = fix(space, [("size(d1)", "4"), ("size(d2)", "1|2"), (name, "4")])
    assert dict(part.fixed) == {"size(d1)": "4", "size(d2)": "1|2", "size(d0)": "4"}


def test_values_may_be_written_small(space):
    assert fix(space, [("order(d0,d1)", "before")]).fixed == (("order(d0,d1)", "BEFORE"),)


@pytest.mark.parametrize(
    ("decisions", "sentence"),
    [
        ([("sise(d0)", "1")], "there is no choice 'sise(d0)'; near it are size(d0), size("),
        ([("siz", "1")], "there is no choice 'siz'; near it are size"),
        ([("q*", "1")], "there is no choice 'q*'; there are order, size"),
        ([("size(d0)", "3")], "size(d0) has no value 3; the nearest is "),
        ([("size", "3")], "no choice size can be 3 here: there is 1|2|4"),
        ([("order(d3,d0)", "MERGED")], "order(d3,d0) cannot be MERGED here: it is "),
        (
            [("size(d0)", "4"), ("size(d1)", "1")],
            "size(d1) cannot be 1 here: it is 4 with size(d0) = 4",
        ),
        (
            [("order(d0,d1)", "OUTER"), ("order(d1,d2)", "OUTER"), ("order(d2,d0)", "OUTER")],
            "order(d2,d0) cannot be OUTER here: it is INNER with order(d0,d1) = OUTER, order(d1,d2) = OUTER",
        ),
    ],
)
def test_what_cannot_be_fixed_is_a_sentence(space, decisions, sentence):
    with pytest.raises(DecisionError) as caught:
        fix(space, decisions)
    assert str(caught.value).startswith(sentence)


def test_decisions_that_end_dead_say_why():
    builder = ModelBuilder()
    colours = [builder.add("colour", (name,), ("0", "1", "2")) for name in "abcd"]
    for k, x in enumerate(colours):
        for y in colours[:k]:
            builder.table2("unlike", x, y, lambda m, n: m != n)
    space = bare_space(builder.freeze())
    with pytest.raises(DecisionError) as caught:
        fix(space, [("colour(a)", "0"), ("colour(b)", "1")])
    assert str(caught.value).startswith("colour(b) cannot be 1 with colour(a) = 0: colour(")

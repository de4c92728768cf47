"""Candidates: immutable to callers, keyed by domains, dead ends as values."""

import numpy as np
import pytest
from kernelscape.space.candidate import Candidate, Choice, DeadEnd
from kernelscape.space.decisions import to_names
from kernelscape.space.engine.builder import ModelBuilder
from kernelscape.space.engine.declarations import Term
from kernelscape.space.engine.order import MERGED, OUTER, forest
from kernelscape.testing.bare import bare_space


def build(limit=16):
    builder = ModelBuilder()
    dims = [builder.add_object(f"d{i}") for i in range(3)]
    body = builder.add_object("s", leaf=True)
    sizes = [builder.add("size", (f"d{i}",), ("1", "2", "4", "8")) for i in dims]
    for i in dims:
        builder.restrict(builder.order(body, i), 0b00100)
        for j in dims[:i]:
            builder.table3(
                f"merged d{i} d{j} have one size",
                builder.order(i, j),
                sizes[i],
                sizes[j],
                lambda order, a, b: order != MERGED or a == b,
                share="merged size",
            )
    builder.product_at_most("size", [Term(None, s, (1, 2, 4, 8)) for s in sizes], limit)
    return bare_space(builder.freeze())


def test_names_and_positions():
    space = build()
    assert space.choices[1] == Choice("order", ("d0", "d1"), space.choices[1].values)
    assert space.choices[1].name == "order(d0,d1)"
    assert space.n_choices == 16 + 3
    assert list(space.searchable) == [1, 2, 3, 6, 7, 11, 16, 17, 18]
    assert space.choices[16].mask("2", "8") == 0b1010


def test_decide_leaves_its_candidate_alone():
    root = build().root()
    before = root.domains.copy()
    child = root.decide(16, 0b1000)
    assert (root.domains == before).all()
    assert child.values(16) == (3,)
    assert child.value(16) == 3
    assert child.values(17) == (0, 1)
    assert not child.is_open(16)
    assert child.is_open(17)
    with pytest.raises(AssertionError, match=r"size\(d1\) is open"):
        child.value(17)


def test_key_is_equal_for_equal_domains():
    root = build().root()
    one = root.decide(16, 0b0010).decide(17, 0b0010)
    other = root.decide(17, 0b0010).decide(16, 0b0010)
    assert one.key == other.key != root.key
    assert isinstance(one.key, bytes)


def test_dead_end_says_what_and_why():
    root = build().root().decide(1, 1 << MERGED).decide(16, 0b0100)
    dead = root.decide(17, 0b1000)
    assert dead == DeadEnd("size(d1)", "the decision leaves no value")
    dead = build(limit=1).root().decide(1, 1 << MERGED).decide(17, 0b1000)
    assert isinstance(dead, DeadEnd)


def test_a_root_without_implementation_is_a_dead_end():
    builder = ModelBuilder()
    a = builder.add("x", ("a",), ("0", "1"))
    builder.restrict(a, 0)
    assert bare_space(builder.freeze()).root() == DeadEnd("x(a)", "the decision leaves no value")


def test_complete_candidates_have_a_forest():
    space = build()
    completed = space.root().decide(1, 1 << OUTER).decide(6, 1 << OUTER).complete()
    assert completed.is_complete
    assert len(completed.open_choices()) == 0
    (tree,) = forest(space.model.relation_matrix(completed.assignment()))
    assert tree.objects[0] == 0
    assert len(to_names(completed)) == len(space.searchable)


def test_random_completions_differ_and_repeat():
    root = build().root()
    keys = [
        [root.random_completion(rng).key for _ in range(10)]
        for rng in (np.random.default_rng(7), np.random.default_rng(7))
    ]
    assert keys[0] == keys[1]
    assert len(set(keys[0])) > 5


def test_key_of_a_space_reads_names_constraints_and_domains():
    assert build().key == build().key
    assert build().key != build(limit=15).key


def test_rows_of_expand_may_be_kept_and_expanded():
    root = build().root()
    for _, child in root.expand(1):
        assert isinstance(child, Candidate)
        for _, grandchild in child.expand(16):
            if isinstance(grandchild, Candidate):  # merged dims of size 8 do not fit
                assert grandchild.key == child.decide(16, int(grandchild.domains[16])).key


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda b: b.add("x", ("a",), ()), "has 0 values"),
        (lambda b: b.add_object("late"), "before the first variable"),
        (lambda b: b.clause("nothing", []), "no literal"),
        (lambda b: b.product_at_most("zero", [Term(None, 0, (0, 1))], 5), "zero"),
        (lambda b: b.sum_at_most("short", [Term(None, 0, (1,))], 5), "short"),
        (lambda b: (b.add("x", ("y",), ("0",)), b.freeze()), "declared twice"),
    ],
)
def test_wrong_declarations_stop(declare, message):
    builder = ModelBuilder()
    builder.add("x", ("y",), ("0", "1"))
    with pytest.raises(AssertionError, match=message):
        declare(builder)

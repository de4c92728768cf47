"""Random programs on random trees against sets and dictionaries of Python."""

from __future__ import annotations

from collections.abc import Sequence

import kernelscape as ks
import pytest
from kernelscape.testing.sparse_drawn import Call, Tree
from kernelscape.testing.sparse_model import HOST, WORDS, at_once, check, drawn, plainly

LOWERED, INTERPRETED = drawn(14, 3, seed=1), drawn(20, 3, seed=2)
BESIDE = (("pointer", (7, 1)), ("bitmasked", (1, 5)))


@pytest.mark.parametrize(("tree", "programs"), LOWERED)
def test_lowered_kernels_leave_what_the_model_has(
    tree: Tree, programs: Sequence[Sequence[Call]]
) -> None:
    check(tree, programs, plainly)


@pytest.mark.parametrize(("tree", "programs"), INTERPRETED)
def test_interpreted_kernels_leave_what_the_model_has(
    tree: Tree, programs: Sequence[Sequence[Call]]
) -> None:
    with ks.interpret():
        check(tree, programs, at_once)


@pytest.mark.parametrize(
    "tree",
    [
        Tree(
            (("pointer", (2, 3)), ("bitmasked", (3, 2)), ("pointer", (2, 2)), ("dense", (2, 2))),
            BESIDE, 1, 2, "i32", 1,
        ),
        Tree((("bitmasked", (2, 2)), ("hash", (3, 1)), ("bitmasked", (2, 3))), BESIDE, 1, 3, "f32", 2),
    ],
)  # fmt: skip
def test_compiled_kernels_leave_what_the_model_has(tree: Tree) -> None:
    ((_, programs),) = drawn(1, 3, seed=3)
    check(tree, programs, at_once)


def test_programs_say_every_word() -> None:
    said = {what for _, some in (*LOWERED, *INTERPRETED) for calls in some for what, _ in calls}
    assert said == {*WORDS, *HOST}

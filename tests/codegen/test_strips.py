"""Element-wise loops in vectors: together they run through every element once, and the text computes what it did one by one."""

from __future__ import annotations

import pytest
from kernelscape.codegen.text import csyntax as c
from kernelscape.codegen.text.cprint import expression
from kernelscape.codegen.write.strips import length_of, strips


def seen(loops, lanes_of, **names):
    """The elements that the loops reach, in order; a `/` of C rounds down here, where nothing is negative."""

    def value(x):
        return eval(expression(x).replace("/", "//"), dict(names))

    found = []
    for loop in loops:
        width = lanes_of[loop.body]
        for at in range(value(loop.lo), value(loop.hi), loop.step):
            found += range(at, at + max(1, width))
    return found


def made(lo, hi, lanes, **more):
    widths = {}

    def body(n):
        statements = (c.Comment(str(n)),)
        widths[statements] = n
        return statements

    return strips("k", lo, hi, lanes, body, **more), widths


@pytest.mark.parametrize("lanes", [1, 2, 8, 16])
@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 9, 16, 31, 48, 67])
@pytest.mark.parametrize("start", [0, 5])
def test_every_element_is_reached_once(start, length, lanes):
    loops, widths = made(c.number(start), c.number(start + length), lanes)
    assert seen(loops, widths) == list(range(start, start + length))
    # Of a known length nothing is left over that whole strips divide.
    assert len(loops) == (
        2 if lanes > 1 and length > 1 and length % min(lanes, 1 << (length.bit_length() - 1)) else 1
    )


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 40])
def test_every_element_of_an_unknown_length_is_reached_once(length):
    loops, widths = made(c.Id("begin"), c.Id("end"), 16)
    assert seen(loops, widths, begin=3, end=3 + length) == list(range(3, 3 + length))
    whole, widths = made(c.Id("begin"), c.Id("end"), 16, is_whole=True)
    assert len(whole) == 1
    assert seen(whole, widths, begin=32, end=64) == list(range(32, 64))


def test_a_length_is_known_where_the_same_terms_are_at_both_ends():
    start = c.Id("i0")
    assert length_of(start, c.linear(((start, 1),), 24)) == 24
    assert length_of(c.number(3), c.number(10)) == 7
    assert length_of(start, c.number(10)) is None
    assert length_of(start, c.minimum(c.linear(((start, 1),), 24), c.number(50))) is None

"""Calls that are guessed from the source of the functions that are running; no code of the program runs for that."""

import ast
import sys
import weakref
from collections.abc import Iterator
from typing import NoReturn

import kernelscape as ks
import pytest
from kernelscape.kernels.frontend.coming_calls import UNKNOWN, coming_calls, value_of

fields = ["x", "y", "z"]  # of which kernels are not asked here
many = list(range(100))
noted = list[str]()


@ks.kernel
def one(a: ks.template(), b: ks.i32):
    pass


@ks.kernel
def two(a: ks.template()):
    pass


class Odd:
    """Object whose attributes and operations run code of the program."""

    @property
    def value(self) -> int:
        noted.append("property")
        return 1

    def __getattr__(self, name: str) -> int:
        noted.append(name)
        return 2

    def __add__(self, other: object) -> int:
        noted.append("add")
        return 3

    def __bool__(self) -> bool:
        noted.append("bool")
        return True

    def __iter__(self) -> Iterator[int]:
        noted.append("iter")
        return iter((1, 2))

    def __getitem__(self, k: int) -> int:
        noted.append("item")
        return k

    def __len__(self) -> int:
        noted.append("len")
        return 1


class Held:
    number = 7


@ks.data_oriented
class Solver:
    def __init__(self) -> None:
        self.level = 3

    @ks.kernel
    def smooth(self, a: ks.template()):
        pass

    def run(self, n: int) -> None:
        for k in range(n):
            self.smooth(k + self.level)


odd, solver, held = Odd(), Solver(), Held()


class SeenError(Exception):
    """Ends a function at the place where its coming calls are asked for."""


def now() -> NoReturn:
    """Raises SeenError with the calls to come, as name and values; those that are not known are "?"."""
    calls = []
    for call in coming_calls(sys._getframe(1)):
        values = (*call.args, *call.kwargs.values())
        calls.append((call.kernel.name, *("?" if v is UNKNOWN else v for v in values)))
    raise SeenError(calls[: calls.index(("end",))])


@ks.kernel
def end():
    pass


def loops():
    def inner(k, by=2):
        two(fields[k])
        if by > 3:
            one(k, by)

    now()
    for k in reversed(range(2)):
        one(fields[k], 1 << k)
    for k, name in enumerate(fields[:1] if noted else ["w"]):
        one(name, k)
    inner(2)
    inner(0, by=4)
    end()


def conditions():
    k = 1
    now()
    if k == 2 or many[0] == 3:
        two("never")
    else:
        two("sure")
    if odd:
        two("perhaps")
    else:
        two("or this")
    a, b = "a", "b"
    a, b = b, a
    two(a if k else b)
    k += 4
    one(held.number, k)
    one(a, b=unknown)  # noqa: F821
    end()


def methods():
    now()
    solver.run(2)
    end()


def odd_objects():
    now()
    one(odd.value, odd.other)
    one(odd + 1, odd[0])
    two(len(odd))
    for k in odd:
        two(k)
    two([x + 1 for x in odd])
    end()


def afterwards():
    for k in range(2):
        if k == 0:
            continue
        two(k)
        if k == 1:
            now()
            one("this", 1)
        two("behind")
    while len(many) < 0:
        two("never")
    end()


def recursive():
    now()
    deeper(0)
    end()


def deeper(k):
    two(k)
    deeper(k + 1)


def long():
    now()
    for j in many:
        for k in many:
            for m in many:
                if j == k == m:
                    continue
                noted.clear()
    end()


LOOPS = [
    ("one", "y", 2),
    ("one", "x", 1),
    ("one", "w", 0),
    ("two", "z"),
    ("two", "x"),
    ("one", 0, 4),
]
CONDITIONS = [
    ("two", "sure"),
    ("two", "perhaps"),
    ("two", "or this"),
    ("two", "b"),
    ("one", 7, 5),
    ("one", "b", "?"),
]


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (loops, LOOPS),
        (conditions, CONDITIONS),
        (methods, [("smooth", solver, 3), ("smooth", solver, 4)]),
        (odd_objects, [("one", "?", "?"), ("two", "?")]),
        (afterwards, [("one", "this", 1), ("two", "behind"), ("two", 1)]),
        (recursive, [("two", k) for k in range(6)]),
        (long, []),
    ],
)
def test_coming_calls_are_read_from_the_source(function, calls):
    noted.clear()
    with pytest.raises(SeenError) as seen:
        function()
    assert seen.value.args[0] == calls
    assert noted == []


class Large:
    """Object whose end can be seen."""


def test_objects_of_a_function_end_with_their_last_name():
    """Kind: locals of frames that are kept by whoever read them."""

    def function():
        large = Large()
        seen = weakref.ref(large)
        assert list(coming_calls(sys._getframe())) == []
        del large
        return seen()

    assert function() is None


def test_what_a_program_got_from_locals_stays():
    def function():
        mine = 1
        given = locals()
        assert list(coming_calls(sys._getframe())) == []
        return mine, given["mine"]

    assert function() == (1, 1)


def test_lengths_of_long_ranges_are_no_error():
    text = "reversed(range(100000000000000000000))"
    names = {"reversed": reversed, "range": range}
    assert value_of(ast.parse(text, mode="eval").body, names) is UNKNOWN


def ended(calls):
    raise SeenError(calls)


@pytest.mark.parametrize(("n_steps", "found"), [(9, ["two", "two"]), (3, ["two"]), (1, [])])
def test_nothing_is_read_once_there_is_no_time(n_steps, found):
    """Kind: a guess that goes on after what it fills the time of."""
    steps = iter([True] * n_steps)

    def function():
        ended([c.kernel.name for c in coming_calls(sys._getframe(), lambda: next(steps, False))])
        two("first")
        two("second")

    with pytest.raises(SeenError) as seen:
        function()
    assert seen.value.args[0] == found

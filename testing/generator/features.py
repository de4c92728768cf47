"""Weights of what random programs are made of: each corpus is a setting of them.

A kind that a table of weights does not name is never drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache

Weights = Mapping[str, float]

SMALL_EXTENTS = (1, 2, 3, 5, 7, 9, 13, 17)


@dataclass(frozen=True, kw_only=True, eq=False)
class Features:
    """A corpus: sizes and types of its arrays, and weights of the forms of everything that stands in its programs.

    A *simple* nest is what loops of the space are made of: affine ranges and indices, one statement or one sum and a store.
    """

    name: str
    extents: tuple[int, ...]  # of vectors
    sides: tuple[int, ...]  # of matrices
    square: float = 0.0  # share of programs whose extents are all alike
    numbers: tuple[str, ...]  # types of most arrays of a program
    wholes: tuple[str, ...] = ("int32",)  # of arrays of integers beside these
    are_integers: bool = True  # the values of arrays, so that sums are exact in any order
    by_python: bool = False  # Python itself runs these texts: no atomic functions
    kernels: tuple[int, ...] = (1,)
    nests: tuple[int, ...] = (1,)  # loops of the top level of a kernel
    depths: tuple[int, ...] = (1, 1, 2, 2, 3)
    main_extent: float = 0.6  # share of vectors among nests of one loop, beside rows of matrices
    steps: tuple[int, ...] = (0,)  # of a loop of time around the kernels; 0: none
    sequences: Weights = field(default_factory=lambda: {"plain": 1})
    uses_steps: bool = False  # kernels are given the number of the step
    temporaries: float = 0.0  # share of programs with arrays that the sequence makes
    scalar: float = 0.0  # share of values that are the number given to the sequence
    in_order: float = 0.0  # share of kernels without fast arithmetic
    simple: float = 0.0  # share of nests
    plain: float = 0.4  # share of programs without functions that mean nothing of NaN
    nest_kinds: Weights = field(default_factory=lambda: {"loops": 1})
    ways: Weights = field(default_factory=lambda: {"own": 1})
    bounds: Weights = field(default_factory=lambda: {"whole": 1})
    guarded: float = 0.0  # share of stores
    guards: Weights = field(default_factory=lambda: {"index": 1})
    simple_guards: Weights = field(default_factory=lambda: {"index": 1})
    block: float = 0.5  # share of nests with statements before the last store
    statements: Weights = field(default_factory=dict)
    simple_statements: Weights = field(default_factory=lambda: {"store": 1})
    stores: Weights = field(default_factory=lambda: {"=": 2, "+=": 1})
    shared: tuple[str, ...] = ("add",)  # operators of updates that iterations share
    atomics: float = 0.5  # share of these, but sums, that are said as functions
    depth: int = 3  # of expressions
    deeper: float = 0.55  # share of values that have parts
    reals: Weights
    whole_numbers: Weights
    index_values: float = 0.1  # share of values that are of loop indices
    indices: Weights
    computed: float = 0.0  # share of indices that are computed from values
    gathered: float = 0.0  # share of loads from vectors whose index is data


_INDICES = {"loop": 8, "shift": 3, "reverse": 1, "twice": 1, "sum": 1, "difference": 1}

# Kernels on dense arrays whose tasks are open: maps, stencils, sums, products, reductions of rows and columns.
OPEN = Features(
    name="open",
    extents=(1, 2, 3, 5, 7, 13, 16, 33, 64),
    sides=(1, 2, 3, 5, 7, 13, 16, 33, 64),
    numbers=("float32", "float64"),
    are_integers=False,
    kernels=(1, 2, 3, 4),
    nests=(1, 1, 1, 2),
    depths=(1, 1, 2),
    temporaries=0.5,
    scalar=0.1,
    simple=1.0,
    plain=0.0,
    nest_kinds={"loops": 5, "total": 1},
    bounds={"whole": 5, "margin": 1},
    guarded=0.1,
    simple_guards={"data": 1},
    simple_statements={"store": 4, "sum": 3, "updates": 1, "sum and loop": 1, "two stores": 1},
    stores={"=": 6, "+=": 2, "*=": 1},
    depth=2,
    reals={
        "+": 3,
        "-": 2,
        "times": 2,
        "product": 2,
        "quotient": 1,
        "abs": 1,
        "max": 1,
        "min": 1,
        "if": 1,
    },
    whole_numbers={"+": 1},
    index_values=0.0,
    indices={"loop": 8, "shift": 2},
)
_SHORT = (1, 2, 3, 4)
TINY = replace(  # their accesses can be enumerated: rectangles, each iteration of which assigns
    OPEN, name="tiny", extents=_SHORT, sides=_SHORT, bounds={"whole": 1}, guarded=0.0
)
SMALL = replace(OPEN, name="small", extents=(1, 2, 5, 8), sides=(1, 2, 5, 8), kernels=(1, 2, 3))
LONG = replace(OPEN, name="long", kernels=(3, 4, 5, 6))
CHAINS = replace(
    OPEN, name="chains", extents=(16, 33, 64), numbers=("float32",), kernels=(3, 4, 5, 6), depths=(1,),
    nest_kinds={"loops": 1}, bounds={"whole": 1}, simple_statements={"store": 1}, indices={"loop": 1}, temporaries=0.3,
)  # fmt: skip
PRODUCTS = replace(
    OPEN, name="products", sides=(3, 16, 33), square=0.7, kernels=(1, 2, 3), depths=(2, 2, 3), nest_kinds={"loops": 1},
    bounds={"whole": 1}, simple_statements={"store": 1, "sum": 3}, indices={"loop": 1},
    reals={"product": 4, "times": 1, "+": 1},
)  # fmt: skip
INTEGERS = replace(
    OPEN, name="integers", numbers=("int32", "int64"), are_integers=True, scalar=0.0, guarded=0.1,
    whole_numbers={"+": 3, "-": 2, "product": 2, "abs": 1, "max": 1, "min": 1, "if": 1, "//": 1, "%": 1}, index_values=0.1,
    stores={"=": 3, "+=": 1},
)  # fmt: skip
# More than is open: functions, indices as values, recurrences, indices backwards and in strides, ranges of indices, fixed order.
MIXED = replace(
    OPEN, name="mixed", simple=0.8, nest_kinds={"loops": 8, "total": 2, "recurrence": 1}, in_order=0.15,
    bounds={"whole": 6, "margin": 1, "any": 1}, block=0.3, statements={"local": 1, "if": 1, "for": 1},
    reals={**OPEN.reals, "sqrt": 1, "sin": 1, "exp": 1, "floor": 1}, index_values=0.05, indices=_INDICES,
)  # fmt: skip

# Bodies of all statements: branches, data as indices, windows, scatters of every operator and type, while loops, rows of data.
BODIES = Features(
    name="bodies",
    extents=(0, 1, 3, 7, 64, 1009),
    sides=(1, 2, 3, 7, 16, 37),
    numbers=("float32", "float64"),
    wholes=("int32", "int64"),
    kernels=(1, 1, 2, 3),
    nests=(1, 1, 2),
    depths=(1, 1, 2),
    steps=(0, 0, 0, 0, 0, 3, 20),
    block=0.8,
    nest_kinds={"loops": 8, "total": 1, "recurrence": 1},
    bounds={"whole": 4, "margin": 1, "any": 1},
    guarded=0.1,
    guards={"data": 1},
    statements={
        "local": 2, "update": 1, "store": 1, "scatter": 5, "window": 4, "if": 4, "for": 3, "while": 3, "rows": 2, "sum": 1,
    },
    shared=("add", "add", "min", "max"),
    reals={"+": 2, "-": 1, "times": 1, "abs": 1, "if": 2, "max": 1, "min": 1, "floor": 1},
    whole_numbers={
        "+": 1, "-": 1, "&": 1, "|": 1, "^": 1, "max": 1, "min": 1, "//": 1, "%": 1, "<<": 1, ">>": 1, "if": 1,
    },
    indices={"loop": 8, "shift": 3, "reverse": 1, "twice": 1, "half": 1},
    computed=0.3,
    gathered=0.1,
)  # fmt: skip
SMALL_BODIES = replace(
    BODIES, name="small bodies", extents=(0, 1, 3, 7, 64), kernels=(1,), nests=(1,)
)

# Loops of time: steps in ranges, indices, guards; triangles of every bound, empty ranges, sweeps in order, exchanged arrays.
STEPS = Features(
    name="steps",
    extents=SMALL_EXTENTS,
    sides=SMALL_EXTENTS,
    square=0.4,
    numbers=("float32", "float64", "float64", "int32", "int64"),
    by_python=True,
    kernels=(1, 2, 2, 3),
    nests=(1, 1, 2),
    steps=(1, 2, 3, 7, 17, 18, 21),
    sequences={"plain": 2, "swapped": 1, "nested": 1, "sometimes": 1, "apart": 1},
    uses_steps=True,
    simple=0.65,
    plain=0.2,
    nest_kinds={"loops": 75, "total": 10, "time": 15},
    ways={"own": 3, "affine": 1, "serial": 1},
    bounds={"whole": 3, "any": 7},
    guarded=0.25,
    guards={"index": 6, "data": 4},
    block=0.6,
    statements={"local": 1, "sum": 2, "rows": 2, "while": 2, "if": 1, "for": 1},
    simple_statements={"store": 2, "sum": 1},
    stores={"=": 2, "+=": 1, "max": 1, "bounded": 1},
    depth=2,
    deeper=0.5,
    reals={"+": 2, "-": 1, "max": 1, "if": 1},
    whole_numbers={"+": 2, "-": 1, "max": 1, "if": 1},
    index_values=0.15,
    indices={**_INDICES, "half": 1, "rest": 2},
    computed=0.1,
    gathered=0.1,
)
SMALL_STEPS = replace(STEPS, name="small steps", kernels=(1,), nests=(1,))

# Kernels of one nest whose order only the meaning of their IR gives, with old values of updates and arrays of iterations.
STATEMENTS = replace(
    SMALL_BODIES, name="statements", extents=(3, 5, 9), sides=(2, 3, 4), numbers=("float64",), wholes=("int64",), steps=(0,),
    nest_kinds={"loops": 1}, ways={"any": 1}, bounds={"whole": 2, "any": 1}, block=1.0, stores={"=": 2, "+=": 1, "max": 2},
    shared=("add",),
    statements={
        "local": 2, "update": 2, "store": 3, "if": 2, "for": 2, "while": 2, "rows": 1, "sum": 1, "old": 4, "local array": 4,
    },
    reals={"+": 2, "-": 1, "abs": 1, "if": 1, "max": 1}, computed=0.15,
)  # fmt: skip

# Kernels that have derivatives: smooth functions, gathers and scatters, locals that loops carry, branches, data as indices.
DERIVATIVES = replace(
    STATEMENTS, name="derivatives", are_integers=False, stores={"=": 4, "+=": 2, "max": 0.3}, deeper=0.7, index_values=0.05,
    statements={
        "local": 4, "update": 2, "store": 2, "if": 2, "for": 2, "while": 1, "rows": 1, "sum": 2, "scatter": 2, "local array": 2,
        "old": 0.3,
    },
    reals={"+": 2, "-": 1, "product": 3, "times": 1, "sin": 2, "exp": 0.5, "if": 1, "max": 1, "min": 0.5, "abs": 0.5},
    computed=0.1, gathered=0.3,
)  # fmt: skip


@cache
def order_free(extent: int, number: str) -> Features:
    """Kernels of one loop of so many iterations, whose order nobody sees."""
    return replace(
        SMALL_BODIES, name=f"order free {extent} {number}", extents=(extent,), sides=(5,), numbers=(number,), steps=(0,),
        nest_kinds={"loops": 1}, depths=(1,), bounds={"whole": 1}, main_extent=1.0, atomics=1.0,
        statements={**SMALL_BODIES.statements, "local array": 1}, block=0.9,
    )  # fmt: skip

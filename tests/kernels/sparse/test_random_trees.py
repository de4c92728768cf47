"""Random trees and programs against sets and dictionaries of Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernelscape.kernels.interpret.kernel import run_kernel

Cell = tuple[int, int]
Run = Callable[..., None]


class Model:
    """What a chain of nodes and a field of whole numbers in the last of them are, said once more: sets of active cells."""

    def __init__(self, chain: list[tuple[str, Cell]]) -> None:
        self.chain = chain
        self.active: list[set[Cell]] = [set() for _ in chain]
        self.values: dict[Cell, int] = {}

    def shape(self, level: int) -> Cell:
        n = m = 1
        for _, (a, b) in self.chain[: level + 1]:
            n, m = n * a, m * b
        return n, m

    def above(self, cell: Cell, level: int, upper: int) -> Cell:
        (n, m), (a, b) = self.shape(level), self.shape(upper)
        return cell[0] // (n // a), cell[1] // (m // b)

    def activate(self, cell: Cell, level: int) -> None:
        for upper in range(level + 1):
            self.active[upper].add(self.above(cell, level, upper))

    def is_active(self, cell: Cell, level: int) -> bool:
        return all(
            kind == "dense" or self.above(cell, level, upper) in self.active[upper]
            for upper, (kind, _) in enumerate(self.chain[: level + 1])
        )

    def deactivate(self, cell: Cell, level: int) -> None:
        for lower in range(level, len(self.chain)):
            gone = {c for c in self.active[lower] if self.above(c, lower, level) == cell}
            self.active[lower] -= gone
        last = len(self.chain) - 1
        self.values = {c: v for c, v in self.values.items() if self.above(c, last, level) != cell}

    def cells(self, level: int) -> set[Cell]:
        n, m = self.shape(level)
        return {(i, j) for i in range(n) for j in range(m) if self.is_active((i, j), level)}


kinds = st.sampled_from(["dense", "bitmasked", "pointer", "hash"])
chains = st.lists(
    st.tuples(kinds, st.tuples(st.integers(1, 3), st.integers(1, 3))), min_size=1, max_size=4
).filter(lambda chain: any(kind != "dense" for kind, _ in chain))
steps = st.lists(
    st.tuples(
        st.sampled_from(["store", "add", "activate", "deactivate", "bump", "spread", "clear"]),
        st.integers(0, 3),
        st.lists(st.tuples(st.integers(0, 80), st.integers(0, 80)), min_size=1, max_size=4),
    ),
    max_size=10,
)


def plainly(kernel: Any, *args: Any) -> None:
    """Runs what a kernel is lowered to, in the interpreter of kernels on plain arrays."""
    values = dict(zip((name for name, _ in kernel.parameters), args, strict=True))
    _, instance = kernel._instance(values, kernel.where)
    arrays = {name: source.storage for name, source in instance.fields}
    run_kernel(instance.ir, arrays, {p.name: values[p.name] for p in instance.ir.scalars})


def compiled(kernel: Any, *args: Any) -> None:
    kernel(*args)


def check(chain: list[tuple[str, Cell]], program: list[Any], run: Run) -> None:
    """A program on a chain of nodes leaves the values and the active cells that the model has, at each level and step."""
    ks.init(arch=ks.cpu)
    x = ks.field(ks.i32)
    nodes, node = [], ks.root
    for kind, extents in chain:
        node = getattr(node, kind)(ks.ij, extents)
        nodes.append(node)
    node.place(x)
    model = Model(chain)
    last = len(chain) - 1
    seen = [ks.field(ks.i32, n.shape) for n in nodes]
    at = ks.field(ks.i32, (4, 2))

    @ks.kernel
    def store(n: ks.i32, value: ks.i32):
        for k in range(n):
            x[at[k, 0], at[k, 1]] = value

    @ks.kernel
    def add(n: ks.i32):
        for k in range(n):
            x[at[k, 0], at[k, 1]] += 3

    @ks.kernel
    def change(level: ks.template(), n: ks.i32, is_on: ks.template()):
        for k in range(n):
            if ks.static(is_on):
                ks.activate(nodes[level], [at[k, 0], at[k, 1]])
            else:
                ks.deactivate(nodes[level], [at[k, 0], at[k, 1]])

    @ks.kernel
    def bump():
        for i, j in x:
            x[i, j] += i + 2 * j + 1

    @ks.kernel
    def spread():
        for i, j in x:
            if x[i, j] > 0 and i + 1 < x.shape[0]:
                ks.atomic_max(x[i + 1, j], 1)

    @ks.kernel
    def look(level: ks.template()):
        for i, j in nodes[level]:
            seen[level][i, j] += 1

    for number, (what, level, given_cells) in enumerate(program):
        level %= len(chain)
        is_change = what in ("activate", "deactivate")
        level = level if is_change or what == "clear" else last
        if what == "deactivate" and chain[level][0] == "dense":
            continue
        n, m = model.shape(level)
        cells = list(dict.fromkeys((i % n, j % m) for i, j in given_cells))
        at.from_numpy(np.array([*cells, *[(0, 0)] * (4 - len(cells))], np.int32))
        match what:
            case "store":
                run(store, len(cells), number + 1)
                for c in cells:
                    model.activate(c, last)
                    model.values[c] = number + 1
            case "add":
                run(add, len(cells))
                for c in cells:
                    model.activate(c, last)
                    model.values[c] = model.values.get(c, 0) + 3
            case "activate" | "deactivate":
                run(change, level, len(cells), what == "activate")
                for c in cells:
                    getattr(model, what)(c, level)
            case "bump":
                run(bump)
                for c in model.cells(last):
                    model.values[c] = model.values.get(c, 0) + c[0] + 2 * c[1] + 1
            case "spread":
                before = dict(model.values)
                grown = {c for c in model.cells(last) if before.get(c, 0) > 0 and c[0] + 1 < n}
                if any((i + 1, j) in model.cells(last) for i, j in grown):
                    continue  # whether that one is seen before or behind is open
                run(spread)
                for i, j in grown:
                    model.activate((i + 1, j), last)
                    model.values[i + 1, j] = max(1, model.values.get((i + 1, j), 0))
            case "clear":
                nodes[level].deactivate_all()
                # Cells of a dense node stay: those of the first other one from there on go.
                sparse = [k for k in range(level, len(chain)) if chain[k][0] != "dense"]
                for lower in range(sparse[0], len(chain)) if sparse else ():
                    model.active[lower].clear()
                if sparse:
                    model.values.clear()
        expected = np.zeros(x.shape, np.int32)
        for c, v in model.values.items():
            expected[c] = v
        np.testing.assert_array_equal(x.to_numpy(), expected)
        for k, field in enumerate(seen):
            field.fill(0)
            run(look, k)
            found = {(int(i), int(j)) for i, j in np.argwhere(field.to_numpy() == 1)}
            assert found == model.cells(k) and field.to_numpy().max(initial=0) <= 1
    ks.reset()


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(chains, steps)
def test_lowered_kernels_leave_what_the_model_has(chain, program) -> None:
    check(chain, program, plainly)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(chains, steps)
def test_interpreted_kernels_leave_what_the_model_has(chain, program) -> None:
    with ks.interpret():
        check(chain, program, compiled)


@pytest.mark.parametrize(
    "chain",
    [
        [("pointer", (2, 3)), ("bitmasked", (3, 2)), ("pointer", (2, 2)), ("dense", (2, 2))],
        [("bitmasked", (2, 2)), ("hash", (3, 1)), ("bitmasked", (2, 3))],
    ],
)
def test_compiled_kernels_leave_what_the_model_has(chain) -> None:
    generator = np.random.default_rng(3)
    words = ["store", "add", "activate", "deactivate", "bump", "spread", "clear"]
    program = [
        (
            words[generator.integers(7)],
            int(generator.integers(4)),
            generator.integers(0, 80, (4, 2)).tolist(),
        )
        for _ in range(20)
    ]
    check(chain, program, compiled)

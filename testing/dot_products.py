"""Judge of derivatives without step size: <J v, w> by the dual of a kernel equals <v, J' w> by its adjoint.

Both modes share the table of rules, which has a test of its own, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernels.interpret.kernel import run_kernel
from ..kernels.ir.errors import LanguageError
from ..kernels.ir.kernel import For, If, KernelIR, Load, Local, Store, Update, UpdateLocal, While
from ..kernels.ir.verify import check
from ..kernels.ir.walk import children, loads, nested_statements, walk, widened
from ..kernels.transforms.derivatives.access_rule import with_checks
from ..kernels.transforms.derivatives.in_place import adjoint_on_copies, dual_in_place
from .generator.features import Features
from .generator.sequences import kernels_of, program

Arrays = Mapping[str, Any]
TOLERANCE = 1e-12  # relative to the terms of the products: those of random bodies are large and of both signs


class Products(NamedTuple):
    """<J v, w> by the dual (`forward`), and <v, J' w> by the adjoint (`backward`).

    `scale`: the sum of the absolute values of the terms of both.
    """

    forward: float
    backward: float
    scale: float

    @property
    def are_equal(self) -> bool:
        """True if the products are finite and differ by rounding at most."""
        is_finite = np.isfinite(self.scale)
        return bool(is_finite and abs(self.forward - self.backward) <= TOLERANCE * self.scale)


def floats(arrays: Arrays) -> list[str]:
    """The names of the arrays of floats, which have derivatives."""
    return [n for n, a in arrays.items() if a.dtype.kind == "f"]


def run_on_copies(ir: KernelIR, arrays: Arrays) -> Arrays:
    """Returns the arrays after a run of the kernel by the interpreter; the numbers that it is given are 2."""
    arrays = {n: a.copy() for n, a in arrays.items()}
    check(ir)
    scalars = {p.name: p.dtype.numpy.type(2) for p in ir.scalars}
    with np.errstate(all="ignore"):
        run_kernel(ir, {p.name: arrays[p.name] for p in ir.arrays}, scalars)
    return arrays


def both_products(ir: KernelIR, arrays: Arrays, seed: int = 5) -> Products:
    """Returns the products by the dual and by the adjoint, over all arrays of floats."""
    rng, names = np.random.default_rng(seed), floats(arrays)
    v, w = ({n: rng.normal(size=arrays[n].shape) for n in names} for _ in range(2))
    forward = dual_in_place(ir, {n: f"{n}_dot" for n in names})
    behind = run_on_copies(forward, {**arrays, **{f"{n}_dot": v[n] for n in names}})
    after = run_on_copies(ir, arrays)
    backward, copies = adjoint_on_copies(ir, {n: f"{n}_bar" for n in names})
    copied = {copy: arrays[n] for copy, n in copies.items()}
    back = run_on_copies(backward, {**after, **copied, **{f"{n}_bar": w[n] for n in names}})
    forward_terms = _terms((behind[f"{n}_dot"], w[n]) for n in names)
    backward_terms = _terms((v[n], back[f"{n}_bar"]) for n in names)
    scale = np.abs(forward_terms).sum() + np.abs(backward_terms).sum()
    return Products(float(forward_terms.sum()), float(backward_terms.sum()), float(scale))


def _terms(factors: Iterable[tuple[NDArray[Any], NDArray[Any]]]) -> NDArray[Any]:
    """Returns the terms of a dot product over several arrays."""
    return np.concatenate([np.zeros(0), *((a * b).ravel() for a, b in factors)])


def drawn(corpus: Features, number: int) -> tuple[KernelIR, Arrays] | None:
    """The kernel of a random program in f64, with its arguments.

    None where it draws several, one without a derivative, or one that overwrites what it read in another iteration.
    """
    calls = program(corpus, number).recording.calls
    if len(calls) != 1:
        return None
    ((ir, arrays),) = kernels_of(corpus, [number])
    given = {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in arrays.items()}
    ir = widened(ir)
    marks = {f"{n}_mark": np.zeros(a.shape, np.int32) for n, a in given.items()}
    try:
        _, copies = adjoint_on_copies(ir, {n: f"{n}_bar" for n in floats(given)})
        dual_in_place(ir, {n: f"{n}_dot" for n in floats(given)})
        flags, labels = {n: f"{n}_mark" for n in given}, {n: n for n in given}
        run_on_copies(with_checks(ir, flags, labels, set(copies.values())), {**given, **marks})
    except (LanguageError, AssertionError):
        return None
    return ir, given


@dataclass
class Tally:
    """Counts of compared bodies: with a Jacobian that is not zero, and with control flow. `wrong`: their numbers."""

    n_drawn: int = 0
    n_compared: int = 0
    n_nonzero: int = 0
    n_with_flow: int = 0
    wrong: list[int] = field(default_factory=list)

    def add(self, corpus: Features, numbers: Iterable[int]) -> None:
        """Compares the random bodies of these numbers."""
        for number in numbers:
            self.n_drawn += 1
            found = drawn(corpus, number)
            if found is None:
                continue
            products = both_products(*found)
            if not np.isfinite(products.forward):
                continue
            self.n_compared += 1
            self.n_nonzero += products.forward != 0
            self.n_with_flow += has_flow(found[0])
            if not products.are_equal:
                self.wrong.append(number)


def has_flow(ir: KernelIR) -> bool:
    """True if a kernel has a branch, a loop that carries a local, or an index that is computed or data."""
    for s in nested_statements(ir.body):
        if isinstance(s, If | While):
            return True
        if isinstance(s, For) and any(
            isinstance(x, UpdateLocal) for t in s.body for x in nested_statements((t,))
        ):
            return True
        accesses = [x for e in children(s) for x in loads(e)]
        places = [*(x.indices for x in accesses)]
        places += [s.indices] if isinstance(s, Store | Update) else []
        if any(isinstance(x, Load | Local) for at in places for e in at for x in walk(e)):
            return True
    return False

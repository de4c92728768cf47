"""Cost estimates of a kernel, interpreted and compiled, to choose between the two ways."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..ir import kernel
from ..ir.walk import children, identified, nested_statements, walk
from .contraction import contraction, factors
from .kernel import MAX_LANES
from .lanes import LanePlan, Plans, plan_lanes

# Nanoseconds on a core of about 3 GHz, to within a factor of two.
_STEP_NS = 3e3  # a node of an expression, interpreted
_LANE_NS = 1.5  # one element of it in lanes
_PRODUCT_NS = 0.2  # one term of a sum of products, by BLAS, or of a matrix and a vector
_COMPILED_NS = 1.0  # a node, compiled
_PASSES = 100  # of a while loop, of which nothing is known
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "min": min,
    "max": max,
}


@dataclass(frozen=True)
class RunCost:
    """Estimated time in ns of one run of a kernel, interpreted and compiled.

    Lengths that depend on data are estimated (`_Counter`).
    """

    interpreted_ns: float
    compiled_ns: float


def n_nodes(ir: kernel.KernelIR) -> int:
    """The number of expression nodes of a kernel."""
    return sum(1 for s in nested_statements(ir.body) for e in children(s) for _ in walk(e))


def work_of(ir: kernel.KernelIR) -> RunCost:
    """The estimated time of one call of a kernel, interpreted and compiled."""
    longest = max((n for p in ir.arrays for n in p.shape), default=1)
    body = identified(ir.body)
    return _Counter(plan_lanes(body), longest).block(body, 1.0, 1.0, {})


@dataclass
class _Counter:
    plans: Plans
    longest: int

    def block(
        self,
        body: tuple[kernel.Stmt, ...],
        steps: float,
        lanes: float,
        middles: Mapping[str, float],
    ) -> RunCost:
        """The estimated time of statements that run `steps` times, each time in `lanes` NumPy lanes.

        `middles`: the typical index of each enclosing loop.
        """
        interpreted_ns = compiled_ns = 0.0
        for s in body:
            nodes = sum(1 for x in children(s) for _ in walk(x)) + 1
            interpreted_ns += nodes * steps * (_STEP_NS + _lane_ns(s, lanes) * lanes)
            compiled_ns += nodes * steps * lanes * _COMPILED_NS
            parts: list[RunCost] = []
            if isinstance(s, kernel.For):
                parts = [self._loop(s, steps, lanes, middles)]
            elif isinstance(s, kernel.If):
                parts = [self.block(b, steps, lanes, middles) for b in (s.then, s.orelse)]
            elif isinstance(s, kernel.While):
                parts = [self.block(s.body, steps * _PASSES, lanes, middles)]
            interpreted_ns += sum(p.interpreted_ns for p in parts)
            compiled_ns += sum(p.compiled_ns for p in parts)
        return RunCost(interpreted_ns, compiled_ns)

    def _loop(
        self, s: kernel.For, steps: float, lanes: float, middles: Mapping[str, float]
    ) -> RunCost:
        extent = self._extent(s.extent, steps * lanes, middles)
        inside = {**middles, s.loop: extent / 2}
        if not self.plans.get(s.uid, LanePlan(False, 1)).is_vector:
            return self.block(s.body, steps * extent, lanes, inside)
        room = MAX_LANES if contraction(s) is None else float("inf")
        chunks = max(1.0, lanes * extent / room)
        return self.block(s.body, steps * chunks, lanes * extent / chunks, inside)

    def _extent(self, x: kernel.Expr, times: float, middles: Mapping[str, float]) -> float:
        """The typical length of a loop that is entered `times` times.

        A length that is read from an array counts as the length of a list; the lists together have the longest extent.
        """
        known = max(0.0, self._typical(x, middles))
        parts = list(walk(x))
        is_read = any(isinstance(y, kernel.Load | kernel.LocalElement) for y in parts)
        if is_read or (known == 0 and any(isinstance(y, kernel.Local) for y in parts)):
            return max(1.0, self.longest / max(1.0, times))
        return known

    def _typical(self, x: kernel.Expr, middles: Mapping[str, float]) -> float:
        match x:
            case kernel.Const(value=value):
                return float(value)
            case kernel.LoopIndex(loop=loop) if loop in middles:
                return middles[loop]
            case kernel.Local():
                return self.longest / 2
            case kernel.Cast(x=y):
                return self._typical(y, middles)
            case kernel.Unary(op="neg", x=y):
                return -self._typical(y, middles)
            case kernel.Binary(op=op, a=a, b=b) if op in _ARITHMETIC:
                return _ARITHMETIC[op](self._typical(a, middles), self._typical(b, middles))
            case _:
                return float(self.longest)


def _lane_ns(s: kernel.Stmt, lanes: float) -> float:
    if lanes == 1:
        return 0.0
    return _PRODUCT_NS if isinstance(s, kernel.UpdateLocal) and factors(s) is not None else _LANE_NS

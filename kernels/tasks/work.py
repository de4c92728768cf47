"""Static cost model: estimated time of loops on one core, and the choice to run them on several threads.

It serves standalone kernels and first candidates of sequences. Nothing is timed. The numbers are nanoseconds, rough on purpose:
they only have to separate a loop of microseconds from one of milliseconds, and a locked update from one without a lock.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from math import inf, prod

from ..analysis.must_execute import blocks_of
from ..ir.kernel import Const, DType, Expr, For, If, Stmt, Unary, Update, While
from ..ir.task import Task
from ..ir.walk import blocks, children, loads, walk
from .guarded_bodies import followed
from .profile import Profile

# A team is awake within 1 us and asleep after 200; from then on it comes after 5 to 50 us (runtime/cpu/team.c).
TEAM_PAYS_NS = 30_000.0
NODE_NS = 0.25  # an operation or access, some of them in vectors
FUNCTION_NS = 4.0  # sin, exp and the like
UNKNOWN_TRIPS = 8.0  # of a loop whose extent is not known
# Measured on two cores: 27 x 4 adds a particle took 44 to 63 ns plain and 580 to 625 by compare and swap.
PLAIN_UPDATE_NS = 0.5
CAS_NS = 5.6
FETCH_ADD_NS = 4.0
# A copy of an array is cleared, comes into a cache, and is added up: 1.3 ms for 4 MiB on two cores.
COPY_NS_PER_BYTE = 0.3
MOST_COPY_BYTES = 64 << 20  # of all copies of a loop
# Compilers leave a tenth of the operations between such updates: common terms are computed once, and in vectors.
# A particle of mpm88 takes 25 ns on one core against 478 by its nodes, one of mpm128 63 against 708.
LEFT = 0.1
BY_ONE, BY_ATOMICS, IN_COPIES = "SERIAL", "ATOMIC", "PRIVATE"  # values of the choice `scatter`
_CHEAP = ("neg", "abs", "floor")


def pays(work_ns: float) -> bool:
    """True if a team of threads is faster than one thread for work of this time."""
    return work_ns >= TEAM_PAYS_NS


def first_that_pays(iteration_ns: float) -> int:
    """Returns the smallest number of iterations for which a team of threads is faster than one thread."""
    return max(2, int(TEAM_PAYS_NS / max(iteration_ns, 0.1)))


def iteration_ns(body: Sequence[Stmt]) -> float:
    """Estimated time in ns of one iteration of a loop with this body."""
    return sum(_own_ns(s) + _trips(s) * sum(map(iteration_ns, blocks(s))) for s in body)


def task_ns(task: Task, profile: Profile | None = None) -> float:
    """Estimated time in ns of one run of a task.

    It uses the block counts of the task's profile if there is one, else the largest possible number of iterations.
    """
    task = followed(task)
    if task.body is None:
        parts = (task.value, task.condition)
        each_ns = NODE_NS + sum(_expression_ns(e) for e in parts if e is not None)
        n_finished = prod(x.extent for x in task.loops if not x.is_reduction)
        finish_ns = 0.0 if task.finish is None else n_finished * _expression_ns(task.finish)
        return prod(x.extent for x in task.loops) * each_ns + finish_ns
    known = None if profile is None else profile.about(task)
    if known is not None:
        found = blocks_of(task.body.statements)
        counted = zip(found, known.entered, strict=True)
        return sum(n * sum(map(_own_ns, block.statements)) for block, n in counted)
    return prod(x.extent for x in task.loops) * iteration_ns(task.body.statements)


@dataclass(frozen=True)
class Updates:
    """Cost per iteration of updates of shared elements: in ns on one core, and in ns by atomic operations.

    `n_bytes`: size of the arrays to which threads may add in private copies. `beside_ns`: time, by atomic operations, of updates
    of other arrays in a loop with such copies.
    """

    plain_ns: float
    atomic_ns: float
    n_bytes: int
    beside_ns: float = 0.0

    def way(self, between_ns: float, iterations: float | None, cores: int) -> str:
        """Returns the cheapest value of the choice `scatter`: one thread, atomics, or private copies.

        `between_ns`: time of one iteration without updates. `iterations`: their number, if known. `cores`: the number of threads.
        """
        between_ns *= LEFT
        by_one_ns = between_ns + self.plain_ns
        by_atomics_ns = (between_ns + self.atomic_ns) / cores
        copied = self.n_bytes * (cores - 1)
        in_copies_ns = inf
        if iterations and 0 < copied <= MOST_COPY_BYTES:
            in_copies_ns = (by_one_ns + self.beside_ns) / cores
            in_copies_ns += COPY_NS_PER_BYTE * copied / iterations
        if min(by_atomics_ns, in_copies_ns) > by_one_ns:
            return BY_ONE
        return IN_COPIES if in_copies_ns < by_atomics_ns else BY_ATOMICS


def updates_of(
    body: Sequence[Stmt],
    updates: Sequence[Update],
    dtypes: dict[str, DType],
    n_bytes: int,
    beside: Container[str] = (),
) -> Updates:
    """Returns the ns an iteration of a loop spends on some updates in its body: plain on one core, and as atomic operations.

    `dtypes`: types of their arrays, by name. `n_bytes`: size of the arrays to which threads may add in private copies. `beside`:
    the other arrays.
    """
    plain_ns = atomic_ns = beside_ns = 0.0
    for u, n in _executions(body, 1.0):
        if any(u is x for x in updates):
            one_ns = n * _atomic_ns(u, dtypes[u.array])
            plain_ns += n * PLAIN_UPDATE_NS
            atomic_ns += one_ns
            beside_ns += one_ns if u.array in beside else 0.0
    return Updates(plain_ns, atomic_ns, n_bytes, beside_ns)


def _atomic_ns(u: Update, dtype: DType) -> float:
    return FETCH_ADD_NS if dtype.is_integer and u.op == "add" else CAS_NS


def _own_ns(s: Stmt) -> float:
    """Estimated time in ns of a statement without the statements nested in it."""
    return NODE_NS + sum(map(_expression_ns, children(s)))


def _trips(s: Stmt) -> float:
    if isinstance(s, For):
        return max(0, int(s.extent.value)) if isinstance(s.extent, Const) else UNKNOWN_TRIPS
    return UNKNOWN_TRIPS if isinstance(s, While) else 1.0


def _expression_ns(e: Expr) -> float:
    return sum(
        FUNCTION_NS if isinstance(x, Unary) and x.dtype.is_float and x.op not in _CHEAP else NODE_NS
        for x in walk(e)
    )


def _executions(body: Sequence[Stmt], n: float) -> Iterator[tuple[Update, float]]:
    """Yields the updates in a body that runs `n` times, each with its estimated number of executions.

    Those of a first visit are left out.
    """
    for s in body:
        if isinstance(s, Update):
            yield s, n
        for inner in () if _is_first_visit(s) else blocks(s):
            yield from _executions(inner, n * _trips(s))


def _is_first_visit(s: Stmt) -> bool:
    """True for a branch that runs once an element, as activation does: its condition is false from then on.

    It raises elements that its condition loads, or repeats an exchange until it succeeds.
    """
    if not isinstance(s, If) or s.orelse:
        return False
    read = {x.array for x in loads(s.condition)}
    raised = (x for x in s.then if isinstance(x, Update) and x.op in ("bit_or", "max"))
    if any(x.result and x.array in read for x in raised):
        return True
    rounds = (y for x in s.then if isinstance(x, While) for y in x.body)
    return any(isinstance(y, Update) and y.result and y.op == "bit_or" for y in rounds)

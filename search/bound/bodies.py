"""Guaranteed cost of a task with a body of statements: bytes of each array, and floating-point operations.

Without a profile, only statements that run for any contents of the arrays count. With a profile
(kernels/tasks/profile.py), the counts are those of the profiled arguments, and the bound holds for
these arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from math import ceil, prod

from ...kernels.analysis import must_execute
from ...kernels.analysis.cycles import strong_components
from ...kernels.analysis.effects import arrays_written
from ...kernels.analysis.sure_accesses import SureAccess, sure_accesses
from ...kernels.ir import kernel as ir
from ...kernels.ir.access import access_of
from ...kernels.ir.arrays import ArrayInfo
from ...kernels.ir.ops import OPS
from ...kernels.ir.task import Task
from ...kernels.ir.walk import children, local_changed, locals_read, nested_statements, walk
from ...kernels.tasks.profile import LINE_BYTES, Profile, TaskProfile, Touched
from .traffic import distinct_elements, line_bytes
from .weights import (
    Amounts,
    chain,
    flops_of,
    function_of,
    products,
    told,
    told_together,
    weight,
)

# Rounding may send one iteration in many another way than in the run that was profiled.
SURE = 0.98
_LOADED = ""  # among loops: there is a load
_MOST_KEPT = 64  # counters of bodies


def body_bytes(
    task: Task, array: ArrayInfo, profile: Profile | None, line: int = LINE_BYTES
) -> tuple[float, float]:
    """Returns the guaranteed traffic of `array` in a task with a body, in bytes: (reads of earlier contents, writes).

    Earlier contents are from before the task's own writes. Reads count whole cache lines of `line`
    bytes.
    """
    accesses = [x for x in sure_accesses(task) if x.access.array == array.name]
    read = max((_line_bytes(x, array, line) for x in _read_first(task, accesses)), default=0)
    size = array.dtype.size_bytes
    written = max(
        (distinct_elements(x.access, dict(x.loops)) * size for x in accesses if x.writes), default=0
    )
    seen = _touched(task, array, profile)
    # Cache lines may be aligned otherwise than the counted ones: two counted lines may lie in one.
    by_lines = ceil(seen.read_lines / 2) * line
    counted = SURE * max(seen.read_elements * size, by_lines)
    return max(float(read), counted), max(float(written), SURE * seen.written_elements * size)


def _touched(task: Task, array: ArrayInfo, profile: Profile | None) -> Touched:
    known = profile.of(task) if profile is not None else None
    found = known.touched if known is not None else ()
    return next((x for x in found if x.array == array.name), Touched(array.name))


def _line_bytes(x: SureAccess, array: ArrayInfo, line: int) -> int:
    return line_bytes(x.access, dict(x.loops), array, line)


def _read_first(task: Task, accesses: Sequence[SureAccess]) -> list[SureAccess]:
    """Returns those of the accesses to one array that read contents from before the task."""
    assert task.body is not None
    if not accesses:
        return []
    array = accesses[0].access.array
    stored = [s for s in task.body.sites if s.state.name == array and s.op == "store"]
    if not stored:
        return [x for x in accesses if not x.writes]
    first = next((k for k, x in enumerate(accesses) if x.writes), len(accesses))
    targets = {x.access for x in accesses if x.writes}
    if len(stored) != 1 or len(targets) != 1:
        return []
    (target,) = targets
    loops = dict(accesses[first].loops)
    if distinct_elements(target, loops) != prod(loops.values()):
        return []  # it may be written in one iteration and read in another
    return [x for x in accesses[:first] if x.access == target]


def body_operations(task: Task, profile: Profile | None) -> BodyOperations:
    """Returns the operation counter of a task's body; a sequence and its component spaces share it."""
    return _counter(task, profile.of(task) if profile is not None else None)


@lru_cache(maxsize=_MOST_KEPT)
def _counter(task: Task, profile: TaskProfile | None) -> BodyOperations:
    return BodyOperations(task, profile)


class BodyOperations:
    """Counter of the guaranteed operations of one body."""

    def __init__(self, task: Task, profile: TaskProfile | None) -> None:
        assert task.body is not None
        self.task, self.profile = task, profile
        self.blocks = must_execute.blocks_of(task.body.statements)
        self.needed = must_execute.needed(task.body.statements)
        self.changes = must_execute.set_in(
            self.blocks[0].statements
        )  # equal bodies have one tuple of blocks
        self.where = _blocks_of_changes(self.blocks)
        self.extents = {loop.name: loop.extent for loop in task.loops}
        self.below = self._below()
        self.ties = self._ties()
        # Caches by identity of an expression.
        # By identity of expressions, which are kept, since identities of others are used again.
        self.loops: dict[int, tuple[ir.Expr, frozenset[str]]] = {}
        self.told: dict[int, tuple[ir.Expr, str]] = {}
        self.texts: dict[str, str] = {}
        left = {name: len(statements) for name, statements in self.changes.items()}
        for s in nested_statements(task.body.statements):  # texts refer to earlier ones
            name = local_changed(s)
            left[name] = left.get(name, 1) - 1
            self._note_change(name, is_last=left[name] == 0)

    def count(self, seen: set[str]) -> tuple[float, float]:
        """Returns the guaranteed number of f32 and of f64 operations. `seen`: see `amounts`."""
        return flops_of(self.amounts(seen))

    def amounts(self, seen: set[str]) -> Amounts:
        """Returns the guaranteed operations, those of functions apart.

        Values in `seen` (by canonical text) were computed by an earlier task and do not count;
        those of this body are added to `seen`.
        """
        sums: Amounts = {}
        for n in self.needed:
            for e in n.expressions:
                for key, amount in self.of(e, n, seen):
                    self._add(sums, key, amount)
            for size_bytes, amount in self.updates(n, seen):
                sums[size_bytes, ""] = sums.get((size_bytes, ""), 0.0) + amount
        return sums

    @staticmethod
    def _add(sums: Amounts, key: tuple[int, str], amount: float) -> None:
        """Adds an item. Of each function the one call that runs most counts as such, the others as operations.

        Neighbouring iterations may share the values of others: unrolled, `exp(x[i + 1])` is
        `exp(x[i])` of the next one.
        """
        size_bytes, name = key
        if name in ("", "mul"):
            sums[key] = sums.get(key, 0.0) + amount
            return
        most, least = max(amount, sums.get(key, 0.0)), min(amount, sums.get(key, 0.0))
        sums[key] = most
        sums[size_bytes, ""] = sums.get((size_bytes, ""), 0.0) + least

    # --- how often a block runs

    def entered(self, block: int) -> float:
        """Returns the guaranteed number of executions of a basic block in one run of the task."""
        if self.profile is not None and block < len(self.profile.entered):
            exact = self._known(block)
            return SURE * self.profile.entered[block] if exact is None else exact
        return self._known(block) or 0.0

    def _known(self, block: int) -> float | None:
        n = float(prod(self.extents.values()))
        while block > 0:
            times = self.blocks[block].times
            if times is None:
                return None
            n *= times
            block = self.blocks[block].parent
        return n

    def runs(self, n: must_execute.Needed, loops: frozenset[str], is_later: bool) -> float:
        """Returns the guaranteed number of times that a statement computes a value that depends on `loops` alone.

        Iterations of all other loops share one computation. `is_later`: the first iteration of the
        innermost loop around the statement does not count, since constants may replace the value
        there.
        """
        count = self.entered(n.block)
        block = self.blocks[n.block]
        late, inner = n.late + is_later, self._innermost(n.block)
        if late:
            if inner is None:
                return 0.0
            count = max(0.0, count - late * self._begun(inner))
        for k, loop in enumerate(block.around):
            if _name(loop, k) in loops:
                continue
            times = must_execute.known_extent(loop) if isinstance(loop, ir.For) else None
            if times is None:
                return 0.0
            count /= max(1, times)
        for name, extent in self.extents.items():
            count /= 1 if name in loops else extent
        return count

    def _innermost(self, block: int) -> int | None:
        """Returns the basic block that is the body of the innermost loop around a block; None without a loop."""
        around = self.blocks[block].around
        while block > 0 and self.blocks[self.blocks[block].parent].around == around:
            block = self.blocks[block].parent
        return block if block > 0 else None

    def _begun(self, block: int) -> float:
        """Returns an upper bound on the number of times that control enters the loop whose body is basic block `block`."""
        parent = self.blocks[block].parent
        if self.profile is not None and self._known(parent) is None:
            return self.profile.entered[parent] / SURE
        known = self._known(parent)
        return float("inf") if known is None else known

    # --- what a value depends on

    def _below(self) -> dict[str, frozenset[str]]:
        """Returns, by local, the locals from which its values are computed directly."""
        return {
            name: frozenset(x for s in statements for e in children(s) for x in locals_read(e))
            for name, statements in self.changes.items()
        }

    def _ties(self) -> dict[str, frozenset[str]]:
        """Returns, by local, the loops on which its value depends."""
        ties: dict[str, frozenset[str]] = dict.fromkeys(self.changes, frozenset())
        cycles = strong_components(self.below)
        for name, statements in self.changes.items():
            for s in statements:
                own = (x for e in children(s) for x in walk(e) if isinstance(x, ir.LoopIndex))
                ties[name] |= {x.loop for x in own}
                # What it is set to depends on what it was.
                read = (x for e in children(s) for x in locals_read(e))
                is_own = any(x == name or cycles.get(x) == cycles[name] for x in read)
                if isinstance(s, ir.UpdateLocal) or is_own:
                    ties[name] |= self.where[id(s)][1]
        return self._with_those_below(ties)

    def _with_those_below(self, own: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
        """Returns, by local, the union of `own` over the local and all locals that its value depends on."""
        found = dict(own)
        grows = True
        while grows:
            grows = False
            for name, names in self.below.items():
                every = found[name].union(*(found.get(x, frozenset()) for x in names))
                grows = grows or every != found[name]
                found[name] = every
        return found

    @cached_property
    def _loaded(self) -> dict[str, frozenset[str]]:
        """Returns, by local, the loops in the loads that its value depends on, with `_LOADED` if there are loads."""
        direct = {
            name: self._loaded_in(e for s in statements for e in children(s))
            for name, statements in self.changes.items()
        }
        return self._with_those_below(direct)

    def _loaded_in(self, expressions: Iterable[ir.Expr]) -> frozenset[str]:
        """Returns the loops in the loads of expressions, with `_LOADED` if there are loads."""
        loads = [x for e in expressions for x in walk(e) if isinstance(x, ir.Load)]
        return frozenset([_LOADED] if loads else []).union(*map(self._loops, loads))

    def _loops(self, e: ir.Expr) -> frozenset[str]:
        """Returns the loops that the value of an expression depends on."""
        if id(e) not in self.loops:
            match e:
                case ir.LoopIndex():
                    found = frozenset([e.loop])
                case ir.Local() | ir.LocalElement():
                    found = self.ties.get(e.name, frozenset())
                case _:
                    found = frozenset[str]().union(*map(self._loops, children(e)))
            self.loops[id(e)] = e, found
        return self.loops[id(e)][1]

    def is_sure(self, e: ir.Expr, block: int) -> tuple[bool, bool]:
        """Returns (True, late) if no local in `e` can be a known constant at the block, else (False, False).

        `late`: True if this holds only after the first iteration.
        """
        late = False
        inner = self._innermost(block)
        for name in locals_read(e):
            statements = self.changes.get(name, [])
            if any(not isinstance(s, ir.SetLocal | ir.UpdateLocal | ir.Update) for s in statements):
                return False, False
            fixed = [s for s in statements if isinstance(s, ir.SetLocal) and _is_fixed(s.value)]
            if not fixed:
                continue
            inside = [s for s in fixed if inner is not None and self._within(s, inner)]
            if len(fixed) == len(statements) or inside or inner is None:
                return False, False
            late = True
        return True, late

    def _within(self, s: ir.Stmt, block: int) -> bool:
        at = self.where[id(s)][0]
        while at > block:
            at = self.blocks[at].parent
        return at == block

    # --- counting

    def of(
        self, e: ir.Expr, n: must_execute.Needed, seen: set[str]
    ) -> Iterator[tuple[tuple[int, str], float]]:
        """Yields the operations of all parts of `e` that are surely evaluated and not in `seen`, as items of `Amounts`."""
        certain = {id(x) for x in must_execute.surely(e)}
        yield from self._of(e, n, certain, seen)

    def _of(
        self, e: ir.Expr, n: must_execute.Needed, certain: set[int], seen: set[str]
    ) -> Iterator[tuple[tuple[int, str], float]]:
        nodes, leaves = chain(e)
        if id(e) in certain and all(id(x) in certain for x in nodes):
            loops = self._loops(e)
            known, late = self.is_sure(e, n.block)
            new = [x for x in nodes if _is_new(self.text(x), seen)]
            total = sum(weight(x) for x in new if self._loops(x) == loops)
            if len(nodes) > 1:
                varying = sum(self._loops(x) == loops for x in leaves)
                total = min(total, max(1.0, varying - (varying == len(leaves))))
            size = (e.a if isinstance(e, ir.Compare) else e).dtype.size_bytes
            if total and known:
                times, k = self.runs(n, loops, late), products(e, leaves, total)
                yield (size, "mul"), k * times
                yield (size, function_of(e)), (total - k) * times
        for x in leaves if len(nodes) > 1 else children(e):
            if not isinstance(e, ir.Load):
                yield from self._of(x, n, certain, seen)

    def updates(self, n: must_execute.Needed, seen: set[str]) -> Iterator[tuple[int, float]]:
        """Yields the one operation, as (element size, count), of a statement that accumulates."""
        s = n.statement
        if not isinstance(s, ir.UpdateLocal | ir.Update) or not s.value.dtype.is_float:
            return
        if isinstance(s, ir.UpdateLocal):
            # Equal updates of equal locals are one, for value numbering of joined bodies and in stored values.
            target = self._text_of_local(s.name)
            known, late = self.is_sure(ir.Local(s.name, s.value.dtype), n.block)
            loops = self.ties[s.name]
        else:
            target = f"{s.array} in {self.task.name}"
            known, late = True, False
            loops = frozenset[str]().union(*(self._loops(i) for i in s.indices))
        loops |= self._loops(s.value)
        if known and _is_new(f"{target} {s.op}= {self.text(s.value)}", seen):
            yield s.value.dtype.size_bytes, OPS[s.op].flops * self.runs(n, loops, late)

    def atomic_updates(self, array: str, dtype: ir.DType) -> float:
        """Returns the guaranteed number of serialised updates of an array, if its updates are atomic.

        Only updates that a target may support count: any update of floats (by exchange), and
        additions of integers.
        """
        total = 0.0
        for n in self.needed:
            s = n.statement
            if isinstance(s, ir.Update) and s.array == array and (dtype.is_float or s.op == "add"):
                loops = frozenset[str]().union(*map(self._loops, s.indices))
                total += self.runs(n, loops, is_later=False)
        return total

    def gathers(self, vector_bytes: int, lane: str = "", slower: float = 1.0) -> float:
        """Returns the guaranteed number of loads at indirect indices (indices that are loaded themselves).

        Of each array that is not written, one access counts. No compiler knows that two of its
        elements are equal, so each takes a load of its own; a vector takes one per lane. If a loop
        changes the index but not the loaded part of it, as along a row with an indirect begin, one
        vector load may cover contiguous elements.

        `lane`: a loop whose iterations are lanes of vectors. What these gather counts `slower` times.
        """
        most: dict[str, float] = {}
        written = arrays_written(self.task)
        for n in self.needed:
            loads = (
                x for e in n.expressions for x in must_execute.surely(e) if isinstance(x, ir.Load)
            )
            for x in (x for x in loads if x.array not in written):
                locals_in = (name for i in x.indices for name in locals_read(i))
                loaded = self._loaded_in(x.indices).union(*map(self._loaded_by, locals_in))
                known, late = self.is_sure(x, n.block)
                if not loaded or not known:
                    continue
                is_apart, count = self._loops(x) <= loaded, self.runs(n, self._loops(x), late)
                if lane and x.dtype.size_bytes >= 4 and self._is_gathered(x, lane):
                    count *= slower
                elif not is_apart:
                    count /= max(1, vector_bytes // x.dtype.size_bytes)
                most[x.array] = max(count, most.get(x.array, 0.0))
        return sum(most.values())

    def _is_gathered(self, x: ir.Load, lane: str) -> bool:
        """True if lanes of a loop surely take an element each: each lane loads the index at an index of its own."""
        return any(self._is_loaded_apart(i, lane) for i in x.indices)

    def _is_loaded_apart(self, e: ir.Expr, lane: str) -> bool:
        match e:
            case ir.Load() if any(
                name == lane for axis in access_of(e).axes if axis for name, _ in axis.terms
            ):
                return True
            case ir.Local():
                statements = self.changes.get(e.name, [])
                one = statements[0] if len(statements) == 1 else None
                return isinstance(one, ir.SetLocal) and self._is_loaded_apart(one.value, lane)
        return any(self._is_loaded_apart(x, lane) for x in children(e))

    def _loaded_by(self, name: str) -> frozenset[str]:
        return self._loaded.get(name, frozenset())

    def text(self, e: ir.Expr) -> str:
        """Returns the canonical text of an expression: equal texts are computed once by a compiler.

        Long texts are hashed.
        """
        if id(e) not in self.told:
            self.told[id(e)] = e, self._text(e)
        return self.told[id(e)][1]

    def _text(self, e: ir.Expr) -> str:
        match e:
            case ir.LoopIndex():
                own = self.extents.get(e.loop)
                return f"<{e.loop} of {self.task.name}>" if own is None else f"<{own}>"
            case ir.Local():
                return self._text_of_local(e.name)
            case ir.Load():
                return f"{e.array}[{','.join(map(self.text, e.indices))}]"
        parts = children(e)
        if not parts:
            return repr(e)
        return told(e, list(map(self.text, parts)))

    def _text_of_local(self, name: str) -> str:
        return self.texts.get(name) or f"{name} of {self.task.name}"

    def _note_change(self, name: str, *, is_last: bool) -> None:
        """Notes the text of a local at one of its changes: before the last one that of its first value, then that of all."""
        statements = self.changes.get(name, [])
        if len(statements) == 1 and isinstance(statements[0], ir.SetLocal):
            self.texts[name] = self.text(statements[0].value)
        elif is_last:
            self.texts[name] = told_together(map(self._text_of_change, statements))
        elif statements and name not in self.texts:
            self.texts[name] = told_together((self._text_of_change(statements[0]), "..."))

    def _text_of_change(self, s: ir.Stmt) -> str:
        match s:
            case ir.SetLocal():
                return self.text(s.value)
            case ir.UpdateLocal():
                return f"{s.op}= {self.text(s.value)}"
        return f"{type(s).__name__} of {self.task.name}"  # an element, or the result of an update


def _is_new(text: str, seen: set[str]) -> bool:
    """True if `text` is not in `seen`; adds it."""
    if text in seen:
        return False
    seen.add(text)
    return True


def _name(loop: ir.For | ir.While, depth: int) -> str:
    return loop.loop if isinstance(loop, ir.For) else f"while {depth}"


def _is_fixed(e: ir.Expr) -> bool:
    """True if a compiler can know the value of the expression."""
    return not any(
        isinstance(x, ir.Load | ir.LoopIndex | ir.Local | ir.LocalElement) for x in walk(e)
    )


def _blocks_of_changes(
    blocks: Sequence[must_execute.BasicBlock],
) -> dict[int, tuple[int, frozenset[str]]]:
    """Returns, by id of a statement, the number of its basic block, and the innermost body loop around the block."""
    found = {}
    for block in blocks:
        depth = len(block.around) - 1
        near = frozenset([_name(block.around[-1], depth)] if block.around else [])
        for s in block.statements:
            found[id(s)] = (block.number, near)
    return found

"""Data flow between arrays and scalars of a sequence, by name and without order.

It gives the names that decide control flow, that flow back into themselves, and that limit the precision of others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..frontend.recorder import Call, Recording
from ..ir import kernel as ir
from ..ir.ops import OPS
from ..ir.walk import walk

Name = str
"""Name of an array or scalar of the sequence, or of a local, prefixed with the number of its call."""


@dataclass(frozen=True)
class Influence:
    """Names of arrays and scalars of the sequence, by their influence on its results.

    `steering`: names that flow into a branch, an index, the length of a loop, a divisor, or a function not defined everywhere.
    `placing`: names among them that decide by their exact value: an index, a length, a float that becomes an integer.
    `ending`: names that decide if a `while` ends or an assertion holds.
    `sensitive`: arrays that flow back into themselves other than by sums, or come from a division. An error may grow there with
    each step, and the sizes of their summands do not bound it.
    `coarsest`: the least exact type among the values from which an array is computed. Arrays without floating point are left out.
    """

    steering: frozenset[Name]
    placing: frozenset[Name]
    ending: frozenset[Name]
    sensitive: frozenset[Name]
    coarsest: dict[Name, ir.DType]


def flow_of(recording: Recording) -> Influence:
    """Returns the influence of arrays and scalars by the data flow of all calls together."""
    graph = _Graph()
    different = {(id(call.ir), call.arrays, call.scalars): call for call in recording.calls}
    for number, call in enumerate(different.values()):
        _FlowReader(graph, call, number).block(call.ir.body, frozenset())
    names = [p.name for p in (*recording.arrays, *recording.temps)]
    names += [p.name for p in recording.scalars]
    behind = {name: graph.behind(name) for name in names}
    arrays = [p for p in (*recording.arrays, *recording.temps) if p.dtype.is_float]
    in_cycle = graph.in_cycle()
    steering, placing = graph.all_behind(graph.steering), graph.all_behind(graph.placing)
    return Influence(
        frozenset(n for n in names if n in steering | placing),
        frozenset(n for n in names if n in placing),
        frozenset(names) & graph.all_behind(graph.ending),
        frozenset(p.name for p in arrays if {p.name, *behind[p.name]} & (in_cycle | graph.divided)),
        {p.name: _coarsest(graph, {p.name, *behind[p.name]}) or p.dtype for p in arrays},
    )


def _coarsest(graph: _Graph, names: Iterable[Name]) -> ir.DType | None:
    found = {t for n in names for t in graph.types.get(n, ())}
    return min(found, key=lambda t: t.size_bytes, default=None)


@dataclass
class _Graph:
    sources: dict[Name, set[Name]] = field(default_factory=dict)
    types: dict[Name, set[ir.DType]] = field(
        default_factory=dict
    )  # of operations whose result is held
    steering: set[Name] = field(default_factory=set)
    placing: set[Name] = field(default_factory=set)
    ending: set[Name] = field(default_factory=set)
    divided: set[Name] = field(default_factory=set)  # names that hold a quotient

    def behind(self, name: Name) -> set[Name]:
        """Returns all names that flow into `name`; `name` itself is among them only if it flows back."""
        return self.all_behind(self.sources.get(name, ()))

    def in_cycle(self) -> set[Name]:
        """Returns all names that flow back into themselves.

        They are those of the strongly connected components, found by Tarjan's algorithm.
        """
        found: set[Name] = set()
        number: dict[Name, int] = {}
        lowest: dict[Name, int] = {}  # the least number on the stack that a name reaches
        stack: list[Name] = []  # names whose part is not yet complete
        on_stack: set[Name] = set()
        path: list[tuple[Name, Iterator[Name]]] = []

        def enter(name: Name) -> None:
            number[name] = lowest[name] = len(number)
            stack.append(name)
            on_stack.add(name)
            path.append((name, iter(self.sources.get(name, ()))))

        def leave(name: Name) -> None:
            if path:
                lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[name])
            if lowest[name] == number[name]:
                part = {name}
                while (last := stack.pop()) != name:
                    part.add(last)
                on_stack.difference_update(part)
                if len(part) > 1 or name in self.sources.get(name, ()):
                    found.update(part)

        for begin in self.sources:
            if begin not in number:
                enter(begin)
            while path:
                name, rest = path[-1]
                source = next(rest, None)
                if source is None:
                    path.pop()
                    leave(name)
                elif source not in number:
                    enter(source)
                elif source in on_stack:
                    lowest[name] = min(lowest[name], number[source])
        return found

    def all_behind(self, names: Iterable[Name]) -> set[Name]:
        """Returns `names` and all names that flow into them."""
        found: set[Name] = set()
        left = list(names)
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left.extend(self.sources.get(name, ()))
        return found


@dataclass(frozen=True)
class _FlowReader:
    graph: _Graph
    call: Call
    number: int

    def block(self, body: tuple[ir.Stmt, ...], around: frozenset[Name]) -> None:
        """Adds the data flow of statements to the graph.

        `around`: names on which the conditions and extents around the statements depend.
        """
        for s in body:
            match s:
                case ir.For(extent=extent, body=inner):
                    self._look_into(extent)
                    self.graph.placing |= self._names(extent)
                    self.block(inner, around | self._names(extent))
                case ir.If(condition=condition, then=then, orelse=orelse):
                    self._look_into(condition)
                    self.graph.steering |= self._names(condition)
                    self.block((*then, *orelse), around | self._names(condition))
                case ir.While(condition=condition, body=inner):
                    self._look_into(condition)
                    self.graph.steering |= self._names(condition)
                    self.graph.ending |= self._names(condition)
                    self.block(inner, around | self._names(condition))
                case ir.Assert(condition=condition):
                    self._look_into(condition)
                    self.graph.steering |= self._names(condition)
                    self.graph.ending |= self._names(condition)
                case ir.Print():
                    pass
                case ir.SetElement(name=name, index=index, value=value):
                    self.graph.placing |= self._names(index)
                    self._flow(f"{self.number}.{name}", (value, index), around)
                case (
                    ir.SetLocal(name=name, value=value)
                    | ir.UpdateLocal(name=name, value=value)
                    | ir.LocalArray(name=name, value=value)
                ):
                    self._flow(f"{self.number}.{name}", (value,), around)
                case (
                    ir.Store(array=array, indices=indices, value=value)
                    | ir.Update(array=array, indices=indices, value=value)
                ):
                    for i in indices:
                        self.graph.placing |= self._names(i)
                    self._flow(self._array(array), (value, *indices), around)
                    if isinstance(s, ir.Update) and s.result:
                        old = ir.Load(array, indices, value.dtype)
                        self._flow(f"{self.number}.{s.result}", (old,), around)

    def _flow(self, target: Name, values: tuple[ir.Expr, ...], around: frozenset[Name]) -> None:
        names = around.union(*map(self._names, values))
        self.graph.sources.setdefault(target, set()).update(names)
        types = self.graph.types.setdefault(target, set())
        for x in (x for value in values for x in walk(value)):
            if isinstance(x, (ir.Binary, ir.Unary, ir.Cast)) and x.dtype.is_float:
                types.add(x.dtype)
            if isinstance(x, ir.Binary) and x.op in ("div", "pow") and self._names(x.b):
                self.graph.divided.add(target)
        for value in values:
            self._look_into(value)

    def _look_into(self, value: ir.Expr) -> None:
        for x in walk(value):
            match x:
                case ir.Load(indices=indices):
                    self.graph.placing = self.graph.placing.union(*map(self._names, indices))
                case ir.LocalElement(index=index):
                    self.graph.placing |= self._names(index)
                case ir.Cast(x=y, dtype=dtype) if y.dtype.is_float and not dtype.is_float:
                    self.graph.placing |= self._names(y)
                case ir.Bitcast(x=y) if y.dtype.is_float:
                    self.graph.placing |= self._names(y)
                case ir.Binary(op=op, b=b) if OPS[op].is_partial:
                    self.graph.steering |= self._names(b)
                    if op == "pow":
                        self.graph.steering |= self._names(x.a)
                case ir.Unary(op=op, x=y) if OPS[op].is_partial:
                    self.graph.steering |= self._names(y)

    def _names(self, x: ir.Expr) -> frozenset[Name]:
        return frozenset(self._named(x))

    def _named(self, x: ir.Expr) -> Iterator[Name]:
        for e in walk(x):
            match e:
                case ir.Load(array=array):
                    yield self._array(array)
                case ir.Local(name=name) | ir.LocalElement(name=name):
                    yield f"{self.number}.{name}"
                case ir.Param(name=name):
                    yield from self._scalar(name)
                case _:
                    pass

    def _array(self, name: str) -> Name:
        return self.call.arrays[[p.name for p in self.call.ir.arrays].index(name)]

    def _scalar(self, name: str) -> Iterator[Name]:
        """Yields the scalars of the sequence in the argument of the kernel's scalar `name`."""
        x = self.call.scalars[[p.name for p in self.call.ir.scalars].index(name)]
        yield from (e.name for e in walk(x) if isinstance(e, ir.Param))

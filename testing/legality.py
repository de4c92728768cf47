"""A judge of complete candidates in plain Python, written from the meaning of a loop tree; it shares no code with constraints,
dependences or code generation.

The sequence is run twice on symbols, a task's number standing for the value that it stores: task after task as it was written, and
through the candidate's loop tree. Every read has to see the same writer both times, over the same elements of tiny extents.
Iterations of a parallel loop may not touch what another of them writes, and values kept on chip are found by the thread that made
them. Only structured tasks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, cmp_to_key
from itertools import permutations, product
from typing import Any

from ..kernels.ir import kernel as ir
from ..kernels.ir.affine import to_affine
from ..kernels.ir.task import Problem
from ..kernels.ir.text import show_affine
from .corrections import is_about_mean, is_correctable, restores
from .meaning import Point, free_point, holds, indexing, loads, read, reference, runs, written

BEFORE, AFTER, INSIDE, AROUND, MERGED = "BEFORE", "AFTER", "INNER", "OUTER", "MERGED"


@dataclass
class Choices:
    """The decisions of a complete candidate by name."""

    named: dict[str, str]

    @staticmethod
    def of(candidate: Any) -> Choices:
        space = candidate.space
        return Choices({c.name: c.values[candidate.value(k)] for k, c in enumerate(space.choices)})

    def __call__(self, kind: str, *objects: str, default: str = "") -> str:
        return self.named.get(f"{kind}({','.join(objects)})", default)


class IllegalError(Exception):
    """A candidate breaks a rule; the message says which."""


@dataclass
class _Region:
    """One run of a parallel loop: who touched what, by number of the tile."""

    reads: defaultdict[Any, set[int]] = field(default_factory=lambda: defaultdict(set))
    writes: defaultdict[Any, set[int]] = field(default_factory=lambda: defaultdict(set))
    kept: defaultdict[Any, set[int]] = field(default_factory=lambda: defaultdict(set))

    def check(self) -> None:
        for place, keepers in self.kept.items():
            if len(keepers | self.writes.get(place, keepers)) > 1:
                raise IllegalError(f"a blend writes {place} back beside another iteration")
        for place, writers in self.writes.items():
            if len(writers | self.reads[place]) > 1:
                raise IllegalError(f"iterations of a parallel loop share {place}")


@dataclass(frozen=True)
class _Late:
    """A late task, the loop that it shares, the loop it runs in, and the loop of its own that it brings there."""

    task: int
    shared: str
    host: str
    moved: str


class Judge:
    """Runs a candidate; raises IllegalError."""

    def __init__(self, candidate: Any, threads: int) -> None:
        self.problem: Problem = candidate.space.problem
        self.choice, self.threads = Choices.of(candidate), threads
        self.rescaled = candidate.space.backbone.rescaled
        self.want, self.last = reference(self.problem)
        self.seen: set[Any] = set()
        self.memory: dict[Any, int] = {}
        self.chip: dict[tuple[int, Any], tuple[int, int]] = {}  # value of a task: thread, tile
        self.held: dict[
            tuple[int, Any], int | None
        ] = {}  # whose value that is: a blend's may be older
        self.tile: dict[int, int] = defaultdict(int)  # of registers: how often a task stored a tile
        self.copied: dict[tuple[int, str], dict[Any, int]] = {}  # what a packed block was made of
        self.next_block: dict[tuple[int, str, str], dict[Any, int]] = {}  # and the one after it
        self.region: _Region | None = None
        self.thread, self.step = 0, 0
        self.steps: Point = {}  # numbers of the steps of repeats
        self.n_runs = [0] * len(self.problem.tasks)
        self.objects: list[str] = []  # of the tasks that run in one step
        self.sums: dict[int, dict[Any, list[Point]]] = defaultdict(lambda: defaultdict(list))
        self.dims: dict[str, tuple[int, str, str]] = {}
        for t, task in enumerate(self.problem.tasks):
            for loop in task.loops:
                for level in ("outer", "mid"):
                    self.dims[f"{task.name}.{loop.name}.{level}"] = (t, loop.name, level)
        self.bodies = {task.name: t for t, task in enumerate(self.problem.tasks)}
        self.late = list(self.late_tasks())
        self.guards()
        # Of a late task on a thread: where its shared loop was an iteration ago, and the number of that.
        self.before: dict[tuple[str, int], tuple[dict[tuple[int, str, str], int], int]] = {}

    def guards(self) -> None:
        """Vectors store all of their lanes; a value in a register is one in every iteration; strides are of whole periods."""
        for task in self.problem.tasks:
            how = self.choice("guard", f"{task.name}.{task.target.array}")
            kinds = {
                x.name: self.choice("dim_kind", f"{task.name}.{x.name}.inner") for x in task.loops
            }
            handed = any(
                self.choice("mem_space", f"{task.name}->{u.name}.{task.target.array}") == "REGISTER"
                for u in self.problem.tasks
            )
            if how and how != "BLEND" and (handed or "VECTOR" in kinds.values()):
                raise IllegalError(f"{task.name} needs all of its values, and has not")
            if how == "STRIDE" and "UNROLL" not in kinds.values():
                raise IllegalError(f"{task.name} has no copies to make strides in")
            rows = self.choice("rows", f"{task.name}.{task.target.array}")
            if rows == "ROWS" and "VECTOR" not in kinds.values():
                raise IllegalError(f"{task.name} has no rows of vectors")

    def late_tasks(self) -> Iterator[_Late]:
        """Tasks that are an iteration late, by the loop that is merged with one of the task they wait for."""
        for p, c in product(self.problem.tasks, repeat=2):
            if self.choice("shift", f"{p.name}->{c.name}") != "LATE":
                continue
            pairs = list(product((x.name for x in p.loops), (x.name for x in c.loops)))
            merged = [
                (a, b)
                for a, b in pairs
                if self.order(f"{p.name}.{a}.outer", f"{c.name}.{b}.outer") == MERGED
            ]
            if len(merged) != 1:
                raise IllegalError(f"{c.name} is late and shares {merged} with {p.name}")
            ((a, b),) = merged
            ((x, y),) = [pair for pair in pairs if pair[0] != a and pair[1] != b]
            names = [f"{p.name}.{a}.outer", f"{p.name}.{x}.outer", f"{c.name}.{y}.outer"]
            yield _Late(self.bodies[c.name], *names)

    def run(self) -> None:
        for tasks, steps in runs(self.problem):
            self.steps = steps
            for t in tasks:
                self.n_runs[t] += 1
            self.objects = [d for d, (t, _, _) in self.dims.items() if t in tasks]
            self.objects += [name for name, t in self.bodies.items() if t in tasks]
            self.walk(self.objects, {})
        missing = set(self.want) - self.seen
        if missing:
            raise IllegalError(f"never computed: {sorted(missing, key=str)[0]}")
        for (array, index), writer in self.last.items():
            kept = self.problem.array(array).role != "temp"
            if kept and self.memory.get((array, index)) != writer:
                raise IllegalError(f"{array}{index} is not what task {writer} wrote")
        self.launches()

    # --- the tree ---

    def order(self, a: str, b: str) -> str:
        """Returns the order of two objects; without a choice it is that of the program."""
        chosen = self.choice("order", a, b)
        if chosen:
            return chosen
        t, u = (self.bodies[x] if x in self.bodies else self.dims[x][0] for x in (a, b))
        return BEFORE if t < u else AFTER

    def walk(self, objects: list[str], at: dict[tuple[int, str, str], int]) -> None:
        """Runs the forest of some objects at the place that `at` tells."""
        tops = [x for x in objects if all(self.order(x, y) != INSIDE for y in objects if y != x)]
        groups: list[list[str]] = []
        for x in tops:
            mates = [g for g in groups if self.order(x, g[0]) == MERGED]
            if mates:
                mates[0].append(x)
            else:
                groups.append([x])

        def earlier(g: list[str], h: list[str]) -> int:
            return -1 if self.order(g[0], h[0]) == BEFORE else 1

        groups.sort(key=cmp_to_key(earlier))
        for group in groups:
            inside = [y for y in objects if y not in group and self.order(y, group[0]) == INSIDE]
            if any(late.moved in group for late in self.late):
                continue
            if group[0] in self.bodies:
                self.body(self.bodies[group[0]], at)
            else:
                self.loop(group, inside, at)

    def size(self, t: int, loop: str, level: str) -> int:
        return int(self.choice("size", f"{self.problem.tasks[t].name}.{loop}.{level}"))

    def extent(self, t: int, loop: str) -> int:
        return next(x.extent for x in self.problem.tasks[t].loops if x.name == loop)

    def loop(
        self, group: list[str], inside: list[str], at: dict[tuple[int, str, str], int]
    ) -> None:
        runs = set()
        for name in group:
            t, loop, level = self.dims[name]
            inner, mid = self.size(t, loop, "inner"), self.size(t, loop, "mid")
            extent, tile = self.extent(t, loop), inner * mid
            if level == "outer":
                runs.add((level, 0, extent, tile))
            else:
                start = at[t, loop, "outer"]
                runs.add((level, start, min(start + tile, extent), inner))
        if len(runs) != 1:
            raise IllegalError(f"{group} are merged and differ: {runs}")
        ((level, begin, end, step),) = runs
        kinds = {self.choice("dim_kind", name) for name in group} if level == "outer" else {"LOOP"}
        if len(kinds) != 1:
            raise IllegalError(f"{group} are merged and differ: {kinds}")
        is_parallel = kinds == {"PARALLEL"}
        if is_parallel and self.region is not None:
            raise IllegalError(f"{group} is parallel inside a parallel loop")
        self.region = _Region() if is_parallel else self.region
        starts = range(begin, end, step)
        sharing = [late for late in self.late if late.shared in group]
        hosted = [late for late in self.late if late.host in group]
        in_turn = {self.choice("schedule", name) == "CYCLIC" for name in group}
        if len(in_turn) != 1:
            raise IllegalError(f"{group} are merged and differ: in turn or not")
        for k, start in enumerate(starts):
            if is_parallel and in_turn == {True}:
                self.step, self.thread = k, k % self.threads
            elif is_parallel:
                self.step = k
                self.thread = next(
                    p for p in range(self.threads) if k < len(starts) * (p + 1) // self.threads
                )
            here = {self.dims[name]: start for name in group}
            for name in group:
                self.pack(name)
            for late in hosted:
                if (late.moved, self.thread) in self.before:
                    then, step = self.before[late.moved, self.thread]
                    self.one_late(late, {**then, self.dims[late.moved]: start}, step)
            self.walk(inside, {**at, **here})
            for late in sharing:
                # A mid dim without a loop may be beside the moved loop: it starts where its outer dim does.
                mids = {(t, loop, "mid"): start for t, loop, _ in here}
                self.before[late.moved, self.thread] = {**at, **here, **mids}, self.step
        self.catch_up(sharing)
        if is_parallel:
            assert self.region is not None
            self.region.check()
            self.region, self.thread = None, 0
        for name in group:
            self.leave(name)

    def one_late(self, late: _Late, at: dict[tuple[int, str, str], int], step: int) -> None:
        """One iteration of a late task's own loop, in tile `step` of the shared loop, which is behind."""
        now, self.step = self.step, step
        inside = [
            x for x in self.objects if x != late.moved and self.order(x, late.moved) == INSIDE
        ]
        self.walk(inside, at)
        self.step = now

    def catch_up(self, sharing: list[_Late]) -> None:
        """Runs the remaining iterations of late tasks when their threads leave the shared loop."""
        for late, thread in product(sharing, range(self.threads)):
            if (late.moved, thread) not in self.before:
                continue
            at, self.step = self.before.pop((late.moved, thread))
            self.thread = thread
            t, loop, _ = self.dims[late.moved]
            tile = self.size(t, loop, "inner") * self.size(t, loop, "mid")
            for start in range(0, self.extent(t, loop), tile):
                self.one_late(late, {**at, self.dims[late.moved]: start}, self.step)

    def pack(self, name: str) -> None:
        """Copies are made at the head of the innermost outer dim of the loops that index them; those of two stages may be made when
        the block before is begun.
        """
        t, loop, level = self.dims[name]
        task = self.problem.tasks[t]
        own = (load for e in (task.condition, task.value) if e is not None for load in loads(e))
        for load in own:
            used, site = indexing(load) & {x.name for x in task.loops}, self.site(task, load)
            if not self.is_copied(task, site) or loop not in used:
                continue
            outer = [f"{task.name}.{x}.outer" for x in used]
            if level == "outer" and all(
                self.order(name, x) in (INSIDE, MERGED) for x in outer if x != name
            ):
                self.check_packed_by_all(task, site)
                now = dict(self.memory)
                self.copied[t, site] = self.next_block.get((t, site, name), now)
                if self.choice("staged", f"{task.name}.{site}") == "TWO_STAGES":
                    self.next_block[t, site, name] = now

    def site(self, task: Any, load: ir.Load) -> str:
        """Returns the name of a read in choices: the array, or the access where the array is read at other places, too."""
        places = [(to_affine(i), i) for i in load.indices]
        texts = (show_affine(a) if a is not None else str(i) for a, i in places)
        access = load.array + "".join(f"[{text.replace(' ', '')}]" for text in texts)
        return access if self.choice("staged", f"{task.name}.{access}") else load.array

    def check_packed_by_all(self, task: Any, site: str) -> None:
        """Refuses packing by a team outside of a region in which all of its threads are."""
        if self.choice("packed_by", f"{task.name}.{site}") != "TEAM":
            return
        if self.region is not None:
            raise IllegalError(f"{task.name} packs {site} by a team inside a parallel loop")
        outer = [f"{task.name}.{loop.name}.outer" for loop in task.loops]
        if all(self.choice("dim_kind", d) != "PARALLEL" for d in outer):
            raise IllegalError(f"{task.name} packs {site} by a team, and one thread runs it")

    def is_copied(self, task: Any, site: str) -> bool:
        how = self.choice("staged", f"{task.name}.{site}")
        return how in ("COPY", "TWO_STAGES", "HALO")

    def leave(self, name: str) -> None:
        """After a task's outermost reduction loop its sums are finished; behind a loop no block is packed ahead of it."""
        t, loop, _ = self.dims[name]
        self.next_block = {key: made for key, made in self.next_block.items() if key[2] != name}
        task = self.problem.tasks[t]
        reduced = [d for d, (u, x, _) in self.dims.items() if u == t and self.is_reduced(t, x)]
        if not self.is_reduced(t, loop) or any(self.order(name, d) == INSIDE for d in reduced):
            return
        if self.sums[t]:
            self.tile[t] += 1
        parallel = any(self.choice("dim_kind", d) == "PARALLEL" for d in reduced)
        if parallel and self.region is not None:
            raise IllegalError(f"{task.name} combines partial results inside a parallel loop")
        for place, terms in self.sums[t].items():
            n = 1
            for x in task.loops:
                n *= x.extent if x.is_reduction else 1
            if len(terms) != n:
                raise IllegalError(f"{task.name} finished {place} after {len(terms)} of {n} terms")
            in_order = sorted(terms, key=lambda p: [p[x.name] for x in task.loops])
            if not task.fast_math and terms != in_order:
                raise IllegalError(f"{task.name} adds out of order")
            at = self.steps | free_point(task, terms[0])
            self.reads(t, "finish", task.finish, at)
            self.store(t, place, -1 if parallel else self.thread)
        self.sums[t] = defaultdict(list)

    def is_reduced(self, t: int, loop: str) -> bool:
        return any(x.name == loop and x.is_reduction for x in self.problem.tasks[t].loops)

    # --- bodies ---

    def body(self, t: int, at: dict[tuple[int, str, str], int]) -> None:
        task = self.problem.tasks[t]
        ranges = []
        for loop in task.loops:
            start = at[t, loop.name, "mid"]
            inner = self.size(t, loop.name, "inner")
            ranges.append(range(start, min(start + inner, loop.extent)))
        if not task.is_reduction:
            self.tile[t] += 1
        for cell in product(*ranges):
            point = {**self.steps, **dict(zip((x.name for x in task.loops), cell, strict=True))}
            self.reads(t, "condition", task.condition, point)
            if not holds(task, point):
                self.write_back(t, written(task, point))
                continue
            self.reads(t, "value", task.value, point)
            if task.is_reduction:
                self.sums[t][written(task, point)].append(
                    self.steps | free_point(task, point) | point
                )
            else:
                self.store(t, written(task, point), self.thread)

    def reads(self, t: int, where: str, e: Any, at: Point) -> None:
        task = self.problem.tasks[t]
        for k, load in enumerate(loads(e)):
            place = read(load, at)
            key = (t, where, k, tuple(at.items()))
            space, producer = self.flow(t, place[0])
            site = self.site(task, load)
            is_copied = self.is_copied(task, site)
            if is_copied and space != "GLOBAL":
                raise IllegalError(f"{task.name} packs {place[0]}, which is not in memory")
            if space == "GLOBAL":
                known = self.copied[t, site] if is_copied else self.memory
                found = known.get(place)
                if self.region is not None:
                    self.region.reads[place].add(self.step)
            elif where == "value" and self.is_rescaled(t, producer, place[0]):
                self.check_so_far(t, producer, place, at)
                found = self.want[key]
            else:
                thread, tile = self.chip.get((producer, place), (-2, -1))
                if thread != self.thread:
                    raise IllegalError(f"{task.name} looks for {place} in another thread")
                if space == "REGISTER" and tile != self.tile[producer]:
                    raise IllegalError(
                        f"{task.name} looks for {place} in registers of another tile"
                    )
                is_kept = self.is_kept(producer, place[0])
                found = self.want[key] if is_kept else self.held[producer, place]
            self.keep(t, place)
            if found != self.want[key]:
                raise IllegalError(
                    f"{task.name} reads {place} at {at} of {found}, wanted {self.want[key]}"
                )
            self.seen.add(key)

    def is_rescaled(self, t: int, base: int, array: str) -> bool:
        """True if a task adds up what holds another's result so far."""
        chosen = self.choice("rescaling", self.problem.tasks[t].name) == "RESCALED"
        is_result = self.problem.tasks[base].target.array == array
        return chosen and is_result and (base, t) in self.correctable

    def check_so_far(self, t: int, base: int, place: Any, at: Point) -> None:
        """A result so far has the terms of all iterations that were added up by it, in one thread."""
        names = [[x.name for x in self.problem.tasks[u].loops if x.is_reduction] for u in (base, t)]
        begun = {tuple(p[x] for x in names[0]) for p in self.sums[base].get(place, ())}
        if tuple(at[x] for x in names[1]) not in begun:
            raise IllegalError(f"{place} has yet to reach {at}")
        dims = (f"{self.problem.tasks[base].name}.{x}.outer" for x in names[0])
        if any(self.choice("dim_kind", d) == "PARALLEL" for d in dims):
            raise IllegalError(f"{place} so far is of several threads")

    @cached_property
    def correctable(self) -> set[tuple[int, int]]:
        """Pairs of a result and a sum that can be corrected whenever it changes."""
        tasks = self.problem.tasks
        sums = [t for t, task in enumerate(tasks) if task.is_reduction]
        found = set()
        for t in sums:
            before = [p for p in sums if p < t]
            found |= {(p, t) for p in before if is_correctable(tasks[p], tasks[t], self.steps)}
            for bases in (*((p,) for p in before), *permutations(before, 2)):
                if is_about_mean([tasks[p] for p in bases], tasks[t], self.steps):
                    found |= {(p, t) for p in bases}
        wrong = (r for r in self.rescaled if not restores(r, tasks, self.steps))
        return found - {(p, r.task) for r in wrong for p in r.bases}

    def is_kept(self, keeper: int, array: str) -> bool:
        """True if a task finds what an earlier one has read, not written."""
        return self.problem.tasks[keeper].target.array != array

    def keep(self, t: int, place: Any) -> None:
        """A task that reads for a later one as well puts it into its thread's own array."""
        name = self.problem.tasks[t].name
        for other in self.problem.tasks:
            kept = self.choice("mem_space", f"{name}->{other.name}.{place[0]}") == "SHARED"
            if kept and self.is_kept(t, place[0]):
                self.chip[t, place] = (self.thread, self.tile[t])
                self.write_over(t, place)

    def write_over(self, t: int, place: Any) -> None:
        """A thread's own array holds one tile of the loop that a late task shares: the tile before it is gone."""
        for late in self.late:
            mates = [
                d for d in self.dims if self.order(d, late.shared) == MERGED or d == late.shared
            ]
            for u, loop, level in (self.dims[d] for d in mates):
                if u != t or level != "outer":
                    continue
                tile = self.size(u, loop, "inner") * self.size(u, loop, "mid")
                if self.choice("schedule", late.shared) == "CYCLIC":
                    tile *= self.threads
                for k in range(len(place[1])):
                    index = list(place[1])
                    index[k] -= tile
                    before = (t, (place[0], tuple(index)))
                    is_own = self.chip.get(before, (-1, -1))[0] == self.thread
                    if is_own and self.along(u, place[0], k) == loop:
                        del self.chip[before]

    def along(self, t: int, array: str, axis: int) -> str:
        """The loop that indexes an axis of what a task writes, or reads and keeps."""
        task = self.problem.tasks[t]
        if task.target.array == array:
            written_axis = task.target.axes[axis]
            terms = written_axis.terms if written_axis is not None else ()
            return terms[0][0] if len(terms) == 1 else ""
        load = next(x for x in loads(task.value) if x.array == array)
        index = load.indices[axis]
        return index.loop if isinstance(index, ir.LoopIndex) else ""

    def flow(self, consumer: int, array: str) -> tuple[str, int]:
        """Through what a task reads an array, and from whom if on chip."""
        name = self.problem.tasks[consumer].name
        for p, task in enumerate(self.problem.tasks):
            space = self.choice("mem_space", f"{task.name}->{name}.{array}")
            if space in ("REGISTER", "SHARED"):
                return space, p
        return "GLOBAL", -1

    def store(self, t: int, place: Any, thread: int) -> None:
        task = self.problem.tasks[t]
        writer = t + (self.n_runs[t] - 1) * len(self.problem.tasks)
        self.chip[t, place], self.held[t, place] = (thread, self.tile[t]), writer
        self.write_over(t, place)
        if self.choice("store", f"{task.name}.{place[0]}") == "ELIDED":
            return
        self.memory[place] = writer
        if self.region is not None:
            self.region.writes[place].add(self.step)

    def write_back(self, t: int, place: Any) -> None:
        """A blend stores what an element held where it assigns nothing: nobody else may store there meanwhile."""
        name = f"{self.problem.tasks[t].name}.{place[0]}"
        space, before = self.flow(t, place[0])
        old = self.memory.get(place) if space == "GLOBAL" else self.held[before, place]
        self.chip[t, place], self.held[t, place] = (self.thread, self.tile[t]), old
        if self.choice("guard", name) == "BLEND" and self.region is not None:
            self.region.kept[place].add(self.step)

    # --- launches ---

    def launches(self) -> None:
        """Tasks of a launch stand together, and nothing on chip crosses from one launch to the next."""
        names = [t.name for t in self.problem.tasks]

        def earlier(a: str, b: str) -> int:
            return -1 if self.order(a, b) == BEFORE else 1

        names.sort(key=cmp_to_key(earlier))
        index = {t.name: k for k, t in enumerate(self.problem.tasks)}

        def together(a: str, b: str) -> bool:
            pair = sorted((a, b), key=index.__getitem__)
            return a == b or self.choice("fused", *pair) == "SAME_LAUNCH"

        owner = {d: self.problem.tasks[t].name for d, (t, _, _) in self.dims.items()}
        owner |= {name: name for name in self.bodies}
        for (x, a), (y, b) in product(owner.items(), repeat=2):
            if not together(a, b) and self.order(x, y) not in (BEFORE, AFTER):
                raise IllegalError(f"{x} and {y} are of different launches and {self.order(x, y)}")
        for i, a in enumerate(names):
            for j in range(i + 2, len(names)):
                if together(a, names[j]) and not all(together(a, x) for x in names[i:j]):
                    raise IllegalError(f"the launch of {a} is interrupted")
        for p, task in enumerate(self.problem.tasks):
            for other in self.problem.tasks[p + 1 :]:
                space = self.choice("mem_space", f"{task.name}->{other.name}.{task.target.array}")
                if space in ("REGISTER", "SHARED") and not together(task.name, other.name):
                    raise IllegalError(f"{task.name} hands over on chip to another launch")


def illegal(candidate: Any, threads: int = 2) -> str:
    """Why a complete candidate is illegal, or ""."""
    try:
        Judge(candidate, threads).run()
    except IllegalError as e:
        return str(e)
    return ""

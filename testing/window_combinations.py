"""Small random programs on random trees: every combination of the choices that windows of calls have brought in.

CP-SAT enumerates the combinations; what is left is decided at random. A program is compiled as it is, as a window that assumes what
its run before has left, and rotated. Each text runs three periods with each number of threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ..codegen.text.source import Source
from ..kernels.frontend.recorder import Recording
from ..kernels.tasks.entry_facts import assuming
from ..kernels.tasks.naive_activation import cell_by_cell
from ..kernels.tasks.pipeline import normalise
from ..kernels.tasks.window_kernels import window_kernels
from ..runtime.engine.plan_bank import MOST_RUNS
from ..space.backbone import OUTER
from ..space.build import build_space
from ..space.candidate import Candidate, DeadEnd, Space
from ..space.engine import cpsat
from ..space.engine.declarations import Literal
from ..space.engine.order import MERGED
from ..space.families.tiling import PARALLEL
from . import checking, sparse_candidates, sparse_periods
from .calling import Arrays
from .interpreted import run_reference
from .sparse_candidates import Work
from .sparse_drawn import CALM, WORDS, Call, Tree, drawn_tree
from .sparse_programs import World, interpreted, recorded
from .sparse_windows import made, window_of

# Fusion of calls, lists that are not made again, demoted activations, directories, layouts.
KINDS = ("fused", "listgen", "activate", "directory", "record", "leaf_layout", "cell_order")
MOST = 16  # combinations of a program in each of its forms
# These stand behind the first call, where a recording refuses arrays of Python (`from_numpy`). `fill_rest` is in their two places:
# a list of another length would change the programs of all numbers.
_HOST = ("clear", "fill_rest", "fill_rest", "fill_rest", "copy_plain")
_CHANGES = tuple(x for x in WORDS if x not in CALM)
_MOST_CELLS = 40


@dataclass(frozen=True)
class SmallProgram:
    """A period of few calls, and Python's operations among them."""

    number: int
    tree: Tree
    period: tuple[Call, ...]


@dataclass
class Counts:
    """Counts of programs and of their forms, by name.

    `n_full`: programs that fill a list of their tree within the periods, and are not run. `n_whole`: forms with all combinations.
    `n_texts`: different texts. `values`: combinations by kind and value. `wrong` has the fault of each wrong text.
    """

    n_programs: int = 0
    n_full: int = 0
    forms: Counter[str] = field(default_factory=Counter)
    n_whole: int = 0
    n_combinations: int = 0
    n_texts: int = 0
    values: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def n_forms(self) -> int:
        return self.forms.total()


def drawn(number: int) -> SmallProgram:
    """Returns a program, the same for each number: 2 to 4 calls, one that may change cells, one loop, some by Python."""
    rng = np.random.default_rng((146, number))
    tree = drawn_tree(rng, _MOST_CELLS)

    words = (_CHANGES, CALM, WORDS if rng.integers(2) else _HOST)
    few = [(str(rng.choice(some)), int(rng.integers(0, 40))) for some in words]
    first, second = few[:2] if rng.integers(2) else few[1::-1]
    rest = (few[int(rng.integers(3))] for _ in range(int(rng.integers(3))))
    return SmallProgram(number, tree, (first, second, *rest))


def run(programs: Iterable[SmallProgram], folder: Path, most: int = MOST) -> Counts:
    """Compiles and runs the combinations of programs, at most `most` of each form; returns what was counted."""
    counts = Counts()
    for program in programs:
        counts.n_programs += 1
        found = works_of(program, most, counts)
        if not found:
            continue
        said = sparse_candidates.faults_built(
            [work for _, work in found], folder / f"combinations{program.number}"
        )
        counts.n_texts += len(found)
        counts.wrong += [
            f"{program}, {form}: {what}"
            for (form, _), what in zip(found, said, strict=True)
            if what
        ]
    return counts


def works_of(program: SmallProgram, most: int, counts: Counts) -> list[tuple[str, Work]]:
    """Returns the different texts of a program, each with the form that it is of, and counts."""
    with period_of(program) as period:
        recording, before = recorded(period)
        try:
            wanted = sparse_periods.periods(recording, before)
            forms = list(_forms(recording, before))
        except AssertionError:
            counts.n_full += 1
            return []
        differences = (interpreted(period, want) for want in wanted)
        if said := next(filter(None, differences), ""):
            counts.wrong.append(f"{program}: {said} by the interpreter of trees")
        rng = np.random.default_rng((program.number, 1))
        return [
            (form, work)
            for form, one, begin, want in forms
            for work in _works(program, (form, one, begin, want), most, counts, rng)
        ]


@contextmanager
def period_of(program: SmallProgram) -> Iterator[Callable[[], None]]:
    """Context with the fields of a program, and the function that makes the calls of a period."""
    world = World(program.tree)
    try:
        world.begin(program.number)

        def period() -> None:
            for what, c in program.period:
                made(world, what, c)

        yield period
    finally:
        world.end()


_Form = tuple[str, Recording, Arrays, Sequence[Arrays]]


def _forms(recording: Recording, before: Arrays) -> Iterator[_Form]:
    """Yields the forms of a window, the states that each begins with, and those that it must leave behind each period."""

    def form(name: str, one: Recording, begin: Arrays) -> _Form:
        return name, one, begin, sparse_periods.periods(one, begin)

    def behind(one: Recording, begin: Arrays) -> Arrays:
        return run_reference(cell_by_cell(one), begin, {})

    def steady(one: Recording, begin: Arrays) -> tuple[Recording, Arrays]:
        """Returns a window with all that it may assume, and the states behind as many runs."""
        assumed = assuming(one, (), MOST_RUNS)
        for _ in range(assumed.n_assumed_runs):
            begin = behind(one, begin)
        return assumed, begin

    yield form("first", recording, before)
    assumed, later = steady(recording, before)
    if assumed.assumed:
        yield form("steady", assumed, later)
    n = window_kernels(window_of(recording)).rotation
    if n:
        calls = recording.unrolled().calls
        prologue, rotated = (
            replace(recording, calls=some, repeats=())
            for some in (calls[:n], (*calls[n:], *calls[:n]))
        )
        yield form("rotated", *steady(rotated, behind(prologue, later)))


def _works(
    program: SmallProgram, form: _Form, most: int, counts: Counts, rng: np.random.Generator
) -> Iterator[Work]:
    name, recording, begin, wanted = form
    problem = normalise(recording)
    if not problem.tasks:
        return
    space = build_space(problem, sparse_candidates.machine(program.number))
    found, are_all = combined(space, of_windows(space), most, rng)
    counts.forms[name] += 1
    counts.n_whole += are_all
    counts.n_combinations += len(found)
    sources = dict[str, Source]()
    for one in found:
        if isinstance(one, DeadEnd):
            counts.wrong.append(f"{program}, {name}: filters exclude {one.choice}, {one.why}")
            continue
        for var in map(int, space.searchable):
            choice = space.choices[var]
            if choice.kind in KINDS:
                counts.values[choice.kind, choice.values[one.value(var)]] += 1
        source = checking.source_of(one)
        sources.setdefault(source.text, source)
    for source in sources.values():
        yield Work(source, recording, begin, wanted)


def combined(
    space: Space, literals: Sequence[Literal], most: int, rng: np.random.Generator
) -> tuple[list[Candidate | DeadEnd], bool]:
    """Returns a complete candidate for each combination of truth values of `literals`, at most `most`, and True if these are all.

    A dead end stands for a combination that CP-SAT completes and no filter should exclude. All other choices are drawn.
    """
    root = space.open_root()
    if isinstance(root, DeadEnd):
        return [root], True
    seed = int(rng.integers(1 << 30))
    domains, are_all = cpsat.projections(space.model, root.domains, literals, most, seed)
    return [_completed(space, root, literals, one, rng) for one in domains], are_all


def of_windows(space: Space) -> list[Literal]:
    """Returns what tells combinations apart: values of KINDS, loops of a team, and loops of two calls that are one."""
    found = values_of(space, KINDS)
    kinds = space.variables.kind.items()
    found += [Literal(var, 1 << PARALLEL) for d, var in kinds if d.level == OUTER]
    for d, partners in space.backbone.partners.items():
        found += [
            Literal(space.model.order(d.order_id, e.order_id), 1 << MERGED)
            for e in partners
            if d.level == e.level == OUTER and d.order_id < e.order_id
        ]
    return found


def values_of(space: Space, kinds: Sequence[str]) -> list[Literal]:
    """Returns a literal for each value of the choices of these kinds."""
    chosen = [int(v) for v in space.searchable if space.choices[int(v)].kind in kinds]
    return [Literal(v, 1 << value) for v in chosen for value in range(len(space.choices[v].values))]


def _completed(
    space: Space,
    root: Candidate,
    literals: Sequence[Literal],
    domains: cpsat.Domains,
    rng: np.random.Generator,
) -> Candidate | DeadEnd:
    """Returns a random implementation with the combination of `domains`; that of `domains` itself where chance finds none."""
    narrowed = root.domains.copy()
    for var, mask in literals:
        is_true = int(domains[var]) & mask != 0
        space.model.narrow(narrowed, var, mask if is_true else ~mask & 0xFFFFFFFF)
    begun = space.candidate(narrowed)
    if isinstance(begun, DeadEnd):
        return begun
    done = checking.random_candidate(begun, rng)
    return done if isinstance(done, Candidate) else space.candidate(domains)

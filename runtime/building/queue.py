"""Build queue: compiles many sources in parallel, and starts while others are still being generated."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ...codegen.text.source import Source
from ..api.artifact import Artifact, BuildReport
from ..api.outcome import Failure
from ..forked import Stopped

if TYPE_CHECKING:
    from ..api.backend import AbstractBuilder, AbstractReporter

# Characters of text that take gcc about as long as its start, the headers and the linker do.
_START = 6000
_LOOK_S = 0.1  # polling interval of `is_over`


class BuildQueue:
    """Compiles sources before they are requested, with up to `jobs` compilers, each on several sources at once.

    While sources are `put`, up to `ahead` compilers build the first of them: the generator has a core of its own. The groups of
    the compilers shrink with the remaining work, so that all end at about the same time: guided self-scheduling
    (Polychronopoulos and Kuck 1987). Each unit of a source in units is built once, together with units of other sources. Not
    thread-safe.
    """

    def __init__(
        self,
        builder: AbstractBuilder,
        jobs: int,
        ahead: int = 0,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self._builder = builder
        self._is_over = is_over
        self._jobs = max(1, jobs)
        self._ahead = min(ahead, self._jobs - 1)
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: dict[str, Source] = {}
        self._begun: list[_Group] = []
        self._built_cost, self._built_s = 0.0, 0.0  # of what was built, and the compilers' time
        self._units: set[str] = set()  # keys of those that were built

    def put(self, source: Source, n_to_come: int) -> None:
        """Adds a source that will be requested, together with others.

        At most `n_to_come` of them are still to be put.
        """
        new = self._not_begun([source])
        if not new:
            return
        self._waiting |= new
        n_left = len(self._waiting) + n_to_come
        n_running = sum(not group.future.done() for group in self._begun)
        half_a_share = n_left / (2 * self._jobs)  # a compiler that waited for all of it would idle
        if n_running < self._ahead and len(self._waiting) >= half_a_share:
            n_taken = min(-(-n_left // self._jobs), self._builder.most_together)
            self._begin([self._waiting.pop(key) for key in list(self._waiting)[:n_taken]])

    def begin(self, sources: Sequence[Source]) -> None:
        """Starts to build sources that will be requested, with all compilers. More sources may follow."""
        for share in self._shared_out(self._not_begun(sources), time.monotonic()):
            self._begin(share)

    def rest(self) -> None:
        """Waits until all started builds have ended. Raises Stopped once `is_over`."""
        while wait([group.future for group in self._begun], _LOOK_S).not_done:
            if self._is_over():
                raise Stopped

    def take(self, sources: Sequence[Source]) -> list[Artifact | Failure]:
        """Returns all sources built, in their order. Other sources that were put are dropped.

        No compiler runs afterwards. Raises Stopped once `is_over`.
        """
        asked_s = time.monotonic()
        for share in self._shared_out(self._not_begun(sources), asked_s):
            self._begin(share)
        groups = list(self._begun)
        try:
            self.rest()
        finally:  # also where the user wants to wait no longer
            self.forget()
        found: dict[str, Artifact | Failure] = {}
        for group in groups:
            made = group.future.result()
            found |= zip((s.key for s in group.sources), made.built, strict=True)
            self._built_cost += group.cost
            self._built_s += made.ended_s - made.began_s
        units = {unit.key for s in sources for unit in s.units}
        self._units |= {k for k, b in found.items() if k in units and isinstance(b, Artifact)}
        return [found[s.key] if s.key in found else self._assembled(s, found) for s in sources]

    def _not_begun(self, sources: Sequence[Source]) -> dict[str, Source]:
        """Returns, by key, the texts still to compile for `sources`: those that no compiler has begun."""
        begun = {s.key for group in self._begun for s in group.sources}
        return {key: s for key, s in self._compiled_for(sources).items() if key not in begun}

    def _compiled_for(self, sources: Sequence[Source]) -> dict[str, Source]:
        """Returns, by key, the texts to compile for `sources`: new units, or whole sources if not in units."""
        found: dict[str, Source] = {}
        for s in sources:
            if self._builder.builds_units and s.units:
                new = (unit for unit in s.units if unit.key not in self._units)
                found |= {unit.key: unit.source for unit in new}
            else:
                found[s.key] = s
        return found

    def _assembled(
        self, source: Source, found: Mapping[str, Artifact | Failure]
    ) -> Artifact | Failure:
        """Returns the artifact of a source in units; `found` are artifacts of the units compiled just now."""
        new: list[Artifact] = []
        for unit in source.units:
            made = found.get(unit.key)
            if isinstance(made, Failure):
                return made
            if made is not None:
                new.append(made)
        built = self._builder.build(source)
        spans = [b.compiling_s for b in new if b.compiling_s]
        if isinstance(built, Failure) or not spans:
            return built
        return replace(
            built,
            build_ns=sum(b.build_ns for b in new),
            compiling_s=(min(a for a, _ in spans), max(b for _, b in spans)),
        )

    def forget(self) -> None:
        """Drops all sources that were put, and waits until no compiler runs."""
        if self._pool is not None:
            _end(self._pool, [g.future for g in self._begun], self._builder, self._is_over)
        self._pool, self._begun, self._waiting = None, [], {}

    def _begin(self, sources: list[Source]) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._jobs, thread_name_prefix="build")
        future = self._pool.submit(_make, self._builder, sources)
        self._begun.append(_Group(sources, future, time.monotonic()))

    def _shared_out(self, sources: dict[str, Source], now_s: float) -> list[list[Source]]:
        """Partitions sources into one group per compiler, with equal amounts of text including its current work.

        Otherwise the compiler that finishes first would idle.
        """
        rate = self._built_cost / self._built_s if self._built_s else 0.0
        most = self._builder.most_together
        n_groups = -(-len(sources) // (most * self._jobs)) * self._jobs
        left = [
            max(0.0, g.cost - rate * (now_s - g.began_s))
            for g in self._begun
            if not g.future.done()
        ]
        # Those of busy compilers come last: the others' begin at once.
        shares = [_Share(0.0) for _ in range(n_groups - len(left))] + [_Share(c) for c in left]
        for source in sorted(sources.values(), key=lambda s: -len(s.text)):
            free = (s for s in shares if len(s.sources) < most)
            min(free, key=lambda s: (s.cost_with(source), len(s.sources))).add(source)
        return [share.sources for share in shares if share.sources]


@dataclass(frozen=True)
class _MadeSources:
    built: list[Artifact | Failure]
    began_s: float
    ended_s: float


@dataclass(frozen=True)
class _Group:
    """Sources of one compiler run, running or finished."""

    sources: list[Source]
    future: Future[_MadeSources]
    began_s: float  # time of submission: its compiler may have started later

    @property
    def cost(self) -> float:
        return _START + sum(len(s.text) for s in self.sources)


@dataclass
class _Share:
    """Group of sources for one compiler.

    `cost`: characters of their text, plus those left of the compiler's current work.
    """

    cost: float
    sources: list[Source] = field(default_factory=list)

    def cost_with(self, source: Source) -> float:
        return self.cost + len(source.text) + (0 if self.sources else _START)

    def add(self, source: Source) -> None:
        self.cost = self.cost_with(source)
        self.sources.append(source)


def _make(builder: AbstractBuilder, sources: list[Source]) -> _MadeSources:
    began_s = time.monotonic()
    built = builder.build_together(sources)
    ended_s = time.monotonic()
    placed = [
        replace(b, compiling_s=(began_s, ended_s)) if isinstance(b, Artifact) and b.build_ns else b
        for b in built
    ]
    return _MadeSources(placed, began_s, ended_s)


def build_many(
    builder: AbstractBuilder,
    sources: Sequence[Source],
    jobs: int,
    is_over: Callable[[], bool] = lambda: False,
) -> list[Artifact | Failure]:
    """Builds sources with up to `jobs` compilers at once; results in the order of `sources`.

    Raises Stopped once `is_over`.
    """
    return BuildQueue(builder, jobs, is_over=is_over).take(sources)


def build_each(
    builder: AbstractBuilder,
    sources: Sequence[Source],
    jobs: int,
    is_over: Callable[[], bool] = lambda: False,
) -> list[Artifact | Failure]:
    """Builds each source in a compiler run of its own, with up to `jobs` compilers at once.

    Results are in the order of `sources`. Raises Stopped once `is_over`.
    """
    pool = ThreadPoolExecutor(jobs, thread_name_prefix="build")
    futures = [pool.submit(builder.build, source) for source in sources]
    try:
        while wait(futures, _LOOK_S).not_done:
            if is_over():
                raise Stopped
    finally:
        _end(pool, futures, builder, is_over)
    return [future.result() for future in futures]


def _end(
    pool: ThreadPoolExecutor,
    futures: Sequence[Future[Any]],
    builder: AbstractBuilder,
    is_over: Callable[[], bool],
) -> None:
    """Cancels queued builds, and waits until no compiler runs; ends running compilers once `is_over`.

    Compilers are ended repeatedly, since a source that failed together with others is built again by itself.
    """
    pool.shutdown(wait=False, cancel_futures=True)
    while wait([f for f in futures if not f.cancelled()], _LOOK_S).not_done:
        if is_over():
            builder.end_builds()
    pool.shutdown()


def report_many(
    builder: AbstractBuilder, reporter: AbstractReporter, sources: Sequence[Source], jobs: int
) -> list[BuildReport | Failure]:
    """Builds sources as `build_many`, and returns a report on the resources of each; nothing is run.

    Raises DeviceError if the backend has no such report.
    """
    built = build_many(builder, sources, jobs)
    return [
        b if isinstance(b, Failure) else reporter.report(s)
        for s, b in zip(sources, built, strict=True)
    ]

"""CPU time of tests: measured where each runs, printed at the end of a run, and held against `budget.toml`.

It counts the process of a test and the children that it waits for. Other work on the machine changes that much less than the time
that passes. A fixture of a file or a session counts by itself: which test needs it first is no property of that test.
"""

from __future__ import annotations

import resource
import time
import tomllib
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .fork_server import Popen

BUDGET = Path(__file__).with_name("budget.toml")
# A busy machine, whose cores share units and caches, makes of a second of CPU up to two; what waits awake takes longer still.
NOISE = 3.0
_SHOWN, _SHOWN_S = 20, 1.0  # of the most expensive, and what each of them takes at least
_PROPERTY, _COMPILED = "cpu_s", "numba_compiled"


def cpu_s() -> float:
    """CPU seconds of this process, and of the children and forked processes that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return Popen.reaped_s + sum(u.ru_utime + u.ru_stime for u in used)


@dataclass(frozen=True)
class Budget:
    """Most CPU seconds of a test, the tests that may take more, by node without parameters, and files that run first."""

    most_s: float
    listed_s: Mapping[str, float]
    first: tuple[str, ...] = ()

    def of(self, node: str) -> float:
        """CPU seconds that a test or a fixture is expected to take at most."""
        return self.listed_s.get(node.partition("[")[0], self.most_s)

    def in_order(self, nodes: Sequence[str]) -> list[int]:
        """Positions of tests in the order that they run in: by file, the most expensive first.

        A process that begins with such a file last would end alone. Tests of a file keep their order.
        """
        files = [node.partition("::")[0] for node in nodes]
        listed_s: defaultdict[str, float] = defaultdict(float)
        for node, file in zip(nodes, files, strict=True):
            listed_s[file] += self.listed_s.get(node.partition("[")[0], 0.0)
        return sorted(
            range(len(nodes)), key=lambda k: (files[k] not in self.first, -listed_s[files[k]])
        )

    def exceeded(self, times_s: Mapping[str, float]) -> Iterator[str]:
        """A line for each that takes more, beyond all noise: as it would stand in the file, but for the reason."""
        for node, taken_s in most_first(times_s):
            if taken_s > NOISE * self.of(node):
                name = node.partition("[")[0]
                yield f'"{name}" = {{ cpu_s = {taken_s:.0f}, why = "?" }} # of {self.of(node):g}: {node}'


def read_budget(path: Path = BUDGET) -> Budget:
    """The budget in a file."""
    table = tomllib.loads(path.read_text())
    listed_s = {name: row["cpu_s"] for name, row in table["tests"].items()}
    return Budget(table["most_s"], listed_s, tuple(table["first"]))


def most_first(times_s: Mapping[str, float]) -> list[tuple[str, float]]:
    """Nodes with their times, the most expensive first."""
    return sorted(times_s.items(), key=lambda row: -row[1])


class Meter:
    """Times the tests of this process: the report of a test's end carries what it took."""

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._begin_s = self._began_s = 0.0
        # Of fixtures that were made for the present test.
        self._shared_s: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, Any, Any]:
        self._begin_s, self._began_s = cpu_s(), time.time()
        self._shared_s.clear()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        if fixturedef.scope == "function":
            return (yield)
        begin_s, inner_s = cpu_s(), sum(self._shared_s.values())
        try:
            return (yield)
        finally:
            within_s = sum(self._shared_s.values()) - inner_s
            name = f"{fixturedef.baseid}::{fixturedef.argname}"
            self._shared_s[name] += cpu_s() - begin_s - within_s

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        report = yield
        if report.when == "teardown":
            own_s = cpu_s() - self._begin_s - sum(self._shared_s.values())
            times_s = {item.nodeid: own_s, **self._shared_s}
            report.user_properties.append((_PROPERTY, times_s))
            if max(times_s.values()) > self._most_s and numba_wrote_since(self._began_s):
                report.user_properties.append((_COMPILED, list(times_s)))
        return report


def numba_wrote_since(began_s: float) -> bool:
    """True if any process has added to numba's cache since then: no test takes that long again."""
    from kernelscape.space.engine.jit import cache_folder

    folders = [cache_folder(), *cache_folder().iterdir()]
    return any(f.stat().st_mtime >= began_s for f in folders)


class Table:
    """Collects the times of a run and prints them, with what exceeds the budget. A run fails by that if the budget `is_held`."""

    def __init__(self, budget: Budget, file: Path | None = None, *, is_held: bool = False) -> None:
        self._budget = budget
        self._file = file
        self._is_held = is_held
        self._times_s: defaultdict[str, float] = defaultdict(float)
        self._compiled: set[str] = set()
        self.exceeded: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == _PROPERTY and isinstance(value, dict):
                for node, taken_s in value.items():
                    # Several processes may have made the same fixture.
                    self._times_s[node] = max(self._times_s[node], taken_s)
            elif name == _COMPILED and isinstance(value, list):
                self._compiled.update(value)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        judged = {n: s for n, s in self._times_s.items() if n not in self._compiled}
        self.exceeded = list(self._budget.exceeded(judged))
        if self._is_held and self.exceeded and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self._file is not None:
            rows = (f"{taken_s:.2f}\t{node}\n" for node, taken_s in most_first(self._times_s))
            self._file.write_text("".join(rows))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.lines():
            terminalreporter.write_line(line)
        if self.exceeded:
            terminalreporter.section("more CPU than three times the budget", red=self._is_held)
            for line in self.exceeded:
                terminalreporter.write_line(line)
            terminalreporter.write_line("make them cheaper, or give a reason in tests/budget.toml")

    def lines(self) -> Iterator[str]:
        """The most expensive tests and fixtures, folders, and the sum."""
        for node, taken_s in most_first(self._times_s)[:_SHOWN]:
            if taken_s >= _SHOWN_S:
                yield f"{taken_s:8.1f} s  {node}"
        folders = self._folders_s()
        if len(folders) > 1:
            for folder, taken_s in most_first(folders):
                yield f"{taken_s:8.1f} s  {folder}"
        yield f"{sum(folders.values()):8.1f} s of CPU"

    def _folders_s(self) -> dict[str, float]:
        """The sums of the folders in tests/."""
        sums: defaultdict[str, float] = defaultdict(float)
        for node, taken_s in self._times_s.items():
            place = Path(node.partition("::")[0])
            # Fixtures of a conftest are of its folder.
            folder = place.parent if place.suffix else place
            sums["/".join(folder.parts[:2]) or "of plugins"] += taken_s
        return sums

"""Plugin of pytest for tests that were written for Taichi: `import taichi` is this package, and their helpers are at hand.

    python -m pytest -p kernelscape.tests.experiments.taichi_harness --assert=plain FOLDER/test_ad_basics.py

Taichi's tests import a module of helpers that reaches into Taichi's own core. What they need of it is here: a decorator that starts
the library anew for each test with the options that it names, and `approx`. Each test runs on the CPU; one that is for other
backends alone is skipped. KERNELSCAPE_HARNESS=taichi leaves Taichi as it is, so that the same harness runs Taichi itself.
With `--outcomes FILE`, a line of JSON for each test: its name, "passed", "failed" or "skipped", and the first line of what it said.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

_RELATIVE = 1e-6


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", type=Path, help="file for a line of JSON for each test")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Puts `taichi` and the modules of helpers in place, before tests are collected."""
    if os.environ.get("KERNELSCAPE_HARNESS") != "taichi":
        from kernelscape.compat.taichi import install

        names = ExitStack()
        names.enter_context(install())
        config.add_cleanup(names.close)
    helpers = ModuleType("tests.test_utils")
    vars(helpers).update(test=starting, approx=approx, allclose=allclose)
    package = ModuleType("tests")
    vars(package).update(test_utils=helpers)
    sys.modules.update({"tests": package, "tests.test_utils": helpers})
    if (file := config.getoption("--outcomes")) is not None:
        config.pluginmanager.register(_Outcomes(file))


class _Outcomes:
    """Writes the outcome of each test into a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.outcome == "passed":
            return
        crash = getattr(report.longrepr, "reprcrash", None)
        said = report.longreprtext if crash is None else crash.message
        row = {"test": report.nodeid, "outcome": report.outcome, "said": said.splitlines()[:1]}
        with self.file.open("a") as f:
            f.write(json.dumps(row) + "\n")


def approx(expected: Any, **tolerances: Any) -> Any:
    """Like that of pytest, with a relative tolerance of 10^-6 at least. A bool equals what is true where it is."""
    if isinstance(expected, bool):
        return _Truth(expected)
    tolerances["rel"] = max(tolerances.get("rel", _RELATIVE), _RELATIVE)
    return pytest.approx(expected, **tolerances)


def allclose(x: Any, y: Any, **tolerances: Any) -> bool:
    return bool(x == approx(y, **tolerances))


class _Truth:
    def __init__(self, value: bool) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return self.value == bool(other)

    __hash__ = None  # type: ignore[assignment]


def starting(
    arch: Any = None, exclude: Any = None, require: Any = None, **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator of a test: it starts the library on the CPU with these options, and ends it afterwards."""
    import taichi as ti

    def listed(x: Any) -> list[Any]:
        return [] if x is None else list(x) if isinstance(x, (list, tuple)) else [x]

    wanted = listed(arch)
    is_left_out = ti.cpu in listed(exclude) or (wanted and ti.cpu not in wanted)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*given: Any, **named: Any) -> None:
            if is_left_out:
                pytest.skip("is for other backends")
            ti.init(arch=ti.cpu, enable_fallback=False, **options)
            try:
                function(*given, **named)
            finally:
                ti.reset()

        return run

    return decorate

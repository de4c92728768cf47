"""The classes of errors are public, described, and Python's as well as ours."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path

import kernelscape as ks
import pytest
from kernelscape import errors

ROOT = Path(errors.__file__).parent
SHIPPED = ["codegen", "compat", "explorer", "kernels", "report", "runtime", "search", "space"]
INTERNAL = {
    "ArchiveError": "a StaleError is raised from it",
    "BrowserError": "of tests",
    "DiedError": "a FailedReferenceError is raised from it",
    "GraphError": "a RunError is raised from it",
    "IRError": "a bug",
    "IllFormedError": "a bug",
    "NeedsOldElementError": "the tape copies the array; else a KernelError is raised from it",
    "NoFolderError": "the next folder is taken",
    "NotOursError": "an OSError: another folder is taken, or the sentence is said",
    "NotStructuredError": "the task is a closed one",
    "OddFileError": "an OSError: a RecordError is raised from it",
    "RefusedError": "the kernel runs on the CPU after a warning",
    "SlotLostError": "another slot takes over; where none is left, a WorkerError is raised",
    "StoppedAheadError": "the kernel is compiled at its call",
    "TracingStoppedError": "the kernel is traced at its call",
    "_EffectError": "the kernel is traced at its call",
    "_KilledError": "the child is made again",
}


def defined() -> set[str]:
    """The exceptions that the package defines below its commands."""
    classes = {
        node.name: node
        for file in (ROOT / "plugins.py", *(f for x in SHIPPED for f in (ROOT / x).rglob("*.py")))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    return {name for name in classes if name.endswith("Error")}


def test_every_exception_is_public_or_goes_to_nobody() -> None:
    """The kind: docstrings promise a class that nobody can name."""
    assert defined() - set(INTERNAL) == set(errors.__all__)


def test_types_are_seen_by_checkers_as_they_are_found() -> None:
    (checked,) = (
        n for n in ast.parse(Path(errors.__file__).read_text()).body if isinstance(n, ast.If)
    )
    seen = {a.asname: f".{n.module}" for n in checked.body for a in n.names}  # type: ignore[attr-defined]
    found = {name: getattr(errors, name).__module__ for name in errors.__all__}
    assert {n: f"{errors.__package__}{m}" for n, m in seen.items()} == found
    assert ks.errors is errors and set(errors.__all__) == set(dir(errors))
    with pytest.raises(AttributeError, match="has no 'LangError'; it has ArgumentsError"):
        _ = errors.LangError  # type: ignore[attr-defined]


def test_each_is_described_with_what_it_is_besides() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (.*?) \|", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE
    )
    described = {name: re.findall(r"`(\w+)`", also) for name, also in rows}
    assert set(described) == set(errors.__all__)
    for name, also in described.items():
        kinds = {k.__name__ for k in getattr(errors, name).__mro__[1:]}
        bases = {k.__name__ for k in getattr(errors, name).__bases__} - {"Exception"}
        assert bases <= set(also) <= kinds, name


def test_their_text_is_the_sentence_also_behind_a_pipe() -> None:
    """The kind: a class whose `__str__` or pickle is of another base (a KeyError quotes, a SyntaxError takes two arguments)."""
    for name in errors.__all__:
        kind = getattr(errors, name)
        if issubclass(kind, ks.LanguageError):
            made = pickle.loads(pickle.dumps(kind("the sentence")))
            assert type(made) is kind and str(made) == "the sentence", name


def test_what_programs_catch_is_pythons() -> None:
    ks.init(debug=True)
    x = ks.field(ks.f32, shape=4)

    @ks.kernel
    def put(i: int):
        x[i] = 1

    @ks.kernel
    def bits() -> ks.i32:
        a = 1.5
        a |= 1
        return 0

    @ks.kernel
    def four():
        for _ in range(1, 2, 3, 4):
            pass

    @ks.kernel
    def called() -> ks.i32:
        a = 1
        return a(2)

    @ks.kernel
    def to_file():
        print(1, file=3)

    try:
        for kind, call in (
            (IndexError, lambda: put(4)),
            (AssertionError, lambda: put(4)),
            (TypeError, lambda: put("1")),
            (SyntaxError, put),
            (TypeError, bits),
            (SyntaxError, four),
            (errors.KernelError, called),
            (errors.KernelError, to_file),
            (IndexError, lambda: x[4]),
            (ValueError, lambda: x.copy_from(ks.field(ks.f32, shape=5))),
            (KeyError, lambda: ks.init(nothing_of_it=1)),
        ):
            with pytest.raises(kind):
                call()
    finally:
        ks.reset()

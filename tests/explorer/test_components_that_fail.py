"""Stored components of kernels that may fail: errors and values are those of the kernels one by one.

The kind: stored code that goes on in silence where a kernel raises an error, or that has run calls behind the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.fields.program import current_program
from kernelscape.runtime.engine.component_keys import n_calls_of
from kernelscape.runtime.measure.conditions import take_conditions
from kernelscape.runtime.records.store import TunedStore

pytestmark = pytest.mark.compiler
STEPS = 13


def searched() -> SimpleNamespace:
    """The program whose sequences are searched."""
    a, b = ks.field(ks.f32, 60), ks.field(ks.f32, 60)
    c, d = ks.field(ks.f32), ks.field(ks.f32)
    ks.root.pointer(ks.i, 8).dense(ks.i, 8).place(c)
    ks.root.dynamic(ks.i, 24, chunk_size=8).place(d)

    @ks.kernel
    def raised():
        for k in a:
            a[k] += 1

    @ks.kernel
    def spread():
        for k in a:
            c[ks.i32(a[k])] += 1

    @ks.kernel
    def collected():
        for k in a:
            if a[k] >= 55:
                d.append(a[k])

    @ks.kernel
    def strided(n: ks.i32):  # the message of its assertion has the name
        for k in a:
            for _ in range(0, 4, n):
                b[k] += a[k]

    a.from_numpy(np.arange(60, dtype=np.float32))
    return SimpleNamespace(**locals())


def program() -> SimpleNamespace:
    """Another program with the same kernels, of other names and lines, and one of its own behind them."""
    x, y, w = ks.field(ks.f32, 60), ks.field(ks.f32, 60), ks.field(ks.f32, 5)
    v, q = ks.field(ks.f32), ks.field(ks.f32)
    ks.root.pointer(ks.i, 8).dense(ks.i, 8).place(v)
    cells = ks.root.dynamic(ks.i, 24, chunk_size=8)
    cells.place(q)

    @ks.kernel
    def rise():
        for i in x:
            x[i] += 1

    @ks.kernel
    def count():
        for i in x:
            v[ks.i32(x[i])] += 1

    @ks.kernel
    def collect():
        for i in x:
            if x[i] >= 55:
                q.append(x[i])

    @ks.kernel
    def stride(n: ks.i32):
        for i in x:
            for _ in range(0, 4, n):
                y[i] += x[i]

    @ks.kernel
    def behind():
        for i in w:
            w[i] += 1

    return SimpleNamespace(**locals())


KERNELS = {"rise": "raised", "count": "spread", "collect": "collected", "stride": "strided"}
Stepped = tuple[list[Any], int]


def stepped(names: tuple[str, ...], *, is_interpreted: bool = False, **options: object) -> Stepped:
    """The values and errors of each step of a program, and the number of stored components that ran.

    A step that fails begins anew: with other values, and an empty list.
    """
    found = list[Any]()
    with ks.interpret() if is_interpreted else nullcontext():
        ks.init(**options)
        p = program()
        p.x.from_numpy(np.arange(60, dtype=np.float32))
        for k in range(STEPS):
            error = ""
            try:
                for name in (*names, "behind"):
                    getattr(p, name)(*([k % 5] if name == "stride" else []))
                ks.sync()
            except RuntimeError as e:
                error = f"{type(e).__name__}: {e}"
            if options:
                current_program().follower.plans.complete()
            is_whole = not (error and "collect" in names)  # which cells had no room is not defined
            cells = sorted(p.q[k] for k in range(ks.length(p.cells, []) * is_whole))
            found.append((error, cells, *(z.to_numpy().tolist() for z in (p.x, p.y, p.v, p.w))))
            if error:
                p.x.from_numpy(np.arange(60, dtype=np.float32))
                p.cells.deactivate_all()
        n = ks.engine.stats().n_from_store
        ks.reset()
    return found, n


def compared(names: tuple[str, ...]) -> tuple[list[str], int]:
    """The errors of each step, which the program has by stored components, too, and the number of these that ran."""
    by_interpreter, _ = stepped(names, is_interpreted=True)
    wanted, none = stepped(names)
    got, n = stepped(names, async_mode=True, decisions=True)
    for k, (x, y, z) in enumerate(zip(got, wanted, by_interpreter, strict=True)):
        assert x == y, f"step {k}"
        assert (bool(x[0]), *x[1:]) == (bool(z[0]), *z[1:]), f"step {k}, by the interpreter"
    assert none == 0
    return [x[0] for x in got], n


@pytest.fixture
def explored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[tuple[str, ...]], list[str]]]:
    """Returns a function that searches a sequence, and returns the keys that are stored."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    def explored(names: tuple[str, ...]) -> list[str]:
        ks.init()
        p = searched()

        def sequence(step: ks.i32 = 2):
            for name in names:
                getattr(p, KERNELS[name])(*([step] if name == "stride" else []))

        ks.explore(sequence, 2, max_evals=1, directory=tmp_path / "run")
        ks.reset()
        with TunedStore() as store:
            return list(store.components(take_conditions().machine))

    yield explored
    ks.reset()


@pytest.mark.parametrize(
    ("last", "words"), [("count", "outside"), ("collect", "sparse fields is full")]
)
def test_an_error_is_that_of_the_kernel(explored: Any, last: str, words: str) -> None:
    """Also of code that is no more compared with kernels. Nothing behind it runs, and the next step is as any other."""
    names = ("rise", last)
    keys = explored(names)
    assert keys
    errors, n = compared(names)
    assert all(words in e and f"kernel {last}: " in e for e in errors if e)
    assert any(errors[:6]) and any(errors[6:]) and not all(errors)
    assert n >= 5 * len(keys)


def test_code_that_would_run_calls_behind_an_error_is_for_searches_only(explored: Any) -> None:
    names = ("count", "rise")
    keys = explored(names)
    assert keys
    _, n = compared(names)
    assert (n > 0) == all(n_calls_of(key) == 1 for key in keys)


def test_code_without_the_assertions_of_its_kernels_is_for_searches_only(explored: Any) -> None:
    keys = explored(("rise", "stride"))
    assert keys
    errors, n = compared(("rise", "stride"))
    assert any(errors) and not all(errors)
    assert all("the step of range is 0" in e for e in errors if e)
    assert (n > 0) == any(n_calls_of(key) == 1 for key in keys)  # of `rise` alone

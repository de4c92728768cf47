"""Components of searched sequences run in windows that were never searched, and nothing else is different."""

from __future__ import annotations

import re
import sqlite3
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import kernelscape as ks
import msgspec
import numpy as np
import pytest
from kernelscape.codegen.by_component import EvaluatedSources
from kernelscape.explorer.component_results import component_results
from kernelscape.explorer.plan_replay import StoredPlan, _Match
from kernelscape.kernels.fields.program import current_program
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.kernel import Cast, DType, Expr, KernelIR, Location, Param
from kernelscape.runtime.cpu.dialect import C_TEAM
from kernelscape.runtime.engine import component_keys, plan_bank, stored_components
from kernelscape.runtime.measure.conditions import take_conditions
from kernelscape.runtime.records.record import ComponentRecord
from kernelscape.runtime.records.replay import rebuild
from kernelscape.runtime.records.store import TunedStore, default_store
from kernelscape.space.candidate import Candidate
from kernelscape.tests.codegen.test_component_texts import drawn, root, runs
from kernelscape.tests.runtime.sources import best

__all__ = ["drawn", "root"]  # fixtures
pytestmark = pytest.mark.compiler
N = 600
STEPS = 8


def program() -> SimpleNamespace:
    """Fields and kernels of a program that has begun."""
    x, y, z, v = (ks.field(ks.f32, N) for _ in range(4))

    @ks.kernel
    def scale(a: ks.f32, b: ks.f32):
        for i in x:
            x[i] = a * x[i] + b * y[i]

    @ks.kernel
    def shift():
        for i in range(1, N - 1):
            z[i] += x[i - 1] - x[i + 1]

    @ks.kernel
    def other():
        for i in v:
            v[i] += 1

    @ks.kernel
    def new():
        for i in y:
            y[i] = 0.5 * y[i] + v[i]

    def substep(b=0.25):
        scale(0.5, b)
        shift()

    x.from_numpy(np.arange(N, dtype=np.float32))
    ks.sync()
    return SimpleNamespace(**locals())


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a user who has searched the sub-step by itself."""
    data = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(data))
        ks.init()
        folder = tmp_path_factory.mktemp("run")
        ks.explore(program().substep, 0.25, max_evals=1, directory=folder)
        ks.reset()
    return data


@pytest.fixture
def store(searched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of their store."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    place = default_store()
    place.parent.mkdir(parents=True)
    old, new = sqlite3.connect(searched / "kernelscape" / "tuned.sqlite"), sqlite3.connect(place)
    old.backup(new)
    old.close()
    new.close()
    yield place
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ks.reset()


def seen(p: SimpleNamespace) -> list[np.ndarray]:
    return [x.to_numpy() for x in (p.x, p.y, p.z, p.v)]


def stepped(
    n: int = STEPS, *, a: float = 0.5, b: float = 0.25, **options: object
) -> tuple[list[np.ndarray], int]:
    """The fields after some steps, and the number of components that ran as they were found."""
    ks.init(**options)
    p = program()
    for _ in range(n):
        p.other()
        p.new()
        p.scale(a, b)
        with suppress(KeyboardInterrupt):
            p.shift()  # runs what waits, if that has run before
        ks.sync()
        if options:
            current_program().follower.plans.complete()
    found = seen(p)
    return found, ks.engine.stats().n_from_store


def check(*, a: float = 0.5, b: float = 0.25) -> int:
    """The number of components that ran as they were found, where the program computes what it does without them."""
    want, none = stepped(a=a, b=b)
    got, n = stepped(a=a, b=b, async_mode=True, decisions=True)
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5)
    assert none == 0
    return n


def warned() -> str:
    """The one warning that is given, where no component is used and the program computes what it should."""
    with pytest.warns(RuntimeWarning) as told:
        assert check() <= stored_components.N_CHECKED
    (one,) = (str(w.message) for w in told)
    assert one.startswith("ks.init(decisions=...): ")
    assert "\n" not in one
    return one


def change(place: Path, **columns: object) -> None:
    """Edits the rows of components."""
    with sqlite3.connect(place) as connection:
        for name, value in columns.items():
            connection.execute(f"update results set {name} = ? where component != ''", (value,))


def result_of(place: Path) -> tuple[str, str]:
    with TunedStore(place) as store:
        ((key, (number,)),) = store.components(take_conditions().machine).items()
        return key, msgspec.json.encode(store.read_component(number)).decode()


def test_calls_that_were_searched_elsewhere_run_as_they_were_found(store: Path) -> None:
    """Arrays and numbers are those of the program: whatever the searched call had, an argument is an argument."""
    assert check() == STEPS - 2
    assert check(b=0.75) == STEPS - 2


def test_a_step_of_a_repeat_runs_as_it_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sequence with a repeat has the code of its step once."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    ks.init()
    p = program()

    def often(b=0.25):
        for _ in range(9):
            p.substep(b)

    ks.explore(often, 0.25, max_evals=1, directory=tmp_path / "run")
    ks.reset()
    assert check(b=0.75) == STEPS - 2


def test_other_numbers_than_those_in_the_code_run_by_default(store: Path) -> None:
    assert check(a=0.75) == 0


def test_a_component_that_is_wrong_never_changes_a_result(store: Path, monkeypatch) -> None:
    real = stored_components.StoredComponent.part

    def part(self, calls, at, first_scalar):
        found = real(self, calls, at, first_scalar)
        right = self.caller

        def wrong(*args):
            args[0][3] += 1
            return right(*args)

        self.caller = wrong
        return found

    monkeypatch.setattr(stored_components.StoredComponent, "part", part)
    assert "elements are wrong" in warned()


def test_an_interrupt_completes_the_calls(store: Path, monkeypatch) -> None:
    """While a run is compared with its kernels, before and after they are there."""
    real, left = stored_components._opened, [KeyboardInterrupt]

    def opened(number, key):
        found = real(number, key)
        right = found.caller

        def interrupted(*args):
            was_run = right(*args)
            if left:
                raise left.pop()
            return was_run

        found.caller = interrupted
        return found

    monkeypatch.setattr(stored_components, "_opened", opened)
    assert check() >= STEPS - 3
    assert not left


def test_an_interrupt_at_any_line_of_a_comparison_loses_no_call(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step by step, at the next line of what compares a run with its kernels: also while arrays are copied."""
    monkeypatch.setattr(stored_components, "N_CHECKED", 1000)
    codes = {x.__code__ for x in vars(plan_bank._CheckedRun).values() if hasattr(x, "__code__")} - {
        plan_bank._CheckedRun.__init__.__code__
    }
    at, met = 0, list[str]()  # the event that is interrupted; those of this step

    def traced(frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code not in codes:
            return None
        met.append(f"{frame.f_code.co_name} {event}")
        if event != "return" and len(met) == at:
            raise KeyboardInterrupt
        return traced

    ks.init(async_mode=True, decisions=True)
    p, n = program(), 0
    while n < 60 and at <= len(met):
        n, at = n + 1, at + bool(met)  # nothing is met before the plan is there
        met.clear()
        for step in (p.other, p.new, partial(p.scale, 0.5, 0.25)):
            step()
        sys.settrace(traced)
        with suppress(KeyboardInterrupt):
            p.shift()  # runs all of them
        sys.settrace(None)
        ks.sync()
        current_program().follower.plans.complete()
    assert 20 < at < n < 60
    assert {"__call__ line", "complete line", "_stored line"} <= set(met)
    got = seen(p)
    want, _ = stepped(n)
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5)


def test_a_component_that_refuses_its_arguments_leaves_them_to_the_kernels(
    store: Path, monkeypatch
) -> None:
    real = stored_components._opened

    def refusing(number, key):
        found = real(number, key)
        found.caller = lambda *args: False
        return found

    monkeypatch.setattr(stored_components, "_opened", refusing)
    assert "does not take its arguments" in warned()


CHANGES = {
    "torn": (lambda text: text[:200], "cannot be read"),
    "stale": (
        lambda text: re.sub('"source_key":"....', '"source_key":"0000', text),
        "give another source",
    ),
    "other decisions": (
        lambda text: text.replace('"decisions":[[', '"decisions":[["fused","NO"],['),
        "has no choice fused",
    ),
    "a device that is not there": (
        lambda text: text.replace('"target":"cpu"', '"target":"fake"'),
        "is for fake, not for cpu",
    ),
    "no recording": (lambda text: _with_recording(text, "[]"), " is not used: "),
    "a recording of nothing": (lambda text: _with_recording(text, "null"), " is not used: "),
    "a deep recording": (lambda text: _with_recording(text, "[" * 20_000), " is not used: "),
    "no parameters": (
        lambda text: re.sub(r'"parameters":\[.*?\]', '"parameters":[]', text),
        "is not used: ",
    ),
    "half a text": (lambda text: text.encode()[:-40] + b"\xff\xfe", "cannot be read"),
}


def _with_recording(text: str, recording: str) -> str:
    found = msgspec.json.decode(text)
    found["stored"]["recording"] = recording
    return msgspec.json.encode(found).decode()


@pytest.mark.parametrize("what", CHANGES)
def test_a_row_that_cannot_be_used_is_a_warning(store: Path, what: str) -> None:
    edit, words = CHANGES[what]
    change(store, result=edit(result_of(store)[1]))
    assert words in warned()


def test_whatever_opening_a_component_raises_only_its_calls_run_by_default(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ks.init()
    p = program()

    def elsewhere():
        p.other()
        p.new()

    odd, _ = result_of(store)
    ks.explore(elsewhere, max_evals=1, directory=tmp_path / "run")
    ks.reset()
    real = stored_components._opened

    def opened(number: int, key: str) -> Any:
        if key == odd:
            raise ZeroDivisionError("odd")
        return real(number, key)

    monkeypatch.setattr(stored_components, "_opened", opened)
    with pytest.warns(RuntimeWarning, match="is not used: ZeroDivisionError: odd"):
        assert check() >= STEPS - 2


def test_a_component_is_refused_for_all_windows_at_once(store: Path, monkeypatch) -> None:
    """Also for those whose plan is there already, and whatever else makes the plan be built anew."""
    key, _ = result_of(store)
    components = stored_components.StoredComponents({key: [1]})
    component = SimpleNamespace(refusal="", recording=SimpleNamespace(name="substep", trees=()))
    components._known[key] = component
    parts = [
        stored_components.FoundPart(range(2), component, (0,), (), (), (), (0,)) for _ in range(2)
    ]
    parts[0].compare({0: np.zeros(3, np.float32)}, {0: np.ones(3, np.float32)})
    assert parts[1].stored.refusal
    assert components._part(key, [], range(2), 0) is None
    with pytest.warns(RuntimeWarning, match="of substep, is not used: array 0"):
        components.warn()
    components.warn()  # says nothing more


def test_a_row_under_the_key_of_other_calls_is_a_warning(store: Path, tmp_path: Path) -> None:
    """Whoever writes rows can compute keys."""
    ks.init()
    p = program()

    def elsewhere():
        p.other()
        p.new()

    key, _ = result_of(store)
    ks.explore(elsewhere, max_evals=1, directory=tmp_path / "run")
    ks.reset()
    with sqlite3.connect(store) as connection:
        connection.execute("delete from results where component = ?", (key,))
    change(store, component=key)
    assert "has other calls than its key says" in warned()


def test_rows_of_other_machines_are_none(store: Path) -> None:
    change(store, device="another")
    with pytest.warns(RuntimeWarning, match="the tuned store has nothing for"):
        assert check() == 0


def test_each_component_is_a_result_by_itself(drawn: tuple[Candidate, Candidate]) -> None:
    """Its text alone is that in the whole, and a replay makes it from the record."""
    sizes = (67, 41, 33, 19, 1, 1, 1, 1)
    recording = record_sequence(runs, [np.ones(n, np.float32) for n in sizes], "sequence")
    ranges = {p.name: (0.0, 1.0) for p in recording.arrays}
    whole = best()
    whole = msgspec.structs.replace(
        whole, stored=msgspec.structs.replace(whole.stored, ranges=ranges)
    )
    rows = [ComponentRecord(key="", time_ns=float(k), spread=0.0) for k in (4, 7, 5, 6)]
    found = list(component_results(recording, drawn[0], whole, rows, C_TEAM))
    assert [x.time_ns for _, x in found] == [7.0, 6.0, 5.0, 4.0]
    sources = EvaluatedSources(C_TEAM)
    for (key, record), k in zip(found, (1, 3, 2, 0), strict=True):
        again = rebuild(record, drawn[0].space.target, C_TEAM)
        assert key == component_keys.key_of_recording(again.recording)
        alone = EvaluatedSources(C_TEAM).component_key(again.candidate, 0)
        assert alone == sources.component_key(drawn[0], k)


def converted(*types: DType) -> Expr:
    """A parameter of the first type, converted to each of the others in turn."""
    x: Expr = Param("s", types[0])
    for dtype in types[1:]:
        x = Cast(x, dtype)
    return x


ROUNDS = [
    (DType.f32, DType.f64),
    (DType.f32, DType.i32),
    (DType.f64, DType.i64),
    (DType.f64, DType.u64),
    (DType.i32, DType.f32),
    (DType.i32, DType.u32),
    (DType.f64, DType.f32, DType.f64),
]
HOLDS = [
    (DType.f32,),
    (DType.f64, DType.f32),
    (DType.f64, DType.i32),
    (DType.f32, DType.i16),
    (DType.i64, DType.u32),
    (DType.f64, DType.f32, DType.f16),
]


@pytest.mark.parametrize("types", ROUNDS)
def test_a_parameter_that_rounds_numbers_of_its_kernel_is_no_plain_one(types) -> None:
    assert stored_components.plain_scalar(converted(*types)) is None


@pytest.mark.parametrize("types", HOLDS)
def test_a_parameter_that_holds_all_numbers_of_its_kernel_is_plain(types) -> None:
    assert stored_components.plain_scalar(converted(*types)) == Param("s", types[0])


@pytest.mark.parametrize("dtype", [DType.f32, DType.f64])
def test_a_sequence_that_rounds_its_argument_is_no_part(dtype: DType) -> None:
    """Its key is that of a sequence that does not, and windows give the kernel any number."""
    ks.init()
    x = ks.field(ks.f64, 8)

    @ks.kernel
    def k(a: ks.f64):
        for i in x:
            x[i] += a

    def narrow(s: ks.f32):
        k(s)

    def wide(s: ks.f64):
        k(s)

    recording = record_sequence(narrow if dtype is DType.f32 else wide, (0.5,))
    ks.reset()
    assert recording.scalars[0].dtype is dtype
    is_part = stored_components.why_no_part(recording) == ""
    assert is_part == (dtype is DType.f64)


def fits(value: float, *types: DType) -> bool:
    plan = StoredPlan.__new__(StoredPlan)
    plan.scalars = {"s": types[0]}
    return _Match(plan)._fits(converted(*types), value)


def test_a_plan_takes_numbers_that_its_parameter_holds() -> None:
    for value, is_held in ((0.5, True), (0.1, False), (1e300, False)):
        assert fits(value, DType.f32, DType.f64) == is_held
    for value in (0.1, 0.5, 1e300):
        assert fits(value, DType.f64, DType.f32)
    assert fits(3, DType.f32, DType.i32)
    assert not fits(2**24 + 1, DType.f32, DType.i32)
    assert not fits(2**40, DType.i32, DType.i64)


def test_rows_of_other_versions_are_not_looked_for_and_texts_are_made_once(monkeypatch) -> None:
    made = list[object]()

    def text(ir: object) -> str:
        made.append(ir)
        return "text"

    monkeypatch.setattr(component_keys, "spelled_without_names", text)
    key = f"2 {component_keys._VERSION} 0"
    components = stored_components.StoredComponents({"4 calls 0": [1], key: [2]})
    assert components._lengths == [2]
    kernels = [KernelIR(f"k{n}", (), (), (), Location("", n)) for n in range(3)]
    calls = [
        SimpleNamespace(ir=kernels[k % 3], arrays=(k % 2,), trees=(), logical=None)
        for k in range(30)
    ]
    for _ in range(2):
        assert components.parts(calls, [None] * 30) == []
    assert made == kernels


def test_a_component_with_locals_that_became_arrays_runs_in_a_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kind: arrays of the code that no call has, of which a window knows nothing; it then lost its whole plan."""

    def program() -> SimpleNamespace:
        a, y, z, v = (ks.field(ks.f32, shape) for shape in ((16, 12), 16, 16, 77))

        @ks.kernel
        def rows():
            for i in range(16):
                s = 0.0
                for j in range(12):
                    s += a[i, j]
                m = 0.0
                for j in range(12):
                    m += a[i, j] * s
                y[i] = m / (1.0 + s * s)

        @ks.kernel
        def shift():
            for i in range(1, 15):
                z[i] += y[i - 1] - y[i + 1]

        @ks.kernel
        def other():
            for i in v:
                v[i] += 1

        def substep():
            rows()
            shift()

        a.from_numpy(np.arange(192, dtype=np.float32).reshape(16, 12) / 100)
        ks.sync()
        return SimpleNamespace(**locals())

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    found = []
    for options in ({}, {"async_mode": True, "decisions": True}):
        ks.init(**options)
        p = program()
        if not options:
            ks.explore(p.substep, max_evals=1, directory=tmp_path / "run")
            p = program()
        for _ in range(STEPS):
            p.other()
            p.substep()
            ks.sync()
            if options:
                current_program().follower.plans.complete()
        found.append(p.z.to_numpy())
        n = ks.engine.stats().n_from_store
        ks.reset()
    assert n > 0
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-5)  # differences of sums

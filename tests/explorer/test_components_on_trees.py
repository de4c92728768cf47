"""Components on sparse fields are stored. Other programs on trees of the same structure use them in searches and in windows.

The kind: a stored component that is used where its calls assume other lists or active cells than they find.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.explorer.component_results import component_results
from kernelscape.kernels.fields.program import current_program
from kernelscape.kernels.sparse.layout import CHANGED, COLUMNS, COUNT
from kernelscape.runtime.device import DeviceOptions, open_device
from kernelscape.runtime.engine import plan_bank, stored_components
from kernelscape.runtime.engine.component_keys import _VERSION, content_of
from kernelscape.runtime.measure.conditions import take_conditions
from kernelscape.runtime.records.folder import BEST, JOURNAL
from kernelscape.runtime.records.journal import read_journal
from kernelscape.runtime.records.loading import load_best
from kernelscape.runtime.records.record import ComponentRecord, EvaluationRecord, NoteRecord
from kernelscape.runtime.records.replay import dialect_of, rebuild
from kernelscape.runtime.records.store import TunedStore
from msgspec import structs

FOUND = ["components with stored decisions: 1"]


def program() -> SimpleNamespace:
    """The program whose sequence is searched first."""
    x, y, s = ks.field(ks.f32), ks.field(ks.f32), ks.field(ks.f32, 1)
    ks.root.pointer(ks.i, 8).dense(ks.i, 8).place(x, y)

    @ks.kernel
    def move():
        for i in x:
            y[i] = 0.5 * x[i] + 1

    @ks.kernel
    def add_up():
        for i in y:
            s[0] += y[i]

    def substep():
        move()
        add_up()

    for i in (3, 17, 18):
        x[i] = i
    return SimpleNamespace(**locals())


def another(kind: str = "pointer", extent: int = 8, *, with_more: bool = False) -> SimpleNamespace:
    """A program of other names, with sequences that make the same calls behind one of their own."""
    w, total = ks.field(ks.f32, 5), ks.field(ks.f32, 1)
    p, q = ks.field(ks.f32), ks.field(ks.f32)
    getattr(ks.root, kind)(ks.i, extent).dense(ks.i, 8).place(
        p, q, *(ks.field(ks.f32) for _ in range(with_more))
    )

    @ks.kernel
    def count():
        for j in w:
            w[j] += 1

    @ks.kernel
    def double():
        for j in p:
            p[j] *= 2

    @ks.kernel
    def shift():
        for j in p:
            q[j] = 0.5 * p[j] + 1

    @ks.kernel
    def gather():
        for j in q:
            total[0] += q[j]

    def behind_other():
        count()
        shift()
        gather()

    def behind_list():
        double()
        shift()
        gather()

    def far_behind_list():
        double()
        for _ in range(14):
            count()
        shift()
        gather()

    def often_behind_list():
        double()
        for _ in range(9):
            shift()
            gather()

    for i in (3, 17, 18):
        p[i] = i
    return SimpleNamespace(**locals())


def explored(
    sequence: Callable[[], None], folder: Path, target: str = "fake", most: int = 1, **fixed: str
) -> tuple[list[EvaluationRecord], list[str]]:
    """The evaluations of a search, and its notes about the store."""
    given = {"target": target, "time_limit": None, "max_evals": most, "decisions": fixed}
    ks.explore(sequence, directory=folder, **given)
    records = list(read_journal(folder / JOURNAL))
    notes = [r.text for r in records if isinstance(r, NoteRecord) and r.kind == "store"]
    return [r for r in records if isinstance(r, EvaluationRecord)], notes


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a user who has searched `program` with a layout that is no default."""
    data = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(data))
        ks.init()
        folder = tmp_path_factory.mktemp("run")
        explored(program().substep, folder, leaf_layout="AOS")
        ks.reset()
    return data


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for the data of a user whose program has begun."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    ks.init()
    yield tmp_path / "data"
    ks.reset()


@pytest.fixture
def store(searched: Path, data: Path) -> None:
    """A copy of their store."""
    shutil.copytree(searched, data)


def layouts(measured: list[EvaluationRecord]) -> list[str]:
    """The layout of the leaves in each evaluation."""
    return [v for r in measured for name, v in r.decisions if name.startswith("leaf_layout(")]


@pytest.mark.parametrize(("sequence", "is_found"), [("behind_other", True), ("behind_list", False)])
def test_a_component_has_the_facts_that_it_assumes(
    store: None, tmp_path: Path, sequence: str, is_found: bool
) -> None:
    """Behind another loop on the tree its list is there already."""
    measured, notes = explored(getattr(another(), sequence), tmp_path / "run", most=4)
    assert notes == FOUND * is_found
    assert ("AOS" in layouts(measured)) == is_found


@pytest.mark.parametrize("other", [{"extent": 9}, {"kind": "bitmasked"}, {"with_more": True}])
def test_trees_of_another_structure_have_other_components(
    store: None, tmp_path: Path, other: dict[str, Any]
) -> None:
    _, notes = explored(another(**other).behind_other, tmp_path / "run")
    assert notes == []


@pytest.mark.parametrize(("sequence", "is_found"), [("behind_list", True), ("behind_other", False)])
def test_a_component_that_assumes_a_list_is_for_calls_that_find_it(
    data: Path, tmp_path: Path, sequence: str, is_found: bool
) -> None:
    """It is far behind the loop that makes the list, so that it is a component of its own."""
    explored(another().far_behind_list, tmp_path / "searched")
    best = load_best(tmp_path / "searched" / BEST)
    device = open_device("fake", DeviceOptions())
    dialect = dialect_of(device)
    found = rebuild(best, device.machine.facts(), dialect)
    n = len(found.space.backbone.components)
    rows = [ComponentRecord(key="", time_ns=1.0, spread=0.0)] * n
    parts = dict(component_results(found.recording, found.candidate, best, rows, dialect))
    (last,) = (x for x in parts.items() if x[0].startswith("2 "))
    assert len(last[1].stored.recorded().assumed) == 1
    with TunedStore() as store:
        store.put_component(last[1], last[0])
    ks.reset()
    ks.init()
    _, notes = explored(getattr(another(), sequence), tmp_path / "run")
    assert notes == FOUND * is_found


@pytest.fixture(scope="module")
def searched_here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a user who has searched `program` on this machine."""
    data = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(data))
        ks.init()
        folder = tmp_path_factory.mktemp("run")
        explored(program().substep, folder, "cpu", leaf_layout="AOS")
        ks.reset()
    return data


@pytest.mark.compiler
def test_what_was_found_elsewhere_is_right(searched_here: Path, data: Path, tmp_path: Path) -> None:
    """The search verifies it against the interpreter."""
    shutil.copytree(searched_here, data)
    measured, notes = explored(another().behind_other, tmp_path / "run", "cpu", most=2)
    assert notes == FOUND
    assert [r.status for r in measured if "AOS" in layouts([r])] == ["ok"]


def growing() -> SimpleNamespace:
    """A program whose kernels activate cells over which later ones loop."""
    x, y, s = ks.field(ks.f32), ks.field(ks.f32), ks.field(ks.f32, 1)
    u, v = ks.field(ks.f32), ks.field(ks.f32)
    ks.root.pointer(ks.i, 8).dense(ks.i, 8).place(x, y)
    ks.root.pointer(ks.i, 4).dense(ks.i, 16).place(u, v)

    @ks.kernel
    def mark():
        for i in x:
            y[i] += 1
            if y[i] > 4:
                v[i] = x[i]

    @ks.kernel
    def use():
        for i in v:
            u[i] += 2 * v[i]

    @ks.kernel
    def add():
        for i in u:
            s[0] += u[i]

    def sequence():
        use()
        add()

    def substep():
        mark()
        sequence()

    for i in (3, 17, 18):
        x[i] = i
    return SimpleNamespace(**locals())


SEARCHED = {
    "behind activations": (growing, "sequence", {}),
    "behind a list": (another, "far_behind_list", {}),
    "in a repeat": (another, "often_behind_list", {}),
    "alone": (program, "substep", {}),
    "in another layout": (program, "substep", {"leaf_layout": "AOS"}),
}
Between = Callable[[SimpleNamespace, int], object]


@pytest.fixture(scope="module")
def searched_as(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns the data of a user who has searched a sequence on this machine."""
    known: dict[str, Path] = {}

    def searched(how: str) -> Path:
        if how not in known:
            made, name, fixed = SEARCHED[how]
            known[how] = tmp_path_factory.mktemp("data")
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("XDG_DATA_HOME", str(known[how]))
                ks.init()
                explored(getattr(made(), name), tmp_path_factory.mktemp("run"), "cpu", **fixed)
                ks.reset()
        return known[how]

    return searched


def nothing(p: SimpleNamespace, k: int) -> None:
    pass


def reads(p: SimpleNamespace, k: int) -> object:
    return p.y[17], p.s[0], len(p.x.to_numpy())


def grows_once(p: SimpleNamespace, k: int) -> None:
    """Activates a cell in another leaf."""
    if k == 6:
        p.x[40] = 2.0


def changes(p: SimpleNamespace, k: int) -> None:
    """Deactivates a leaf, and activates it again."""
    ks.deactivate(p.x.parent().parent(), 2)
    p.x[17] = k


def stepped(
    between: Between, n: int, made: Callable[[], SimpleNamespace], **options: object
) -> tuple[list[Any], int]:
    """The values that Python reads while a program runs its calls again and again, and the number of stored components that ran."""
    ks.init(**options)
    p, read = made(), list[Any]()
    for k in range(n):
        p.substep()
        read.append(between(p, k))
        ks.sync()
        if options:
            current_program().follower.plans.complete()
    read += [x.to_numpy() for x in (p.x, p.y, p.s)]
    n_from_store = ks.engine.stats().n_from_store
    ks.reset()
    return read, n_from_store


def n_found(
    between: Between = nothing, n: int = 10, made: Callable[[], SimpleNamespace] = program
) -> int:
    """The number of stored components that ran, where the program computes what it does without them."""
    wanted, none = stepped(between, n, made)
    got, found = stepped(between, n, made, async_mode=True, decisions=True)
    assert none == 0
    for x, y in zip(got, wanted, strict=True):
        if y is not None:
            np.testing.assert_allclose(x, y, rtol=1e-5)
    return found


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("how", "between", "n"),
    [
        ("behind a list", nothing, 8),  # what a window finds from its third run on
        ("behind a list", reads, 8),
        ("behind a list", grows_once, 7),  # once call by call
        ("behind a list", changes, 0),
        ("in a repeat", nothing, 8),
        ("alone", nothing, 8),  # where it finds more than it uses
        ("alone", grows_once, 7),
        ("alone", changes, 3),  # once the plan does without assumptions
        ("in another layout", changes, 0),  # to be converted in each run
    ],
)
def test_windows_run_components_that_assume_what_they_find(
    searched_as: Callable[[str], Path], data: Path, how: str, between: Between, n: int
) -> None:
    shutil.copytree(searched_as(how), data)
    assert n_found(between) == n


@pytest.mark.compiler
def test_of_several_components_the_one_that_uses_most_runs(
    searched_as: Callable[[str], Path], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that is there is not looked at."""
    shutil.copytree(searched_as("behind a list"), data)
    device = take_conditions().machine
    with TunedStore(searched_as("alone") / "kernelscape" / "tuned.sqlite") as store:
        ((key, (number,)),) = store.components(device).items()
        alone = store.read_component(number)
    with TunedStore() as store:
        store.put_component(structs.replace(alone, time_ns=1.0), key)
    real, keys = stored_components._opened, list[str]()

    def opened(number: int, key: str) -> Any:
        keys.append(key)
        return real(number, key)

    monkeypatch.setattr(stored_components, "_opened", opened)
    assert n_found() == 8
    (used,) = keys
    assert content_of(used)[0] == content_of(key)[0]
    assert content_of(used)[1] > content_of(key)[1]


def test_facts_that_hold_are_enough_and_all_that_are_used_must_hold() -> None:
    rows = {
        f"2 {_VERSION} {key}": [n]
        for n, key in enumerate(("x:", "x:0l0.0.0", "x:0l0.0.0,1a0", "y:"))
    }
    components = stored_components.StoredComponents(rows)

    def fitting(facts: str) -> list[int]:
        return [rows[key][0] for key in components._fitting(f"2 {_VERSION} x:{facts}")]

    assert fitting("") == [0]
    assert fitting("1a0") == [0]
    assert fitting("0l0.0.0,0a0") == [1, 0]
    assert fitting("0l0.0.0,1a0") == [2, 1, 0]


@pytest.mark.compiler
@pytest.mark.parametrize("between", [nothing, changes])
def test_a_component_makes_its_list_where_its_window_has_activated_cells(
    searched_as: Callable[[str], Path], data: Path, between: Between
) -> None:
    shutil.copytree(searched_as("behind activations"), data)
    assert n_found(between, 14, growing) >= 5


Spoil = Callable[[np.ndarray], None]


def doubled(x: np.ndarray) -> None:
    if x.dtype == np.float32:
        x *= 2


def outdated(x: np.ndarray) -> None:
    """Marks all lists as those of other cells."""
    if x.shape[1:] == (COLUMNS,):
        x[:-1, CHANGED] = 1


def emptied(x: np.ndarray) -> None:
    """Leaves no active cell in lists."""
    if x.shape[1:] == (COLUMNS,):
        x[:-1, COUNT] = 0


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (doubled, "elements are wrong"),
        (outdated, "the list of .* is not up to date"),
        (emptied, "the list of .* claims to be new and has other cells"),
    ],
)
def test_a_component_on_trees_that_is_wrong_never_changes_a_result(
    searched_as: Callable[[str], Path],
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Spoil,
    words: str,
) -> None:
    shutil.copytree(searched_as("behind a list"), data)
    real = stored_components._opened

    def opened(number: int, key: str) -> Any:
        found = real(number, key)
        right = found.caller

        def wrong(*args: Any) -> bool:
            was_run = right(*args)
            for name, x in zip(found.parameters, args, strict=True):
                if name in found.written or x.shape[1:] == (COLUMNS,):
                    spoil(x)
            return was_run

        found.caller = wrong
        return found

    monkeypatch.setattr(stored_components, "_opened", opened)
    with pytest.warns(RuntimeWarning, match=words):
        assert n_found() == 1


@pytest.mark.compiler
def test_a_component_that_is_too_large_to_be_compared_is_refused(
    searched_as: Callable[[str], Path], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of trees may be larger than memory."""
    shutil.copytree(searched_as("behind a list"), data)
    monkeypatch.setattr(plan_bank, "available_bytes", lambda: 1000)
    with pytest.warns(RuntimeWarning, match="not enough memory to compare it: .* bytes are needed"):
        assert n_found() == 1

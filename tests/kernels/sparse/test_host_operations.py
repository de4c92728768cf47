"""Fills, copies and deactivations of Python in a sequence: calls of it, as others, or an error where they would be lost."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.fields.canonical_state import SOUND, canonical
from kernelscape.kernels.frontend.recorder import record_program
from kernelscape.testing.interpreted import run_reference


@pytest.fixture(autouse=True)
def fields() -> Iterator[SimpleNamespace]:
    """Dense and sparse fields of a program, with values, and a kernel that uses all of them."""
    ks.init(arch=ks.cpu)
    a, b, n = ks.field(ks.f32, 16), ks.field(ks.f32, 16), ks.field(ks.i32, ())
    v, m = ks.Vector.field(2, ks.f32, 16), ks.Matrix.field(2, 2, ks.i32, (2, 3), offset=(1, 1))
    s, t, d, w = ks.field(ks.f32), ks.field(ks.f32), ks.field(ks.i32), ks.Vector.field(2, ks.f32)
    block = ks.root.pointer(ks.i, 4)
    block.dense(ks.i, 4).place(s, w)
    ks.root.bitmasked(ks.i, 16).place(t)
    cells = ks.root.pointer(ks.i, 4).dynamic(ks.j, 8)
    cells.place(d)

    @ks.kernel
    def use():
        for i in a:
            a[i] += i + n[None]
            v[i] += b[i]
        for i, j in m:
            m[i, j] += i - j
        for i in s:
            s[i] += a[i]
            w[i] += v[i]
        for i in t:
            t[i] += s[i]
        for i in range(4):
            d[i].append(i)

    for i in (1, 2, 9):
        s[i], t[i], w[i] = i, i, [i, -i]
    yield SimpleNamespace(**locals())
    ks.reset()


STEPS: dict[str, Callable[[Any], Any]] = {
    "fills": lambda f: (f.a.fill(2), f.n.fill(3), f.m.fill(5), f.v.fill([1, 2])),
    "sparse fills": lambda f: (f.s.fill(2.5), f.t.fill(1), f.w.fill([3, 4])),
    "dense from dense": lambda f: (f.a.copy_from(f.b), f.b.copy_from(f.a)),
    "dense from sparse": lambda f: (f.a.copy_from(f.s), f.v.copy_from(f.w)),
    "sparse from dense": lambda f: (f.s.copy_from(f.a), f.w.copy_from(f.v)),
    "pointer": lambda f: f.block.deactivate_all(),
    "bitmasked": lambda f: f.t.parent().deactivate_all(),
    "dynamic": lambda f: f.cells.deactivate_all(),
    "above dynamic": lambda f: f.cells.parent().deactivate_all(),
    "all": lambda f: ks.deactivate_all_snodes(),
}


@pytest.mark.parametrize("where", ["first", "between", "last"])
@pytest.mark.parametrize("name", STEPS)
def test_operations_on_whole_fields_are_calls(fields, name: str, where: str) -> None:
    """The kind: what Python does to fields in a sequence, which is found without it."""

    def step() -> None:
        if where != "first":
            fields.use()
        STEPS[name](fields)
        if where != "last":
            fields.use()

    recording, arrays = record_program(step, ())
    found = run_reference(recording, arrays, {})
    with ks.interpret():
        step()
    wanted = canonical(recording.trees, arrays)
    for key, x in canonical(recording.trees, found).items():
        if not key.endswith(
            SOUND
        ):  # a kernel leaves slots of lists in what it frees to the next one
            np.testing.assert_array_equal(x, wanted[key], err_msg=key)


def test_an_array_of_a_sequence_is_taken(fields) -> None:
    def step(given, x: float) -> None:
        fields.a.from_numpy(given)
        fields.s.from_numpy(given)
        fields.b.fill(x)
        fields.use()

    given = np.arange(16, dtype=np.float32)
    recording, arrays = record_program(step, (given, 0.5))
    found = run_reference(recording, {"given": given, **arrays}, {"x": 0.5})
    names = {id(x): name for name, x in arrays.items()}
    assert found[names[id(fields.a.array)]].tolist() == (2 * given).tolist()
    assert fields.s.to_numpy()[9] == 9  # nothing has run


LOST: tuple[Callable[[Any], Any], ...] = (
    lambda f: f.a.__setitem__(3, 1.0),
    lambda f: f.v.__setitem__(3, [1, 1]),
    lambda f: f.v[2].fill(1),
    lambda f: f.b.from_numpy(np.ones(16, np.float32)),
    lambda f: f.n.__setitem__(None, 1),
    lambda f: f.s.__setitem__(2, 1.0),
    lambda f: setattr(f.w[2], "x", 1),
    lambda f: ks.activate(f.block, 3),
    lambda f: ks.deactivate(f.block, 0),
    lambda f: ks.append(f.cells, 1, 5),
    lambda f: f.s.copy_from(f.t),
)


@pytest.mark.parametrize("lost", LOST)
def test_what_no_replay_would_write_is_an_error(fields, lost: Any) -> None:
    """The kind: a write of Python before the first call, to what the sequence uses."""

    def step() -> None:
        lost(fields)
        fields.use()

    with pytest.raises(ks.LanguageError, match=r"Python writes .* before the first call"):
        record_program(step, ())


def test_writes_of_what_a_sequence_does_not_use_are_none_of_its_business(fields) -> None:
    other = ks.field(ks.i32, 3)

    def step() -> None:
        other[1] = fields.n[None]
        fields.use()

    assert len(record_program(step, ())[0].calls) == 1


ACCESSES: tuple[tuple[Callable[[Any], Any], str], ...] = (
    (lambda f: f.n[None], "reads the field"),
    (lambda f: f.v[3], "reads the field"),
    (lambda f: f.s[2], "reads the field"),
    (lambda f: f.s.to_numpy(), "reads the field"),
    (lambda f: ks.length(f.cells, [0]), "reads cells of a sparse tree"),
    (lambda f: f.a.__setitem__(3, 1.0), "writes the field"),
    (lambda f: f.s.__setitem__(2, 1.0), "writes the field"),
    (lambda f: ks.activate(f.block, 3), "writes cells of a sparse tree"),
    (lambda f: np.from_dlpack(f.a), "uses the field"),
)


@pytest.mark.parametrize(("access", "said"), ACCESSES)
def test_an_access_behind_the_first_call_is_an_error(fields, access: Any, said: str) -> None:
    """The kind: a value that is that of the recording in every replay."""

    def step() -> None:
        fields.use()
        access(fields)

    with pytest.raises(ks.LanguageError, match=f"Python {said}.* after the first call: do that"):
        record_program(step, ())

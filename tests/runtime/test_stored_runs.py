"""Stored runs of the reference: what is found again, what is not, and that no verdict depends on it."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.recorder import Recording, record_sequence
from kernelscape.kernels.ir.kernel import Assert, Const, DType
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime import reference as module
from kernelscape.runtime import stored_runs
from kernelscape.runtime.llvm import compile_kernel
from kernelscape.runtime.reference import Reference
from kernelscape.runtime.worker.forked_inputs import ForkedInputs
from kernelscape.runtime.worker.inputs import Arguments, make_input_sets

nd = ks.types.ndarray()


@ks.kernel
def scale(x: nd, y: nd, alpha: float):
    for i in range(x.shape[0]):
        y[i] = alpha * x[i] + 0.1


@ks.kernel
def scale_more(x: nd, y: nd, alpha: float):
    for i in range(x.shape[0]):
        y[i] = alpha * x[i] + 0.2


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every run is stored, in an own cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(stored_runs, "LEAST_S", 0.0)
    monkeypatch.setattr(stored_runs, "BYTES_PER_S", math.inf)
    return tmp_path / "kernelscape" / stored_runs.FOLDER


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """The seeds of all runs that were computed in this process."""
    seen: list[int | None] = []
    calls = Reference._calls

    def noted(self: Reference, known: Any, found: Any, scalars: Any, seed: int | None) -> None:
        seen.append(seed)
        calls(self, known, found, scalars, seed)

    monkeypatch.setattr(Reference, "_calls", noted)
    return seen


def recorded(kernel: Any, dtype: Any = np.float32) -> tuple[Recording, dict[str, Any]]:
    x = np.random.default_rng(0).uniform(-1, 1, 40).astype(dtype)

    def sequence(x: Any, y: Any) -> None:
        kernel(x, y, 0.3)

    y = np.zeros_like(x)
    return record_sequence(sequence, (x, y)), {"x": x, "y": y}


def run(kernel: Any = scale, dtype: Any = np.float32, **how: Any) -> dict[str, Any]:
    recording, arrays = recorded(kernel, dtype)
    return Reference().run(recording, arrays, {}, **how)


def equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return list(a) == list(b) and all(
        a[n].dtype == b[n].dtype and a[n].tobytes() == b[n].tobytes() for n in a
    )


@pytest.mark.parametrize("how", [{}, {"wide": False}, {"wide": False, "seed": 3}])
def test_a_run_is_computed_once_and_its_results_are_the_same_bits(computed, how):
    first = run(**how)
    second = run(**how)
    assert len(computed) == 1
    assert equal(first, second)
    assert all(second[n].flags.writeable for n in ("y",))


def test_the_place_of_a_kernel_in_its_file_is_no_part_of_the_key(computed):
    recording, arrays = recorded(scale)
    (call,) = recording.calls

    def at(line: int) -> Recording:
        where = replace(call.where, line=line)
        claim = Assert(Const(True, DType.bool_), "", (), where)
        made = replace(call.ir, where=where, body=(*call.ir.body, claim))
        return replace(recording, calls=(replace(call, ir=made, where=where),))

    for line in (1, 2):
        Reference().run(at(line), arrays, {})
    assert len(computed) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"kernel": scale_more},
        {"dtype": np.float64},
        {"wide": False},
        {"wide": False, "seed": 1},
    ],
    ids=["constant", "dtype", "narrow", "moved"],
)
def test_another_constant_type_or_way_is_another_run(computed, other):
    first = run()
    found = run(**other)
    assert len(computed) == 2
    assert not equal(first, found)


def test_one_bit_of_one_element_is_another_run(computed):
    recording, arrays = recorded(scale)
    Reference().run(recording, arrays, {})
    changed = arrays["x"].copy()
    changed[7] = np.nextafter(changed[7], np.float32(2))
    Reference().run(recording, {**arrays, "x": changed}, {})
    assert len(computed) == 2


def test_a_scalar_with_another_value_or_type_is_another_run(computed):
    x = np.ones(4, np.float32)
    arrays = {"x": x, "y": x.copy()}
    recording = record_sequence(scale, (x, arrays["y"], 0.5))
    for alpha in (0.5, 0.5, 0.25, 1.0, 1):
        Reference().run(recording, arrays, {"alpha": alpha})
    assert len(computed) == 4


def test_other_settings_of_libraries_are_another_run(computed, monkeypatch):
    run()
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    stored_runs._computed_by.cache_clear()
    run()
    monkeypatch.undo()
    stored_runs._computed_by.cache_clear()
    assert len(computed) == 2


def test_another_seed_is_another_run(computed):
    assert not equal(run(wide=False, seed=1), run(wide=False, seed=2))
    assert computed == [1, 2]


@pytest.mark.parametrize("harm", ["cut", "flip", "empty", "link", "foreign", "folder"])
def test_a_file_that_is_not_whole_is_computed_again_and_replaced(computed, folder, harm):
    first = run()
    (file,) = folder.iterdir()
    content = file.read_bytes()
    if harm == "cut":
        file.write_bytes(content[:-40])
    elif harm == "flip":
        file.write_bytes(content[:90] + bytes([content[90] ^ 1]) + content[91:])
    elif harm == "empty":
        file.write_bytes(b"")
    elif harm == "link":
        file.rename(folder.parent / "elsewhere")
        file.symlink_to(folder.parent / "elsewhere")
    elif harm == "foreign":  # whole, of another run
        file.unlink()
        run(scale_more)
        (other,) = folder.iterdir()
        other.rename(file)
        computed.pop()
    else:
        file.unlink()
        (file / "inside").mkdir(parents=True)
    assert equal(run(), first)
    assert len(computed) == 2
    if harm != "folder":
        assert file.read_bytes() == content
        assert not file.is_symlink()


def test_a_run_apart_is_read_without_compiling(monkeypatch):
    recording, arrays = recorded(scale)
    compiled = []

    def noted(ir: Any, held: Any, **options: Any) -> Any:
        compiled.append(ir)
        return compile_kernel(ir, held, **options)

    monkeypatch.setattr(module, "compile_kernel", noted)

    def apart() -> dict[str, Any]:
        return Reference().begin_apart(recording, arrays, {}, 5, lambda: False).result()

    first = apart()
    assert len(compiled) == 1
    assert equal(apart(), first)
    assert len(compiled) == 1


@pytest.mark.parametrize(("limit", "value"), [("LEAST_S", 60.0), ("BYTES_PER_S", 5.0)])
def test_short_runs_are_not_stored(monkeypatch, folder, limit, value):
    """Runs that are short, or shorter than hashing and reading arguments and results."""
    monkeypatch.setattr(stored_runs, limit, value)
    run()
    assert not folder.exists() or not any(folder.iterdir())


def test_time_of_compilation_counts_for_all_runs(monkeypatch, folder):
    """Else only the first run would be stored, and the next session would compile for the others."""
    monkeypatch.setattr(stored_runs, "LEAST_S", 60.0)
    monkeypatch.setattr(module, "_COMPILE_NS", -math.inf)
    recording, arrays = recorded(scale)
    reference = Reference()
    reference.run(recording, arrays, {})
    (known,) = reference._seen.values()
    assert known.compile_s > 0
    known.compile_s = 61.0
    for x in (1.0, 2.0):
        reference.run(recording, {**arrays, "x": np.full(40, x, np.float32)}, {})
    assert len(list(folder.iterdir())) == 2


def test_the_least_recently_used_leave(monkeypatch, folder):
    names = []
    for seed in (1, 2, 3):
        run(wide=False, seed=seed)
        (name,) = {f.name for f in folder.iterdir()} - set(names)
        os.utime(folder / name, (seed, seed))
        names.append(name)
    run(wide=False, seed=1)  # used again
    n_bytes = (folder / names[0]).stat().st_size
    monkeypatch.setattr(stored_runs, "MOST_BYTES", 2 * n_bytes)
    run(wide=False, seed=4)
    left = {f.name for f in folder.iterdir()}
    assert len(left) == 2
    assert names[0] in left


def test_a_full_disk_is_no_error(monkeypatch):
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stored_runs, "write_in", full)
    assert np.isfinite(run()["y"]).all()


@pytest.mark.parametrize("harmed", [False, True])
def test_expected_values_and_tolerances_are_the_same_bits(monkeypatch, folder, harmed):
    """Without stored runs, when they are stored, and when they are read or found torn."""
    recording, arrays = recorded(scale)

    def values() -> list[bytes]:
        given = Arguments(arrays, {})
        rng = np.random.default_rng(1)
        sets = make_input_sets(recording, normalise(recording), given, rng, 3).sets
        found = []
        for s in sets:
            assert s.rounding is not None
            for level in range(4):
                for e in s.rounding.expected(level).values():
                    found += [e.want.tobytes(), np.asarray(e.magnitude).tobytes()]
        return found

    monkeypatch.setattr(stored_runs, "LEAST_S", math.inf)
    without = values()
    assert not folder.exists()
    monkeypatch.setattr(stored_runs, "LEAST_S", 0.0)
    assert values() == without
    assert len(list(folder.iterdir())) > 10
    if harmed:
        for file in folder.iterdir():
            file.write_bytes(file.read_bytes()[:-1])
    assert values() == without


def test_a_later_session_computes_no_reference(monkeypatch):
    """Its child process reads all results, and so do the runs that measure rounding."""
    recording, arrays = recorded(scale)

    def session() -> list[bytes]:
        given, rng = Arguments(arrays, {}), np.random.default_rng(1)
        begun = ForkedInputs(recording, normalise(recording), given, rng, 3)
        found = []
        for s in begun.result().sets:
            assert s.rounding is not None
            for e in (*s.expected.values(), *s.rounding.expected(3).values()):
                found += [e.want.tobytes(), np.asarray(e.magnitude).tobytes()]
        return found

    first = session()

    def computed_again(*_: Any) -> None:
        raise RuntimeError("computed again")

    monkeypatch.setattr(Reference, "_calls", computed_again)
    assert session() == first

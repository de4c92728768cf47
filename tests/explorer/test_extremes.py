"""Arguments at the ends of their types go through every file of a run.

The kind: a value that the search takes and a file cannot hold, or holds and refuses to read: the least integer of a type, whole
numbers of more than 53 bits, numbers that JSON has no words for, ranges wider than their type.
"""

from __future__ import annotations

import math
import subprocess
from pathlib import Path
from typing import Any

import kernelscape as ks
import msgspec
import numpy as np
import pytest
from kernelscape.codegen.text.header import header_file, header_text
from kernelscape.explorer.check_inputs import inputs_of
from kernelscape.explorer.entry import resume
from kernelscape.explorer.results import load, replay_again, write_source
from kernelscape.explorer.self_check import check_text
from kernelscape.runtime.api.outcome import Measurement
from kernelscape.runtime.records.family import FamilyFile, load_family
from kernelscape.runtime.records.folder import BEST, HEADER, JOURNAL
from kernelscape.runtime.records.journal import read_journal
from kernelscape.runtime.records.loading import load_header, write_record
from kernelscape.runtime.records.replay import dialect_of, rebuild
from kernelscape.runtime.records.store import TunedKey, TunedStore
from kernelscape.runtime.worker import messages
from kernelscape.runtime.worker.inputs import between, ranges_of, whole_ends

TYPES = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "f32", "f64")
KINDS = [np.dtype(getattr(ks, name).value) for name in TYPES]
GCC = ("gcc", "-O1", "-march=native", "-ffp-contract=off", "-Wno-psabi", "-Werror=overflow")


@ks.kernel
def copy(x: ks.types.ndarray(), o: ks.types.ndarray()) -> None:
    for i in range(x.shape[0]):
        o[i] = x[i]


@ks.kernel
def fill(w: ks.types.ndarray(), u: ks.types.ndarray(), s: ks.i64, t: ks.u64) -> None:
    for i in range(w.shape[0]):
        w[i] = s
        u[i] = t


@ks.kernel
def floats(y: ks.types.ndarray(), a: ks.f16, b: ks.f32, c: ks.f64) -> None:
    for i in range(y.shape[0]):
        y[i, 0] = a
        y[i, 1] = b
        y[i, 2] = c


def everything(*given: Any) -> None:
    for k in range(len(KINDS)):
        copy(given[k], given[len(KINDS) + k])
    w, u, y, s, t, a, b, c = given[2 * len(KINDS) :]
    fill(w, u, s, t)
    floats(y, a, b, c)


def limits(dtype: np.dtype) -> tuple[Any, Any]:
    info = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return info.min, info.max


def arguments(ends: str) -> tuple[Any, ...]:
    """Arrays from the least to the largest of each type, or of one of these alone; scalars of both ends, or of no finite number."""
    arrays = []
    for dtype in KINDS:
        low, high = limits(dtype)
        held = {"both": [low, high, 0, high], "least": [low] * 4, "largest": [high] * 4}[ends]
        arrays.append(np.array(held, dtype))
    scalars = {
        "both": (-(2**63), 2**64 - 1, 65504.0, np.finfo(np.float32).max, np.finfo(float).min),
        "least": (-(2**63), 0, -math.inf, -math.inf, -math.inf),
        "largest": (2**63 - 1, 2**64 - 1, math.nan, math.nan, math.inf),
    }[ends]
    types = (np.int64, np.uint64, np.float16, np.float32, np.float64)
    outputs = [np.zeros_like(x) for x in arrays]
    outputs += [np.zeros(4, np.int64), np.zeros(4, np.uint64), np.zeros((4, 3))]
    return (*arrays, *outputs, *(t(x) for t, x in zip(types, scalars, strict=True)))


@pytest.fixture(scope="module", params=["both", "least", "largest"])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on such arguments; the tuned store of its own has it, too."""
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        ks.explore(
            everything,
            *arguments(request.param),
            target="fake",
            max_evals=1,
            directory=folder / request.param,
        )
    return folder / request.param


def test_what_is_read_is_what_was_given(found: Path) -> None:
    """In best.json, run.json and the file of `explore tune`, as text and as arguments."""
    given = arguments(found.name)
    file = load(found).file
    family = FamilyFile(
        tuned_schema=1, sequence=file.sequence, dtype="", target="fake", entries=(file,)
    )
    write_record(found / "tuned.json", family)
    for stored in (
        file.stored,
        load_header(found / HEADER).stored,
        load_family(found / "tuned.json").entries[0].stored,
    ):
        recording = stored.recorded()
        drawn = stored.draw(recording, np.random.default_rng(1), {})
        checked = inputs_of(stored, recording, {}).arguments
        for k, dtype in enumerate(KINDS):
            low, high = int(given[k].min()), int(given[k].max())
            assert stored.ranges[f"given{k}"] == (low, high)
            for made in (drawn.arrays[f"given{k}"], checked.arrays[f"given{k}"]):
                assert made.dtype == dtype
                assert low <= int(made.min()) <= int(made.max()) <= high
        names = [p.name for p in stored.parameters if p.kind == "scalar"]
        np.testing.assert_equal([drawn.scalars[n] for n in names], [x.item() for x in given[-5:]])
    assert read_journal(found / JOURNAL)


def test_the_tuned_store_has_it(found: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(found.parent / "data"))
    file = load(found).file
    key = TunedKey(file.sequence, file.dtype, tuple(file.sizes.values()), file.conditions.machine)
    with TunedStore() as store:
        match = store.lookup(key)
    assert match is not None
    assert match.best.stored == file.stored


def test_it_is_replayed_written_and_goes_on(found: Path, tmp_path: Path) -> None:
    assert isinstance(replay_again(found / BEST).outcome, Measurement)
    assert write_source(found, tmp_path)[0].exists()
    assert resume(found, max_evals=1).best is not None


@pytest.mark.compiler
def test_its_export_checks_itself(found: Path, tmp_path: Path) -> None:
    """Integers bit by bit, also those that no float has; a planted difference of one is seen."""
    best = load(found)
    rebuilt = rebuild(best.file, best.device.machine.facts(), dialect_of(best.device))
    stored, recording, problem = best.file.stored, rebuilt.recording, rebuilt.problem
    inputs = inputs_of(stored, recording, {})
    text = check_text(rebuilt.source, problem, recording, stored, inputs)
    names = [p.name for p in stored.parameters]
    texts = {
        "kernel.c": rebuilt.source.file_text,
        header_file(problem): header_text(rebuilt.source, problem, names),
        "main.c": text,
        "wrong.c": text.replace(
            "  for (const ks_whole", "  a14[0] ^= 1;\n  for (const ks_whole", 1
        ),
    }
    for file, content in texts.items():
        (tmp_path / file).write_text(content)
    for main, code in (("main", 0), ("wrong", 1)):
        files = [tmp_path / f"{main}.c", tmp_path / "kernel.c"]
        subprocess.run([*GCC, "-o", tmp_path / main, *files, "-lm", "-pthread"], check=True)
        done = subprocess.run([tmp_path / main], capture_output=True, text=True)
        assert done.returncode == code, done.stdout


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, -(2**63), 2**64 - 1, 5e-324])
def test_workers_are_told_any_number(value: float) -> None:
    """JSON turns what is not finite into null."""
    sent = messages.SetFiles({}, {"a": value}, {"o": messages.ExpectedFiles("o", value, value)})
    request = messages.encode_request(messages.Prepare({}, [sent], 0))
    got = messages._requests.decode(request[4:]).sets[0]
    np.testing.assert_equal(got.scalars["a"], value)
    np.testing.assert_equal(got.expected["o"].magnitude, float(value))


@pytest.mark.parametrize("dtype", KINDS, ids=TYPES)
def test_ranges_are_as_wide_as_their_type(dtype: np.dtype) -> None:
    low, high = limits(dtype)
    (found,) = ranges_of(_Arrays({"x": np.array([low, high], dtype)})).values()
    assert found == (low, high)
    if dtype.kind != "f":
        assert whole_ends(float(low), float(high), dtype) == (low, high)  # as older files have them
        return
    share = np.array([0, 0.5, 1], np.float64 if dtype == np.float64 else np.float32)
    assert between(*found, share).astype(dtype).tolist() == [low, 0, high]


class _Arrays(msgspec.Struct):
    arrays: dict[str, Any]

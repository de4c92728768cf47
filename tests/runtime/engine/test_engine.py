"""The engine: kernels of standalone calls are compiled once, kept by content, and checked at each call."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.plan.nest_plan import NestPlan
from kernelscape.kernels.interpret.kernel import run_kernel
from kernelscape.kernels.ir.kernel import (
    ArrayParam,
    Const,
    DType,
    KernelIR,
    Load,
    Location,
    Print,
    SetLocal,
)
from kernelscape.kernels.ir.spelling import spelled_by_position
from kernelscape.runtime import engine as engine_room
from kernelscape.runtime.engine import building, code_version
from kernelscape.runtime.engine.engine import Engine, EngineOptions
from kernelscape.runtime.engine.folder import KernelFolder
from kernelscape.runtime.engine.planning import default_plan

pytestmark = pytest.mark.compiler
N = 4000


@ks.kernel
def scatter(bins: ks.types.ndarray(), index: ks.types.ndarray(), x: ks.types.ndarray(), a: ks.f64):
    for i in x:
        bins[index[i]] += a * x[i]


@ks.kernel
def total(out: ks.types.ndarray(), x: ks.types.ndarray()):
    s = 0.0
    for i in x:
        s += x[i]
    out[0] = s


@ks.kernel
def smooth(y: ks.types.ndarray(), x: ks.types.ndarray()):
    for i in range(1, x.shape[0] - 1):
        for j in range(1, x.shape[1] - 1):
            y[i, j] = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1] - 4.0 * x[i, j]


@pytest.fixture
def options(tmp_path: Path) -> EngineOptions:
    return EngineOptions(folder=tmp_path / "kernels", cores=4)


def drawn(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return np.zeros(7), rng.integers(0, 7, N), rng.integers(-50, 50, N).astype(float)


def scattered(seed: int = 0) -> tuple[KernelIR, tuple[np.ndarray, ...], np.ndarray]:
    bins, index, x = drawn(seed)
    wanted = bins.copy()
    np.add.at(wanted, index, 2.0 * x)
    return scatter.instantiate(bins, index, x, 2.0), (bins, index, x), wanted


def built(folder: Path) -> dict[str, int]:
    return {p.name: p.stat().st_mtime_ns for p in folder.glob("*.so")}


@pytest.mark.parametrize("cores", [1, 4])
def test_compiled_calls_compute_what_the_interpreter_computes(options, cores):
    engine = Engine(replace(options, cores=cores))
    x = np.random.default_rng(1).integers(-9, 9, (70, 90)).astype(np.float32)
    for fn, arrays in ((smooth, (np.zeros_like(x), x)), (total, (np.zeros(1), drawn()[2]))):
        ir = fn.instantiate(*arrays)
        reference = [a.copy() for a in arrays]
        run_kernel(ir, dict(zip((p.name for p in ir.arrays), reference, strict=True)), {})
        engine.run(ir, arrays, ())
        for found, wanted in zip(arrays, reference, strict=True):
            assert np.array_equal(found, wanted)


def test_threads_share_loops_that_are_long_enough(options):
    ir, arrays, wanted = scattered()
    large = np.zeros((2000, 2000), np.float32)
    (step,) = default_plan(smooth.instantiate(large, large.copy()), 4).tasks[0].steps
    assert isinstance(step, NestPlan) and step.is_shared
    small = np.zeros((8, 8), np.float32)
    (step,) = default_plan(smooth.instantiate(small, small.copy()), 4).tasks[0].steps
    assert isinstance(step, NestPlan) and not step.is_shared
    engine = Engine(options)
    engine.run(ir, arrays, (2.0,))
    assert np.array_equal(arrays[0], wanted)


def test_what_was_compiled_once_is_loaded_by_later_processes(options):
    ir, arrays, wanted = scattered()
    Engine(options).run(ir, arrays, (2.0,))
    before = built(options.folder)
    bins, index, x = drawn()
    again = scatter.instantiate(bins, index, x, 2.0)
    Engine(options).run(again, (bins, index, x), (2.0,))
    assert np.array_equal(bins, wanted)
    assert built(options.folder) == before
    longer = np.zeros(8)
    Engine(options).run(scatter.instantiate(longer, index, x, 2.0), (longer, index, x), (2.0,))
    assert len(built(options.folder)) > len(before)


def test_channels_of_a_sparse_field_have_one_code(options, monkeypatch):
    """Calls of a kernel with other fields of a tree differ in names of arrays only."""
    ks.init()
    engine = Engine(options)
    monkeypatch.setattr(engine_room, "_engine", engine)
    red, green, blue = (ks.field(ks.i32) for _ in range(3))
    ks.root.pointer(ks.i, 4).dense(ks.i, 8).place(red, green, blue)

    @ks.kernel
    def fill(x: ks.template(), n: ks.i32):
        for i in range(32):
            x[i] = n * i

    @ks.kernel
    def add(x: ks.template(), y: ks.template()):
        for i in x:
            x[i] += 3 * y[i]

    for n, x in enumerate((red, green, blue)):
        fill(x, n + 1)
    ks.sync()
    n_filled = engine.n_compiled
    for x, y in ((red, green), (green, blue), (blue, red)):
        add(x, y)
        ks.sync()
    assert engine.n_compiled == n_filled + 1  # once for three
    add(red, red)  # one array less
    ks.sync()
    assert engine.n_compiled == n_filled + 2
    i = np.arange(32)
    wanted = [4 * 7 * i, 11 * i, 24 * i]
    for x, want in zip((red, green, blue), wanted, strict=True):
        assert np.array_equal(x.to_numpy(), want)
    ks.reset()


def test_texts_of_arrays_are_no_names_of_them():
    """Only fields of nodes that name arrays are positions: a message or a local may be spelled like an array."""

    def of(array: str, text: str) -> str:
        at = Location("a.py", 1)
        zero = Const(0, DType.i64)
        said = Print((text, Load(array, (zero,), DType.f64)), at)
        held = SetLocal("x", Load(array, (zero,), DType.f64), at)
        ir = KernelIR("k", (ArrayParam(array, DType.f64, (3,)),), (), (said, held), at)
        return spelled_by_position(replace(ir, trusted=(array,), shared=((array, 1),)))

    assert of("x", "x") == of("y", "x") != of("y", "y")


def test_without_an_offline_cache_nothing_is_kept_and_nothing_kept_is_used(options, monkeypatch):
    """Kind: an option that is taken and has no effect."""
    made = []
    build = Engine._built

    def building_of(engine, ir, path, *given):
        made.append(path)
        return build(engine, ir, path, *given)

    monkeypatch.setattr(Engine, "_built", building_of)
    for keeps, n_made, is_kept in (
        (False, 1, False),
        (True, 2, True),
        (True, 2, True),
        (False, 3, True),
    ):
        ks.init(offline_cache=keeps)
        assert ks.cfg.offline_cache is keeps
        ir, arrays, wanted = scattered()
        engine = Engine(options)
        engine.run(ir, arrays, (2.0,))
        assert np.array_equal(arrays[0], wanted)
        assert len(made) == n_made
        (key,) = engine._kernels.codes
        assert (options.folder / f"{key}.so").exists() is is_kept
        engine.close()
    ks.reset()
    assert not any(made[k].exists() for k in (0, 2))


def test_a_library_that_is_no_library_is_made_again(options):
    ir, arrays, wanted = scattered()
    engine = Engine(options)
    engine.run(ir, arrays, (2.0,))
    (key,) = engine._kernels.codes
    (options.folder / f"{key}.so").unlink()  # what this process has loaded stays as it is
    (options.folder / f"{key}.so").write_bytes(b"not one")
    bins, index, x = drawn()
    Engine(options).run(scatter.instantiate(bins, index, x, 2.0), (bins, index, x), (2.0,))
    assert np.array_equal(bins, wanted)


def test_an_index_outside_is_an_error_before_anything_is_written(options):
    ir, (bins, index, x), _ = scattered()
    index[17] = 7
    with pytest.raises(IndexError, match="7"):
        Engine(options).run(ir, (bins, index, x), (2.0,))
    assert not bins.any()


def test_arrays_that_do_not_fit_are_sentences(options):
    ir, (bins, index, x), wanted = scattered()
    engine = Engine(options)
    bins.flags.writeable = False
    with pytest.raises(ValueError, match=r"the array bins of the kernel scatter is read-only"):
        engine.run(ir, (bins, index, x), (2.0,))
    both = np.zeros(N)
    same = total.instantiate(np.zeros(1), both)
    with pytest.raises(ValueError, match="share memory"):
        engine.run(same, (both[:1], both), ())
    bins.flags.writeable = True
    engine.run(ir, (bins, index, x), (2.0,))
    assert np.array_equal(bins, wanted)


def test_calls_from_many_threads_do_not_meet(options):
    engine = Engine(options)
    ir, _, _ = scattered()
    results: list[bool] = []

    def calls(seed: int) -> None:
        for _ in range(20):
            _, arrays, wanted = scattered(seed)
            engine.run(ir, arrays, (2.0,))
            results.append(np.array_equal(arrays[0], wanted))

    threads = [threading.Thread(target=calls, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 120


def test_kernels_that_come_next_are_compiled_together(options):
    engine = Engine(options)
    irs = [scattered()[0], total.instantiate(np.zeros(1), np.zeros(9))]
    engine.prepare(irs)
    assert len(engine._kernels.codes) == 2
    assert all(f.result() for f in engine._kernels.codes.values())


def test_without_a_compiler_kernels_are_interpreted_and_a_warning_says_so(options):
    ir, arrays, wanted = scattered()
    engine = Engine(replace(options, compiler="no-such-compiler"))
    with pytest.warns(RuntimeWarning, match="interpreter"):
        engine.run(ir, arrays, (2.0,))
    assert np.array_equal(arrays[0], wanted)


def test_a_start_makes_the_team_before_there_is_a_kernel(options):
    engine = Engine(options)
    engine.start()
    engine.start()  # once is enough
    engine.close()
    team = built(options.folder)
    assert len(team) == 1
    later = Engine(options)
    later.start()
    ir, arrays, wanted = scattered()
    later.run(ir, arrays, (2.0,))
    assert np.array_equal(arrays[0], wanted)
    assert team.items() <= built(options.folder).items()


def test_a_program_starts_the_engine(options, monkeypatch):
    engine = Engine(options)
    monkeypatch.setattr(engine_room, "_engine", engine)
    ks.init()
    ks.reset()
    engine.close()
    assert built(options.folder)


def test_a_start_without_a_compiler_is_silent_until_a_kernel_is_called(options, recwarn):
    engine = Engine(replace(options, compiler="/nowhere/cc"))
    engine.start()
    ir, arrays, wanted = scattered()
    assert not recwarn.list
    with pytest.warns(RuntimeWarning, match="interpreter"):
        engine.run(ir, arrays, (2.0,))
    assert np.array_equal(arrays[0], wanted)


def test_the_folder_keeps_what_was_used_last(tmp_path):
    folder = KernelFolder(tmp_path, limit_bytes=300)
    for k in range(4):
        folder.library(f"k{k}").write_bytes(bytes(100))
        os.utime(folder.library(f"k{k}"), (k, k))
    folder.trim_sometimes()
    assert sorted(p.name for p in tmp_path.glob("*.so")) == ["k3.so"]


def test_the_folder_is_looked_through_once_a_minute(tmp_path):
    folder = KernelFolder(tmp_path, limit_bytes=10)
    folder.trim_sometimes()
    folder.library("k").write_bytes(bytes(100))
    folder.trim_sometimes()
    assert folder.library("k").exists()
    (marker,) = (p for p in tmp_path.iterdir() if p != folder.library("k"))
    os.utime(marker, (0, 0))
    folder.trim_sometimes()
    assert [*tmp_path.iterdir()] == [marker]


def test_the_version_of_the_code_is_that_of_all_that_makes_it():
    """Each module of ours that is imported where C is made, or what it is made of."""
    root = Path(code_version.__file__).parents[2]
    makers = [root / "codegen" / "lower.py", *Path(code_version.__file__).parent.glob("*.py")]
    for file in makers:
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.ImportFrom) or not node.level:
                continue
            found = file.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            room = (found if found.is_dir() else found.parent).relative_to(root).as_posix()
            if room.split("/")[0] in ("codegen", "kernels", "space") and room not in (
                "kernels/interpret",
                "space/engine",
            ):
                assert room in code_version._ROOMS, file.name


_LISTED = """
import sys
import kernelscape as ks
import numpy as np
from cached import doubled
x = np.ones(3)
doubled(x)
assert (x == 2.0).all()
print(*(m for m in sys.modules if m.startswith(("kernelscape.", "numba"))))
"""


def test_code_that_is_kept_runs_without_what_makes_c(tmp_path):
    """And code that is made, without a space, a search, or what these are compiled by."""
    (tmp_path / "cached.py").write_text(
        "import kernelscape as ks\n\n\n@ks.kernel\ndef doubled(x: ks.types.ndarray()):\n"
        "    for i in x:\n        x[i] *= 2.0\n"
    )
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
    loaded = []
    for _ in range(2):
        command = [sys.executable, "-c", _LISTED]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        loaded.append({name.removeprefix("kernelscape.") for name in done.stdout.split()})
    assert "codegen.lower" in loaded[0]
    assert not loaded[0] & {"numba", "space.candidate", "space.build", "search.run"}
    assert not loaded[1] & {
        "codegen.lower",
        "codegen.bodies.index_checks",
        "codegen.write.program_text",
    }


def test_a_program_says_how_many_threads_there_are_at_most(options, monkeypatch):
    """With one thread at most, no plan shares a loop, and the code is another."""
    plans, files = [], []

    def planned(*given):
        plans.append(default_plan(*given))
        return plans[-1]

    monkeypatch.setattr(building, "default_plan", planned)
    large = np.ones((600, 600), np.float32)
    for limit in (0, 1):
        ks.init(cpu_max_num_threads=limit)
        ir = smooth.instantiate(large.copy(), large)
        Engine(options).run(ir, (large.copy(), large), ())
        files.append({p.name for p in options.folder.glob("*.c")})
    ks.reset()
    assert len(files[1] - files[0]) == 1
    assert [
        any(s.is_shared for s in p.tasks[0].steps if isinstance(s, NestPlan)) for p in plans
    ] == [
        True,
        False,
    ]

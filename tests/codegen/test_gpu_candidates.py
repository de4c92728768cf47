"""Generated CUDA text: right on the emulator in every order of threads, and taken by NVRTC without warnings."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import combinations, islice, permutations, product

import numpy as np
import pytest
from kernelscape.codegen.bodies.cuda_vectors import CudaHelpers
from kernelscape.codegen.bodies.vectors import Prelude
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.text.cprint import expression
from kernelscape.codegen.text.free_variables import threads_meet
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.kernel import DType
from kernelscape.kernels.library import names
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.device import open_device
from kernelscape.testing import checking
from kernelscape.testing.corpus import inputs_of as inputs_of_program
from kernelscape.testing.generator.features import INTEGERS, MIXED, OPEN
from kernelscape.testing.generator.sequences import program
from kernelscape.testing.syntax import array_of, calls, declared, names_in, program_of

from . import gpu_cases

pytestmark = gpu_cases.NEEDS_COMPILER
VARIED = (2, 5)  # numbers of sizes, small and large, odd and even
COMPILED = 2  # of each sequence at each, one for each architecture
# The compiler takes up to 40 s for more characters, all of them more of the same lines.
LONGEST = 30_000
# NVRTC, which has the same frontend, takes texts of all.
OF_NVCC = ("axpy", "bicgk", "heat", "matmul", "standardise")


@pytest.mark.parametrize("name", names())
def test_library_sequences_are_right(name, tmp_path):
    sizes = (1, 4)[names().index(name) % 2]
    case = gpu_cases.case_of(name, sizes)
    inputs = gpu_cases.inputs_of(case)
    for candidate in gpu_cases.drawn(gpu_cases.root_of(case.problem), sizes, 1) if inputs else ():
        source = gpu_cases.gpu.source_of(candidate)
        assert gpu_cases.gpu.check(source, inputs, tmp_path) == "", source.text


def test_what_threads_store_where_they_meet_has_other_pointers():
    """A compiler that takes a pointer for the only one may read before a barrier what another thread writes. What one assignment
    stores is each thread's own, unless the last block reads what others have stored.
    """
    met = dict.fromkeys(("tasks that meet", "one that meets", "none"), 0)
    for name in ("bicgk", "gemver", "axpydot", "vadd", "matmul"):
        for candidate in gpu_cases.drawn(gpu_cases.root_of(gpu_cases.case_of(name).problem), 3, 12):
            program, tasks = program_of(candidate), plan_of(candidate).tasks
            for function, launch in zip(program.functions, program.launches, strict=True):
                is_last = any(tasks[t].by_last_block for t in launch.tasks)
                meet, is_one = threads_meet(function.body), len(launch.tasks) <= 1
                pointers = [p for p in function.parameters if "*" in p.type]
                stored = [p for p in pointers if "const " not in p.type]
                met[("one that meets" if is_one else "tasks that meet") if meet else "none"] += 1
                is_met = is_last or (meet and not is_one)
                assert all(bool(p.restrict) != is_met for p in stored)
                assert all(p.restrict for p in pointers if p not in stored)
    assert all(met.values()), met


@pytest.mark.parametrize(("features", "number"), [*product((OPEN, MIXED, INTEGERS), (0, 1))])
def test_random_sequences_are_right(features, number, tmp_path):
    one = program(features, number)
    inputs = inputs_of_program(one)
    assert inputs
    source = gpu_cases.gpu.source_of(gpu_cases.drawn(gpu_cases.root_of(one.problem), number, 1)[0])
    assert gpu_cases.gpu.check(source, inputs, tmp_path / "drawn") == "", source.text


@kernel
def scaled(new: types.ndarray(), this: types.ndarray(), threadIdx: types.ndarray()):
    for template in range(new.shape[0]):
        meeting = 0.0
        for bool in range(new.shape[1]):  # noqa: A001
            meeting += new[template, bool] * this[bool]
        threadIdx[template] = meeting


def test_names_with_a_meaning_in_cuda(tmp_path, nvrtc_folder):
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1, 1, s).astype(np.float32) for s in ((33, 65), (65,), (33,))]
    recording = record_sequence(
        lambda new, this, threadIdx: scaled(new, this, threadIdx), arrays, "names"
    )
    problem = normalise(recording)
    given = dict(zip((a.name for a in recording.arrays), arrays, strict=True))
    assert set(given) == {"new", "this", "threadIdx"}
    inputs = checking.make_inputs(recording, problem, given, {})
    for candidate in gpu_cases.drawn(gpu_cases.root_of(problem), 3, 3):
        source = gpu_cases.gpu.source_of(candidate)
        assert gpu_cases.gpu.check(source, inputs, tmp_path) == "", source.text
        if gpu_cases.nvrtc_is_there():
            assert gpu_cases.gpu.compiler_says(source, nvrtc_folder) == "", source.text


@pytest.mark.skipif(not gpu_cases.nvrtc_is_there(), reason="no NVRTC")
@pytest.mark.parametrize("name", names())
def test_nvrtc_takes_random_candidates_without_warnings(name, nvrtc_folder):
    roots = [gpu_cases.root_of(gpu_cases.case_of(name, sizes).problem) for sizes in VARIED]
    sources = []
    for root in roots:
        texts = (
            gpu_cases.gpu.source_of(c) for c in islice(gpu_cases.drawing(root, 7), 32 * COMPILED)
        )
        sources += list(islice((s for s in texts if len(s.text) <= LONGEST), COMPILED))
    assert len(sources) > COMPILED * len(roots) // 2  # most of some sequences are longer
    sheets = [(gpu_cases.gpu.SHEETS[k % len(gpu_cases.gpu.SHEETS)],) for k in range(len(sources))]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        says = partial(gpu_cases.gpu.compiler_says, folder=nvrtc_folder)
        for source, said in zip(
            sources, pool.map(lambda s, x: says(s, sheets=x), sources, sheets), strict=True
        ):
            assert said == "", source.text


@pytest.mark.skipif(not shutil.which("nvcc"), reason="no CUDA toolkit")
@pytest.mark.parametrize("name", OF_NVCC)
def test_nvcc_takes_the_printed_file_alone_without_warnings(name, tmp_path):
    drawings = islice(gpu_cases.drawing(gpu_cases.root_of(gpu_cases.case_of(name).problem), 11), 64)
    texts = (gpu_cases.gpu.source_of(c) for c in drawings)
    source = next(s for s in texts if len(s.text) <= LONGEST)
    file = tmp_path / f"kernel{source.suffix}"
    file.write_text(source.text)
    printed = open_device("cuda").reporter.command_line(source, file, "")
    command = [*shlex.split(printed), "-Werror", "all-warnings"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout + done.stderr) == (0, ""), source.text
    assert file.with_suffix(".cubin").read_bytes()[:4] == b"\x7fELF"


def test_two_products_with_one_matrix_share_a_launch(tmp_path):
    case = gpu_cases.case_of("bicgk")
    candidate = gpu_cases.decided(case.problem, gpu_cases.BICGK)
    program, source = program_of(candidate), gpu_cases.gpu.source_of(candidate)
    kernels = [launch.kernel for launch in source.launches]
    assert kernels == ["launch_0", "launch_1"]  # both products, then what the blocks left
    both, combining = program.launches
    assert [len(x.tasks) for x in (both, combining)] == [2, 0]
    assert {"q", "s_parts"} <= names_in(program.functions[0])
    assert {"s", "s_parts"} <= names_in(program.functions[1])
    assert gpu_cases.gpu.check(source, gpu_cases.inputs_of(case), tmp_path) == ""


@pytest.mark.parametrize("width", [2, 4])
def test_vectors_are_as_wide_as_their_dim_allows(width, tmp_path, nvrtc_folder):
    case = gpu_cases.case_of("axpy", 6)
    inner = "add_scaled0.i.inner"
    wanted = {f"dim_kind({inner})": "VECTOR", f"size({inner})": str(width)}
    program = program_of(gpu_cases.decided(case.problem, wanted))
    source = gpu_cases.gpu.printed(program)
    moved = calls(program, "load") + calls(program, "store")
    assert {n.function for n in moved} == {f"load_f32x{width}", f"store_f32x{width}"}
    assert {n.type for n in declared(program) if n.type not in ("int", "float")} == {f"f32x{width}"}
    assert gpu_cases.gpu.check(source, gpu_cases.inputs_of(case), tmp_path) == "", source.text
    if gpu_cases.nvrtc_is_there():
        assert gpu_cases.gpu.compiler_says(source, nvrtc_folder) == ""


@pytest.mark.parametrize("order", list(permutations("ijk")), ids="".join)
def test_any_order_of_threads(order, tmp_path):
    """A block of three dims: which loop neighbouring threads are along is decided."""
    case = gpu_cases.case_of("matmul", 5)
    wanted = {f"dim_kind(multiply0.{x}.mid)": "THREAD" for x in "ijk"}
    wanted |= {"size(multiply0.i.mid)": "2", "size(multiply0.j.mid)": "8"}
    wanted |= {"size(multiply0.k.mid)": "4"}
    for x, y in combinations("ijk", 2):
        level = "INNER" if order.index(x) < order.index(y) else "OUTER"
        wanted[f"thread_level(multiply0.{x}.mid,multiply0.{y}.mid)"] = level
    program = program_of(gpu_cases.decided(case.problem, wanted))
    source = gpu_cases.gpu.printed(program)
    size = {"i": 2, "j": 8, "k": 4}
    for axis, x in zip("xyz", order, strict=True):
        (own,) = declared(program, f"t_{x}")
        assert expression(own.init) == f"(int)threadIdx.{axis}"
    assert source.launches[0].block == tuple(size[x] for x in order)
    assert program.functions[0].comment.endswith(f"block {source.launches[0].block}")
    assert gpu_cases.gpu.check(source, gpu_cases.inputs_of(case), tmp_path) == "", source.text


# How an element is loaded, and a vector (see tests/golden/vectors_in_memory.cu.txt).
HINTS = {
    "CA": ("x[i]", "load_f32x4(&x[i0])"),
    "CG": ("__ldcg(&x[i])", "load_cg_f32x4(&x[i0])"),
    "READ_ONLY": ("__ldg(&x[i])", "load_read_only_f32x4(&x[i0])"),
    "STREAM": ("__ldcs(&x[i])", "load_stream_f32x4(&x[i0])"),
}


def test_golden_vectors_in_memory(golden):
    """Loads and stores of vectors of 8 and 16 bytes, with each hint to the caches."""
    prelude = Prelude(CudaHelpers())
    for lanes in (2, 4):
        for hint in ("load", "load_cg", "load_read_only", "load_stream", "store", "stream"):
            prelude.use(hint, DType.f32, lanes)
    golden(prelude.text(), "vectors_in_memory.cu.txt")


@pytest.mark.parametrize("hint", HINTS)
@pytest.mark.parametrize("vector", [True, False])
def test_hints_to_caches_are_in_the_text(hint, vector, tmp_path, nvrtc_folder):
    case = gpu_cases.case_of("axpy", 6)
    inner = "add_scaled0.i.inner"
    wanted = {
        "dim_kind(add_scaled0.i.mid)": "ABSENT",
        "load_cache(x->add_scaled0)": hint,
        "load_cache(y->add_scaled0)": "CA",
        "cache(add_scaled0.z)": "STREAM",
        f"dim_kind({inner})": "VECTOR" if vector else "ABSENT",
        **({f"size({inner})": "4"} if vector else {}),
    }
    program = program_of(gpu_cases.decided(case.problem, wanted))
    source = gpu_cases.gpu.printed(program)
    loaded = {expression(n.init) for n in declared(program) if "x" in names_in(n)}
    # What is no whole vector is loaded alone.
    assert loaded == {HINTS[hint][k] for k in range(1 + vector)}
    stored = {
        (n.function, array_of(n.args[0])) for n in (*calls(program, "st"), *calls(program, "__st"))
    }
    assert stored == {("__stcs", "z")} | ({("stream_f32x4", "z")} if vector else set())
    assert gpu_cases.gpu.check(source, gpu_cases.inputs_of(case), tmp_path) == ""
    if gpu_cases.nvrtc_is_there():
        assert gpu_cases.gpu.compiler_says(source, nvrtc_folder) == ""


def test_equal_candidates_give_equal_texts():
    root = gpu_cases.root_of(gpu_cases.case_of("gemver").problem)
    first, second = (gpu_cases.gpu.source_of(gpu_cases.drawn(root, 5, 1)[0]) for _ in range(2))
    assert first == second

"""Generated CUDA text: right on the emulator in every order of threads, with the barriers that it needs and no others."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from itertools import combinations, islice, permutations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernelscape.codegen.cprint import expression
from kernelscape.codegen.csyntax import Id
from kernelscape.codegen.gpu.scene import BlockLayout
from kernelscape.codegen.gpu.values import locate
from kernelscape.codegen.plan import read_plan
from kernelscape.experiments import checking
from kernelscape.experiments.correctness import SIZES, library_cases
from kernelscape.kernels.language import kernel, types
from kernelscape.kernels.library import names
from kernelscape.kernels.normalise import normalise
from kernelscape.kernels.sequence import record_sequence
from kernelscape.space.candidate import Candidate
from kernelscape.space.choices import LAYOUT
from kernelscape.space.constraints import build_space
from kernelscape.space.decisions import restore
from templates import any_sequence

pytest.importorskip("kernelscape.runtime.emulator")
pytest.importorskip("kernelscape.runtime.cuda")
from kernelscape.experiments import gpu_checking as gpu
from kernelscape.runtime.device import DeviceOptions, open_device, requirements
from kernelscape.runtime.outcome import Failure

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif(not shutil.which("g++") and not shutil.which("clang++"), reason="no C++"),
]
N_LIBRARY = len(names())
COMPILED = -(-200 // N_LIBRARY)  # of each sequence
CASES = list(islice(library_cases(), len(SIZES) * N_LIBRARY))
BARRIER = re.compile(r"^ *__syncthreads\(\);\n", re.MULTILINE)


def case_of(name, sizes=4):
    """A library sequence at the sizes of that number."""
    return next(c for c in CASES[sizes * N_LIBRARY :] if c.name.split()[0] == name)


def root_of(problem):
    root = build_space(problem, gpu.target()).root()
    assert isinstance(root, Candidate), root
    return root


def inputs_of(case):
    return checking.make_inputs(case.recording, case.problem, case.arrays, case.scalars)


def drawn(root, seed, n):
    """`n` random complete candidates."""
    rng = np.random.default_rng(seed)
    found = []
    while len(found) < n:
        made = checking.random_candidate(root, rng)
        found += [made] if isinstance(made, Candidate) else []
    return found


def decided(problem, decisions):
    """A completion of what is decided."""
    made = restore(build_space(problem, gpu.target()), decisions.items())
    assert isinstance(made, Candidate), made
    complete = made.complete()
    assert isinstance(complete, Candidate), complete
    return complete


@pytest.mark.parametrize("name", names())
def test_library_sequences_are_right(name, tmp_path):
    for sizes in (1, 4):
        case = case_of(name, sizes)
        inputs = inputs_of(case)
        for candidate in drawn(root_of(case.problem), sizes, 1) if inputs else ():
            source = gpu.source_of(candidate)
            assert gpu.check(source, inputs, tmp_path) == "", source.text


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(any_sequence(), st.integers(0, 2**31))
def test_random_sequences_are_right(tmp_path_factory, example, seed):
    problem = normalise(example.recording)
    inputs = checking.make_inputs(example.recording, problem, example.arrays, example.scalars)
    if inputs:
        source = gpu.source_of(drawn(root_of(problem), seed, 1)[0])
        assert gpu.check(source, inputs, tmp_path_factory.mktemp("drawn")) == "", source.text


@kernel
def scaled(new: types.ndarray(), this: types.ndarray(), threadIdx: types.ndarray()):
    for template in range(new.shape[0]):
        meeting = 0.0
        for bool in range(new.shape[1]):  # noqa: A001
            meeting += new[template, bool] * this[bool]
        threadIdx[template] = meeting


def test_names_with_a_meaning_in_cuda(tmp_path):
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1, 1, s).astype(np.float32) for s in ((33, 65), (65,), (33,))]
    recording = record_sequence(
        lambda new, this, threadIdx: scaled(new, this, threadIdx), arrays, "names"
    )
    problem = normalise(recording)
    given = dict(zip((a.name for a in recording.arrays), arrays, strict=True))
    assert set(given) == {"new", "this", "threadIdx"}
    inputs = checking.make_inputs(recording, problem, given, {})
    for candidate in drawn(root_of(problem), 3, 3):
        source = gpu.source_of(candidate)
        assert gpu.check(source, inputs, tmp_path) == "", source.text
        if nvrtc_is_there():
            assert gpu.compiler_says(source, tmp_path) == "", source.text


def nvrtc_is_there():
    return any(r.what == "nvrtc" and r.found for r in requirements("cuda"))


@pytest.mark.skipif(not nvrtc_is_there(), reason="no NVRTC")
@pytest.mark.parametrize("name", names())
def test_nvrtc_takes_random_candidates_without_warnings(name, tmp_path):
    for candidate in drawn(root_of(case_of(name).problem), 7, COMPILED):
        source = gpu.source_of(candidate)
        assert gpu.compiler_says(source, tmp_path) == "", source.text


MATMUL = {
    "dim_kind(multiply0.i.outer)": "BLOCK",
    "dim_kind(multiply0.j.outer)": "BLOCK",
    "dim_kind(multiply0.k.outer)": "LOOP",
    "dim_kind(multiply0.i.mid)": "THREAD",
    "dim_kind(multiply0.j.mid)": "THREAD",
    "dim_kind(multiply0.k.mid)": "LOOP",
    "size(multiply0.i.mid)": "16",
    "size(multiply0.j.mid)": "4",
    "size(multiply0.k.mid)": "8",
    "dim_kind(multiply0.i.inner)": "UNROLL",
    "size(multiply0.i.inner)": "2",
    "dim_kind(multiply0.j.inner)": "VECTOR",
    "size(multiply0.j.inner)": "4",
    "dim_kind(multiply0.k.inner)": "ABSENT",
    "staged(multiply0.a)": "COPY",
    "staged(multiply0.b)": "COPY",
}
# One launch for both products, each row read once: rows over blocks, columns over threads.
BICGK = {
    "fused(gemv0,add_gemvt0)": "SAME_LAUNCH",
    "order(gemv0.i.outer,add_gemvt0.i.outer)": "MERGED",
    "order(gemv0.j.outer,add_gemvt0.j.outer)": "MERGED",
    "dim_kind(gemv0.i.outer)": "BLOCK",
    "dim_kind(gemv0.j.outer)": "LOOP",
    "dim_kind(gemv0.j.mid)": "THREAD",
    "size(gemv0.j.mid)": "32",
    "dim_kind(gemv0.i.inner)": "UNROLL",
    "size(gemv0.i.inner)": "4",
}


def test_a_tiled_product_stages_both_operands(tmp_path):
    case = case_of("matmul", 5)
    source = gpu.source_of(decided(case.problem, MATMUL))
    assert len(source.launches) == 1
    assert source.text.count("__shared__") == 2
    assert gpu.check(source, inputs_of(case), tmp_path) == ""


def test_two_products_with_one_matrix_share_a_launch(tmp_path):
    case = case_of("bicgk")
    source = gpu.source_of(decided(case.problem, BICGK))
    kernels = [launch.kernel for launch in source.launches]
    assert kernels == ["launch_0", "launch_1"]  # both products, then what the blocks left
    assert "gemv0" in source.text and "combines what the blocks left" in source.text
    assert gpu.check(source, inputs_of(case), tmp_path) == ""


def test_every_barrier_is_needed(tmp_path):
    """Without either barrier around a staged copy, the emulator finds threads that did not wait."""
    case = case_of("matmul", 5)
    source = gpu.source_of(decided(case.problem, MATMUL))
    start = source.text.index("launch_0(")
    barriers = [m for m in BARRIER.finditer(source.text) if m.start() > start]
    assert len(barriers) == 2
    for barrier in barriers:
        cut = source.text[: barrier.start()] + source.text[barrier.end() :]
        said = gpu.check(replace(source, text=cut), inputs_of(case), tmp_path)
        assert "with no barrier in between" in said


@kernel
def column_sums(a: types.ndarray(), out: types.ndarray()):
    for j in range(a.shape[1]):
        acc = a[0, j] - a[0, j]
        for i in range(a.shape[0]):
            acc += a[i, j]
        out[j] = acc


@kernel
def column_maxima(a: types.ndarray(), out: types.ndarray()):
    for j in range(a.shape[1]):
        acc = a[0, j]
        for i in range(a.shape[0]):
            acc = max(acc, a[i, j])
        out[j] = acc


@kernel
def column_minima(a: types.ndarray(), out: types.ndarray()):
    for j in range(a.shape[1]):
        acc = a[0, j]
        for i in range(a.shape[0]):
            acc = min(acc, a[i, j])
        out[j] = acc


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("by", [column_sums, column_maxima, column_minima], ids=lambda k: k.name)
def test_blocks_reduce_into_one_result(by, dtype, tmp_path):
    rng = np.random.default_rng(1)
    arrays = [rng.integers(-9, 9, (70, 33)).astype(dtype), np.zeros(33, dtype)]
    recording = record_sequence(lambda a, out: by(a, out), arrays, "columns")
    problem = normalise(recording)
    name = next(t.name for t in problem.tasks if t.is_reduction)
    wanted = {f"reduction({name}.i.outer)": "ATOMIC", f"size({name}.i.mid)": "16"}
    wanted |= {f"dim_kind({name}.j.inner)": "UNROLL", f"size({name}.j.inner)": "2"}
    source = gpu.source_of(decided(problem, wanted))
    inputs = checking.make_inputs(
        recording, problem, dict(zip(("a", "out"), arrays, strict=True)), {}
    )
    assert "atomic" in source.text[source.text.index("launch_0(") :]
    assert gpu.check(source, inputs, tmp_path) == "", source.text
    if nvrtc_is_there():
        assert gpu.compiler_says(source, tmp_path) == "", source.text


def test_a_plain_sum_is_set_and_added_to_where_it_belongs(tmp_path):
    case = case_of("axpydot", 6)
    source = gpu.source_of(decided(case.problem, {"reduction(dot0.i.outer)": "ATOMIC"}))
    text = source.text
    assert "r_sum" not in text and "sets what the blocks add to" in text
    assert gpu.check(source, inputs_of(case), tmp_path) == "", text
    started = next(x for x in source.launches if len(x.arguments) == 1)
    left = tuple(x for x in source.launches if x is not started)
    assert gpu.check(replace(source, launches=left), inputs_of(case), tmp_path) != ""
    added = re.compile(r"^( *)atomic_add_f\d\d\(&(.*), (\w+)\);", re.MULTILINE)
    plain = added.sub(r"\1\2 += \3;", text)
    assert plain != text
    said = gpu.check(replace(source, text=plain), inputs_of(case), tmp_path)
    assert "another block of this launch" in said or "no barrier in between" in said


def test_a_sum_that_is_finished_later_has_three_launches(tmp_path):
    case = case_of("gesummv", 6)
    source = gpu.source_of(decided(case.problem, {"reduction(scaled_gemv0.j.outer)": "ATOMIC"}))
    assert re.search(
        r"sets what the blocks add to.*combines what the blocks left", source.text, re.S
    )
    assert gpu.check(source, inputs_of(case), tmp_path) == "", source.text


@kernel
def add_column_sums(a: types.ndarray(), out: types.ndarray()):
    for j in range(a.shape[1]):
        for i in range(a.shape[0]):
            out[j] += a[i, j]


def test_blocks_add_to_what_a_result_held_before(tmp_path):
    rng = np.random.default_rng(2)
    arrays = [rng.uniform(-1, 1, s).astype(np.float32) for s in ((70, 33), (33,))]
    recording = record_sequence(lambda a, out: add_column_sums(a, out), arrays, "columns")
    problem = normalise(recording)
    source = gpu.source_of(decided(problem, {"reduction(add_column_sums0.i.outer)": "ATOMIC"}))
    assert len(source.launches) == 1 and "atomic_add_f32(&out[" in source.text
    given = dict(zip(("a", "out"), arrays, strict=True))
    inputs = checking.make_inputs(recording, problem, given, {})
    assert gpu.check(source, inputs, tmp_path) == "", source.text


def test_what_a_sum_is_added_to_is_set_first(tmp_path):
    case = case_of("gemver", 4)
    wanted = {"reduction(add_scaled_gemvt0.i.outer)": "ATOMIC"}
    assert any(t.name == "add_scaled_gemvt0" and t.finish for t in case.problem.tasks)
    source = gpu.source_of(decided(case.problem, wanted))
    assert "add_scaled_gemvt0: combines" not in source.text
    assert gpu.check(source, inputs_of(case), tmp_path) == "", source.text


@pytest.mark.parametrize("width", [2, 4])
def test_vectors_are_as_wide_as_their_dim_allows(width, tmp_path):
    case = case_of("axpy", 6)
    inner = "add_scaled0.i.inner"
    wanted = {f"dim_kind({inner})": "VECTOR", f"size({inner})": str(width)}
    source = gpu.source_of(decided(case.problem, wanted))
    assert f"const float{width} q" in source.text and f"float{6 - width}" not in source.text
    assert gpu.check(source, inputs_of(case), tmp_path) == "", source.text
    if nvrtc_is_there():
        assert gpu.compiler_says(source, tmp_path) == ""


@pytest.mark.parametrize("order", list(permutations("ijk")), ids="".join)
def test_any_order_of_threads(order, tmp_path):
    """A block of three dims: which loop neighbouring threads are along is decided."""
    case = case_of("matmul", 5)
    wanted = {f"dim_kind(multiply0.{x}.mid)": "THREAD" for x in "ijk"}
    wanted |= {"size(multiply0.i.mid)": "2", "size(multiply0.j.mid)": "8"}
    wanted |= {"size(multiply0.k.mid)": "4"}
    for x, y in combinations("ijk", 2):
        level = "INNER" if order.index(x) < order.index(y) else "OUTER"
        wanted[f"thread_level(multiply0.{x}.mid,multiply0.{y}.mid)"] = level
    source = gpu.source_of(decided(case.problem, wanted))
    size = {"i": 2, "j": 8, "k": 4}
    first, second, last = order
    assert f"const int t_{first} = tid % {size[first]};" in source.text
    assert f"const int t_{second} = tid / {size[first]} % {size[second]};" in source.text
    assert f"const int t_{last} = tid / {size[first] * size[second]};" in source.text
    assert source.launches[0].block == (64, 1, 1)
    assert gpu.check(source, inputs_of(case), tmp_path) == "", source.text


STAGES = {"TWO_STAGES": 2, "THREE_STAGES": 3}


def staged(a, b, sizes=5, **further):
    wanted = {**MATMUL, "staged(multiply0.a)": a, "staged(multiply0.b)": b, **further}
    case = case_of("matmul", sizes)
    return case, gpu.source_of(decided(case.problem, wanted))


@pytest.mark.parametrize("a", [*STAGES, "COPY"])
@pytest.mark.parametrize("b", STAGES)
@pytest.mark.parametrize("sizes", [4, 5])
def test_the_next_tile_travels_while_one_is_used(a, b, sizes, tmp_path):
    case, source = staged(a, b, sizes)
    least = min(STAGES.get(a, 3), STAGES[b])
    assert f"copy_async_wait<{least - 2}>();" in source.text
    assert f"% {STAGES[b]} *" in source.text
    assert gpu.check(source, inputs_of(case), tmp_path) == "", source.text
    if nvrtc_is_there():
        assert gpu.compiler_says(source, tmp_path) == ""


@pytest.mark.parametrize("stages", STAGES)
def test_one_barrier_a_tile_is_enough_for_travelling_copies(stages, tmp_path):
    """Each iteration waits, meets, starts the next copy and computes: nothing of it may be left out."""
    case, source = staged(stages, stages)
    body = source.text[source.text.index("launch_0(") :]
    assert body.count("__syncthreads();") == 1
    assert body.index("copy_async_wait<") < body.index("__syncthreads();")
    for left_out, said in (
        (r"__syncthreads\(\);", "with no barrier in between"),
        (r"copy_async_wait<\d>\(\);", "nan"),
    ):
        cut = re.sub(rf"^ *{left_out}\n", "", body, flags=re.MULTILINE)
        text = source.text.replace(body, cut)
        assert text != source.text
        assert said in gpu.check(replace(source, text=text), inputs_of(case), tmp_path).lower()


@pytest.mark.parametrize("layout", LAYOUT)
@pytest.mark.parametrize("stages", ["COPY", "TWO_STAGES"])
def test_every_layout_of_copies_is_right(layout, stages, tmp_path):
    further = {f"layout(multiply0.{x})": layout for x in "ab"}
    case, source = staged(stages, stages, **further)
    assert ("^" in source.text[source.text.index("launch_0(") :]) == (layout == "SWIZZLED")
    assert gpu.check(source, inputs_of(case), tmp_path) == "", source.text
    if nvrtc_is_there():
        assert gpu.compiler_says(source, tmp_path) == ""


@pytest.mark.parametrize(("layout", "n_banks"), [("PLAIN", 4), ("ODD", 32), ("SWIZZLED", 8)])
def test_columns_of_a_copy_are_in_different_banks(layout, n_banks):
    """A block of 32 rows of 8 doubles: how many banks of 4 bytes hold one column."""
    tile = {"size(multiply0.k.mid)": "8", "size(multiply0.i.mid)": "32"}
    tile |= {"dim_kind(multiply0.i.inner)": "ABSENT", "size(multiply0.i.inner)": "1"}
    tile |= {"layout(multiply0.a)": layout}
    candidate = decided(case_of("matmul", 5).problem, {**MATMUL, **tile})
    task = read_plan(candidate).tasks[0]
    operand = next(o for o in task.copies if o.access.array == "a")
    block = BlockLayout.of(task, operand, candidate.space.problem.array("a"))
    assert [p.tile for p in block.loops] == [32, 8]

    def at(i, k):
        offsets = {"i": ({Id("i"): 1}, 0), "k": ({Id("k"): 1}, 0)}
        return eval(expression(locate(block, offsets, None)), {"i": i, "k": k})

    places = {at(i, k) for i in range(32) for k in range(8)}
    assert len(places) == 32 * 8 and max(places) < block.n_elements
    for k in range(8):
        words = (2 * at(i, k) + half for i in range(32) for half in range(2))
        assert len({word % 32 for word in words}) == n_banks


def test_more_shared_memory_than_a_kernel_has_unasked_is_asked_for(tmp_path):
    large = {"size(multiply0.i.mid)": "32", "size(multiply0.j.mid)": "16"}
    large |= {"size(multiply0.i.inner)": "8"}
    case, source = staged("THREE_STAGES", "THREE_STAGES", **large)
    launch = source.launches[0]
    facts = gpu.target()
    assert facts.shared_bytes_per_block < launch.shared_bytes <= facts.shared_bytes_per_block_most
    assert (
        "extern __shared__" in source.text and "__shared__ __align__(16) double" not in source.text
    )
    assert gpu.check(source, inputs_of(case), tmp_path) == "", source.text
    short = replace(launch, shared_bytes=launch.shared_bytes // 2)
    said = gpu.check(replace(source, launches=(short,)), inputs_of(case), tmp_path)
    assert "past the end of shared_memory" in said
    if nvrtc_is_there():
        assert gpu.compiler_says(source, tmp_path) == ""
        device = open_device("cuda", DeviceOptions(build_folder=tmp_path, profile="h200"))
        report = device.report(source)
        assert not isinstance(report, Failure)
        assert report.launches[0].shared_bytes == launch.shared_bytes
        assert report.launches[0].blocks_per_core >= 1


def test_waiting_for_too_few_copies_is_found(tmp_path):
    case, source = staged("THREE_STAGES", "THREE_STAGES")
    text = source.text.replace("copy_async_wait<1>", "copy_async_wait<2>")
    assert text != source.text
    assert gpu.check(replace(source, text=text), inputs_of(case), tmp_path) != ""


def test_copies_move_the_widest_pieces_that_are_aligned(tmp_path):
    """A row of b is whole vectors; one of a is padded by an element; odd sizes have no vectors."""
    layouts = {"layout(multiply0.a)": "ODD", "layout(multiply0.b)": "PADDED"}
    _, source = staged("TWO_STAGES", "TWO_STAGES", **layouts)
    assert "copy_async8(&a_tile" in source.text and "copy_async16(&b_tile" in source.text
    _, source = staged("COPY", "COPY")
    assert re.search(r"store_\w+x\d\(&b_tile\[.*\], load_\w+x\d\(&b\[", source.text)
    case, source = staged("TWO_STAGES", "TWO_STAGES", 4)
    n = {a.name: a for a in case.problem.arrays}["b"].shape[1]
    assert n % 2 and "copy_async16(&" not in source.text


def test_warps_meet_to_reduce(tmp_path):
    case = case_of("sgemv", 6)
    wanted = {
        "dim_kind(gemv0.i.outer)": "BLOCK",
        "dim_kind(gemv0.j.outer)": "LOOP",
        "dim_kind(gemv0.j.mid)": "THREAD",
        "size(gemv0.j.mid)": "128",
        "dim_kind(gemv0.i.mid)": "THREAD",
        "size(gemv0.i.mid)": "4",
    }
    source = gpu.source_of(decided(case.problem, wanted))
    assert source.launches[0].block == (512, 1, 1)
    assert re.search(r"block_add_f\d\d\(warp_add_f\d\d\(", source.text)
    assert gpu.check(source, inputs_of(case), tmp_path) == ""


HINTS = {
    "CA": r"= \*\(const float4 \*\)p;",
    "CG": r"__ldcg\(\(const float4 \*\)p\)",
    "READ_ONLY": r"__ldg\(\(const float4 \*\)p\)",
    "STREAM": r"__ldcs\(\(const float4 \*\)p\)",
}
SCALAR_HINTS = {"CA": r"x\[i\]", "CG": r"__ldcg\(&x\[i\]\)", "READ_ONLY": r"__ldg\(&x\[i\]\)"}
SCALAR_HINTS |= {"STREAM": r"__ldcs\(&x\[i\]\)"}


@pytest.mark.parametrize("hint", HINTS)
@pytest.mark.parametrize("vector", [True, False])
def test_hints_to_caches_are_in_the_text(hint, vector, tmp_path):
    case = case_of("axpy", 6)
    inner = "add_scaled0.i.inner"
    wanted = {
        "dim_kind(add_scaled0.i.mid)": "ABSENT",
        "cache(x->add_scaled0)": hint,
        "cache(y->add_scaled0)": "CA",
        "cache(add_scaled0.z)": "STREAM",
        f"dim_kind({inner})": "VECTOR" if vector else "ABSENT",
        **({f"size({inner})": "4"} if vector else {}),
    }
    source = gpu.source_of(decided(case.problem, wanted))
    assert re.search(HINTS[hint] if vector else SCALAR_HINTS[hint], source.text)
    assert ("__stcs((float4 *)p" if vector else "__stcs(&z[i], ") in source.text
    assert gpu.check(source, inputs_of(case), tmp_path) == ""
    if nvrtc_is_there():
        assert gpu.compiler_says(source, tmp_path) == ""


def test_equal_candidates_give_equal_texts():
    root = root_of(case_of("gemver").problem)
    first, second = (gpu.source_of(drawn(root, 5, 1)[0]) for _ in range(2))
    assert first == second

"""Transposed copies in shared memory: one load of 16 bytes lies in four rows, threads read vectors along results, all is right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernelscape.codegen.describe import describe
from kernelscape.codegen.loops.verify import IllFormedError, verify
from kernelscape.codegen.passes.pipeline import launches_of
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.text import csyntax as c
from kernelscape.codegen.text.cprint import expression
from kernelscape.codegen.write.grid_emission import BlockLayout
from kernelscape.codegen.write.shared_operands import locate
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, DeadEnd
from kernelscape.space.choices import LAYOUT
from kernelscape.space.decisions import fix, restore
from kernelscape.space.families.block_memory import SLACK_BYTES
from kernelscape.space.targets.gpu_facts import tree_bytes
from kernelscape.testing import checking
from kernelscape.testing.syntax import calls, declared, innermost, nodes, program_of

from .gpu_cases import (
    MATMUL,
    NEEDS_COMPILER,
    case_of,
    decided,
    drawn,
    gpu,
    inputs_of,
    nvrtc_is_there,
)
from .test_fragments import loads_of, product
from .test_register_stages import gemv

# Four rows of the product are neighbours of a thread, and rows of the copy of `a` go along them.
ACROSS = {
    **MATMUL,
    "size(multiply0.i.inner)": "4",
    "layout(multiply0.a)": "TRANSPOSED_PADDED",
    "fragments(multiply0.a)": "IN_VECTORS",
}
TRANSPOSED = [x for x in LAYOUT if x.startswith("TRANSPOSED_")]
ALIGNED = [x for x in TRANSPOSED if not x.endswith("ODD")]


def copy_of(program, array):
    """The innermost loop that copies blocks of an array."""
    (found,) = (x for x in innermost(program) if stores_of(x, f"{array}_tile"))
    return found


def stores_of(loop, tile):
    """The places of a block that get an element each."""
    targets = (n.target for n in nodes(loop) if isinstance(n, c.Assign))
    return [x for x in targets if isinstance(x, c.Index) and x.base == c.Id(tile)]


def test_a_load_of_sixteen_bytes_lies_in_four_rows():
    problem, _ = product(64, 32, 64)
    loop = copy_of(program_of(decided(problem, ACROSS)), "a")
    (vector,) = (x for x in declared(loop) if x.type == "f32x4")
    assert isinstance(vector.init, c.Call) and vector.init.function == "load_f32x4"
    assert len(stores_of(loop, "a_tile")) == 4
    assert loop.step == 64 and loop.hi == c.number(64 * 8 // 4)


@pytest.mark.parametrize(("depth", "dtype", "n"), [(30, np.float32, 2), (21, np.float32, 1)])
def test_a_row_of_memory_that_is_no_whole_vector_has_narrower_loads(depth, dtype, n):
    problem, _ = product(64, depth, 64, dtype)
    loop = copy_of(program_of(decided(problem, ACROSS)), "a")
    assert len(stores_of(loop, "a_tile")) == n


def test_copies_that_travel_are_transposed_by_element():
    """Pieces of `cp.async` keep their order: 16 bytes of a block along memory, 4 of a transposed one."""
    problem, _ = product(64, 32, 64)
    stages = {"staged(multiply0.a)": "TWO_STAGES"}
    program = program_of(decided(problem, {**ACROSS, **stages}))
    assert calls(program, "copy_async4") and not calls(program, "copy_async16")
    rows = {"layout(multiply0.a)": "PADDED", "fragments(multiply0.a)": "ELEMENTS"}
    program = program_of(decided(problem, {**ACROSS, **stages, **rows}))
    assert calls(program, "copy_async16") and not calls(program, "copy_async4")


def test_a_thread_has_neighbours_in_a_row_across_memory():
    problem, _ = product(64, 32, 64)
    assert loads_of(program_of(decided(problem, ACROSS)), "a_tile") == (1, 0)
    one_by_one = {**ACROSS, "fragments(multiply0.a)": "ELEMENTS"}
    assert loads_of(program_of(decided(problem, one_by_one)), "a_tile") == (0, 4)
    loops = {p.loop.name: p for p in plan_of(decided(problem, ACROSS)).tasks[0].loops}
    assert (loops["i"].spread, loops["j"].spread, loops["i"].reach) == (1, 4, 64)


@pytest.mark.parametrize("layout", LAYOUT)
def test_each_element_of_a_block_has_a_place(layout):
    problem, _ = product(64, 32, 64)
    rows = {"layout(multiply0.a)": layout, "fragments(multiply0.a)": "ELEMENTS"}
    made = decided(problem, {**ACROSS, **rows})
    task = plan_of(made).tasks[0]
    operand = next(o for o in task.copies if o.access.array == "a")
    block = BlockLayout.of(task, operand, problem.array("a"))
    is_transposed = layout in TRANSPOSED
    assert [p.loop.name for p in block.loops] == (["k", "i"] if is_transposed else ["i", "k"])
    assert block.is_transposed == is_transposed and block.piece == 4 - 3 * (layout == "ODD")

    def at(i, k):
        offsets = {"i": ({c.Id("i"): 1}, 0), "k": ({c.Id("k"): 1}, 0)}
        return eval(expression(locate(block, offsets, None)), {"i": i, "k": k})

    places = {at(i, k) for i in range(64) for k in range(8)}
    assert len(places) == 64 * 8 and max(places) < block.n_elements
    row = [at(4 * n, 1) for n in range(16)] if is_transposed else [at(1, 4 * n) for n in range(2)]
    assert layout.endswith("ODD") or not any(x % 4 for x in row)


@NEEDS_COMPILER[1]
@pytest.mark.parametrize("stages", ["COPY", "TWO_STAGES"])
@pytest.mark.parametrize("layout", ALIGNED)
@pytest.mark.parametrize(("depth", "dtype"), [(32, np.float32), (21, np.float32), (30, np.float64)])
def test_a_product_of_transposed_copies_is_right(layout, stages, depth, dtype, tmp_path):
    """Also where tiles of results and of the sum are not full."""
    problem, inputs = product(37, depth, 29, dtype)
    further = {"staged(multiply0.a)": stages, "layout(multiply0.a)": layout}
    source = gpu.source_of(decided(problem, {**ACROSS, **further}))
    assert gpu.check(source, inputs, tmp_path) == "", source.text


@NEEDS_COMPILER[1]
@pytest.mark.parametrize("layout", TRANSPOSED)
@pytest.mark.parametrize("name", ["matmul", "matmul_strided"])
def test_random_candidates_with_transposed_copies_are_right(name, layout, tmp_path):
    case = case_of(name)
    space, inputs = build_space(case.problem, gpu.target()), inputs_of(case)
    for operand in [o.name for o in space.variables.layout]:
        root = fix(space, [(f"layout({operand})", layout)]).root()
        assert isinstance(root, Candidate), root
        (candidate,) = drawn(root, len(operand), 1)
        assert layout in plan_of(candidate).tasks[0].layouts.values()
        source = gpu.source_of(candidate)
        assert gpu.check(source, inputs, tmp_path) == "", source.text


@kernel
def by_columns(a: types.ndarray(), b: types.ndarray(), c: types.ndarray()):
    for i in range(a.shape[1]):
        for j in range(b.shape[1]):
            acc = 0.0
            for k in range(a.shape[0]):
                acc += a[k, i] * b[k, j]
            c[i, j] = acc


@NEEDS_COMPILER[1]
@pytest.mark.parametrize("layout", ["PADDED", "TRANSPOSED_PADDED"])
@pytest.mark.parametrize("n_rows", [64, 52])
def test_a_product_that_reads_its_operands_along_results_is_right(n_rows, layout, tmp_path):
    """Rows of `a` go along results in memory, so threads have neighbours in the copy without transposition."""
    rng = np.random.default_rng(2)
    shapes = (24, n_rows), (24, 40), (n_rows, 40)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    recording = record_sequence(lambda a, b, c: by_columns(a, b, c), arrays, "by_columns")
    problem = normalise(recording)
    given = dict(zip((a.name for a in recording.arrays), arrays, strict=True))
    wanted = {x.replace("multiply0", "by_columns0"): y for x, y in ACROSS.items()}
    wanted["layout(by_columns0.a)"] = layout
    if layout != "PADDED":
        wanted["fragments(by_columns0.a)"] = "ELEMENTS"
    source = gpu.source_of(decided(problem, wanted))
    inputs = checking.make_inputs(recording, problem, given, {})
    assert gpu.check(source, inputs, tmp_path) == "", source.text


@pytest.mark.skipif(not nvrtc_is_there(), reason="no NVRTC")
def test_the_compiler_of_cuda_takes_transposed_copies(nvrtc_folder):
    problem, _ = product(64, 32, 64)
    ahead = {"staged(multiply0.a)": "TWO_STAGES", "register_stages(multiply0)": "TWO"}
    swizzled = {"layout(multiply0.a)": "TRANSPOSED_SWIZZLED"}
    for decisions in (ACROSS, {**ACROSS, **swizzled, **ahead}):
        source = gpu.source_of(decided(problem, decisions))
        assert gpu.compiler_says(source, nvrtc_folder) == "", source.text


@pytest.mark.parametrize(
    ("without", "elements"),
    [
        ({"layout(multiply0.a)": "TRANSPOSED_ODD"}, True),
        ({"layout(multiply0.a)": "PADDED"}, True),
        ({"size(multiply0.i.inner)": "1", "dim_kind(multiply0.i.inner)": "ABSENT"}, True),
        ({"staged(multiply0.a)": "DIRECT"}, False),
        ({"dim_kind(multiply0.i.mid)": "ABSENT", "size(multiply0.i.mid)": "1"}, False),
    ],
    ids=["an odd row", "rows along memory", "one copy", "memory", "a short row"],
)
def test_vectors_across_memory_need_transposed_rows(without, elements):
    problem, _ = product(192, 32, 64)
    space = build_space(problem, gpu.target())
    assert isinstance(restore(space, ACROSS.items()), Candidate)
    changed = {**ACROSS, **without}
    assert isinstance(restore(space, changed.items()), DeadEnd)
    one_by_one = {**changed, "fragments(multiply0.a)": "ELEMENTS"}
    assert isinstance(restore(space, one_by_one.items()), Candidate) == elements


def test_rows_along_memory_may_be_short_where_transposed_ones_are_not():
    """Four steps of a sum are too few for gaps between rows along memory, 64 results are not."""
    problem, _ = product(64, 32, 64)
    space = build_space(problem, gpu.target())
    short = {**ACROSS, "size(multiply0.k.mid)": "4", "fragments(multiply0.a)": "ELEMENTS"}
    for layout in TRANSPOSED:
        assert isinstance(
            restore(space, {**short, "layout(multiply0.a)": layout}.items()), Candidate
        )
    along = {**short, "layout(multiply0.a)": "PADDED"}
    assert isinstance(restore(space, along.items()), DeadEnd)


def test_gaps_between_transposed_rows_are_bytes_of_shared_memory():
    """A block of 64 x 128 elements has 128 rows transposed and 64 along memory, with 16 bytes behind each."""
    problem, _ = product(64, 128, 64)
    wanted = {**ACROSS, "staged(multiply0.b)": "DIRECT", "size(multiply0.k.mid)": "128"}
    wanted["fragments(multiply0.a)"] = "ELEMENTS"
    target = gpu.target()
    n_bytes = 4 * 64 * 128 + 16 * 64 + SLACK_BYTES + tree_bytes(target.max_threads_per_block)
    memory = {"shared_bytes_per_block": n_bytes, "shared_bytes_per_block_most": n_bytes}
    space = build_space(problem, replace(target, **memory))
    for layout, fits in (
        ("TRANSPOSED_PLAIN", True),
        ("PADDED", True),
        ("TRANSPOSED_PADDED", False),
    ):
        made = restore(space, {**wanted, "layout(multiply0.a)": layout}.items())
        assert isinstance(made, Candidate) == fits, layout


def test_threads_that_tasks_share_have_no_neighbours():
    """Two sums over the rows of one matrix may have the threads of a row in common, and then copies as far apart as these."""

    def both(a, x, y, w, z):
        gemv(a, x, y)
        gemv(a, w, z)

    arrays = [np.zeros((64, 64), np.float32), *(np.zeros(64, np.float32) for _ in range(4))]
    problem = normalise(record_sequence(both, arrays, "both"))
    space = build_space(problem, gpu.target())
    merged = {"fused(gemv0,gemv1)": "SAME_LAUNCH", "staged(gemv0.x)": "COPY"}
    merged |= {f"order(gemv0.{x},gemv1.{x})": "MERGED" for x in ("i.outer", "j.outer", "j.mid")}
    merged |= {"dim_kind(gemv0.j.mid)": "THREAD", "dim_kind(gemv0.j.inner)": "UNROLL"}
    assert isinstance(restore(space, merged.items()), Candidate)
    in_vectors = {"fragments(gemv0.x)": "IN_VECTORS", "size(gemv0.j.inner)": "4"}
    assert isinstance(restore(space, {**merged, **in_vectors}.items()), DeadEnd)
    alone = {x: y for x, y in merged.items() if "gemv1" not in x}
    assert isinstance(restore(space, {**alone, **in_vectors}.items()), Candidate)


def test_transposed_copies_are_said_and_ill_formed_ones_refused():
    problem, _ = product(64, 32, 64)
    made = decided(problem, ACROSS)
    plan = plan_of(made)
    (launch,) = launches_of(plan, made.space.target)
    said = [x for phrases in describe(made).values() for x in phrases]
    assert any("transposed, rows 16 bytes apart, and reads them in vectors of 4" in x for x in said)
    assert "(TRANSPOSED_PADDED), read in vectors of 4" in program_of(made).decisions[-1]
    verify(launch, plan)
    (task,) = plan.tasks
    site = next(iter(task.fragments))
    apart = tuple(replace(p, has_neighbours=False) for p in task.loops)
    copied = tuple(o for o in task.copies if o.site != site)
    faults = [
        (replace(task, layouts=dict.fromkeys(task.fragments, "PADDED")), "across its rows"),
        (replace(task, loops=apart), "across its rows"),
        (replace(task, copies=copied, fragments={}), "which is no copied block"),
    ]
    for wrong, why in faults:
        with pytest.raises(IllFormedError, match=why):
            verify(launch, replace(plan, tasks=(wrong,)))


@kernel
def weigh(a: types.ndarray(), b: types.ndarray(), c: types.ndarray()):
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            total = 0.0
            for k in range(a.shape[1]):
                total += a[i, k] * b[k, j]
            c[i, j] = total


@pytest.mark.parametrize(("layout", "row"), [("SWIZZLED", "k"), ("TRANSPOSED_SWIZZLED", "i")])
def test_swizzled_rows_have_a_vector_at_least(layout, row):
    """Kind: rows of small elements that are fewer than a vector, of which the number of vectors was 0."""
    arrays = (
        np.ones((64, 40), np.int8),
        np.ones((40, 64), np.float32),
        np.zeros((64, 64), np.float32),
    )
    problem = normalise(record_sequence(lambda a, b, c: weigh(a, b, c), arrays, "weigh"))
    space = build_space(problem, gpu.target())
    for n, fits in (("8", False), ("16", True)):
        wanted = {"staged(weigh0.a)": "COPY", "layout(weigh0.a)": layout}
        wanted |= {f"size(weigh0.{row}.mid)": n, f"size(weigh0.{row}.inner)": "1"}
        assert isinstance(restore(space, wanted.items()), Candidate) == fits, n

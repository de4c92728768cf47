"""The loop IR of kernels: its text, and that no hazard is left between two barriers of a block."""

from __future__ import annotations

from kernelscape.codegen.passes.barriers import of_block, place_block_barriers
from kernelscape.kernels.library import names

from .gpu_cases import CASES, MATMUL, case_of, decided, root_of
from .test_loops import candidates_of, check_barriers, shown

N_CASES = len(names())


def test_golden_loops_of_a_kernel(golden):
    problem = case_of("matmul").problem
    made = decided(problem, MATMUL | {"staged(multiply0.a)": "TWO_STAGES"})
    golden(shown(made), "matmul_gpu.loops.txt")


def test_no_hazard_is_left_between_barriers_of_a_block():
    n = 0
    for k, case in enumerate(CASES[4 * N_CASES :][:N_CASES]):
        for candidate in candidates_of(root_of(case.problem), k, 3):
            n += check_barriers(candidate, "gpu", place_block_barriers, of_block)
    assert n > 5

"""Descriptions by `explore explain` of implementations on a GPU, against their texts."""

from __future__ import annotations

import json

import pytest
from kernelscape.codegen.describe import describe
from kernelscape.codegen.starts import count_starts
from kernelscape.testing.syntax import program_of

from .gpu_cases import BICGK, case_of, decided, drawn, gpu, root_of


@pytest.mark.parametrize("name", ["gemver", "atax", "axpydot", "matmul"])
def test_equal_words_mean_equal_text(name):
    texts: dict[str, str] = {}
    for candidate in drawn(root_of(case_of(name).problem), 3, 24):
        program = program_of(candidate)
        source = gpu.printed(program)
        starts = count_starts(candidate)
        kernels = sum(f.block_threads > 0 for f in program.functions)
        assert kernels == len(program.functions)
        assert (starts.n_launches, starts.n_teams) == (kernels, None)
        words = json.dumps(describe(candidate))
        assert texts.setdefault(words, source.key) == source.key
    assert len(texts) > 14


def test_the_launch_that_combines_what_blocks_left_is_counted():
    assert count_starts(decided(case_of("bicgk").problem, BICGK)).n_launches == 2

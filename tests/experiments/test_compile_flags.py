"""What the compiler costs at each level is measured on candidates of a search, and written."""

from __future__ import annotations

import numpy as np
import pytest
from kernelscape.experiments import compile_flags
from kernelscape.experiments.writing import read_results
from kernelscape.explorer.entry import library_workload
from kernelscape.kernels.library import load
from kernelscape.runtime.cpu.compiler import ALIGNED, FEWER_PASSES, find_compiler
from kernelscape.runtime.cpu.dialect import C_TEAM
from kernelscape.search.starts.complete import first_candidates
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing import checking


@pytest.mark.compiler
@pytest.mark.slow
def test_a_row_has_costs_and_times_of_every_level(tmp_path, in_this_process, capfd):
    few = [
        "--evaluations",
        "3",
        "--candidates",
        "3",
        "--budget-ms",
        "2",
        "--results",
        str(tmp_path),
    ]
    assert compile_flags.main([*few, "--only", "axpydot:n=1009:f64"]) == 0
    [row] = read_results("compile_flags", tmp_path)["rows"]
    assert set(row["compile_ms"]) == set(row["times_ns"]) == set(compile_flags.LEVELS)
    assert all(ms > 0 for ms in row["compile_ms"].values())
    [n_candidates] = {len(ns) for ns in row["times_ns"].values()}
    assert 1 <= n_candidates <= 3
    compiler = find_compiler()
    assert row["flags"][compile_flags.OURS] == [*compiler.flags, *compiler.linked]
    ours, apart, whole, anywhere = (set(row["flags"][level]) for level in compile_flags.LEVELS[:4])
    assert ours == apart
    assert ours - whole == set(compiler.linked) - set(compiler.unspared().linked)
    assert ours - anywhere == {ALIGNED}
    for level in compile_flags.LEVELS[4:]:
        assert [f for f in row["flags"][level] if f.startswith("-O")] == [level]
        assert not set(row["flags"][level]) & set(FEWER_PASSES) - {level}
    assert "| axpydot 1009 | f64 |" in (tmp_path / "compile_flags.md").read_text()


def test_one_level_alone_has_texts_without_shared_addresses():
    problem = library_workload(load("matmul"), {"m": 64, "n": 64, "k": 64}, "f32", 1).problem
    space = build_space(problem, checking.target(2, 32))
    [(_, candidate), *_] = first_candidates(space)
    rng = np.random.default_rng(1)
    drawn = [checking.random_candidate(space.root(), rng) for _ in range(8)]
    candidates = [candidate, *(d for d in drawn if isinstance(d, Candidate))]
    texts = {
        level: [compile_flags.text_of(c, level, C_TEAM).text for c in candidates]
        for level in compile_flags.LEVELS
    }
    differing = [k for k in texts if texts[k] != texts[compile_flags.OURS]]
    assert differing == [compile_flags.APART]
    assert "_at[" in "".join(texts[compile_flags.OURS])
    assert "_at[" not in "".join(texts[compile_flags.APART])


@pytest.mark.parametrize("few", [["--candidates", "0"], ["--seconds", "0"]])
def test_rows_of_nothing_are_a_usage_error(few, capfd):
    with pytest.raises(SystemExit) as caught:
        compile_flags.main(few)
    assert caught.value.code == 2
    assert "must be positive" in capfd.readouterr().err

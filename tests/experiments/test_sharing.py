"""Rows of both kinds: distances between buffers, and panels packed together; what is generated comes first."""

from __future__ import annotations

import pytest
from kernelscape.codegen.passes.storage import APART_BYTES
from kernelscape.experiments import sharing
from kernelscape.experiments.writing import read_results


@pytest.mark.compiler
@pytest.mark.slow
def test_rows_of_both_kinds_are_made_kept_and_written(tmp_path, in_this_process, capfd):
    wanted = ["--only", "atax:m=160,n=160", "matmul:m=160,n=160,k=160"]
    assert (
        sharing.main([*wanted, "--rounds", "2", "--budget-ms", "2", "--results", str(tmp_path)])
        == 0
    )
    atax, matmul = read_results("sharing", tmp_path)["rows"]
    assert list(atax["times_ns"]) == [str(n) for n in sharing.DISTANCES]
    assert sharing.DISTANCES[0] == APART_BYTES
    assert list(matmul["times_ns"]) == ["together", "each its own"]
    assert all(len(ns) == 2 for r in (atax, matmul) for ns in r["times_ns"].values())
    text = (tmp_path / "sharing.md").read_text()
    assert "| matmul 160^3 | f32 |" in text
    assert "| 1.00 ± 0 % |" in text


def test_no_rounds_are_a_usage_error(capfd):
    with pytest.raises(SystemExit) as caught:
        sharing.main(["--rounds", "0"])
    assert caught.value.code == 2
    assert "must be positive" in capfd.readouterr().err

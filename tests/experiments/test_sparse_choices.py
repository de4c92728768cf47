"""The table of choices of sparse sequences: a small row is made, with each value verified."""

from pathlib import Path

import pytest
from kernelscape.experiments import sparse_choices
from kernelscape.experiments.rows import Job


@pytest.mark.compiler
def test_the_smallest_row_is_written(tmp_path: Path) -> None:
    given = ["--rounds", "1", "--only", "grow:n=1024", "--results", str(tmp_path)]
    assert sparse_choices.main(given) == 0
    page = (tmp_path / "sparse_choices.md").read_text()
    assert "| grow | 1,024 | activate | ACTIVATE |" in page
    assert "| grow | 1,024 | activate | ELEMENT |" in page


@pytest.mark.parametrize("job", sparse_choices.JOBS, ids=lambda job: job.name)
def test_each_size_of_the_table_is_one_that_may_be_asked_for(job: Job) -> None:
    assert sparse_choices.PROGRAMS[job.name].complete(job.sizes) == job.sizes


def test_wrong_numbers_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for given, said in (
        (["--rounds", "0"], "--rounds must be positive"),
        (["--only", "rows:n=7"], "the size is n, a multiple of 32"),
        (["--only", "windows:n=96"], "the size is n, a multiple of 64"),
        (["--only", "grow:n=0"], "the size is n, a multiple of 256"),
    ):
        with pytest.raises(SystemExit) as caught:
            sparse_choices.main(given)
        assert caught.value.code == 2
        assert said in capsys.readouterr().err

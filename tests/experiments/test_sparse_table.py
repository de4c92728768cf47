from pathlib import Path

import pytest
from kernelscape.experiments import sparse


def test_the_smallest_table_is_written(tmp_path: Path) -> None:
    code = sparse.main(
        [
            "--rounds",
            "1",
            "--size",
            "32",
            "--only",
            "list of a pointer node",
            "--results",
            str(tmp_path),
        ]
    )
    page = (tmp_path / "sparse.md").read_text()
    assert code == 0 and "| list of a pointer node | 512 |" in page


@pytest.mark.parametrize("given", [["--rounds", "0"], ["--size", "4"], ["--size", "48"]])
def test_wrong_numbers_are_one_sentence(
    given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        sparse.main(given)
    assert caught.value.code == 2
    assert "--rounds must be positive, and --size a multiple of 32" in capsys.readouterr().err

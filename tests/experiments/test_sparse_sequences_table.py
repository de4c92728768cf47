from pathlib import Path

import pytest
from kernelscape.experiments import sparse_sequences


def test_the_smallest_table_is_written(tmp_path: Path) -> None:
    given = ["--rounds", "1", "--shrink", "8", "--seconds", "0", "--only", "sparse_saxpy"]
    code = sparse_sequences.main([*given, "--results", str(tmp_path)])
    page = (tmp_path / "sparse_sequences.md").read_text()
    assert code == 0
    assert "| sparse_saxpy |" in page


def test_explored_times_come_first() -> None:
    one = {"cpu_us": 6.0, "wall_us": 9.0, "result": 2.0}
    page = sparse_sequences.report(
        {
            "stamp": sparse_sequences.stamp(),
            "ways": ["explored", "kernelscape"],
            "rounds": 1,
            "found": {
                "multires": {
                    "runs": {"kernelscape": [one], "explored": [one | {"cpu_us": 3.0}]},
                    "explored": {"tasks": {"loops": 3, "lists": 6}},
                }
            },
            "ended": sparse_sequences.moment(),
        }
    )
    assert "| multires | 3 | 6 | 3 (1.0x) | 6 (2.0x) | 0.0e+00 |" in page


@pytest.mark.parametrize("given", [["--rounds", "0"], ["--shrink", "0"], ["--peer", "taichi"]])
def test_wrong_numbers_are_one_sentence(
    given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        sparse_sequences.main(given)
    assert caught.value.code == 2
    assert "must be positive" in capsys.readouterr().err

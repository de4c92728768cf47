from pathlib import Path

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

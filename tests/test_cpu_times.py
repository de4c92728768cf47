"""CPU times of tests: who is charged, what is exceeded, and that each exception to the budget names a test and a reason.

The kind: a cost that nobody sees. A suite grows by a second a week until a run takes a quarter of an hour.
"""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from .cpu_times import BUDGET, Budget, Meter, Table

ROOT = Path(__file__).parent.parent
BURNING = """
import subprocess, sys, time
import pytest

def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

@pytest.fixture(scope="module")
def inner():
    burn(0.1)

@pytest.fixture(scope="module")
def outer(inner):
    burn(0.2)

@pytest.fixture
def own():
    burn(0.1)

def test_shared(outer):
    pass

@pytest.mark.parametrize("x", [1, 2])
def test_own(own, outer, x):
    pass

def test_child():
    code = "import time\\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-S", "-c", code], check=True)
"""


def test_who_is_charged_for_what(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A fixture that tests share is nobody's own, a child is; parameters share a line of the budget."""
    (tmp_path / "test_it.py").write_text(BURNING)
    budget = Budget(0.02, {"test_it.py::test_child": 0.05, "test_it.py::test_own": 1.0})
    table = Table(budget, tmp_path / "times.tsv", is_held=True)
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "-c", "/dev/null", "--rootdir"]
    code = pytest.main([*options, str(tmp_path), str(tmp_path)], [Meter(100.0), table])
    assert code == pytest.ExitCode.TESTS_FAILED
    nodes = {line.split('"')[1] for line in table.exceeded}
    assert nodes == {"test_it.py::inner", "test_it.py::outer", "test_it.py::test_child"}
    taken_s = {
        node: float(text)
        for text, node in (x.split("\t") for x in (tmp_path / "times.tsv").read_text().splitlines())
    }
    assert taken_s["test_it.py::test_shared"] < 0.1 <= taken_s["test_it.py::test_own[1]"]
    assert taken_s["test_it.py::outer"] >= 0.2
    assert "times.tsv" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("taken_s", "n_exceeded"), [(11.9, 0), (12.1, 1)], ids=["noise", "beyond noise"]
)
def test_a_run_fails_beyond_noise_only(taken_s: float, n_exceeded: int) -> None:
    assert len(list(Budget(4.0, {}).exceeded({"tests/a.py::test_b[1]": taken_s}))) == n_exceeded


def test_expensive_files_run_first_and_tests_of_a_file_together() -> None:
    budget = Budget(4.0, {"c.py::test_x": 9.0, "d.py::test_y": 5.0}, ("b.py",))
    nodes = ["a.py::test_p", "b.py::test_q", "c.py::test_o", "c.py::test_x", "d.py::test_y[0]"]
    nodes += ["d.py::test_y[1]", "e.py::test_z"]
    assert budget.in_order(nodes) == [1, 4, 5, 2, 3, 0, 6]


def test_each_exception_has_a_test_and_a_reason() -> None:
    for node, row in tomllib.loads(BUDGET.read_text())["tests"].items():
        place, _, name = node.rpartition("::")
        file = ROOT / place.partition("::")[0]
        path = file / "conftest.py" if file.is_dir() else file
        functions = {
            f.name for f in ast.walk(ast.parse(path.read_text())) if isinstance(f, ast.FunctionDef)
        }
        assert name in functions, node
        assert row["cpu_s"] > 4, node
        assert len(row["why"].split()) >= 4, node

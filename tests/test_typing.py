"""The public names as mypy and Pyright see them: on README, on example programs, and on programs that are wrong.

The kinds: a name that a checker takes for Any, so that a misspelt argument passes; an annotation that is refused though it runs.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.ir.text import show

ROOT = Path(ks.__file__).parent
EXAMPLES = [ROOT / "examples" / f"{name}.py" for name in ("automaton", "fluid", "renderer")]
WRONG = """\
import kernelscape as ks

@ks.kernel
def double(x: ks.types.ndarray, by: ks.f32) -> None:
    for i in range(x.shape[0]):
        x[i] *= by

double(1, "two")  # wrong
double(1)  # wrong
ks.explore(double, timelimit=3)  # wrong
ks.explroe(double)  # wrong
ks.load_run("here").statuses  # wrong
"""


def python_blocks(page: Path) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))


def test_checkers_see_every_public_name_as_it_is_found() -> None:
    (seen,) = (
        n for n in ast.parse((ROOT / "__init__.py").read_text()).body
        if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"
    )  # fmt: skip
    names = {a.asname for n in seen.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert names - {None} == set(ks.__all__)


def test_a_misspelt_name_suggests() -> None:
    with pytest.raises(AttributeError, match="no public name 'explroe'; did you mean explore"):
        _ = ks.explroe


def test_annotations_for_checkers_mean_what_calls_mean() -> None:
    def text(array: Any, number: Any, constant: Any) -> str:
        def fill(x, by, n):
            for i in range(x.shape[0]):
                x[i] = n * by

        fill.__annotations__ = {"x": array, "by": number, "n": constant}
        return show(ks.kernel(fill).instantiate(np.zeros(4, np.float32), 0.5, 3))

    called = text(ks.types.ndarray(), inspect.Parameter.empty, ks.template())
    assert "n" not in called.partition("\n")[0].partition("(")[2]  # it is a constant
    for array in (ks.types.ndarray, Annotated[Any, ks.types.ndarray(ks.f32, 1)]):
        for constant in (ks.template, ks.types.template, Annotated[int, ks.template()]):
            assert text(array, Any, constant) == called


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], Path]:
    """README and three example programs, and one that is wrong."""
    folder = tmp_path_factory.mktemp("typed")
    readme, wrong = folder / "readme.py", folder / "wrong.py"
    readme.write_text(python_blocks(ROOT / "README.md"))
    wrong.write_text(WRONG)
    right = [readme, *(Path(shutil.copy(p, folder / p.name)) for p in EXAMPLES)]
    return right, wrong


def wrong_lines() -> set[int]:
    return {k for k, line in enumerate(WRONG.splitlines(), 1) if line.endswith("# wrong")}


def test_mypy_strict(programs) -> None:
    """With the settings and the cache of `make check`, which are strict: nothing of the package is read again."""
    api = pytest.importorskip("mypy.api", reason="mypy is not installed")
    del api
    right, wrong = programs
    (ROOT / ".types").mkdir(exist_ok=True)
    if not (ROOT / ".types" / "kernelscape").exists():
        (ROOT / ".types" / "kernelscape").symlink_to("..")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        "pyproject.toml",
        "--no-error-summary",
    ]
    done = subprocess.run(
        [*map(str, command), *map(str, right), str(wrong)],
        cwd=ROOT,
        env=os.environ | {"MYPYPATH": ".types"},
        capture_output=True,
        text=True,
    )
    found = [line.split(":") for line in done.stdout.splitlines() if ": error:" in line]
    assert {(Path(name).name, int(line)) for name, line, *_ in found} == {
        (wrong.name, line) for line in wrong_lines()
    }, done.stdout + done.stderr


def test_pyright(programs) -> None:
    pyright = shutil.which("pyright", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if pyright is None:
        pytest.skip("pyright is not installed")
    right, wrong = programs
    folder = wrong.parent
    (folder / "kernelscape").symlink_to(ROOT)
    (folder / "pyrightconfig.json").write_text(
        '{"typeCheckingMode": "standard", "pythonVersion": "3.11", "include": ["*.py"]}'
    )
    done = subprocess.run(
        [pyright, "--pythonpath", sys.executable, "-p", folder, *right, wrong],
        capture_output=True,
        text=True,
    )
    if done.returncode not in (0, 1):
        pytest.skip(
            f"pyright, which loads itself at its first start, did not: {done.stderr[-200:]}"
        )
    found = re.findall(r"^\s*(\S+\.py):(\d+):\d+ - error", done.stdout, re.MULTILINE)
    assert {(Path(name).name, int(line)) for name, line in found} == {
        (wrong.name, line) for line in wrong_lines()
    }, done.stdout

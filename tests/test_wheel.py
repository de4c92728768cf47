"""The wheel, as a stranger has it: built, installed outside the checkout, and used from another folder.

One environment serves all tests: the wheel is its own, what it depends on is that of this environment. With `--wheel-python PYTHON`
it is one of another version of Python, into which pip installs all that the wheel needs. Nothing is compiled by numba
there (NUMBA_DISABLE_JIT): code of other files than the checkout's would replace what its cache has.
"""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from email.message import Message
from importlib.metadata import version
from pathlib import Path

import kernelscape
import numpy
import pytest

ROOT = Path(kernelscape.__file__).parent
ALSO_BUILT = {"tests", "testing", "experiments", "docs", "examples", "build"}
PIPELINE = (ROOT / "docs" / "numba.md").read_text()
TAICHI = "import taichi as ti\nti.init()\nx = ti.field(ti.f32, shape=4)\n" + (
    "@ti.kernel\ndef fill():\n    for i in x:\n        x[i] = 2 * i\nfill()\nprint(x.to_numpy())\n"
)


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it, and an empty folder to work in."""

    wheel: Path
    bin: Path
    folder: Path

    def run(self, *command: object) -> str:
        """The output of a command, which must succeed."""
        place = {n: str(self.folder / n.lower()) for n in ("XDG_DATA_HOME", "XDG_CONFIG_HOME")}
        environ = {
            k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "KERNELSCAPE"))
        }
        first, *rest = map(str, command)
        done = subprocess.run(
            [str(self.bin / first), *rest],
            cwd=self.folder,
            env=environ | place | {"NUMBA_DISABLE_JIT": "1"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Installed:
    if int(version("setuptools").split(".")[0]) < 77:
        pytest.skip("setuptools is older than 77, which knows licence expressions")
    base = tmp_path_factory.mktemp("wheel")
    source, folder = base / "source", base / "work"
    folder.mkdir()
    shutil.copytree(ROOT, source, ignore=lambda at, names: _left_out(Path(at), names))
    make = "import sys; from setuptools import build_meta as b; b.build_wheel(sys.argv[1])"
    built = subprocess.run(
        [sys.executable, "-c", make, base], cwd=source, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = base.glob("*.whl")
    env = base / "env"
    other = pytestconfig.getoption("--wheel-python")
    if other is not None:
        subprocess.run([other, "-m", "venv", env], check=True)
        subprocess.run([env / "bin" / "pip", "install", "--quiet", wheel], check=True)
        return Installed(wheel, env / "bin", folder)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", env], check=True)
    (site,) = (env / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(f"{Path(numpy.__file__).parents[1]}\n")
    pip = ("-m", "pip", "--python", env / "bin" / "python", "install", "--quiet", "--no-deps")
    subprocess.run([sys.executable, *pip, "--no-index", "--no-compile", wheel], check=True)
    return Installed(wheel, env / "bin", folder)


def _left_out(at: Path, names: list[str]) -> set[str]:
    hidden = {
        name for name in names if name.startswith((".", "__pycache__")) or ".egg-info" in name
    }
    return hidden | (ALSO_BUILT & set(names) if at == ROOT else set())


def metadata(installed: Installed) -> Message:
    with zipfile.ZipFile(installed.wheel) as wheel:
        (name,) = (n for n in wheel.namelist() if n.endswith("/METADATA"))
        return email.message_from_string(wheel.read(name).decode())


def test_it_holds_the_package_and_nothing_of_the_checkout(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as wheel:
        names = set(wheel.namelist())
    assert installed.wheel.name.endswith("-py3-none-any.whl")
    folders = {name.split("/")[1] for name in names if name.count("/") > 1}
    assert not folders & (ALSO_BUILT - {"build"})
    code = {
        f"kernelscape/{p.relative_to(ROOT)}"
        for pattern in ("**/*.py", "**/*.c", "**/*.h", "**/*.pyi", "report/page.*", "report/*.js")
        for p in ROOT.glob(pattern)
        if p.relative_to(ROOT).parts[0] not in ALSO_BUILT and p.name != "setup.py"
        and not p.relative_to(ROOT).parts[0].startswith(".")
    }  # fmt: skip
    assert code | {"kernelscape/py.typed"} <= names


def test_its_metadata_is_complete(installed: Installed) -> None:
    told = metadata(installed)
    assert told["License-Expression"] == "Apache-2.0"
    assert told["License-File"] == "LICENSE"
    assert told["Author"] == "kernelscape developers"
    assert "Operating System :: POSIX :: Linux" in told.get_all("Classifier")
    assert told["Keywords"]


def test_links_of_its_description_work_elsewhere(installed: Installed) -> None:
    """The kind: a link that is right in the repository only. Its words are left."""
    text = str(metadata(installed).get_payload())
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert "](docs/start.md)" in (ROOT / "README.md").read_text() and "| docs/start.md |" in text


def test_its_advice_is_that_of_an_installation(installed: Installed) -> None:
    code = "import kernelscape.runtime.installing as i; print(i.__file__, i.extra('cuda'))"
    file, _, advice = installed.run("python", "-c", code).strip().partition(" ")
    assert not Path(file).is_relative_to(ROOT)
    assert advice == 'pip install "kernelscape[cuda]"'


@pytest.mark.compiler
def test_a_stranger_searches_replays_and_runs_a_program_of_taichi(installed: Installed) -> None:
    """list, run, replay, report and taichi, in one process: each loads the same."""
    (installed.folder / "program.py").write_text(TAICHI)
    lines = (
        "list",
        "run vadd --size n=64 --max-evals 2 -o run --quiet",
        "replay run --tolerance 10000%",
        "report run",
        "taichi program.py",
    )
    code = "\n".join(
        (
            "from kernelscape.cli import commands",
            f"for line in {lines!r}:",
            "    print(line, commands._run(line.split()))",
        )
    )
    said = installed.run("python", "-c", code)
    assert [f"{line} 0" in said for line in lines] == [True] * len(lines), said
    assert "axpydot" in said and "verified on" in said and "[0. 2. 4. 6.]" in said
    assert (installed.folder / "run" / "report.html").stat().st_size > 20_000
    assert installed.run("explore", "--version").startswith("kernelscape, version")


@pytest.mark.compiler
def test_a_stranger_goes_from_numba_to_a_tuned_call(installed: Installed) -> None:
    """The page docs/numba.md as a script, with a smaller image, then an old run opened by another process."""
    text = "\n".join(re.findall(r"```python\n(.*?)```", PIPELINE, re.DOTALL))
    small = text.replace("(512, 512)", "(32, 32)").replace(
        "time_limit=20", "max_evals=2, directory='old'"
    )
    (installed.folder / "pipeline.py").write_text(small)
    assert "Best" in installed.run("python", "pipeline.py")
    code = "import kernelscape as ks; run = ks.load_run('old'); print(run, len(run.report().html))"
    assert "evaluation limit" in installed.run("python", "-c", code)


def test_parts_of_other_packages_are_found(installed: Installed) -> None:
    """A backend, a strategy and a sequence of an installed package, by entry points."""
    site = next((installed.bin.parent / "lib").glob("python*/site-packages"))
    info = site / "others-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(
        "[kernelscape.backends]\nsecond = kernelscape.runtime.fake\n"
        "[kernelscape.strategies]\nguess = others:Guess\nbroken = others:Nothing\n"
        "[kernelscape.sequences]\nvmine = others:ENTRY\n"
    )
    (site / "others.py").write_text(
        "from dataclasses import replace\n"
        "from kernelscape.kernels.library.vadd import ENTRY as vadd\n"
        "from kernelscape.search.tree.baselines import RandomSampling\n"
        "ENTRY = replace(vadd, name='vmine')\n"
        "def Guess(options): return RandomSampling()\n"
    )
    said = installed.run("explore", "doctor", "-v")
    for part in ("backends second", "strategies guess", "sequences vmine"):
        assert f"{part}, of others 1.2" in said
    assert "strategies broken, of others 1.2: cannot be loaded" in said
    assert "vmine" in installed.run("explore", "list")
    options = ("--target", "second", "--strategy", "guess", "--max-evals", 3, "-o", "plugged")
    assert "Saved" in installed.run("explore", "run", "vmine", "--size", "n=64", *options)

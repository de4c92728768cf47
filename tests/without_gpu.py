"""The deletion test: the checkout without the backends of GPUs and their tests, linted, typed and tested as a whole.

    python tests/without_gpu.py [--folder COPY] [pytest arguments]

copies what git tracks, removes `runtime/cuda`, `runtime/emulator`, their lines in the list of packages and their own tests, and
runs everything that `make test` runs.
With paths as pytest arguments the suite can be run in pieces. The exit status is 1 when anything is not green.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BACKENDS = ("runtime/cuda", "runtime/emulator")
OWN_TESTS = ("tests/runtime/cuda", "tests/runtime/emulator", "tests/runtime/gpu_sources.py")


def copy_without(folder: Path) -> Path:
    """The copy, in a folder that was not there or is an earlier copy."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    shutil.rmtree(folder, ignore_errors=True)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file() and not name.startswith((*BACKENDS, *OWN_TESTS)):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    settings = folder / "pyproject.toml"
    gone = {f'"kernelscape.{backend.replace("/", ".")}",' for backend in BACKENDS}
    lines = settings.read_text().splitlines(keepends=True)
    settings.write_text("".join(line for line in lines if line.strip() not in gone))
    (folder / ".types").mkdir()
    (folder / ".types/kernelscape").symlink_to("..")
    return folder


def run_all(folder: Path, arguments: list[str]) -> int:
    """Everything in the copy; how many commands were not green."""
    environment = {**os.environ, "PYTHONPATH": str(folder / ".types"), "MYPYPATH": ".types"}
    tools = Path(sys.executable).parent
    says = "import kernelscape, pathlib; print(pathlib.Path(kernelscape.__file__).resolve().parent)"
    commands = [
        [str(tools / "ruff"), "check", "--quiet", "."],
        [sys.executable, "-m", "mypy", "--no-error-summary", "-p", "kernelscape"],
        [str(tools / "lint-imports"), "--no-logo", "--no-cache"],
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-ra", *arguments],
    ]
    imported = subprocess.run(
        [sys.executable, "-c", says], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert imported.stdout.strip() == str(folder.resolve()), imported.stdout + imported.stderr
    n_red = 0
    for command in commands:
        print("$", Path(command[0]).name, *command[1:], flush=True)
        code = subprocess.run(command, cwd=folder, env=environment, check=False).returncode
        n_red += code != 0
        print(f"exit status {code}", flush=True)
    return n_red


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="of the copy, which is replaced")
    given, arguments = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="without-gpu-") as scratch:
        folder = copy_without(given.folder or Path(scratch) / "copy")
        return 1 if run_all(folder, arguments) else 0


if __name__ == "__main__":
    sys.exit(main())

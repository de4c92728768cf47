"""Commands that run nothing: `list`, `show`, `doctor`."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import kernelscape
import pytest
from kernelscape.cli import commands as cli
from kernelscape.kernels.library import names
from kernelscape.space.backbone import LAUNCH_TASKS

from .command import objects


def test_list_names_every_sequence(explore) -> None:
    code, out, err = explore("list")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()[1:]] == list(names())
    code, out, _ = explore("list", "--json")
    assert [x["name"] for x in objects(out)] == list(names())


def test_show_tells_the_space(explore) -> None:
    _, out, _ = explore("show", "bicgk", "--size", "m=64,n=32", "--json", "--descents", 20)
    (fields,) = objects(out)
    assert fields["feasible"]
    assert sum(fields["open_by_kind"].values()) == fields["open"] <= fields["choices"]
    low, high = fields["implementations"][1:]
    assert low <= fields["implementations"][0] <= high


LONG = """
import numpy as np
import kernelscape as ks

@ks.kernel
def shift(x: ks.types.ndarray(), y: ks.types.ndarray()):
    for i in range(x.shape[0]):
        y[i] = x[i] + 1.0

def many(a, b):
    for _ in range(7):
        shift(a, b)
        shift(b, a)

def two(a, b):
    shift(a, b)
    shift(b, a)

def make_arguments(sizes, dtype, rng):
    return np.zeros(64, np.float32), np.zeros(64, np.float32)
"""


def test_show_tells_what_limits_launches(explore, tmp_path: Path) -> None:
    """A sequence that fits into one launch has no such line."""
    file = tmp_path / "long.py"
    file.write_text(LONG)
    _, out, _ = explore("show", f"{file}:many", "--json", "--descents", 0)
    (fields,) = objects(out)
    n = fields["components"]
    assert fields["launch_tasks"] == LAUNCH_TASKS < len(fields["tasks"])
    _, out, _ = explore("-v", "show", f"{file}:many", "--descents", 0)
    shown = out.split("\nComponents\n")[1].split("\n\n")[0].splitlines()
    assert len(shown) == n
    counted = [[int(x) for x in re.findall(r"(\d+) (?:choices|open)", line)] for line in shown]
    assert [sum(x) for x in zip(*counted, strict=True)] == [fields["choices"], fields["open"]]
    (fields,) = objects(explore("show", f"{file}:two", "--json", "--descents", 0)[1])
    assert (fields["components"], fields["launch_tasks"]) == (1, None)


def test_doctor_finds_a_compiler(explore) -> None:
    code, out, _ = explore("doctor", "--json")
    found = {f["topic"]: f for f in objects(out)}
    assert code == 0
    assert found["compiler"]["verdict"] == "ok"
    assert {"cores", "simd", "caches", "calibration", "presets", "gpu"} <= set(found)


def test_doctor_says_what_is_missing(explore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    code, out, _ = explore("doctor")
    assert code == cli.Exit.ENVIRONMENT
    assert "apt install gcc" in out


@pytest.mark.parametrize("is_installed", [True, False])
def test_a_checkout_has_its_version_also_where_it_is_not_installed(
    explore, monkeypatch: pytest.MonkeyPatch, is_installed: bool
) -> None:
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    if not is_installed:
        monkeypatch.setattr(importlib.metadata, "version", absent)
    settings = tomllib.loads((Path(kernelscape.__file__).parent / "pyproject.toml").read_text())
    version = settings["project"]["version"]
    assert explore("--version") == (0, f"kernelscape, version {version}\n", "")
    assert kernelscape.__version__ == version


def test_compiling_itself_is_told_unless_quiet(explore, monkeypatch):
    monkeypatch.setattr("kernelscape.cli.options.tell_when_compiling", lambda tell: tell())
    for arguments in (("list",), ("list", "--json")):
        code, _, err = explore(*arguments)
        assert code == 0 and "once a version" in err
    assert explore("list", "--quiet")[2] == ""

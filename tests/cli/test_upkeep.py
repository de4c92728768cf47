"""`explore cache`, `explore schema`, and what shells complete."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import get_args

import jsonschema
import kernelscape
import pytest
from click.shell_completion import ShellComplete
from kernelscape.cli import commands as cli
from kernelscape.cli.schema import events, line_schema
from kernelscape.explorer import caches
from kernelscape.explorer import stages as st
from kernelscape.explorer.explanation import Explanation, Fruitless
from kernelscape.kernels.library import names
from kernelscape.search import events as ev
from kernelscape.search.line import AbstractLine

from .command import SMALL, objects


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with a build, numba's code of two versions, and what another program keeps beside it."""
    root = tmp_path / "cache" / "kernelscape"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    version = "1.0-numba0.60-0123456789abcdef"
    reference = "numba/reference-py311-numba0.60/reference_1.py"
    for name in (
        "build/a.so",
        "kernels/k.so",
        "references/r",
        f"numba/{version}/x.nbi",
        reference,
        "numba/of_others/y.nbi",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * 100)
    monkeypatch.setattr(caches, "jitted_folder", lambda: root / "numba" / version)
    return root


def test_the_cache_is_told_and_cleared(explore, place: Path) -> None:
    code, out, _ = explore("cache", "--json")
    assert code == 0
    found = {x["name"]: x for x in objects(out)}
    assert {n: (x["files"], x["bytes"]) for n, x in found.items()} == {
        "builds": (1, 100),
        "kernels": (1, 100),
        "search-code": (2, 200),
        "references": (1, 100),
        "calibrations": (0, 0),
        "store": (0, 0),
        "libraries": (0, 0),
    }
    assert Path(found["builds"]["path"]) == place / "build"
    code, out, _ = explore("cache", "--clear", "builds")
    assert (code, out) == (0, "cleared builds: 0.0 MB\n")
    assert not (place / "build").exists()
    code, out, _ = explore("cache", "--clear", "all", "--json")
    assert objects(out)[0]["freed_bytes"] == 400
    assert (place / "numba" / "of_others" / "y.nbi").exists()


def test_the_schema_is_that_of_what_commands_print(explore, tmp_path: Path) -> None:
    run = tmp_path / "run"
    source = tmp_path / "mine.c"
    source.write_text("void mine(void **args) { }")
    fake = ("--target", "fake", "-o", run, "--json")
    lines = []
    program = tmp_path / "program.py"
    program.write_text("import taichi\n")
    for arguments in (
        ("list", "--json"),
        ("show", *SMALL, "--descents", 5, "--json"),
        ("show", *SMALL, "--descents", 0, "--json"),
        ("run", *SMALL, "--max-evals", 12, *fake),
        ("resume", run, "--max-evals", 2, "--json"),
        ("explain", run, "--json"),
        ("explain", run / "best.json", "--json"),
        ("replay", run, "--json"),
        ("compare", run, run / "best.json", "--json"),
        ("codegen", run, "-o", tmp_path, "--json"),
        ("graph", *SMALL, "--json"),
        ("check", source, "--as", *SMALL, "--target", "fake", "--json"),
        ("tune", "vadd", "--sizes", "n=9", "--max-evals", 2, "--target", "fake", "--json"),
        ("taichi", program, "--json"),
        ("trace", run, "--json"),
        ("report", run, "--json"),
        ("doctor", "--json"),
        ("cache", "--json"),
        ("store", "list", "--json"),
        ("store", "show", 1, "--json"),
        ("store", "export", tmp_path / "x.jsonl", "--json"),
        ("store", "import", tmp_path / "x.jsonl", "--json"),
        ("store", "prune", "--json"),
        ("schema", "--json"),
    ):
        code, out, err = explore(*arguments)
        assert code == 0, err
        lines += out.splitlines()
    _, out, _ = explore("schema")
    schema = json.loads(out)
    assert schema == line_schema()
    validator = jsonschema.Draft202012Validator(schema)
    seen = set()
    for line in objects("\n".join(lines)):
        validator.validate(line)
        seen.add(line["event"])
    of_other_machines = {"built", "calibration", "export"}
    of_luck = {
        "numpy",
        "alarm",
        "widened",
        "machine_changed",
        "other_compiler",
        "final",
        "confirmed",
        "cleared",
    }
    of_failures = {"out_of_time", "reference_too_slow", "first_wrong", "fruitless"}
    of_failures |= {"rounding", "disagreement"}  # in tests/explorer/test_verifying.py
    of_other_machines.add("components")  # of several, in tests/explorer/test_division.py
    of_other_machines.add("fleet")  # in tests/runtime/fleet/test_dask.py
    of_programs = {"window", "program_run", "checked_window"}  # in test_running_programs.py
    assert set(events()) - seen <= of_other_machines | of_luck | of_failures | of_programs


def test_a_line_of_another_shape_is_refused() -> None:
    validator = jsonschema.Draft202012Validator(line_schema())
    validator.validate({"event": "trace", "file": "trace.json", "events": 3})
    for wrong in ({"event": "trace"}, {"event": "trace", "file": 1, "events": 3}, {"event": "no"}):
        assert not validator.is_valid(wrong)


def test_every_event_is_in_the_schema() -> None:
    """Also those that no test can make happen: the events of a run that are lines, and all that the command's texts name."""
    told_of_runs = [*get_args(st.Stage | ev.Event), Explanation, Fruitless]
    folder = Path(kernelscape.__file__).parent / "cli"
    told = {c.__struct_config__.tag for c in told_of_runs if issubclass(c, AbstractLine)}
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Dict):
                pairs = zip(node.keys, node.values, strict=True)
                told |= {
                    v.value
                    for k, v in pairs
                    if isinstance(k, ast.Constant)
                    and k.value == "event"
                    and isinstance(v, ast.Constant)
                }
    assert told == set(events())
    assert all(c.__doc__ for c in events().values())


def test_shells_complete_commands_and_sequences() -> None:
    completion = ShellComplete(cli.explore, {}, "explore", "_EXPLORE_COMPLETE")

    def completed(*words: str, last: str) -> list[str]:
        return [item.value for item in completion.get_completions(list(words), last)]

    assert completed(last="rep") == ["report", "replay"]
    assert completed("run", last="gem") == [n for n in names() if n.startswith("gem")]
    assert completed("graph", last="mine.p") == ["mine.p"]
    assert "--mermaid" in completed("graph", last="--m")


def test_the_package_says_that_it_has_types() -> None:
    assert (Path(kernelscape.__file__).parent / "py.typed").is_file()


def test_results_go_from_one_store_to_another(explore, tmp_path: Path, monkeypatch) -> None:
    run = ("run", *SMALL, "--max-evals", 2, "--target", "fake", "-o", tmp_path / "run")
    assert explore(*run)[0] == 0
    file, own = tmp_path / "found.jsonl", tmp_path / "data" / "kernelscape" / "tuned.sqlite"
    assert explore("store", "export", file)[1] == f"{file}  1 exported\n"
    code, out, _ = explore("store", "show", 1)
    assert (code, json.loads(out)) == (0, json.loads((tmp_path / "run" / "best.json").read_text()))
    monkeypatch.setenv("KERNELSCAPE_STORE", str(tmp_path / "other.sqlite"))
    assert explore("store", "list")[1] == f"{tmp_path / 'other.sqlite'}  0 rows\n"
    assert explore("store", "import", file)[1] == f"{file}  1 new, 0 known\n"
    assert explore("store", "merge", own)[1] == f"{own}  0 new, 1 known\n"
    assert explore("store", "list")[1].splitlines()[0].split()[:2] == ["1", SMALL[0]]
    for arguments, sentence in (
        (("show", 7), "has no row 7"),
        (("show", 2**64), "is not in the range"),
        (("export", tmp_path), f"{tmp_path}: Is a directory"),
        (("merge", tmp_path / "none"), "there is no store"),
        (("import", tmp_path / "none"), "cannot be read"),
        (("import", tmp_path / "run" / "best.json"), "line 1 of"),
    ):
        code, out, err = explore("store", *arguments)
        assert (code, out) == (2, "")
        assert sentence in err

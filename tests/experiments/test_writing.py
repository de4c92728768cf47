"""Pages of results: machines add columns and never replace each other's rows; pages are what the values give; references lead
somewhere.
"""

from __future__ import annotations

import json
import lzma
import re
from pathlib import Path

import pytest
from kernelscape.experiments import writing
from kernelscape.experiments.pages import REPORTERS, main, stored
from kernelscape.experiments.writing import RESULTS, read_results, table, write_results

ROOT = RESULTS.parents[1]
FOLDERS = "kernels|space|search|codegen|runtime|explorer|report|cli|testing|experiments|tests|docs"
PATH = re.compile(rf"(?<![\w/.-])((?:{FOLDERS})/[a-z_0-9/]+\.(?:py|md|json|c|h|js|css|html))\b")


def report(values):
    parts = ["# Title", "How it is done.", f"- taken {values['taken']}"]
    parts.append(table(["sequence", "time"], [[k, str(v)] for k, v in values["rows"].items()]))
    return "\n\n".join(parts) + "\n"


def test_a_machine_adds_its_rows_and_leaves_those_of_others(tmp_path):
    write_results("speed", report, {"taken": "first", "rows": {"axpy": 1}}, tmp_path)
    write_results("speed", report, {"taken": "other", "rows": {"axpy": 7}}, tmp_path, "cpu-other 1")
    page = write_results("speed", report, {"taken": "later", "rows": {"axpy": 2}}, tmp_path)
    assert page.read_text() == (
        "# Title\n\nHow it is done.\n\n"
        "| machine | sequence | time |\n| --- | --- | ---: |\n"
        "| machine 1 | axpy | 2 |\n| machine 2 | axpy | 7 |\n\n"
        "## machine 1\n\n- taken later\n\n## machine 2\n\n- taken other\n"
    )
    assert read_results("speed", tmp_path)["taken"] == "later"
    assert read_results("speed", tmp_path, "cpu-other 1")["taken"] == "other"
    assert read_results("speed", tmp_path, "cpu-third") == {}
    told = (tmp_path / "machines.md").read_text()
    assert f"`{writing.this_machine()}`" in told
    assert "| machine 2 |" in told


def test_a_machine_may_be_given_a_name(tmp_path):
    write_results("speed", report, {"taken": "now", "rows": {"axpy": 1}}, tmp_path)
    file = tmp_path / "raw" / "machines.json"
    file.write_text(file.read_text().replace("machine 1", "Zen 9"))
    assert "| Zen 9 | axpy | 1 |" in writing.write_page("speed", report, tmp_path).read_text()


def test_tables_are_joined_within_their_sections():
    def one(works, said):
        return "# T\n\n" + "\n\n".join(
            f"## {work}\n\n{said}\n\n| a | b |\n| --- | ---: |\n| {work} | {said} |"
            for work in works
        )

    page = writing.one_page({"A": one(["x", "y"], "1"), "B": one(["y", "z"], "2")})
    assert page == (
        "# T\n\n## x\n\n1\n\n| machine | a | b |\n| --- | --- | ---: |\n| A | x | 1 |\n\n"
        "## y\n\n| machine | a | b |\n| --- | --- | ---: |\n| A | y | 1 |\n| B | y | 2 |\n\n"
        "A:\n\n1\n\nB:\n\n2\n\n"
        "## z\n\n2\n\n| machine | a | b |\n| --- | --- | ---: |\n| B | z | 2 |\n"
    )


@pytest.mark.parametrize("name", stored())
def test_a_page_is_what_its_values_give(name, tmp_path):
    for file in (RESULTS / "raw").glob(f"{name}.*.json"):
        (tmp_path / "raw").mkdir(exist_ok=True)
        (tmp_path / "raw" / file.name).write_bytes(file.read_bytes())
    machines = RESULTS / "raw" / "machines.json"
    (tmp_path / "raw" / machines.name).write_bytes(machines.read_bytes())
    assert main([name, "--results", str(tmp_path)]) == 0
    made = (tmp_path / f"{name}.md").read_text()
    assert made == (RESULTS / f"{name}.md").read_text(), "run kernelscape.experiments.pages"
    assert (tmp_path / "machines.md").read_text() == (RESULTS / "machines.md").read_text()


def test_a_page_that_nobody_has_made_is_a_sentence(capsys):
    with pytest.raises(SystemExit):
        main(["nosuch"])
    assert "no values for 'nosuch': there are " in capsys.readouterr().err


def test_results_have_one_page_a_question_and_one_folder():
    """Values stand in raw/ by the machine's name; every page is in the index."""
    assert [p.name for p in RESULTS.iterdir() if p.is_dir()] == ["raw"]
    index = (RESULTS / "README.md").read_text()
    linked = set(re.findall(r"\]\((\w+\.md)\)", index))
    pages = {p.name for p in RESULTS.glob("*.md")} - {"README.md"}
    assert linked == pages, f"lines of its table are missing or too many: {sorted(linked ^ pages)}"
    machines = json.loads((RESULTS / "raw" / "machines.json").read_text())
    for file in (RESULTS / "raw").glob("*.*.json"):
        page, key, _ = file.name.split(".")
        assert (RESULTS / f"{page}.md").exists()
        assert key in set(map(writing.file_key, machines))


def test_a_page_without_its_script_says_where_that_stood():
    """Whatever the question: page and values stay, and the script is found in the history."""
    for page in RESULTS.glob("*.md"):
        name = page.stem
        if name in ("README", "machines") or name in REPORTERS or scripted(name):
            continue
        said = rf"`{name}\.py`, stood in experiments/ up to commit [0-9a-f]{{7}}"
        assert re.search(said, page.read_text()), name


def scripted(name: str) -> bool:
    return (RESULTS.parent / f"{name}.py").exists()


def content(path: Path) -> str:
    """The text of a file of results, also of one that is packed."""
    packed = path.read_bytes()
    return (lzma.decompress(packed) if path.suffix == ".xz" else packed).decode(errors="replace")


def test_results_hold_no_path_of_a_machine():
    """Paths of homes, of folders to work in, and of temporary folders."""
    of_machine = re.compile(r"(?<![\w./])/(home|Users|root|work|tmp|var|private|mnt|opt)/")
    assert of_machine.search('File \\"/work/peers/x.py') and of_machine.search("/tmp/a")
    assert not of_machine.search("reads/work/s, [a](../root/b)")
    held = [p.name for p in RESULTS.rglob("*.*") if p.is_file() and of_machine.search(content(p))]
    assert held == []


def test_every_path_that_is_named_is_there():
    """In prose and comments; a page of results may be one that its script has yet to write."""
    gone = []
    folders = [ROOT / name for name in FOLDERS.split("|") if name != "tests"]
    files = [p for folder in folders for kind in ("*.md", "*.py") for p in folder.rglob(kind)]
    # A copy without the backends of GPUs has neither these folders nor tests of its own.
    backends = ("runtime/cuda/", "runtime/emulator/")
    absent = tuple(folder for folder in backends if not (ROOT / folder).exists())
    for path in (*ROOT.glob("*.md"), *files):
        place = path.relative_to(ROOT)
        for named in PATH.findall(path.read_text()):
            if absent and named.startswith((*absent, "tests/runtime/")):
                continue
            may_come = named.startswith("experiments/results/") and Path(named).stem in REPORTERS
            if not (ROOT / named).exists() and not may_come:
                gone.append(f"{place}: {named}")
    assert gone == []

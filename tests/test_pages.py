"""ARCHITECTURE.md opens with one kernel in every stage: its texts are what the program prints today.

`pytest tests/test_pages.py --update-golden` writes them anew.
"""

from __future__ import annotations

import inspect
import re
from functools import cache
from pathlib import Path

import pytest
from kernelscape.codegen.loops.text import show_launch
from kernelscape.codegen.lower import lower, print_source
from kernelscape.codegen.passes.pipeline import launches_of
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.text.source import Source
from kernelscape.explorer.entry import library_workload
from kernelscape.kernels.ir.text import show, show_tasks
from kernelscape.kernels.library import axpydot as library
from kernelscape.kernels.library import load
from kernelscape.kernels.tasks.state_flow import build_graph, show_graph
from kernelscape.runtime.cpu.dialect import C_TEAM
from kernelscape.search.bound.bounder import Bounder
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.decisions import restore, to_names
from kernelscape.testing.checking import target

ROOT = Path(__file__).parent.parent
PAGES = (
    "ARCHITECTURE.md",
    "README.md",
    "CONTRIBUTING.md",
    *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs").rglob("*.md"))),
)
DECISIONS = (
    ("reduction(dot0.i.outer)", "PARTIALS"),
    ("size(dot0.i.mid)", "1"),
    ("dim_kind(dot0.i.inner)", "VECTOR"),
    ("size(dot0.i.inner)", "8"),
    ("mem_space(subtract_scaled0->dot0.z)", "REGISTER"),
    ("cache(subtract_scaled0.z)", "DEFAULT"),
)  # all else follows from them
_BLOCK = re.compile(r"<!-- stage: (\w+) -->\n(?:\n```\w*\n(.*?)```\n)?", re.DOTALL)
_MOST_WORDS = 3500
_MOST_CHARACTERS = 200  # of a line that is not a table
_MOST_WORDS_OF_A_SENTENCE = 30


@cache
def stages() -> dict[str, str]:
    """The text of each stage by its name."""
    entry = load("axpydot")
    workload = library_workload(entry, entry.complete({"n": 100_000}), "f32", 1)
    space = build_space(workload.problem, target(2, 32))
    root, best = space.root(), restore(space, DECISIONS)
    assert isinstance(root, Candidate) and isinstance(best, Candidate) and best.is_complete
    bounder = Bounder(space)
    n_open = sum(len(root.values(v)) > 1 for v in map(int, space.searchable))
    bound = bounder.bound(best)
    source, plan = print_source(lower(plan_of(best)), C_TEAM), plan_of(best)
    return {
        "python": "".join(
            inspect.getsource(f) + "\n\n"
            for f in (library.subtract_scaled.fn, library.dot.fn, library.axpydot)
        ).rstrip()
        + "\n",
        "ir": "\n".join(show(call.ir) for call in workload.recording.calls),
        "tasks": show_tasks(workload.problem),
        "graph": show_graph(build_graph(workload.problem)),
        "space": f"{len(space.searchable)} choices, {n_open} of them open\n",
        "decided": "".join(f"{name} = {value}\n" for name, value in DECISIONS),
        "propagated": "".join(
            f"{name} = {value}\n"
            for name, value in to_names(best)
            if (name, value) not in DECISIONS and not name.startswith("order")
        ),
        "bound": f"{bound.ns:.1f} ns\n"
        + "".join(f"  {name:<13}{ns:7.1f}\n" for name, ns in bound.terms if ns),
        "loops": "".join(show_launch(x, plan) for x in launches_of(plan, space.target)),
        "text": thread_function(source),
    }


def thread_function(source: Source) -> str:
    """The function that each thread of the first launch runs."""
    begin = source.text.index("static void launch_0_thread")
    return source.text[begin : source.text.index("\n}\n", begin) + 3]


def language(stage: str) -> str:
    return {"python": "python", "text": "c"}.get(stage, "text")


def test_architecture_shows_what_is_printed(request: pytest.FixtureRequest) -> None:
    page = ROOT / "ARCHITECTURE.md"
    text = page.read_text()
    assert [m[1] for m in _BLOCK.finditer(text)] == list(stages())

    def written(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- stage: {name} -->\n\n```{language(name)}\n{stages()[name]}```\n"

    now = _BLOCK.sub(written, text)
    if request.config.getoption("--update-golden"):
        page.write_text(now)
    assert page.read_text() == now, "run pytest tests/test_pages.py --update-golden"


def test_architecture_is_short() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().split()) <= _MOST_WORDS


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


@pytest.mark.parametrize("page", PAGES)
def test_lines_of_prose_are_short(page: str) -> None:
    """Tables, code and the one line of options of the command are as long as they are."""
    is_code = False
    for line in (ROOT / page).read_text().splitlines():
        is_code ^= line.lstrip().startswith("```")
        if not is_code and not line.startswith(("|", "    ")):
            assert len(line) <= _MOST_CHARACTERS, line


FOLDERS = sorted(p.name for p in ROOT.iterdir() if p.is_dir() and (p / "__init__.py").exists())
PLACES = re.compile(rf"`((?:{'|'.join([*FOLDERS, 'tests', 'docs', 'examples'])})/[\w/.]*|\w+\.py)`")
PLANNED = ("runtime/metal/", "runtime/hip/")  # questions of CONTRIBUTING
OF_READERS = re.compile(r".*\b(NAME|TOPIC)\b.*|(user|program|mine|sequence|setup)\w*\.py")


@pytest.mark.parametrize("page", [p for p in PAGES if "inside" in p or "/" not in p])
def test_files_that_are_named_are_there(page: str) -> None:
    """The kind: a page that names a file as it was called before. A name without a folder is that of any file."""
    names = {p.name for folder in (*FOLDERS, "tests") for p in (ROOT / folder).rglob("*.py")}
    found = {x for x in PLACES.findall((ROOT / page).read_text()) if not OF_READERS.fullmatch(x)}
    missing = (x for x in found if not (ROOT / x).exists() and x not in names)
    assert [x for x in missing if x not in PLANNED] == []


def test_every_picture_is_shown() -> None:
    """The kind: a picture that stays when the page that shows it is changed."""
    text = "".join((ROOT / page).read_text() for page in PAGES)
    pictures = (p.name for x in ("png", "svg") for p in (ROOT / "docs").rglob(f"*.{x}"))
    assert [name for name in pictures if name not in text] == []


def sentences(text: str) -> list[str]:
    """Sentences of prose, list items and cells of tables; a colon or semicolon ends one too."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    paragraphs = re.split(r"\n\s*\n|\n(?=\s*[-|#])", prose)
    cells = (c for p in paragraphs for c in (p.split("|") if p.startswith("|") else [p]))
    return [s for c in cells for s in re.split(r"(?<=[.!?:;])\s+", c)]


@pytest.mark.parametrize("page", PAGES)
def test_sentences_are_short(page: str) -> None:
    for sentence in dict.fromkeys(sentences((ROOT / page).read_text())):
        n_words = sum(1 for word in sentence.split() if re.search(r"\w", word))
        assert n_words <= _MOST_WORDS_OF_A_SENTENCE, sentence


def test_a_long_sentence_is_found() -> None:
    assert max(len(s.split()) for s in sentences(f"One.\n\n- Two: {'word ' * 31}end. Three.")) == 32

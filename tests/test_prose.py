"""Docstrings of the product and of the judges begin with the thing, or with what is returned: rule 1 of CONTRIBUTING's "Prose"."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PRODUCT = (
    "kernels",
    "program",
    "space",
    "search",
    "codegen",
    "runtime",
    "explorer",
    "report",
    "compat",
    "cli",
)
JUDGES = sorted((ROOT / "testing").glob("*.py"))
BANNED = {"What", "Whether", "How", "Where", "Which", "Of", "As"}
MOST = 5  # texts of --help among them


def riddles(text: str) -> Iterator[str]:
    """First lines of docstrings that begin with a banned word."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            words = (ast.get_docstring(node) or "").split(maxsplit=1)
            if words and words[0].rstrip(",:;") in BANNED:
                yield " ".join(words)[:80]


def test_a_riddle_is_found() -> None:
    text = '"""Where it is."""\ndef f():\n    """The place."""\ndef g():\n    """As f."""\n'
    assert list(riddles(text)) == ["Where it is.", "As f."]


def test_few_docstrings_are_riddles() -> None:
    paths = [*ROOT.glob("*.py"), *JUDGES, *(p for x in PRODUCT for p in (ROOT / x).rglob("*.py"))]
    found = [
        f"{path.relative_to(ROOT)}: {line}"
        for path in sorted(paths)
        for line in riddles(path.read_text())
    ]
    assert len(found) <= MOST, "\n".join(found)

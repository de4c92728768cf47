"""How the documentation is built: `make docs`, or `sphinx-build -W docs build/docs`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import kernelscape

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "kernelscape"
version = release = kernelscape.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_click"]
exclude_patterns = ["build", "_build"]
html_theme = "alabaster"
html_theme_options = {
    "description": "every implementation of a sequence, as one space",
    "page_width": "1000px",
}
html_sidebars = {"**": ["about.html", "searchfield.html", "navigation.html"]}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": False}
myst_heading_anchors = 2

_LITERAL = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_MARKUP = re.compile(r"(?<!\\)([*|])")


def _as_prose(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Docstrings are prose with code in single backticks: nothing else in them is markup."""
    for k, line in enumerate(lines):
        if line.lstrip().startswith(">>>"):
            continue
        parts = re.split(r"(`[^`]+`)", line)
        lines[k] = "".join(
            _LITERAL.sub(r"``\1``", p) if p.startswith("`") else _MARKUP.sub(r"\\\1", p)
            for p in parts
        )


def setup(app: Sphinx) -> None:
    """What Sphinx calls first."""
    app.connect("autodoc-process-docstring", _as_prose)

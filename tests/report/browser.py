"""The page as a browser shows it, where one is installed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from kernelscape.testing.browser import Browser, find_browser

needs_browser = pytest.mark.skipif(find_browser() is None, reason="no Chromium is installed")


@dataclass(frozen=True)
class Drawn:
    """`marks` are the data attributes of the document's root, `text` is the document once its script has run."""

    marks: dict[str, str]
    text: str
    console: list[str]


def drawn(path: Path) -> Drawn:
    executable = find_browser()
    assert executable is not None
    with Browser(executable) as browser:
        marks = browser.open(path, "drawnMs")
        return Drawn(marks, browser.text(), browser.console)

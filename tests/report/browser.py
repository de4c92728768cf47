"""A headless browser, where one is installed: what a page becomes when its script has run."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest

BROWSER = next(
    (
        found
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name))
    ),
    None,
)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")


class Drawn:
    """What a browser made of a page: `marks` are the data attributes of its root, `text` is the document."""

    def __init__(self, path: Path, profile: Path) -> None:
        assert BROWSER is not None
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--window-size=1240,2000")
        command = (BROWSER, *flags, f"--user-data-dir={profile}", "--virtual-time-budget=20000")
        log = ("--enable-logging=stderr", "--v=0", "--dump-dom", path.as_uri())
        done = subprocess.run(
            [*command, *log], capture_output=True, text=True, timeout=120, check=True
        )
        self.text = done.stdout
        root = re.search(r"<html[^>]*>", self.text)
        assert root is not None, done.stderr
        self.marks = {
            k: html.unescape(v) for k, v in re.findall(r'data-([a-z-]+)="([^"]*)"', root[0])
        }
        self.console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]

"""The description of the package for its page of releases: README.md, its links made absolute. All else is in pyproject.toml."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
RELATIVE = re.compile(r"\]\((?!https?:|#)([^)\s]+)\)")


def description() -> str:
    """Returns the text of README.md with links into the repository."""
    home = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Homepage"]
    return RELATIVE.sub(rf"]({home}/blob/main/\1)", (ROOT / "README.md").read_text())


setup(long_description=description(), long_description_content_type="text/markdown")

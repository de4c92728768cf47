"""The description of the package for its page of releases: README.md without links into the repository.

All else is in pyproject.toml.
"""

import re
from pathlib import Path

from setuptools import setup

README = Path(__file__).parent / "README.md"
RELATIVE = re.compile(r"\[([^\]]*)\]\((?!https?:|#)[^)\s]+\)")


def description() -> str:
    """Returns the text of README.md. A link to a file of the repository leads nowhere from there: its words are left."""
    return RELATIVE.sub(r"\1", README.read_text(encoding="utf-8"))


setup(long_description=description(), long_description_content_type="text/markdown")

"""Description of the package for its page at the package index: README.md without links into the repository.

All other metadata is in pyproject.toml.
"""

import re
from pathlib import Path

from setuptools import setup

README = Path(__file__).parent / "README.md"
RELATIVE = re.compile(r"\[([^\]]*)\]\((?!https?:|#)[^)\s]+\)")


def description() -> str:
    """Returns the text of README.md, in which links to files of the repository are replaced by their words."""
    return RELATIVE.sub(r"\1", README.read_text(encoding="utf-8"))


setup(long_description=description(), long_description_content_type="text/markdown")

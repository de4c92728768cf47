"""What the tests of generated text share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def nvrtc_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where NVRTC builds: its processes, which start as slowly as they compile a short text, are kept for one folder."""
    return tmp_path_factory.mktemp("nvrtc")

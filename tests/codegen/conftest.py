"""Fixtures for tests of generated text."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def nvrtc_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build folder of NVRTC: its processes, which start as slowly as they compile a short text, are kept for one folder."""
    return tmp_path_factory.mktemp("nvrtc")

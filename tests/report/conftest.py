"""A run on the fake device, and a browser that draws its page."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path

import pytest
from kernelscape.explorer.entry import Run, explore_workload, library_workload
from kernelscape.explorer.workload import Options
from kernelscape.kernels.library import load as load_library


def fake_run(folder: Path, **changes: object) -> Run:
    workload = library_workload(load_library("bicgk"), {"m": 64, "n": 64}, "f32", 1)
    options = Options(**({"target": "fake", "max_evals": 40, "store": False} | changes))
    return explore_workload(workload, options, directory=folder)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return fake_run(tmp_path_factory.mktemp("report") / "run")


def values_of(page: str) -> dict:
    """The values inside a page."""
    found = re.search(r'id="values">([A-Za-z0-9+/=]*)</script>', page)
    assert found is not None
    return json.loads(zlib.decompress(base64.b64decode(found[1])))

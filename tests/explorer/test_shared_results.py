"""A store that machines share: a search begins with the nearest result in it."""

from __future__ import annotations

import os

import pytest
from kernelscape.explorer.entry import explore_workload, library_workload
from kernelscape.explorer.workload import Options
from kernelscape.kernels.library import load as load_library
from kernelscape.runtime.records.store import TunedStore

FAKE = Options(target="fake", max_evals=6)


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_search_begins_with_what_is_shared(tmp_path, monkeypatch, is_shared) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", os.fspath(tmp_path))
    if is_shared:
        monkeypatch.setenv("KERNELSCAPE_STORE", os.fspath(tmp_path / "team.sqlite"))
    notes = []
    for n in (4096, 8192):
        folder = tmp_path / str(n)
        workload = library_workload(load_library("axpydot"), {"n": n}, "f32", 1)
        assert explore_workload(workload, FAKE, directory=folder).best is not None
        lines = (folder / "journal.jsonl").read_text().splitlines()
        notes.append([line for line in lines if '"kind":"store"' in line])
    with TunedStore() as store:
        assert [row.key.shape for row in store.rows()] == [(4096,), (8192,)]
    assert notes[0] == []
    assert len(notes[1]) == is_shared
    assert all("a first candidate (nearest) is that of n=4096 on" in note for note in notes[1])

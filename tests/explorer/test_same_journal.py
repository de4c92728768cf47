"""The journal of a run on one machine, byte by byte: the last checksum is of all bytes before it.

The kind: what several machines need changes the records of a run on one.
"""

from __future__ import annotations

import time
from dataclasses import replace

import msgspec
import pytest
from kernelscape.explorer import machine
from kernelscape.explorer.entry import explore_workload, library_workload
from kernelscape.explorer.workload import Options
from kernelscape.kernels.library import load


@pytest.mark.parametrize("sequence", ["axpydot", "gemver"])
def test_the_journal_of_one_machine_is_what_it_was(sequence, golden, tmp_path, monkeypatch) -> None:
    conditions = machine.take_conditions
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    monkeypatch.setattr(
        machine,
        "take_conditions",
        lambda **known: msgspec.structs.replace(conditions(**known), machine="one", cores=2),
    )
    entry = load(sequence)
    workload = library_workload(entry, entry.complete({"n": 16}), "f32", 1)
    options = replace(Options(), target="fake", time_limit_s=None, max_evals=24, store=False)
    explore_workload(workload, options, directory=tmp_path / "run")
    shown = []
    for line in (tmp_path / "run" / "journal.jsonl").read_bytes().splitlines():
        record = msgspec.json.decode(line)
        fields = ("event", "source_key", "kind", "time_ns", "crc")
        shown.append(" ".join(str(record[k]) for k in fields if k in record))
    golden("\n".join(shown) + "\n", f"journal_{sequence}.txt")

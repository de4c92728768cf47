"""Caches as the operating system reports them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from kernelscape.runtime import host


def _report(folder: Path, cpu: int, **facts: str) -> None:
    index = folder / f"cpu{cpu}" / "cache" / "index0"
    index.mkdir(parents=True)
    for name, text in {"type": "Data", "size": "48K", "level": "1", **facts}.items():
        (index / name).write_text(text + "\n")


@pytest.mark.parametrize(
    ("first", "second", "ways"), [("12", "12", 12), ("12", "8", 0), ("", "", 0), ("?", "?", 0)]
)
def test_ways_are_those_of_all_caches_of_a_level(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, first: str, second: str, ways: int
) -> None:
    for cpu, text in enumerate((first, second)):
        _report(tmp_path, cpu, shared_cpu_list=str(cpu), ways_of_associativity=text)
    monkeypatch.setattr(host, "_SYSFS", tmp_path)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    assert host.read_machine().caches == (host.Cache("L1", 96 << 10, 2, ways),)


def test_caches_of_two_sizes_have_no_common_ways(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Kind: a large and a small core have as many ways, and sets of other sizes."""
    for cpu, size in enumerate(("64K", "32K")):
        facts = {"shared_cpu_list": str(cpu), "size": size, "ways_of_associativity": "8"}
        _report(tmp_path, cpu, **facts)
    monkeypatch.setattr(host, "_SYSFS", tmp_path)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    assert host.read_machine().caches == (host.Cache("L1", 96 << 10, 2, 0, shared_by=2),)


def test_cores_that_share_a_cache_are_those_of_the_fullest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Kind: two threads of a large core beside two small cores, on average one and a third a cache."""
    for cpu, (shared, size) in enumerate(
        (("0-1", "48K"), ("0-1", "48K"), ("2", "32K"), ("3", "32K"))
    ):
        _report(tmp_path, cpu, shared_cpu_list=shared, size=size)
    monkeypatch.setattr(host, "_SYSFS", tmp_path)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    (found,) = host.read_machine().caches
    assert (found.n_instances, found.shared_by) == (3, 2)
    assert found.capacity_bytes * found.shared_by // 4 >= 48 << 10


def test_ways_are_no_part_of_the_key() -> None:
    """Kind: calibrations that a new fact of the machine loses."""
    machine = host.read_machine()
    other = tuple(replace(c, ways=c.ways + 1) for c in machine.caches)
    assert replace(machine, caches=other).key == machine.key

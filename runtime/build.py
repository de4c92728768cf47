"""Building sources: the artifact, and many builds at once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..codegen.source import Argument, KernelLaunch, Source
from .outcome import Failure

if TYPE_CHECKING:
    from .device import AbstractDevice


@dataclass(frozen=True)
class Artifact:
    """A built source: a file, and what is needed to call it. `key` names source, flags and
    compiler together.
    """

    key: str
    source_key: str
    path: str
    entry: str
    arguments: tuple[Argument, ...]
    n_threads: int
    build_ns: int  # 0 when it was already there
    launches: tuple[KernelLaunch, ...] = ()  # how the kernels of GPU code are called

    @staticmethod
    def of(source: Source, key: str, path: Path, build_ns: int, entry: str = "") -> Artifact:
        """The artifact of a source that was built to `path` under the key of its build; `entry` where it has another name there."""
        entry = entry or source.entry
        return Artifact(
            key=f"{key}-{entry}",
            source_key=source.key,
            path=str(path),
            entry=entry,
            arguments=source.arguments,
            n_threads=source.n_threads,
            build_ns=build_ns,
            launches=source.launches,
        )

    @property
    def workspace_bytes(self) -> int:
        return sum(a.shape[0] for a in self.arguments if a.kind == "workspace")


@dataclass(frozen=True)
class LaunchResources:
    """One launch: what its kernel takes, and the blocks of it that one multiprocessor holds at once."""

    kernel: str
    block: tuple[int, int, int]
    registers: int  # per thread
    shared_bytes: int  # per block, static and dynamic
    spill_bytes: int  # stored per thread
    stack_bytes: int  # per thread
    blocks_per_core: int  # 0: it cannot be launched
    occupancy: float  # warps held of the warps there is room for
    limit: str  # what keeps it from more: "threads", "registers", "shared memory" or "blocks"

    @property
    def shape(self) -> str:
        """The threads of a block along the axes that it has, as in 32x8."""
        n_axes = max((k + 1 for k, n in enumerate(self.block) if n > 1), default=1)
        return "x".join(map(str, self.block[:n_axes]))


@dataclass(frozen=True)
class BuildReport:
    """A source that compiled: every launch, in order, and what the compiler warned of ("" for nothing)."""

    launches: tuple[LaunchResources, ...]
    warnings: str
    build_ns: int


def build_many(
    device: AbstractDevice, sources: Sequence[Source], jobs: int
) -> list[Artifact | Failure]:
    """Build sources with up to `jobs` compilers at once, each of which takes as many sources as the device lets it; results in the
    order of `sources`.
    """
    groups = _groups(sources, device.most_together, max(1, jobs))
    gathered = [[sources[k] for k in group] for group in groups]
    if len(groups) <= 1 or jobs <= 1:
        built = [device.build_together(group) for group in gathered]
    else:
        with ThreadPoolExecutor(min(jobs, len(groups)), thread_name_prefix="build") as pool:
            built = list(pool.map(device.build_together, gathered))
    places = [k for group in groups for k in group]
    found = dict(zip(places, (one for group in built for one in group), strict=True))
    return [found[k] for k in range(len(sources))]


def _groups(sources: Sequence[Source], most: int, jobs: int) -> list[list[int]]:
    """Places of sources, in groups of at most `most` with texts of about equal length together, as many for each of the compilers:
    the compiler that is done first would wait for the others.
    """
    n_rounds = -(-len(sources) // (most * jobs))
    groups: list[list[int]] = [[] for _ in range(min(len(sources), n_rounds * jobs))]
    lengths = [len(s.text) for s in sources]
    for k in sorted(range(len(sources)), key=lambda k: -lengths[k]):
        free = (g for g in groups if len(g) < most)
        min(free, key=lambda g: (sum(lengths[i] for i in g), len(g))).append(k)
    return [sorted(g) for g in groups]


def report_many(
    device: AbstractDevice, sources: Sequence[Source], jobs: int
) -> list[BuildReport | Failure]:
    """Build sources as `build_many` does, and say what each takes; nothing is run.

    Raises DeviceError where the backend cannot say.
    """
    built = build_many(device, sources, jobs)
    return [
        b if isinstance(b, Failure) else device.report(s)
        for s, b in zip(sources, built, strict=True)
    ]

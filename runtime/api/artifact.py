"""Results of a build: the artifact (a compiled file), and the compiler's report on its resources."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ...codegen.text.source import Argument, KernelLaunch, Source, UnitTable


@dataclass(frozen=True)
class BuiltUnit:
    """A library that contains one unit (the text of a component), and the name of the unit's function in it."""

    path: str
    entry: str


@dataclass(frozen=True)
class Artifact:
    """A built source: a file, and the data that calls of it need.

    `key` identifies source, flags and compiler together.
    """

    key: str
    source_key: str
    path: str
    entry: str
    arguments: tuple[Argument, ...]
    n_threads: int
    build_ns: int  # 0 when it was already there
    launches: tuple[KernelLaunch, ...] = ()  # how the kernels of GPU code are called
    components: tuple[str, ...] = ()  # as in `Source`
    units: tuple[BuiltUnit, ...] = ()  # of a source in units, which has no file of its own
    table: UnitTable | None = None  # its entry
    # Begin and end of its compilation, with all sources compiled together, by time.monotonic(); None where that is unknown.
    compiling_s: tuple[float, float] | None = field(default=None, compare=False)

    @staticmethod
    def of(source: Source, key: str, path: Path, build_ns: int, entry: str = "") -> Artifact:
        """Returns the artifact of a source that was built to `path`; `key` is the key of the build.

        `entry`: name of its function in that file, if not `source.entry`.
        """
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
            components=source.components,
        )

    @property
    def workspace_bytes(self) -> int:
        return sum(a.shape[0] for a in self.arguments if a.kind == "workspace")


@dataclass(frozen=True)
class LaunchResources:
    """Resources of one launch: needs of its kernel, and blocks of it that one multiprocessor holds at once."""

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
        """Threads per block along each used axis, as text such as 32x8."""
        n_axes = max((k + 1 for k, n in enumerate(self.block) if n > 1), default=1)
        return "x".join(map(str, self.block[:n_axes]))


@dataclass(frozen=True)
class BuildReport:
    """Report on a compiled source: resources of every launch, in order, and the compiler's warnings ("": none)."""

    launches: tuple[LaunchResources, ...]
    warnings: str
    build_ns: int

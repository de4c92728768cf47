"""Building sources: the artifact, and many builds at once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..codegen.source import Argument, KernelLaunch, Source

if TYPE_CHECKING:
    from .device import AbstractDevice
    from .outcome import Failure


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

    @property
    def workspace_bytes(self) -> int:
        return sum(a.shape[0] for a in self.arguments if a.kind == "workspace")


def build_many(
    device: AbstractDevice, sources: Sequence[Source], jobs: int
) -> list[Artifact | Failure]:
    """Build sources with up to `jobs` compilers at once; results in the order of `sources`."""
    if len(sources) <= 1 or jobs <= 1:
        return [device.build(s) for s in sources]
    with ThreadPoolExecutor(min(jobs, len(sources)), thread_name_prefix="build") as pool:
        return list(pool.map(device.build, sources))

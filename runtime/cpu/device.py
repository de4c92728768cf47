"""The CPU as a device: builds with the system's compiler, loads with ctypes, times with a compiled loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..api.backend import AbstractDevice, AbstractMachine, AbstractReporter, AbstractStoredFacts
from ..api.errors import DeviceError
from ..device import DeviceOptions
from ..host import vector_bytes
from .builder import CpuBuilder
from .compiler import compiler_named, find_compiler, other_compilers
from .runner import CpuRunner

if TYPE_CHECKING:
    from ...codegen.text.source import Source
    from ...space.targets.target import Target
    from ..api.calibration import Calibration
    from .streams import NowProbe


class CpuMachine(AbstractMachine):
    """Facts about this machine's cores, caches and memory."""

    calibrated_by = "explore calibrate"

    def __init__(self, builder: CpuBuilder) -> None:
        self._builder = builder

    def facts(self) -> Target:
        from .probe import guess_target, load_target

        return (load_target() or guess_target()).of_threads(self._builder.options.threads)

    def calibrate(self) -> Calibration:
        from .probe import calibrate

        return calibrate(CpuDevice(self._builder.options))

    def probe_libraries(self, *, every: bool = False) -> tuple[Path, ...]:
        from .function_rates import functions_text

        probe = self._builder.build_own("probe.c")
        if not every:
            return (probe,)
        try:
            text = functions_text(vector_bytes())
            return probe, self._builder.build_own_text("functions.c", text)
        except DeviceError:  # without a compiler the rates of functions stay unknown
            return (probe,)

    def take_samples(self, libraries: Sequence[Path], n_threads: int) -> dict[str, list[float]]:
        from .function_rates import function_samples
        from .probe import run_probe

        probe, *functions = libraries
        # Functions before and behind the others: other work disturbs whole seconds.
        before = [function_samples(x, n_threads) for x in functions]
        samples = run_probe(probe, n_threads)
        behind = [function_samples(x, n_threads) for x in functions]
        for first, last in zip(before, behind, strict=True):
            samples |= {name: found + last[name] for name, found in first.items()}
        return samples

    def look(self, library: Path, n_threads: int, whole: bool) -> dict[str, list[float]]:
        from .probe import run_state_probe

        return run_state_probe(library, n_threads, whole)

    def stored_facts(self) -> AbstractStoredFacts:
        from .probe import OwnCalibration

        return OwnCalibration()

    def memory_probe(
        self, library: Path, n_threads: int, read_bytes: float, written_bytes: float
    ) -> NowProbe:
        from .streams import NowProbe

        return NowProbe(library, n_threads, read_bytes, written_bytes)


class CpuReporter(AbstractReporter):
    """Names, flags and commands of the C compilers on this machine."""

    def __init__(self, builder: CpuBuilder) -> None:
        self._builder = builder

    def command_line(self, source: Source, file: Path, compiler: str) -> str:
        found = find_compiler(compiler_named(compiler))
        return found.command_line(file, file.with_suffix(".so"), source.flags)

    def version(self) -> str:
        return self._builder.compiler.version

    def flags(self) -> tuple[str, ...]:
        return self._builder.compiler.flags


class CpuDevice(AbstractDevice):
    """This machine's CPU."""

    name = "cpu"

    def __init__(self, options: DeviceOptions) -> None:
        self.builder: CpuBuilder = CpuBuilder(options)
        self.runner: CpuRunner = CpuRunner(self.builder)
        self.machine = CpuMachine(self.builder)
        self.reporter = CpuReporter(self.builder)

    def with_all_passes(self) -> CpuDevice:
        compiler = self.builder.compiler
        theirs = CpuDevice(replace(self.builder.options, compiler=compiler.path))
        theirs.builder.compiler = compiler.unspared()
        return theirs

    def others(self) -> list[AbstractDevice]:
        o = self.builder.options
        found = [] if o.compiler is not None else other_compilers(self.builder.compiler)
        return [CpuDevice(replace(o, compiler=c.path)) for c in found]

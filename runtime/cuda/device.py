"""A GPU as a device: NVRTC builds, PyCUDA runs. Without a GPU it builds for a data sheet only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..api.artifact import Artifact, BuildReport
from ..api.backend import AbstractBuilder, AbstractDevice, AbstractMachine, AbstractReporter
from ..api.outcome import Failure
from ..device import DeviceOptions
from .compiler import Cubin, CudaCompiler, nvcc_command
from .dialect import CUDA
from .gpu import Gpu
from .profiles import target_of
from .resources import build_report, refusal, unheld_grid
from .runner import CudaRunner

if TYPE_CHECKING:
    from ...codegen.text.dialect import Dialect
    from ...codegen.text.source import Source
    from ...space.targets.target import Target
    from ..api.calibration import Calibration


class CudaMachine(AbstractMachine):
    """Facts of the GPU: measured ones if stored, else those of its data sheet."""

    calibrated_by = "explore calibrate --target cuda"

    def __init__(self, gpu: Gpu, options: DeviceOptions) -> None:
        self.gpu = gpu
        self._options = options

    def facts(self) -> Target:
        from .probe import load_target

        measured = load_target(self.gpu.profile) if self.gpu.is_here else None
        return measured or target_of(self.gpu.profile, CudaDevice.name)

    def accelerator(self) -> str:
        return self.gpu.profile.name

    def calibrate(self) -> Calibration:
        from .probe import calibrate

        device = CudaDevice(self._options)
        device.runner.check()
        return calibrate(device, self.gpu.profile)

    def take_samples(self, libraries: Sequence[Path], n_threads: int) -> dict[str, list[float]]:
        from .probe import take_samples

        return take_samples(CudaDevice(self._options), self.gpu.profile)


class CudaBuilder(AbstractBuilder):
    """Builds with NVRTC for the GPU's architecture, or for that of the data sheet.

    Raises DeviceError without NVRTC.
    """

    def __init__(self, gpu: Gpu, options: DeviceOptions) -> None:
        self.gpu = gpu
        self.compiler = CudaCompiler(options.build_folder, options.compile_timeout_s)

    def dialect(self) -> Dialect:
        return CUDA

    def build(self, source: Source) -> Artifact | Failure:
        built = self.compile(source)
        if isinstance(built, Failure):
            return built
        report = build_report(source, built, self.gpu.profile)
        if isinstance(report, Failure):
            return report
        profile = self.gpu.profile
        refused = refusal(report, profile.name) or unheld_grid(source, report, profile)
        return refused or Artifact.of(source, built.key, built.path, built.build_ns)

    def compile(self, source: Source) -> Cubin | Failure:
        """Compiles a source to a cubin with the compiler's reports. Raises DeviceError without NVRTC."""
        return self.compiler.build(source.text, self.gpu.profile.architecture, source.flags)


class CudaReporter(AbstractReporter):
    """Reports of NVRTC on registers, shared memory and spills of kernels."""

    reports = True

    def __init__(self, builder: CudaBuilder) -> None:
        self._builder = builder

    def command_line(self, source: Source, file: Path, compiler: str) -> str:
        return nvcc_command(source, file, self._builder.gpu.profile.architecture)

    def version(self) -> str:
        return self._builder.compiler.version

    def report(self, source: Source) -> BuildReport | Failure:
        cubin = self._builder.compile(source)
        if isinstance(cubin, Failure):
            return cubin
        return build_report(source, cubin, self._builder.gpu.profile)


class CudaDevice(AbstractDevice):
    """The first GPU. Without a GPU, `builder` compiles for the data sheet of the options.

    Everything else then raises DeviceError.
    """

    name = "cuda"

    def __init__(self, options: DeviceOptions) -> None:
        self.gpu = Gpu(options.profile)
        self.machine = CudaMachine(self.gpu, options)
        self.builder: CudaBuilder = CudaBuilder(self.gpu, options)
        self.runner = CudaRunner()
        self.reporter = CudaReporter(self.builder)

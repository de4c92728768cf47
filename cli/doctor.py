"""Findings of `explore doctor`: installed parts of this machine, missing parts, and commands to install them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal, get_args

from ..plugins import Kind, PluginError, load_plugin, plugins, source_of
from ..runtime import installing
from ..runtime.api.errors import DeviceError
from ..runtime.cpu.calling import PACKAGE, header_folders
from ..runtime.cpu.compiler import NAMES, find_compiler, find_path
from ..runtime.cpu.probe import load_own_calibration
from ..runtime.device import backends, cache_folder, requirements
from ..runtime.fleet.fleet_file import load_fleet
from ..runtime.fleet.messages import own_version
from ..runtime.host import HostCpu, read_machine
from ..runtime.records.record import RecordError
from ..runtime.records.store import ADDRESS, TunedStore, default_store, store_address

Verdict = Literal["ok", "note", "missing"]


@dataclass(frozen=True)
class Finding:
    """One line of the output; `advice` is the remedy if the verdict is not "ok"."""

    topic: str
    verdict: Verdict
    text: str
    advice: str = ""


def examine(
    environ: Mapping[str, str], compiler: str | None = None, fleet: Path | None = None
) -> list[Finding]:
    """Examines everything that a run depends on, and the fleet of a file if given; changes nothing.

    `environ`: environment variables. `compiler`: name of a further compiler to examine.
    """
    machine = read_machine()
    return [
        *_compilers(compiler),
        _python_header(),
        *_machine(machine),
        _calibration(),
        _huge_pages(),
        _presets(environ),
        *_gpu(),
        *_plugins(),
        *_fleet(fleet),
        Finding("cache", "ok", str(cache_folder())),
        _store(),
    ]


def _store() -> Finding:
    """Returns the finding on the tuned store to which searches write."""
    try:
        address = store_address()
        if isinstance(address, Path):
            return Finding("store", "ok", str(address))
        with TunedStore(address) as store:
            return Finding("store", "ok", store.name)
    except (RecordError, OSError) as e:
        advice = (
            f"{ADDRESS} names the database of a team; without it results go to {default_store()}"
        )
        return Finding("store", "note", str(e), advice)


def _compilers(wanted: str | None) -> list[Finding]:
    found = []
    for name in dict.fromkeys((*((wanted,) if wanted else ()), *NAMES)):
        if find_path(name) is None:
            continue
        try:
            compiler = find_compiler(name)
        except DeviceError as e:
            found.append(Finding("compiler", "note", f"{name} is of no use", str(e)))
        else:
            text = f"{compiler.path}: {compiler.version}, works"
            found.append(Finding("compiler", "ok", text))
    if not any(f.verdict == "ok" for f in found):
        found.insert(
            0, Finding("compiler", "missing", "no C compiler that works", installing.a_compiler())
        )
    return found


def _python_header() -> Finding:
    if header_folders():
        return Finding(
            "python", "ok", "Python.h is here: tuned functions are called in compiled code"
        )
    advice = f"{PACKAGE}: without it each call of a tuned function takes some microseconds more"
    return Finding("python", "note", "Python.h is not installed", advice)


def _machine(machine: HostCpu) -> list[Finding]:
    caches = ", ".join(
        f"{c.name} {_size(c.capacity_bytes)} in {c.n_instances}" for c in machine.caches
    )
    few = machine.cores == 1
    advice = "one core alone: parallel loops cannot help" if few else ""
    return [
        Finding("cpu", "ok", f"{machine.model}, {_size(machine.memory_bytes)} of memory"),
        Finding("cores", "note" if few else "ok", f"{machine.cores} usable", advice),
        Finding("simd", "ok", f"vectors of {8 * machine.vector_bytes} bits"),
        Finding("caches", "ok", caches)
        if caches
        else Finding("caches", "note", "unknown", "the system tells nothing under /sys"),
    ]


def _calibration() -> Finding:
    found = load_own_calibration()
    if found is None:
        advice = "run explore calibrate (10 s): until then bounds rest on guesses and are loose"
        return Finding("calibration", "note", "none for this machine", advice)
    rate = found.target.memory_read_bytes_per_ns
    text = f"{found.n_calibrations} times, memory reads at {rate:.1f} GB/s at best"
    return Finding("calibration", "ok", text)


def _huge_pages() -> Finding:
    try:
        text = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text().strip()
    except OSError:
        return Finding("huge pages", "note", "unknown", "large arrays may be slower to touch")
    if "[never]" in text:
        advice = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled makes them usable"
        return Finding("huge pages", "note", text, advice)
    return Finding("huge pages", "ok", text)


def _presets(environ: Mapping[str, str]) -> Finding:
    prefixes = ("OPENBLAS_", "OMP_", "GOMP_", "KMP_", "MKL_")
    preset = sorted(name for name in environ if name.startswith(prefixes))
    if not preset:
        return Finding("presets", "ok", "no variable changes how libraries run")
    text = ", ".join(f"{name}={environ[name]}" for name in preset)
    advice = "they are taken away where times are measured; your own NumPy may be slower with them"
    return Finding("presets", "note", text, advice)


def _gpu() -> list[Finding]:
    """Returns findings on the requirements of GPU backends, none of which the CPU needs."""
    found = [
        Finding(r.what, "note", "not found", r.advice)
        if r.found is None
        else Finding(r.what, "ok", r.found)
        for backend in backends()
        for r in requirements(backend)
    ]
    return found or [Finding("gpu", "note", "this installation has no backend for GPUs")]


def _plugins() -> list[Finding]:
    """Returns a finding for each plugin of an installed package, which is loaded as a test."""
    found = []
    for kind in get_args(Kind):
        for name, entry in plugins(kind).items():
            text = f"{kind} {name}, of {source_of(entry)}"
            try:
                load_plugin(kind, name)
            except PluginError as e:
                found.append(Finding("plugin", "note", f"{text}: cannot be loaded", str(e)))
            else:
                found.append(Finding("plugin", "ok", text))
    return found


def _fleet(file: Path | None) -> list[Finding]:
    """Returns findings on Dask and, for a fleet file, on its scheduler (versions, port, certificates) and workers."""
    try:
        text = f"dask {version('dask')}, distributed {version('distributed')}"
    except PackageNotFoundError:
        advice = "pip install 'kernelscape[fleet]': one search on several machines"
        return [Finding("fleet", "note", "Dask is not installed", advice)]
    found = [Finding("fleet", "ok", text)]
    if file is None:
        return found
    try:
        at = load_fleet(file)
        by = "no TLS, this machine only" if at.tls is None else f"TLS by {at.tls.cert}"
        found.append(Finding("scheduler", "ok", f"{at.address}, {by}, version {at.version}"))
        return [*found, *_workers(file)]
    except DeviceError as e:
        return [*found, Finding("scheduler", "note", "it cannot be used", str(e))]


def _workers(file: Path) -> list[Finding]:
    """Returns findings on a fleet's workers; a worker of another version cannot be used. Raises DeviceError."""
    from ..runtime.fleet.dask_fleet import join_fleet

    fleet = join_fleet(file)
    try:
        slots = [s.facts for s in fleet.slots()]
    finally:
        fleet.close()
    found = [Finding("slot", "ok", f"{f.name}: {f.key}, version {f.version}") for f in slots]
    for name, other in fleet.others.items():
        advice = f"this end has {own_version()}: install one version everywhere"
        found.append(Finding("slot", "note", f"{name} has version {other}", advice))
    return found or [Finding("slot", "note", "none", f"explore worker --fleet {file} adds some")]


def _size(n_bytes: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n_bytes >= size:
            return f"{n_bytes / size:.4g} {unit}"
    return f"{n_bytes} B"

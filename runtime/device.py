"""Devices by name of their backend. A backend is a subfolder here and is imported on first use."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..plugins import PluginError, load_plugin, plugins
from ..space.engine.own_folders import PRIVATE_PREFIX, user_cache
from .api.errors import DeviceError
from .scratch import sweep_once

if TYPE_CHECKING:
    from .api.backend import AbstractDevice

# In which order the threads of a block, and blocks, run where they are emulated; "in turn": each run another.
ThreadOrder = Literal["forward", "backward", "random", "in turn"]


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Settings common to all backends. A backend ignores settings that do not apply to it."""

    compiler: str | None = None  # name or path; None: the first that works
    build_folder: Path = field(default_factory=lambda: cache_folder("build"))
    compile_timeout_s: float = 60.0
    threads: int = 0  # of a call, at most; 0: as many as there are cores. A GPU has no use for it
    thread_order: ThreadOrder = "in turn"  # of the emulator
    profile: str = "h200"  # the data sheet that stands for a GPU where there is none


def cache_folder(name: str = "") -> Path:
    """Returns the cache folder, or its subfolder `name`: built artifacts and calibrations, all rebuildable.

    Only this user can write to it. space/engine/own_folders.py defines the replacement if others can.
    """
    folder = user_cache(name)
    private = folder.parent if name else folder
    if private.name.startswith(PRIVATE_PREFIX):
        sweep_once(private.parent, PRIVATE_PREFIX)
    return folder


def open_device(name: str, options: DeviceOptions | None = None) -> AbstractDevice:
    """Returns the device of backend `name` ("cpu", "fake", ...). Raises DeviceError if it is not available."""
    if name not in (*backends(), "fake"):
        raise DeviceError(
            f"there is no backend {name!r}; this installation has {', '.join(backends())}"
        )
    try:
        device: AbstractDevice = _module(name).open_backend(options or DeviceOptions())
    except ImportError as e:
        raise DeviceError(f"the backend {name!r} needs a package that is missing: {e}") from e
    return device


@dataclass(frozen=True)
class Requirement:
    """One dependency of a backend: the version or path found (None: missing), and the way to install it."""

    what: str
    found: str | None
    advice: str = ""


def requirements(name: str) -> list[Requirement]:
    """Returns the dependencies of backend `name` on this machine, found or missing; [] if not installed or none."""
    if name not in (*backends(), "fake"):
        return []
    examine = getattr(_module(name), "requirements", None)
    found: list[Requirement] = [] if examine is None else examine()
    return found


def backends() -> tuple[str, ...]:
    """Returns the names of the installed backends except the fake one; other packages may add some (plugins.py)."""
    return tuple(sorted({*_own_backends(), *plugins("backends")} - {"fake"}))


def _own_backends() -> set[str]:
    here = Path(__file__).parent
    return {p.parent.name for p in here.glob("*/device.py")}


def _module(name: str) -> Any:
    """Returns the module of a backend, which defines `open_backend`. Raises DeviceError."""
    if name in _own_backends():
        return import_module(f"{__package__}.{name}")
    try:
        return load_plugin("backends", name)
    except PluginError as e:
        raise DeviceError(str(e)) from e

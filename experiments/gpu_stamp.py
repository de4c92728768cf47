"""The stamp of results of a GPU: the host's, with what the backend found, the driver, and the libraries; and its machine's key."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ..runtime.api.errors import DeviceError
from ..runtime.device import open_device, requirements
from ..runtime.measure.conditions import take_conditions
from .conditions import stamp, stamp_text

_PACKAGES = (
    *("numba", "pycuda", "cupy-cuda13x", "cupy-cuda12x", "torch", "triton"),
    *("nvidia-cublas", "nvidia-cublas-cu12"),
)


def gpu_machine(target: str) -> str:
    """Returns the key of this machine with its accelerator, by which results are kept."""
    accelerator = open_device(target).machine.accelerator()
    return str(take_conditions(accelerator=accelerator).machine)


def gpu_stamp(target: str) -> dict[str, Any]:
    """Returns the host's stamp with the device, the driver and the libraries."""
    taken = stamp()
    taken["device"] = {r.what: r.found for r in requirements(target)} | _driver()
    for package in _PACKAGES:
        try:
            taken["versions"][package] = version(package)
        except PackageNotFoundError:
            continue
    return taken


def device_text(taken: dict[str, Any]) -> str:
    """Returns the stamp as Markdown, the device first."""
    device = ", ".join(f"{k} {v}" for k, v in taken["device"].items() if v)
    return f"- {device}\n{stamp_text(taken)}"


def why_not(target: str) -> str:
    """Returns what is missing to run on the target; "" for nothing."""
    try:
        open_device(target).runner.check()
    except DeviceError as e:
        return str(e)
    absent = [r for r in requirements(target) if r.found is None]
    return f"{absent[0].what} is missing: {absent[0].advice}" if absent else ""


def _driver() -> dict[str, str]:
    """Version and highest clocks, as NVIDIA's own tool tells them; {} where there is none."""
    what = ("driver_version", "clocks.max.sm", "clocks.max.memory", "power.limit")
    command: Sequence[str] = (
        *("nvidia-smi", f"--query-gpu={','.join(what)}"),
        *("--format=csv,noheader", "--id=0"),
    )
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=20, env={**os.environ, "LC_ALL": "C"}
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    values = done.stdout.strip().split(", ") if done.returncode == 0 else []
    return dict(zip(what, values, strict=True)) if len(values) == len(what) else {}

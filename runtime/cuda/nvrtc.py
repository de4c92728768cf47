"""NVRTC, NVIDIA's compiler library for CUDA text: search, loading, and calls through ctypes."""

from __future__ import annotations

import ctypes
import os
import re
import sys
import sysconfig
from collections.abc import Iterator
from ctypes.util import find_library
from functools import cache
from pathlib import Path

import msgspec

from ..api.errors import DeviceError
from ..installing import extra


def advice() -> str:
    """Returns a sentence on how to install NVRTC."""
    return f"install it with {extra('cuda')} (package nvidia-cuda-nvrtc), or a CUDA toolkit"


# Verbose ptxas reports spills; the rest is the default, multiply-adds fused as on the CPU.
OPTIONS = ("--std=c++17", "--fmad=true", "--ptxas-options=-v")
# Where there is a driver NVRTC keeps what it compiled, and says nothing of it when it is asked again. Releases before 12.9 do
# not know the word.
_NO_CACHE = "--no-cache"
_LOG_CHARACTERS = 6000


class KernelReport(msgspec.Struct, frozen=True):
    """Registers, memory and spills of one kernel, as the compiler reports them."""

    kernel: str
    registers: int  # of 32 bits, per thread
    shared_bytes: int  # static, per block
    spill_store_bytes: int  # per thread, as are the next two
    spill_load_bytes: int
    stack_bytes: int


class Compilation(msgspec.Struct, frozen=True):
    """Result of a compilation: `cubin` is None if the text was refused.

    `log` contains the compiler's messages without its statistics.
    """

    cubin: bytes | None
    log: str
    reports: tuple[KernelReport, ...] = ()


def _candidates() -> Iterator[str]:
    """Yields possible files and names of the NVRTC library, best first: wheels, toolkits, the loader's search path."""
    paths = sysconfig.get_paths()
    for site in dict.fromkeys((paths["purelib"], paths["platlib"], *filter(None, sys.path))):
        yield from _newest(Path(site) / "nvidia", "*/lib/libnvrtc.so.*")
    homes = [Path(h) for name in ("CUDA_HOME", "CUDA_PATH") if (h := os.environ.get(name))]
    for home in (*homes, *map(Path, _newest(Path("/usr/local"), "cuda*"))):
        for folder in ("lib64", "lib", "targets/*/lib"):
            yield from _newest(home, f"{folder}/libnvrtc.so*")
    found = find_library("nvrtc")
    yield from (*filter(None, [found]), "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")


def _newest(folder: Path, pattern: str) -> list[str]:
    """Returns the paths that match the pattern, highest version first."""

    def numbers(path: str) -> list[int]:
        return [int(n) for n in re.findall(r"\d+", path)]

    return sorted(map(str, folder.glob(pattern)), key=numbers, reverse=True)


@cache
def library() -> ctypes.CDLL:
    """Returns the loaded NVRTC library. Raises DeviceError if there is none."""
    for path in _candidates():
        try:
            loaded = ctypes.CDLL(path)
            _ = loaded.nvrtcGetCUBIN, loaded.nvrtcGetNumSupportedArchs  # since CUDA 11.2
        except (OSError, AttributeError):
            continue
        loaded.nvrtcGetErrorString.restype = ctypes.c_char_p
        return loaded
    raise DeviceError(f"NVRTC, the compiler of CUDA, was not found; {advice()}")


def version() -> str:
    """Returns the version of the NVRTC library, for example "13.5"."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return f"{major.value}.{minor.value}"


def supported() -> tuple[str, ...]:
    """Returns the architectures that NVRTC compiles for, for example "sm_90"."""
    n = ctypes.c_int()
    _check(library().nvrtcGetNumSupportedArchs(ctypes.byref(n)))
    numbers = (ctypes.c_int * n.value)()
    _check(library().nvrtcGetSupportedArchs(numbers))
    return tuple(f"sm_{k}" for k in numbers)


@cache
def _without_cache() -> tuple[str, ...]:
    """Returns the option that makes NVRTC recompile every text; () for releases without that option."""
    asked = _compile("", (_NO_CACHE,))
    return (_NO_CACHE,) if asked.cubin is not None else ()


def compile_text(text: str, architecture: str, extra: tuple[str, ...] = ()) -> Compilation:
    """Compiles CUDA text to a cubin in this process. Equal text and options give equal bytes."""
    return _compile(
        text, (f"--gpu-architecture={architecture}", *OPTIONS, *_without_cache(), *extra)
    )


def _compile(text: str, words: tuple[str, ...]) -> Compilation:
    nvrtc = library()
    program = ctypes.c_void_p()
    _check(
        nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
    )
    try:
        options = [o.encode() for o in words]
        status = nvrtc.nvrtcCompileProgram(
            program, len(options), (ctypes.c_char_p * len(options))(*options)
        )
        log = _read(nvrtc, program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if status != 0:
            what = log.strip() or nvrtc.nvrtcGetErrorString(status).decode()
            return Compilation(None, what[:_LOG_CHARACTERS])
        rest, reports = read_log(log)
        return Compilation(_read(nvrtc, program, "CUBIN"), rest[:_LOG_CHARACTERS], reports)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


_KERNEL = re.compile(r"ptxas info\s*: Compiling entry function '([^']+)'")
_OWNER = re.compile(r"ptxas info\s*: Function properties for (\S+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"ptxas info\s*: Used (\d+) registers")
_SHARED = re.compile(r"(\d+)(?:\+\d+)? bytes smem")


def read_log(log: str) -> tuple[str, tuple[KernelReport, ...]]:
    """Returns the log of a verbose compilation without its statistics, and the statistics of each kernel."""
    rest: list[str] = []
    stacks: dict[str, tuple[int, int, int]] = {}
    reports: list[KernelReport] = []
    kernel = owner = ""
    for line in log.splitlines():
        if found := _KERNEL.search(line):
            kernel = found[1]
        elif found := _OWNER.search(line):
            owner = found[1]
        elif found := _STACK.search(line):
            stacks[owner] = (int(found[1]), int(found[2]), int(found[3]))
        elif found := _USED.search(line):
            shared = _SHARED.search(line)
            stack, stores, loads = stacks.get(kernel, (0, 0, 0))
            n_shared = int(shared[1]) if shared else 0
            reports.append(KernelReport(kernel, int(found[1]), n_shared, stores, loads, stack))
        elif line.strip() and not line.startswith("ptxas info"):
            rest.append(line)
    return "\n".join(rest), tuple(reports)


def _read(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(max(1, size.value))
    _check(getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw[: size.value]


def _check(status: int) -> None:
    if status != 0:
        raise DeviceError(f"NVRTC says {library().nvrtcGetErrorString(status).decode()}")

"""Expert programs: what a person who knows the machine writes by hand for each sequence, to judge the search by.

Nothing of the package imports this but other experiments. Each NAME.c is the text of one sequence for all shapes and both
floating-point types; VARIANTS are the other settings worth trying on a machine, among which a comparison takes the fastest.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from ...codegen.text.source import Argument, Source
from ...kernels.frontend.recorder import Recording

FOLDER = Path(__file__).resolve().parent
_INCLUDE = re.compile(r'^#include "(\w+\.[ch])"\n', re.MULTILINE)
_FLAGS = ("-O3", "-fopenmp", "-mprefer-vector-width=512", "-Wno-psabi")


def can_build(compiler: str) -> bool:
    """True if a compiler is installed with OpenMP, which the programs need."""
    if shutil.which(compiler) is None:
        return False
    given = [compiler, "-fopenmp", "-fsyntax-only", "-x", "c", "-"]
    return subprocess.run(given, input=b"#include <omp.h>", capture_output=True).returncode == 0


_STORES = ("-DLAST_CACHE=(1L<<40)", "-DLAST_CACHE=0L")
_PANELS = ("-DPANELS=0", "-DPANELS=1", "-DPANELS=1 -DWIDTH=8", "-DPANELS=1 -DAHEAD=8")
_TILES = (
    "-DTILE=12",
    "-DBLOCK_DEPTH=256",
    "-DTILE=12 -DBLOCK_DEPTH=256",
    "-DVECTORS=4 -DTILE=6 -DBLOCK_DEPTH=128",
    "-DVECTORS=4 -DTILE=6 -DBLOCK_DEPTH=128 -DBLOCK_ROWS=384",
)
_PACKS = ("-DPACKS=0", "-DPACKS=1")
_SUMS = ("-DSUMS=1", "-DSUMS=1 -DTILE=12", "-DSUMS=1 -DBLOCK_DEPTH=256")
_AHEAD = tuple(
    f"-DAHEAD=1 -DBLOCK_DEPTH=256 -DBLOCK_ROWS={rows}{sums}"
    for rows in (32, 64)
    for sums in ("", " -DSUMS=1")
)

VARIANTS: Mapping[str, tuple[str, ...]] = {
    "atax": ("-DPREFETCH=0", "-DROWS=8", "-DROWS=8 -DPREFETCH=0"),
    "axpy": _STORES,
    "axpydot": _STORES,
    "bicgk": ("-DROWS=4", "-DAHEAD=8", "-DROWS=4 -DAHEAD=4"),
    "gemver": _PANELS,
    "gesummv": ("-DROWS=2", "-DROWS=8"),
    "madd": _STORES,
    "matmul": (*_TILES, *_PACKS, *_SUMS),
    "matmul_strided": (*_TILES, *_AHEAD),
    "sgemv": ("-DROWS=2", "-DROWS=8"),
    "sgemvt": _PANELS,
    "sscal": ("-DPAST=1",),
    "vadd": _STORES,
    "waxpby": _STORES,
}
"""Settings by sequence, besides none at all."""


def _no_bytes(m: int, n: int, item: int, threads: int) -> int:
    return 0


def _sums(m: int, n: int, item: int, threads: int) -> int:
    """A sum of rows for each thread: PADDED of expert.h adds less than two pages to it."""
    return threads * (n * item + 8192)


def _panels(m: int, n: int, item: int, threads: int) -> int:
    """For each thread a column panel of at most eight vectors of 64 bytes and sums of columns, or without panels sums of rows, each
    with less than two pages behind it.
    """
    return threads * (m * (512 + item) + n * item + 16384)


def _blocks(m: int, n: int, item: int, threads: int) -> int:
    """A panel of B, and two blocks of A for each thread: the constants of matmul.c, rounded up."""
    return item * 400 * (2112 + threads * 512)


_WORKSPACE: Mapping[str, Callable[[int, int, int, int], int]] = {
    "atax": _sums,
    "bicgk": _sums,
    "sgemvt": _panels,
    "gemver": _panels,
    "matmul": _blocks,
    "matmul_strided": _blocks,
}


def names() -> tuple[str, ...]:
    """The sequences that there is an expert program for, sorted."""
    return tuple(sorted(f.stem for f in FOLDER.glob("*.c")))


def expert_source(
    recording: Recording, sizes: Mapping[str, int], variant: str = "", n_threads: int = 2
) -> Source:
    """The expert program of a recorded library sequence at `sizes`, for its dtype.

    `variant` is "" or one of VARIANTS. Raises KeyError where there is no program.
    """
    name = recording.name
    if name not in names():
        raise KeyError(f"no expert program for {name!r}: there are {', '.join(names())}")
    dtype = recording.arrays[0].dtype.numpy
    m, n = sizes.get("m", 1), sizes["n"]
    workspace_bytes = _WORKSPACE.get(name, _no_bytes)(m, n, dtype.itemsize, n_threads)
    arguments = [Argument(a.name, "array", str(dtype), tuple(a.shape)) for a in recording.arrays]
    arguments += [Argument(s.name, "scalar", str(dtype), ()) for s in recording.scalars]
    if workspace_bytes:
        arguments.append(Argument("workspace", "workspace", "uint8", (workspace_bytes,)))
    facts = {
        "REAL": "float" if dtype.itemsize == 4 else "double",
        "M": m,
        "N": n,
        "K": sizes.get("k", 1),
        "THREADS": n_threads,
        "WORKSPACE": workspace_bytes,
    }
    flags = (*_FLAGS, *(f"-D{key}={value}" for key, value in facts.items()), *variant.split())
    return Source(_read(f"{name}.c"), name, tuple(arguments), n_threads, flags)


def body_source(recording: Recording, n: int, n_threads: int = 2) -> Source:
    """The expert program of a sequence of bodies (experiments/bodies.py) on arrays of n x n.

    Raises KeyError where there is none.
    """
    name = recording.name
    if not (FOLDER / "bodies" / f"{name}.c").exists():
        raise KeyError(f"no expert program for {name!r}")
    dtype = recording.arrays[0].dtype.numpy
    arguments = [Argument(a.name, "array", str(dtype), tuple(a.shape)) for a in recording.arrays]
    real = "float" if dtype.itemsize == 4 else "double"
    # OpenMP's threads outlive a call: what they run stays loaded.
    facts = (f"-DREAL={real}", f"-DN={n}L", f"-DTHREADS={n_threads}", "-Wl,-z,nodelete")
    return Source(_read(f"bodies/{name}.c"), name, tuple(arguments), n_threads, (*_FLAGS, *facts))


def program_source(name: str, facts: Mapping[str, object], n_threads: int) -> Source:
    """The expert programs of a file in programs/, for `facts`, its constants. It exports a function for each way to do the work.

    They are called with pointers, which the file describes. Raises KeyError where there is no such file.
    """
    if not (FOLDER / "programs" / f"{name}.c").exists():
        raise KeyError(f"no expert program for {name!r}")
    given = {"REAL": "float", "THREADS": n_threads, **facts}
    flags = (*_FLAGS, *(f"-D{key}={value}" for key, value in given.items()), "-Wl,-z,nodelete")
    return Source(_read(f"programs/{name}.c"), name, (), n_threads, flags)


def _read(file: str) -> str:
    """The text of a file with those that it includes, so that it compiles alone."""
    text = (FOLDER / file).read_text()
    return _INCLUDE.sub(lambda found: _read(found[1]), text)

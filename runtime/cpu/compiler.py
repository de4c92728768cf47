"""Interface to the system's C compiler: search, version, runs with a deadline, and a cache keyed by content."""

from __future__ import annotations

import atexit
import errno
import hashlib
import mmap
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ...space.engine.own_folders import NotOursError, make_own_folder
from ..api.errors import DeviceError
from ..api.outcome import Failure
from ..files import OddFileError, is_torn
from ..installing import a_compiler
from ..scratch import Scratch

# The alignment of innermost loops changes the time of single texts by a tenth and more:
# experiments/results/compile_flags.md.
ALIGNED = "-falign-loops=64"
LEVEL = "-O2"
_COMMON: tuple[str, ...] = (
    "-std=gnu11",
    # Vector code is written as vectors. The rest stays scalar, on which the bound relies.
    "-fno-tree-vectorize",
    "-fno-tree-slp-vectorize",  # for clang; gcc's -fno-tree-vectorize covers straight-line code too
    "-fopenmp-simd",  # loops that may be summed in any order; no library of OpenMP
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wno-psabi",
    ALIGNED,
)
# Products and sums become multiply-adds, except where a text separates them: `exact` in bodies/vectors.py. Clang's "fast" fuses
# these as well; "on" fuses within a statement only.
_CONTRACTS, _CONTRACTS_WITHIN = "-ffp-contract=fast", "-ffp-contract=on"
# gcc 12 drops calls of functions that store through a difference of two pointers (u[2 * i] beside u[i]) unless both are off.
SOUND = ("-fno-ipa-modref", "-fno-ipa-pure-const")
# For others than gcc, whose passes below unroll no loop of more than two iterations: loops of register tiles stay, on which the
# bound relies. Loops that a decision unrolls say so in the text.
KEEPS_LOOPS = ("-fno-unroll-loops",)
# For gcc instead of the level: its passes that help generated texts. These run as fast and compile sooner:
# experiments/results/compile_flags.md.
FEWER_PASSES = (
    "-O1",
    "-fexpensive-optimizations",
    "-fschedule-insns2",
    "-ftree-pre",
    "-fno-tree-bit-ccp",
    "-fno-tree-dominator-opts",
    "-fno-thread-jumps",
    "-fno-tree-loop-ivcanon",
    # No interprocedural analysis: each function has one call, or is inlined.
    *SOUND,
    "-fno-ipa-reference",
)
_NOT_GCC = (
    "__clang__",
    "__INTEL_COMPILER",
    "__NVCOMPILER",
)  # macros of compilers that look like it
_LIBRARY = ("-shared", "-fPIC")
_LINKED = ("-lm", "-pthread")
# Without start files and the C library, which is in every process: they are most of a linker's input. The saving is "all linked"
# in experiments/results/compile_flags.md.
_LINKED_BY_GCC = ("-nostdlib", "-lm", "-lgcc")
# Two memory mappings for a library: read-only data with the code, and writable data next to it. Linkers make four or five by
# default, and a process may have 65,530. Linkers without this option do without.
IN_TWO_PARTS = f"-Wl,-z,noseparate-code,-z,norelro,-z,max-page-size={mmap.PAGESIZE}"
_LOG_CHARACTERS = 6000

_PROBE = """
#include <math.h>
#include <string.h>
double probe(double *p, int n) {
  double s[64];
  memset(s, 0, sizeof s);
  s[n & 63] += exp(p[0]);
  memcpy(p, s, n);
  return p[n & 63];
}
"""


@dataclass(frozen=True)
class Compiler:
    """A working C compiler. `flags` precede the file in every build; `linked` (libraries) follow it."""

    path: str
    version: str  # first line of --version
    flags: tuple[str, ...]
    native: str = (
        ""  # hash of what -march=native stands for: build folders may be shared between machines
    )
    linked: tuple[str, ...] = _LINKED

    def command(self, source: Path | str, output: Path | str, extra: tuple[str, ...]) -> list[str]:
        """Returns the command that compiles one C file to a shared library."""
        flags = (*self.flags, *_LIBRARY, *extra)
        return [*words(self.path), *flags, "-o", str(output), str(source), *self.linked]

    def linking_all(self) -> Compiler:
        """Returns the same compiler with the C library and start files linked; generated code is linked without."""
        return replace(self, linked=_LINKED)

    def unspared(self) -> Compiler:
        """Returns the same compiler with all passes and libraries, for C code that was not generated."""
        flags = tuple(f for f in self.flags if f not in (LEVEL, *FEWER_PASSES, *KEEPS_LOOPS))
        return replace(self, flags=(LEVEL, *flags), linked=_LINKED)

    def command_line(
        self, source: Path | str, output: Path | str, extra: tuple[str, ...] = ()
    ) -> str:
        """Returns the command as text to paste into a shell. Its output can be loaded by any program."""
        return shlex.join(self.linking_all().command(source, output, extra))


ZIG = "zig"  # a clang from PyPI (the extra `compiler`)


def words(path: str) -> list[str]:
    """Returns the first words of a compiler's command line: its path, and for zig also the subcommand "cc"."""
    return [path, "cc"] if Path(path).name == ZIG else [path]


def find_path(name: str) -> str | None:
    """Returns the path of the compiler called `name`; None if not installed. Finds the zig of PyPI, too."""
    path = shutil.which(name)
    if path is not None or name != ZIG:
        return path
    spec = find_spec("ziglang")
    folders = [] if spec is None else spec.submodule_search_locations or []
    return next((p for folder in folders if (p := shutil.which(f"{folder}/{ZIG}"))), None)


PLAIN = re.compile(r"(gcc|clang|cc)(-[0-9.]+)?|zig")  # names that files may choose a compiler by
_OWN_NAMES = ("gcc", "clang")
NAMES = (*_OWN_NAMES, "cc", ZIG)  # the third is what a system calls one of them, or another


def find_compiler(wanted: str | None = None) -> Compiler:
    """Returns the compiler with the name or path `wanted`, else the first of gcc, clang, cc, zig that works.

    A working compiler builds a small program. Raises DeviceError with a sentence on the tried compilers and the packages to
    install.
    """
    tried = []
    for name in (wanted,) if wanted else NAMES:
        path = find_path(name)
        if path is None:
            tried.append(f"{name}: not found")
            continue
        found = _try(path)
        if isinstance(found, Compiler):
            return found
        tried.append(f"{name}: {found}")
    raise DeviceError(
        "no C compiler that works was found (" + "; ".join(tried) + f"); {_advice(wanted)}"
    )


def _advice(wanted: str | None) -> str:
    here = [name for name in NAMES if name != wanted and find_path(name) is not None]
    if wanted and here:
        return f"here {'is' if len(here) == 1 else 'are'} {', '.join(here)}"
    return f"install one: {a_compiler()}"


def other_compilers(taken: Compiler) -> list[Compiler]:
    """Returns the working compilers of this machine other than `taken`, without aliases such as cc."""
    paths = [path for name in _OWN_NAMES if (path := shutil.which(name)) is not None]
    others = [path for path in paths if _version(path) not in (None, taken.version)]
    return [found for path in others if isinstance(found := _try(path), Compiler)]


def compiler_named(version: str) -> str | None:
    """Returns the command whose `Compiler.version` is `version`; None if it is the default compiler or not here."""
    for name in NAMES:
        path = find_path(name)
        if path is not None and _version(path) == version:
            return None if name == NAMES[0] else name
    return None


def _version(path: str) -> str | None:
    try:
        return _output([*words(path), "--version"]).splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


# Compilers that work, by path and identity of the file: each is tried once a process, since that runs it four times.
_WORKING: dict[tuple[str, int, int], Compiler] = {}


def _try(path: str) -> Compiler | str:
    """Returns a usable compiler, or the reason why it is unusable."""
    try:
        file = os.stat(path)
    except OSError:
        return "cannot be run"
    identity = (path, file.st_ino, file.st_mtime_ns)
    known = _WORKING.get(identity)
    if known is not None:
        return known
    found = _tried(path)
    if isinstance(found, Compiler):
        _WORKING[identity] = found
    return found


def _tried(path: str) -> Compiler | str:
    """Returns a compiler after it has built a small program, or the reason why it cannot."""
    version = _version(path)
    if version is None:
        return "cannot be run"
    flags, meaning, is_gcc = (*_COMMON, _CONTRACTS_WITHIN, *KEEPS_LOOPS), "", False
    for native in ("-march=native", "-mcpu=native"):
        try:
            macros = _output([*words(path), native, "-dM", "-E", "-x", "c", os.devnull])
        except (OSError, subprocess.SubprocessError):
            continue
        # gcc tunes for 256-bit vectors on machines that run 512-bit ones at full rate.
        wide = ("-mprefer-vector-width=512",) if "__AVX512F__" in macros else ()
        is_gcc = not any(name in macros for name in _NOT_GCC)
        contracts = _CONTRACTS if is_gcc else _CONTRACTS_WITHIN
        flags = (*_COMMON, contracts, native, *wide, *(() if is_gcc else KEEPS_LOOPS))
        meaning = hashlib.blake2b(macros.encode(), digest_size=8).hexdigest()
        break
    ways: list[tuple[tuple[str, ...], tuple[str, ...]]] = [((LEVEL,), _LINKED)]
    if is_gcc:  # old ones do not know some of the flags
        ways = [(FEWER_PASSES, _LINKED_BY_GCC), (FEWER_PASSES, _LINKED), *ways]
    level, linked = ways[0]
    ways.insert(0, (level, (*linked, IN_TWO_PARTS)))
    failure: Failure | None = None
    with Scratch("kernelscape-compiler-") as folder:
        source = folder / "probe.c"
        source.write_text(_PROBE)
        output = source.with_suffix(".so")
        for level, linked in ways:
            compiler = Compiler(path, version, (*level, *flags), meaning, linked)
            failure = run_compiler(compiler.command(source, output, ()), 60.0, folder)
            if failure is None:
                return compiler if output.exists() else "is no C compiler"
    assert failure is not None
    last_line = (failure.log.strip() or failure.advice).splitlines()[-1]
    return f"fails on a small program: {last_line}"


def first_line(command: list[str]) -> str | None:
    """Returns the first line that the command prints; None if it fails or prints nothing."""
    try:
        return _output(command).splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


# Running compilers, with the threads that wait for them; changed by one step of Python at a time.
_RUNNING: dict[subprocess.Popen[bytes], int] = {}


def end_compilers(thread: int | None = None) -> None:
    """Ends all running compilers of this process, or those that one thread waits for. Their callers get a failure."""
    for running, waits in list(_RUNNING.items()):
        if thread in (None, waits):
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)


def is_compiling() -> bool:
    """True if a compiler of this process is running."""
    return bool(_RUNNING)


def _go_on_in_child() -> None:
    """Forgets, in a child of fork(), the compilers of its parent: they are not the child's to end."""
    global _RUNNING
    _PARENTS.append(_RUNNING)
    _RUNNING = {}


# Kept: one that is freed while it runs warns.
_PARENTS: list[dict[subprocess.Popen[bytes], int]] = []
os.register_at_fork(after_in_child=_go_on_in_child)


# Runs a command, and ends its process group where the standard input ends before: whoever held it is gone. The shell waits for its
# watcher: first processes of containers reap no orphans.
_WATCHED = (
    "exec 3<&0 </dev/null; { read -r gone <&3; kill -KILL 0; } >/dev/null 2>&1 & watch=$!; exec 3<&-;"
    ' "$@"; status=$?; { kill -KILL $watch; wait $watch; } 2>/dev/null; exit $status'
)


def run_compiler(
    command: list[str], timeout_s: float, scratch: Path | None = None
) -> Failure | None:
    """Runs a command in its own process group; returns a Failure if it fails or exceeds the deadline.

    Past the deadline the whole group (cc1, as, ld) is killed, and also if this process ends, even by SIGKILL. Its temporary files
    are in `scratch`, if given, since a killed compiler leaves them.
    """
    if shutil.which(command[0]) is None:
        reason = os.strerror(errno.ENOENT)
        return Failure("compile", f"the compiler {command[0]} cannot be run: {reason}")
    watched, held = os.pipe()
    with os.fdopen(
        held, "wb"
    ):  # closed wherever this is left: a compiler that still runs ends then
        try:
            running = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHED, "sh", *command],
                stdin=watched,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | ({} if scratch is None else {"TMPDIR": str(scratch)}),
            )
        except OSError as e:
            return Failure("compile", f"the compiler {command[0]} cannot be run: {e.strerror}")
        finally:
            os.close(watched)
        with running:  # which closes its pipe
            try:
                _RUNNING[running] = threading.get_ident()
                log, _ = running.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                return Failure("compile", f"the compiler ran past its {timeout_s:g} s")
            finally:
                _RUNNING.pop(running, None)
                if running.poll() is None:
                    os.killpg(running.pid, signal.SIGKILL)
                    running.communicate()
    if running.returncode == 0:
        return None
    text = log.decode(errors="replace")[:_LOG_CHARACTERS]
    return Failure("compile", f"the compiler ended with status {running.returncode}", text)


@dataclass(frozen=True)
class Library:
    """A built shared library."""

    path: Path
    key: str
    build_ns: int  # 0 when it was there already


def library_path(folder: Path, compiler: Compiler, extra: tuple[str, ...], *texts: str) -> Path:
    """Returns the path of the library of these texts, built or not.

    Equal texts, flags and compilers give equal names.
    """
    parts = (*texts, *compiler.flags, *compiler.linked, *extra, compiler.version, compiler.native)
    key = hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
    return folder / f"{key}.so"


def build_library(
    compiler: Compiler, text: str, extra: tuple[str, ...], folder: Path, timeout_s: float
) -> Library | Failure:
    """Compiles C text to `folder/KEY.so`, with KEY.c beside it (see `build_files`)."""
    target = library_path(folder, compiler, extra, text)
    return build_files(compiler, {f"{target.stem}.c": text}, extra, target, timeout_s)


def build_files(
    compiler: Compiler,
    files: Mapping[str, str],
    extra: tuple[str, ...],
    target: Path,
    timeout_s: float,
) -> Library | Failure:
    """Compiles the first of `files`, which may include the others, to `target`, unless `target` exists.

    The files are stored beside it. If the folder is removed meanwhile, they are compiled again, to a folder of this process. Safe
    for concurrent callers in several processes: the library appears by rename, complete or not at all.
    """
    make_own_folder(target.parent)
    with suppress(FileNotFoundError, NotOursError, OddFileError):
        if not is_torn(target):
            return Library(target, target.stem, 0)
    built = _built_in(target.parent, compiler, files, extra, target.name, timeout_s)
    if built is None:
        spare = _spare_folder()
        built = _built_in(spare, compiler, files, extra, target.name, timeout_s)
        if built is None:
            raise FileNotFoundError(errno.ENOENT, "somebody removes folders here", str(spare))
    return built


def _built_in(
    folder: Path,
    compiler: Compiler,
    files: Mapping[str, str],
    extra: tuple[str, ...],
    name: str,
    timeout_s: float,
) -> Library | Failure | None:
    """Builds the library in `folder`. Returns None if the folder was removed meanwhile."""
    make_own_folder(folder)
    started_ns = time.monotonic_ns()
    try:
        with Scratch("making-", folder) as scratch:
            for file, text in files.items():
                (scratch / file).write_text(text)
            output = scratch / name
            command = compiler.command(scratch / next(iter(files)), output, extra)
            failure = run_compiler(command, timeout_s, scratch)
            if failure is not None:
                return failure if (scratch / next(iter(files))).exists() else None
            for file in files:
                os.replace(scratch / file, folder / file)
            os.chmod(
                output, 0o755
            )  # where the user's files are for a group to write, this one is not
            os.replace(output, folder / name)
    except FileNotFoundError:
        return None
    return Library(folder / name, Path(name).stem, time.monotonic_ns() - started_ns)


@cache
def _spare_folder() -> Path:
    """Returns a temporary folder of this process, for artifacts whose own folder was removed."""
    spare, owner = Scratch("kernelscape-build-"), os.getpid()

    def close() -> None:
        if os.getpid() == owner:  # a child of fork() leaves it to its parent
            spare.close()

    atexit.register(close)
    return spare.path

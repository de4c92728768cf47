"""A user's C or CUDA function for a known sequence, made callable like a generated one.

It takes the arguments of the sequence in order: arrays as plain pointers, numbers by value. Constants of the sequence and
array sizes are not passed. Or it takes `void **args`, arrays first, then numbers, each by its address, as generated code does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..codegen.text.source import Argument, KernelLaunch, Source
from ..runtime.records.record import RecordError
from ..runtime.records.stored import StoredSequence
from .workload import Workload

_ENTRY = "ks_checked"
_C_TYPES = {
    "float32": "float",
    "float64": "double",
    "int32": "int32_t",
    "int64": "int64_t",
    "bool": "_Bool",
}
_COMMENTS = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"", re.DOTALL)
_FUNCTION = re.compile(
    r"(?P<before>[\w\s\"]*?)\bvoid\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(?P<name>\w+)\s*\((?P<parameters>[^;{}()]*)\)\s*\{"
)
# Over those of a search, which builds what is written in vectors: all passes, and a compiler's own vectors.
FLAGS = (
    "-O3",
    "-ftree-vectorize",
    "-ftree-slp-vectorize",
    "-Werror=incompatible-pointer-types",
    "-Werror=implicit-function-declaration",
)


@dataclass(frozen=True)
class LaunchParameters:
    """Launch parameters of a CUDA kernel."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0


@dataclass(frozen=True)
class Function:
    """A function that a source text defines: its name and its parameters as written."""

    name: str
    parameters: tuple[str, ...]

    @property
    def takes_vector(self) -> bool:
        return len(self.parameters) == 1 and self.parameters[0].count("*") == 2


def functions_in(text: str, *, kernels: bool) -> tuple[Function, ...]:
    """Returns the externally visible functions with result type void; with `kernels`, the CUDA kernels."""
    found = []
    for match in _FUNCTION.finditer(_COMMENTS.sub(" ", text)):
        before = match["before"].split()
        if "static" in before or ("__global__" in before) != kernels or "__device__" in before:
            continue
        inner = match["parameters"].strip()
        parameters = [] if inner in ("", "void") else [p.strip() for p in inner.split(",")]
        found.append(Function(match["name"], tuple(parameters)))
    return tuple(found)


def foreign_source(
    file: Path,
    workload: Workload,
    *,
    name: str | None = None,
    flags: Sequence[str] = (),
    launch: LaunchParameters | None = None,
    n_threads: int = 1,
) -> tuple[Function, Source]:
    """Returns the function `name` of `file`, and a source text that builds it and calls it.

    Without `name` the function has the name of the sequence, or is the only one. With a `launch` the file is CUDA text and the
    function a kernel. Raises RecordError, one sentence, if there is no such function or its parameters are not those of the
    sequence.
    """
    try:
        text = file.read_text()
    except UnicodeDecodeError as e:
        raise RecordError(f"{file} cannot be read: {e}") from e
    function = _chosen(file, functions_in(text, kernels=launch is not None), name, workload)
    arguments = _arguments(workload)
    order = _order(workload.stored, arguments)
    if launch is not None:
        _compare(file, function, order, arguments)
        started = KernelLaunch(
            function.name, launch.grid, launch.block, launch.shared_bytes, tuple(order)
        )
        source = Source(text, _ENTRY, arguments, 1, launches=(started,), suffix=".cu")
        return function, source
    text = f"#line 1 {json.dumps(file.name)}\n{text}"  # for messages of the compiler
    own = (*FLAGS, f"-I{file.resolve().parent}", *_macros(text, workload, n_threads), *flags)
    if function.takes_vector:
        return function, Source(text, function.name, arguments, n_threads, own)
    _compare(file, function, order, arguments)
    values = [
        f"{'*' if a.kind == 'scalar' else ''}({_C_TYPES[a.dtype]} *)args[{k}]"
        for k, a in ((k, arguments[k]) for k in order)
    ]
    call = f"{function.name}({', '.join(values)});"
    entry = f'\n#line 1 "call"\n#include <stdint.h>\nvoid {_ENTRY}(void **args);\nvoid {_ENTRY}(void **args) {{ {call} }}\n'
    return function, Source(text + entry, _ENTRY, arguments, n_threads, own)


def _chosen(
    file: Path, functions: Sequence[Function], name: str | None, workload: Workload
) -> Function:
    kind = "kernel" if file.suffix == ".cu" else "function"
    by_name = {f.name: f for f in functions}
    if not functions:
        raise RecordError(f"{file} defines no {kind} `void NAME(...)` that others can call")
    if name is None and len(functions) > 1:
        name = workload.recording.name
        if name not in by_name:
            raise RecordError(
                f"{file} has several {kind}s: name one with --name; there are {', '.join(by_name)}"
            )
    if name is not None and name not in by_name:
        raise RecordError(f"{file} has no {kind} {name!r}; there are {', '.join(by_name)}")
    return functions[0] if name is None else by_name[name]


def _arguments(workload: Workload) -> tuple[Argument, ...]:
    r = workload.recording
    arrays = [Argument(a.name, "array", a.dtype.value, tuple(a.shape)) for a in r.arrays]
    return (*arrays, *(Argument(s.name, "scalar", s.dtype.value, ()) for s in r.scalars))


def _order(stored: StoredSequence, arguments: Sequence[Argument]) -> list[int]:
    """Indices of `arguments` in the order of the sequence's own parameters."""
    position = {a.name: k for k, a in enumerate(arguments)}
    return [position[p.name] for p in stored.parameters if p.name in position]


def _compare(
    file: Path, function: Function, order: Sequence[int], arguments: Sequence[Argument]
) -> None:
    wanted = [
        f"{_C_TYPES[a.dtype]} {'*' if a.kind == 'array' else ''}{a.name}"
        for a in (arguments[k] for k in order)
    ]
    ways = [arguments[k].kind == "array" for k in order]
    if [("*" in p or "[" in p) for p in function.parameters] != ways:
        given = ", ".join(function.parameters)
        raise RecordError(
            f"{file}: {function.name}({given}) has not the arguments of the sequence: it must be"
            f" void {function.name}({', '.join(wanted)})"
        )


def _macros(text: str, workload: Workload, n_threads: int) -> list[str]:
    """Returns #define lines: sizes in capitals, REAL and THREADS, except names that the text defines itself."""
    facts: Mapping[str, object] = {
        **{name.upper(): extent for name, extent in workload.sizes.items()},
        "REAL": {"f32": "float", "f64": "double"}.get(workload.dtype, "double"),
        "THREADS": n_threads,
    }
    return [f"-D{name}={value}" for name, value in facts.items() if not _defines(text, name)]


def _defines(text: str, name: str) -> bool:
    if re.search(rf"#\s*ifndef\s+{name}\b", text):
        return False
    return bool(re.search(rf"#\s*define\s+{name}\b|\b{name}\s*=[^=]", text))

"""Adaptation of CUDA text for a C++ compiler: emulator header before it, an entry with its launches after it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ...codegen.text.source import Argument, KernelLaunch, Source
from ...codegen.text.types import type_name
from ...kernels.ir.kernel import DType

if TYPE_CHECKING:
    from ..cuda.profiles import DataSheet

_SHARED = re.compile(
    r"""(?P<extern>extern\s+)? __shared__ \s+
    (?:(?:__align__|alignas)\s*\(\s*\d+\s*\)\s*)?
    (?P<type>[A-Za-z_][\w ]*?) \s+ (?P<name>[A-Za-z_]\w*) \s* (?P<dims>(?:\[[^\]\n]*\]\s*)*);""",
    re.VERBOSE,
)


@cache
def header() -> str:
    """Returns the text of the emulator's header."""
    return (Path(__file__).parent / "cuda_emulator.h").read_text()


def emulated_text(source: Source, sheet: DataSheet) -> str:
    """Returns one C++ file that exports `source.entry` with the calling convention of a CPU source.

    `sheet` says how many blocks a GPU holds at once. Line numbers in messages of the compiler
    and of the emulator are those of `source.text`.
    """
    return f'{emulated_kernels(source.text)}\n#line 1 "entry"\n{_entry(source, sheet)}'


def emulated_together(sources: Mapping[str, Source], sheet: DataSheet) -> str:
    """Returns one C++ file of several texts, keyed by the entries that it exports, each in a namespace.

    The compiler then parses the emulator's header once.
    """
    parts = [header()]
    for k, (entry, source) in enumerate(sources.items()):
        text = source.text.replace('extern "C" __global__', "__global__")
        whole = emulated_text(replace(source, text=text, entry=entry), sheet)
        parts.append(f"namespace text_{k} {{{whole.removeprefix(header())}}}\n")
    return "".join(parts)


def emulated_kernels(text: str, before: str = "") -> str:
    """Returns a CUDA text preceded by the emulator's header and `before`."""
    shared = _SHARED.sub(_shared_array, text)
    return f'{header()}\n{before}\n#line 1 "kernel.cu"\n{shared}'


def _shared_array(found: re.Match[str]) -> str:
    """Returns the C++ declaration for a shared-memory array of a block, which C++ has no storage class for."""
    type_, name, dims = found["type"], found["name"], found["dims"].strip()
    if found["extern"]:
        return f'{type_} *{name} = emulator::dynamic_array<{type_}>("{name}");'
    site = f'"{name}@{found.start()}"'
    array = f"{type_}{dims}"
    return f'{type_} (&{name}){dims} = emulator::shared_array<{array}>({site}, "{name}");'


def _entry(source: Source, p: DataSheet) -> str:
    arrays = [
        f'  emulator::array(a[{k}], {_n_bytes(a)}, {_item_bytes(a)}, "{a.name}");'
        for k, a in enumerate(source.arguments)
        if a.kind != "scalar"
    ]
    launches = [_launch(source, launch) for launch in source.launches]
    held = (p.multiprocessors, p.threads_per_core, p.blocks_per_core, p.shared_bytes_per_core)
    machine = f"  emulator::on_machine({', '.join(map(str, held))});"
    body = "\n".join(["  emulator::begin();", machine, *arrays, *launches, "  emulator::end();"])
    return f'extern "C" EMULATOR_OWN void {source.entry}(void **a) {{\n{body}\n}}\n'


def _launch(source: Source, launch: KernelLaunch) -> str:
    given = [_value(source.arguments[k], k) for k in launch.arguments]
    values = ", ".join([*given, *map(str, launch.steps)])
    grid, block = (", ".join(f"{n}u" for n in sizes) for sizes in (launch.grid, launch.block))
    shape = f"{{{grid}}}, {{{block}}}, {launch.shared_bytes}"
    call = f"[=]() EMULATOR_OWN {{ {launch.kernel}({values}); }}"
    return f'  emulator::launch("{launch.kernel}", {shape}, {call});\n  emulator::took({launch.component});'


def _value(argument: Argument, k: int) -> str:
    if argument.kind == "scalar":
        return f"*(const {type_name(DType(argument.dtype), 0)} *)a[{k}]"
    return f"emulator::Pointer{{a[{k}]}}"


def _n_bytes(argument: Argument) -> int:
    n = _item_bytes(argument) if argument.kind == "array" else 1
    for extent in argument.shape:
        n *= extent
    return n


def _item_bytes(argument: Argument) -> int:
    """Returns the bytes of an element in the race check. A workspace has elements of four bytes or more."""
    if argument.kind == "workspace":
        return 4
    return {"bool": 1}.get(argument.dtype) or int(re.sub(r"\D", "", argument.dtype)) // 8

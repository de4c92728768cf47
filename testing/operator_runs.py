"""The cells of the operator table, in each way that a kernel is run: interpreted, by LLVM, as C, as CUDA on the emulator."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from .. import kernel as as_kernel
from ..codegen.bodies.cuda_memory import CudaMemory
from ..codegen.bodies.cuda_vectors import CudaHelpers
from ..codegen.bodies.emitter import Builder
from ..codegen.bodies.memory import Value
from ..codegen.bodies.vectors import Prelude
from ..codegen.lower import lower
from ..codegen.text import csyntax as c
from ..codegen.text.cprint import expression
from ..codegen.text.source import Source
from ..codegen.text.types import type_name
from ..codegen.write.program_text import print_source
from ..kernels.interpret.kernel import run_kernel
from ..kernels.ir.kernel import Const, Expr, For, KernelIR, Load, LoopIndex, Store
from ..runtime.cpu.dialect import C_TEAM
from ..runtime.engine.planning import default_plan
from ..runtime.engine.toolchain import flags_of
from ..runtime.host import vector_bytes
from ..runtime.library import load_library
from .in_llvm import run_in_llvm
from .operator_table import TYPES, Cell, N, is_float, judged, operands, says, wrong_elements

Array = np.ndarray[Any, Any]
STRICT = ("-std=gnu11", "-w", "-ffp-contract=on", "-fwrapv", "-march=native", "-shared", "-fPIC")
CUDA = ("-x", "c++", "-std=gnu++17", "-O0", "-ffp-contract=off", "-w", "-shared", "-fPIC")
EMULATOR = "kernelscape.runtime.emulator.adapted_text"


@dataclass(frozen=True)
class Table:
    """A kernel that stores cell number k in row k of an array of floats or of whole numbers."""

    cells: tuple[Cell, ...]
    ir: KernelIR

    def arrays(self) -> dict[str, Array]:
        """Its operands, and room for what it computes."""
        found = {f"{x}_{t}": operands(t, t)[x == "b"] for t in TYPES for x in "ab"}
        rows = len(self.cells)
        made = {"out_f": np.zeros((rows, N)), "out_i": np.zeros((rows, N), np.int64)}
        return {p.name: (found | made)[p.name] for p in self.ir.arrays}

    def wrong(self, run: Callable[[dict[str, Array]], None], signs: bool = False) -> list[str]:
        """The cells that are wrong, in words."""
        arrays, found = self.arrays(), []
        run(arrays)
        for k, cell in enumerate(self.cells):
            want, is_open = judged(cell)
            got = arrays["out_f" if is_float(cell) else "out_i"][k]
            if want.dtype == np.uint64 or want.dtype == object:
                got = got.view(np.uint64)
                want = np.array([int(x) % (1 << 64) for x in want], np.uint64)
            bad = wrong_elements(cell, got, want, is_open, signs)
            if len(bad):
                found.append(says(cell, bad[0], got[bad[0]], want[bad[0]]))
        return found


def table_of(cells: Sequence[Cell], folder: Path, fast_math: bool = False) -> Table:
    """The kernel of these cells; its source is a file of the folder."""
    types = [t for t in TYPES if any(t in (cell.a, cell.b) for cell in cells)]
    arrays = [f"{x}_{t}" for t in types for x in "ab"]
    annotated = ", ".join(f"{name}: ks.types.ndarray()" for name in (*arrays, "out_f", "out_i"))
    lines = [
        "import kernelscape as ks",
        "",
        f"def table({annotated}):",
        f"    for i in range({N}):",
    ]
    for k, cell in enumerate(cells):
        row = "out_f" if is_float(cell) else "out_i"
        lines.append(f"        {row}[{k}, i] = {cell.text('ks')}")
    file = folder / "operator_table.py"
    file.write_text("\n".join(lines) + "\n")
    spec = importlib.util.spec_from_file_location("operator_table_kernel", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel = as_kernel(fast_math=fast_math)(module.table)
    given = [operands(t, t)[x == "b"] for t in types for x in "ab"]
    rows = len(cells)
    ir = kernel.instantiate(*given, np.zeros((rows, N)), np.zeros((rows, N), np.int64))
    return Table(tuple(cells), ir)


def interpreted(table: Table, arrays: dict[str, Array]) -> None:
    """By the interpreter."""
    run_kernel(table.ir, arrays, {})


def by_llvm(table: Table, arrays: dict[str, Array]) -> None:
    """By the reference that is compiled."""
    run_in_llvm(table.ir, arrays)


@cache
def source_of(ir: KernelIR, vector_bytes: int) -> Source:
    """The text as the engine writes it, in lanes of so many bytes; 0: in none."""
    return print_source(lower(default_plan(ir, 1, vector_bytes)), C_TEAM)


def as_c(
    table: Table, arrays: dict[str, Array], command: Sequence[str], folder: Path, vector_bytes: int
) -> None:
    """Run the table as C, compiled by a command."""
    source = source_of(table.ir, vector_bytes)
    given = [arrays[a.name] for a in source.arguments]
    _run_text(source.text, "c", source.entry, command, folder, given)


def wrong_in_all_ways(cells: Sequence[Cell], folder: Path) -> dict[str, list[str]]:
    """The wrong cells of each way, one text a backend and flag. Halves are left out where a way has none."""
    table = table_of(cells, folder)
    plain = table_of([c for c in cells if "f16" not in (c.a, c.b)], folder)
    fast = table_of([c for c in cells if "f16" not in (c.a, c.b)], folder, fast_math=True)
    lanes = vector_bytes()
    found = {
        "interpreted": table.wrong(partial(interpreted, table), signs=True),
        "LLVM": plain.wrong(partial(by_llvm, plain), signs=True),
    }
    if shutil.which("g++") and find_spec(EMULATOR):  # a copy may be without it
        found["emulator"] = plain.wrong(partial(as_cuda, plain, folder=folder), signs=True)
    for name, chosen in (("gcc", table), ("clang", plain)):
        if shutil.which(name):
            for level, width in (("-O0", 0), ("-O3", lanes), ("-O3", 0)):
                command: tuple[str, ...] = (name, *STRICT, level)
                run = partial(as_c, chosen, command=command, folder=folder, vector_bytes=width)
                found[f"{name} {level}, {width} bytes"] = chosen.wrong(run, signs=True)
            # Of zeros the sign is lost.
            command = (name, *STRICT, "-O3", *flags_of(fast.ir))
            run = partial(as_c, fast, command=command, folder=folder, vector_bytes=lanes)
            found[f"{name} -O3 with fast_math"] = fast.wrong(run)
    return found


def as_cuda(table: Table, arrays: dict[str, Array], folder: Path) -> None:
    """Run the table as the text of a GPU's kernels, in the emulator's C++."""
    emulator = import_module(EMULATOR)
    text = f"{emulator.header()}\n{_cuda_text(table.ir)}"
    _run_text(
        text, "cpp", "table", ("g++", *CUDA), folder, [arrays[p.name] for p in table.ir.arrays]
    )


def _run_text(
    text: str, suffix: str, entry: str, command: Sequence[str], folder: Path, given: Sequence[Array]
) -> None:
    name = f"table_{len(list(folder.iterdir()))}"
    file, library = folder / f"{name}.{suffix}", folder / f"{name}.so"
    file.write_text(text)
    done = subprocess.run(
        [*command, "-o", library, file, "-lm", "-pthread"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[:4000]
    pointers = (ctypes.c_void_p * len(given))(*(a.ctypes.data for a in given))
    getattr(load_library(library), entry)(pointers)


def _cuda_text(ir: KernelIR) -> str:
    """A function of the arrays that runs the kernel's one loop."""
    (loop,) = ir.body
    assert isinstance(loop, For)
    names = {p.name: p.name for p in ir.arrays}
    w = Builder(Prelude(CudaHelpers()), names, CudaMemory())

    def leaf(x: Expr) -> Value:
        if isinstance(x, LoopIndex):
            return Value(c.Id("i"), x.dtype)
        assert isinstance(x, Load)
        return Value(c.Index(c.Id(x.array), c.Id("i")), x.dtype)

    lines = []
    for s in loop.body:
        assert isinstance(s, Store) and isinstance(s.indices[0], Const)
        place = f"{s.array}[{int(s.indices[0].value) * N} + i]"
        lines.append(f"{place} = {expression(w.evaluate(s.value, leaf).x)};")
    held: Mapping[str, str] = {p.name: type_name(p.dtype, 0) for p in ir.arrays}
    opened = [f"{t} *{name} = ({t} *)args[{k}];" for k, (name, t) in enumerate(held.items())]
    return "\n".join(
        [
            w.prelude.text(),
            'extern "C" void table(void **args) {',
            *opened,
            f"for (long i = 0; i < {N}; ++i) {{",
            *lines,
            "}",
            "}",
            "",
        ]
    )

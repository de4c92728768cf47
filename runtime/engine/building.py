"""Build of a kernel: writes the C text by its default decisions, and compiles it to a library."""

from __future__ import annotations

from pathlib import Path

from ...codegen.bodies.c_vectors import CHelpers
from ...codegen.bodies.index_checks import IndexSite, check_functions
from ...codegen.bodies.vectors import Prelude
from ...codegen.lower import lower
from ...codegen.write.program_text import arguments_of, print_source
from ...kernels.frontend.recorder import Call, Recording
from ...kernels.ir.kernel import NOWHERE, KernelIR
from ...kernels.tasks.standalone import parameters_of
from ..api.outcome import Failure
from ..cpu.compiler import Compiler, build_files
from ..cpu.dialect import C_TEAM
from ..host import vector_bytes
from .planning import default_plan
from .toolchain import flags_of


def index_sites(ir: KernelIR) -> tuple[list[str], tuple[IndexSite, ...], Prelude]:
    """Returns checks of indices that are read from arrays: C functions, the checked accesses, and a prelude."""
    prelude = Prelude(CHelpers())
    arrays = tuple(a.name for a in ir.arrays)
    call = Call(ir, arrays, ir.scalars, NOWHERE)
    recording = Recording(ir.name, ir.arrays, (), ir.scalars, (call,))
    arguments = arguments_of(parameters_of(ir), 0)
    lines, sites = check_functions(recording, arguments, prelude, plain_indices=True)
    return lines, sites, prelude


def kernel_text(ir: KernelIR, cores: int, checks_indices: bool) -> str:
    """Returns the C file of a kernel for `cores` threads at most."""
    lines, prelude = list[str](), Prelude(CHelpers())
    if checks_indices:
        lines, _, prelude = index_sites(ir)
    program = lower(default_plan(ir, cores, vector_bytes()), prelude=prelude)
    source = print_source(program, C_TEAM)
    return "\n".join([source.text, *(["#include <math.h>"] if lines else []), *lines, ""])


def build_kernel(
    ir: KernelIR, text: str, compiler: Compiler, target: Path, timeout_s: float
) -> Failure | None:
    """Compiles the C text of a kernel to `target`, with the text beside it. Returns a Failure if the compiler fails."""
    built = build_files(compiler, {f"{target.stem}.c": text}, flags_of(ir), target, timeout_s)
    return built if isinstance(built, Failure) else None

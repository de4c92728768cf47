"""Kernels run as references are when they take too long to interpret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ir.kernel import KernelIR
from ..runtime.llvm import compile_kernel, held_in, plain


def run_in_llvm(
    ir: KernelIR, arrays: Mapping[str, Any], scalars: Mapping[str, Any] | None = None
) -> None:
    """Runs a kernel in place, as `run_kernel` of kernels/interpret does."""
    given = [plain(arrays[p.name]) for p in ir.arrays]
    compile_kernel(ir, held_in(given)).run(given, scalars or {})

"""Kernels on trees before decisions: all who lower a kernel share one object."""

from __future__ import annotations

from kernelscape.kernels.ir.kernel import KernelIR, Location
from kernelscape.kernels.sparse.calls import _MOST_KEPT, logical_kernel
from kernelscape.kernels.sparse.recorded import Logical


def test_as_many_kernels_are_kept_as_may_be() -> None:
    """Kind: one that is forgotten early, so that lowered forms of it are made again."""
    every = [
        Logical(KernelIR(f"f{k}", (), (), (), Location("f.py", k)), ()) for k in range(_MOST_KEPT)
    ]
    first = [logical_kernel(x, ()) for x in every]
    assert all(logical_kernel(x, ()) is y for x, y in zip(every, first, strict=True))

"""The table of operations: one row makes an operation known to everything that handles operations."""

from __future__ import annotations

from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.c.names import RESERVED
from kernelscape.codegen.lower import lower, print_source
from kernelscape.kernels.interpret.python_text import print_python
from kernelscape.kernels.ir import ops
from kernelscape.kernels.ir.ops import OPS, Op
from kernelscape.kernels.ir.verify import IRError, check
from kernelscape.kernels.language import functions
from kernelscape.kernels.language.kernel import kernel, types
from kernelscape.kernels.language.record import record_sequence
from kernelscape.kernels.offload.pipeline import normalise
from kernelscape.runtime.cpu.dialect import C_TEAM
from kernelscape.runtime.cpu.probe import guess_target
from kernelscape.search.bound.operations import named_flops
from kernelscape.search.starts.complete import first_candidates
from kernelscape.space.build import build_space
from kernelscape.testing.run_tasks import run_tasks

nd = types.ndarray()


@pytest.fixture
def arctangent(monkeypatch: pytest.MonkeyPatch) -> Any:
    row = Op(
        "arctan", 1, np.arctan, "floats", c="atan", module="numpy", flops=5.0, doc="Its angle."
    )
    monkeypatch.setitem(OPS, "arctan", row)
    return functions.arctan  # stays in the cache: kernels know functions by identity


def test_a_row_adds_an_operation(arctangent: Any) -> None:
    assert arctangent(1.0) == np.arctan(1.0)

    @kernel
    def angles(x: nd, y: nd):
        for i in range(x.shape[0]):
            y[i] = 2.0 * arctangent(x[i])

    x = np.linspace(-3, 3, 9, dtype=np.float32)
    y = np.zeros_like(x)
    angles(x, y)  # the interpreter
    np.testing.assert_allclose(y, 2 * np.arctan(x), rtol=1e-6)

    recording = record_sequence(angles, (x, np.zeros_like(x)))
    problem = normalise(recording)
    np.testing.assert_allclose(
        run_tasks(problem, {"x": x, "y": np.zeros_like(x)}, {})["y"], y, rtol=1e-6
    )
    assert "arctan(" in print_python(recording.calls[0].ir).text
    assert named_flops(problem.tasks[0]) == 9 * (5.0 + 1.0)
    _, candidate = next(iter(first_candidates(build_space(problem, guess_target()))))
    text = print_source(lower(candidate), C_TEAM).text
    assert "atanf(" in text
    assert "#include <math.h>" in text


def test_an_operation_without_a_row_is_none() -> None:
    @kernel
    def roots(x: nd, y: nd):
        for i in range(x.shape[0]):
            y[i] = np.sqrt(x[i])

    ir = roots.instantiate(np.zeros(3), np.zeros(3))
    check(ir)
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(OPS, "sqrt")
        with pytest.raises(IRError, match="sqrt is no operation"):
            check(ir)


def test_rows_are_whole() -> None:
    for op in OPS.values():
        assert callable(op.numpy)
        if isinstance(op.numpy, np.ufunc):
            assert op.numpy.nin == op.arity
        if op.c:
            assert {op.c, op.c + "f"} <= RESERVED
        if op.doc:
            assert getattr(functions, op.name) is functions.function(op.name)
            assert functions.operation_of(functions.function(op.name)) == op.name
            assert hasattr(ks, op.name)
    assert {"sqrt", "pow", "atan2", "popcnt", "round"} <= {op.name for op in ops.functions()}

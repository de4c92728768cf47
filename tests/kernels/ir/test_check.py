"""`check` accepts what the frontend builds and names what is wrong in anything else."""

from dataclasses import replace

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.ir.kernel import (
    Accumulator,
    ArrayParam,
    Binary,
    Compare,
    Const,
    DType,
    For,
    If,
    KernelIR,
    Load,
    Local,
    Location,
    LoopIndex,
    Param,
    SetLocal,
    Store,
    Unary,
    Update,
    UpdateLocal,
)
from kernelscape.kernels.ir.verify import IRError, check

WHERE = Location("user.py", 7)
i = LoopIndex("i")
one = Const(1.0, DType.f32)
three = Const(3, DType.i64)
GOOD = Store("x", (i,), Load("x", (i,), DType.f32), WHERE)


def kernel(*body, extent=three):
    loop = For("i", extent, body, WHERE)
    arrays = (ArrayParam("x", DType.f32, (3,)), ArrayParam("k", DType.i32, (3,)))
    return KernelIR("wrong", arrays, (Param("alpha", DType.f32),), (loop,), WHERE)


def test_good_kernels_pass():
    check(kernel(GOOD))


@pytest.mark.parametrize(
    ("ir", "message"),
    [
        (kernel(Store("z", (i,), one, WHERE)), "the array z is no argument"),
        (kernel(Store("x", (i, i), one, WHERE)), "x has 1 axes and 2 indices"),
        (kernel(Store("x", (one,), one, WHERE)), "the index `1.0` of x is f32"),
        (kernel(Store("x", (LoopIndex("j"),), one, WHERE)), "loop j is used outside it"),
        (
            kernel(Store("x", (i,), three, WHERE)),
            "the value stored in x, `3`, is i64 and should be f32",
        ),
        (kernel(Store("x", (i,), Load("k", (i,), DType.f32), WHERE)), r"`k\[i\]` is loaded as f32"),
        (
            kernel(Store("x", (i,), Local("t", DType.f32), WHERE)),
            "the local t: f32 is not set here",
        ),
        (
            kernel(Store("x", (i,), Param("beta", DType.f32), WHERE)),
            "beta: f32 is no scalar argument",
        ),
        (kernel(Store("x", (i,), Accumulator(DType.f32), WHERE)), "Accumulator"),
        (kernel(Store("x", (i,), Const(1, DType.f32), WHERE)), "the constant 1 is no f32"),
        (kernel(UpdateLocal("t", "add", one, WHERE)), "t is updated before it is set"),
        (kernel(SetLocal("alpha", one, WHERE)), "the name of an argument"),
        (
            kernel(SetLocal("t", one, WHERE), SetLocal("t", three, WHERE)),
            "t is f32 and is set to i64",
        ),
        (kernel(Update("x", (i,), "sub", one, WHERE)), "x is updated with sub"),
        (kernel(If(one, (), (), WHERE)), "the condition, `1.0`, is f32 and should be bool_"),
        (kernel(For("i", three, (), WHERE)), "the loop name i is used twice"),
        (kernel(extent=Const(-1, DType.i64)), "the extent of loop i is -1"),
        (kernel(extent=one), "the extent of loop i is f32"),
        (
            kernel(SetLocal("t", Binary("add", one, three, DType.f32), WHERE)),
            "the second operand of add",
        ),
        (
            kernel(SetLocal("t", Binary("shl", one, one, DType.f32), WHERE)),
            "shl is not defined on f32",
        ),
        (
            kernel(SetLocal("t", Unary("sqrt", three, DType.i64), WHERE)),
            "sqrt is not defined on i64",
        ),
        (
            kernel(SetLocal("t", Compare("lt", one, three), WHERE)),
            "the second operand of a comparison",
        ),
        (replace(kernel(), scalars=(Param("x", DType.f32),)), "the argument x appears twice"),
        (replace(kernel(), arrays=(ArrayParam("x", DType.f32, (-1,)),)), r"shape \(-1,\)"),
    ],
)
def test_errors_name_node_and_place(ir, message):
    with pytest.raises(IRError, match=message) as caught:
        check(ir)
    assert str(caught.value).startswith("user.py:7: in kernel wrong: ")


def test_locals_end_with_their_block():
    inner = For("j", three, (SetLocal("t", one, WHERE),), WHERE)
    with pytest.raises(IRError, match="the local t"):
        check(kernel(inner, Store("x", (i,), Local("t", DType.f32), WHERE)))


def test_the_frontend_builds_checked_ir():
    @ks.kernel
    def user(x: ks.types.ndarray(), alpha):
        for k in range(x.shape[0]):
            t = x[k] * alpha
            if t > 1:
                t = 1.0
            x[k] = t

    check(user.instantiate(np.zeros(4, np.float32), 2.0))

"""Addresses of elements: from kernels and from Python, of dense and of sparse fields."""

import ctypes

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.errors import LanguageError
from kernelscape.kernels.interpret.executor import interpret
from kernelscape.kernels.ir.text import show


@pytest.fixture(autouse=True)
def program():
    ks.init(arch=ks.cpu)
    yield
    ks.reset()


def test_kernels_interpreter_and_python_see_the_same_addresses() -> None:
    x = ks.field(ks.i32)
    ks.root.dense(ks.i, 8).place(x, offset=-4)
    masked = ks.field(ks.i32)
    ks.root.bitmasked(ks.i, 8).place(masked)
    p, q = ks.field(ks.i32), ks.field(ks.f64)
    ks.root.pointer(ks.i, 4).dense(ks.i, 4).place(p, q)
    v, scalar = ks.Vector.field(3, ks.f32, shape=4), ks.field(ks.f32, shape=())
    u = ks.Vector.field(3, ks.f32)
    ks.root.pointer(ks.ij, 4).dense(ks.ij, 4).place(u)
    s = ks.types.struct(a=ks.i32, v=ks.types.vector(2, ks.f32)).field(shape=(4, 4))
    cells, hashed = ks.field(ks.i32), ks.field(ks.f64)
    ks.root.dynamic(ks.i, 32, 8).place(cells)
    ks.root.hash(ks.ij, 1 << 12).dense(ks.ij, 4).place(hashed)
    second = u.get_scalar_field(1)
    found = ks.field(ks.u64, shape=13)

    @ks.kernel
    def look(n: int):
        found[0] = ks.get_addr(x, [-4])
        found[1] = ks.get_addr(masked, 3 + n)
        found[2] = ks.get_addr(p, [3])
        found[3] = ks.get_addr(p, [6])
        found[4] = ks.get_addr(q, ks.Vector([6]))
        found[5] = ks.get_addr(v, [n])
        found[6] = ks.get_addr(scalar, [])
        found[7] = ks.get_addr(u.snode, [9, 9])
        found[8] = ks.get_addr(second, [9, 9])
        found[9] = ks.get_addr(s, [1, n])
        found[10] = ks.get_addr(s.v, [n, 1])
        found[11] = ks.get_addr(cells, [5])
        found[12] = ks.get_addr(hashed, [100, 200])

    p[6], cells[5], hashed[100, 200], u[9, 9] = 1, 2, 4, [1, 2, 3]
    asked = (
        (x, -4),
        (masked, 4),
        (p, 3),
        (p, 6),
        (q, 6),
        (v, 1),
        (scalar, None),
        (u.snode, [9, 9]),
    )
    asked += ((second, (9, 9)), (s, [1, 1]), (s.v, [1, 1]), (cells, 5), (hashed, [100, 200]))
    expected = [ks.get_addr(field, at) for field, at in asked]
    for _ in range(3):  # the first call is made another way than those behind it
        found.fill(0)
        look(1)
        assert found.to_numpy().tolist() == expected
    with interpret():
        found.fill(0)
        look(1)
    assert found.to_numpy().tolist() == expected
    assert ctypes.c_int32.from_address(expected[3]).value == 1
    assert ctypes.c_float.from_address(expected[8]).value == 2
    assert ctypes.c_double.from_address(expected[12]).value == 4


def test_elements_that_become_active_leave_the_zeros() -> None:
    """A value that is stored is computed before its element becomes active, in loops over active elements too."""
    x, y = ks.field(ks.u64), ks.field(ks.u64)
    node = ks.root.pointer(ks.i, 8)
    node.dense(ks.i, 4).place(x, y)

    @ks.kernel
    def grow():
        for i in range(16):
            x[i] = ks.get_addr(x, [i])
            y[i] = ks.get_addr(x, [i])

    @ks.kernel
    def again():
        for i in x:
            y[i] = ks.get_addr(y, [i])
            if i < 4:
                x[i + 16] = ks.get_addr(x, [i + 16])

    nothing = [ks.get_addr(x, [28 + i]) for i in range(4)]
    assert nothing == [ks.get_addr(x, [i]) for i in range(4)]
    grow()
    assert x[0] == nothing[0]
    assert y.to_numpy()[:16].tolist() == [ks.get_addr(x, [i]) for i in range(16)]
    assert set(nothing).isdisjoint(y.to_numpy().tolist())
    again()
    assert y.to_numpy()[:16].tolist() == [ks.get_addr(y, [i]) for i in range(16)]
    assert x[16] == nothing[0]


def test_code_has_no_addresses() -> None:
    """They are numbers that calls bind, so that code that was compiled once serves other processes."""
    x = ks.field(ks.i32, shape=8)

    @ks.kernel
    def look() -> ks.u64:
        return ks.get_addr(x, [3]) - ks.get_addr(x, [1])

    assert look() == 8
    assert "address_of_x: u64" in show(look.instantiate())


def test_what_has_no_address_is_refused() -> None:
    x, found = ks.field(ks.i32, shape=8), ks.field(ks.u64, shape=1)
    node = ks.root.pointer(ks.i, 4)
    node.dynamic(ks.j, 8).place(y := ks.field(ks.i32))

    @ks.kernel
    def of_a_node():
        found[0] = ks.get_addr(node, [1])

    @ks.kernel
    def of_an_argument(a: ks.types.ndarray()):
        found[0] = ks.get_addr(a, [1])

    @ks.kernel
    def of_a_list():
        found[0] = ks.get_addr(y, [1])

    @ks.kernel
    def without_indices():
        found[0] = ks.get_addr(x)

    @ks.kernel
    def fine():
        found[0] = ks.get_addr(x, [1])

    takes = "takes a field, or the node of one, not"
    for call, sentence in (
        (of_a_node, f"{takes} `node`"),
        (lambda: of_an_argument(np.zeros(4)), f"{takes} `a`"),
        (of_a_list, "needs all indices"),
        (without_indices, "takes a field and its indices"),
        (lambda: ks.get_addr(node, [1]), takes),
        (lambda: ks.get_addr(x, 8), "has indices 0 to 7"),
        (lambda: ks.explore(fine), r"test_addresses.py:\d+: `get_addr` in a sequence: where"),
    ):
        with pytest.raises(LanguageError, match=sentence):
            call()

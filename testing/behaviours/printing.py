"""Printing, and order of calls."""

import taichi as ti

from .seeing import printed, prints, raises


@prints()
def numbers_are_printed():
    print(1, 2.5, -3)
    print(ti.cast(1.5, ti.f64), ti.cast(7, ti.i64), ti.u8(200))


@prints(1.5)
def large_and_small_floats_are_printed(a: ti.f32):
    print(a, a * 1e10, a * 1e-10, a / 3)


@prints(4)
def words_are_printed(a: ti.i32):
    print("a is", a, "and", a + 1)
    print("words only")
    print()


@prints()
def separators_and_ends():
    print(1, 2, 3, sep="; ", end="!\n")
    print("a", end="")
    print("b")


@prints()
def vectors_and_matrices_are_printed():
    print(ti.Vector([1, 2, 3]))
    print(ti.Matrix([[1.0, 2.0], [3.0, 4.0]]))
    print("v", ti.Vector([1.5, 2.5]), "end")


@prints(3, 0.5)
def formatted_strings_are_printed(a: ti.i32, x: ti.f32):
    print(f"a = {a}, x = {x}")
    print(f"{a}{x}", a)


@prints(30, 0.12345)
def formats_have_specifications(a: ti.i32, x: ti.f32):
    print(f"{x:.3f} {x:.2e} {a:05d} {x:10.4f}")


@prints(3, 0.5)
def format_method_is_printed(a: ti.i32, x: ti.f32):
    print("a = {}, x = {:.2f}".format(a, x))


@prints(1)
def tuples_and_lists_are_printed(a: ti.i32):
    print([a, 2, 3])
    print((a, 2))


@prints()
def serial_loops_print_in_order():
    ti.loop_config(serialize=True)
    for i in range(5):
        print(i, end=" ")
    print("done")


@prints(2**64 - 1, -(2**63))
def unsigned_numbers_are_printed_whole(a: ti.u64, b: ti.i64):
    print(a, b)


@prints(3)
def comparisons_are_printed(a: ti.i32):
    print(a > 2, a == 2)


def static_print_prints_when_compiled():
    @ti.kernel
    def f():
        ti.static_print(3, "words")

    return [printed(f), printed(f)]


def vectors_of_python_are_printed():
    return [str(ti.Vector([1, 2])), str(ti.Vector([1.5, 2.0])), str(ti.Matrix([[1, 2], [3, 4]]))]


def vectors_of_fields_are_printed_in_python():
    v = ti.Vector.field(2, ti.i32, shape=1)
    return str(v[0])


def calls_run_in_order():
    x = ti.field(ti.i32, shape=())

    @ti.kernel
    def add():
        x[None] = x[None] + 3

    @ti.kernel
    def times():
        x[None] = x[None] * 2

    add()
    times()
    add()
    times()
    ti.sync()
    return x[None]


def python_writes_between_calls():
    x = ti.field(ti.i32, shape=2)

    @ti.kernel
    def f():
        x[1] = x[0] * 10

    out = []
    for k in range(3):
        x[0] = k
        f()
        out.append(x[1])
    return out


@prints(3.5, 7)
def formats_without_a_letter(x: ti.f32, a: ti.i32):
    print("{:.2} {:.0} {:8.3}|".format(x, x, x))
    print("{:5} {:05} {:.3}|".format(a, a, a))


@prints()
def formats_without_a_letter_of_constants():
    print("{:.2} {:.1}".format(3.0, 2.5))
    print("{:.3} {:5}".format(7, 8))


@prints(1.25)
def formats_without_a_letter_of_vectors(x: ti.f32):
    print("{:.1}".format(ti.Vector([x, x * 2])))
    print("{:.3}".format(ti.Vector([1, 2])))


@prints(1.25)
def formatted_strings_without_a_letter(x: ti.f32):
    print(f"{x:.2}")


@raises()
def texts_with_fewer_values_than_fields():
    print("{0} {1} {2}".format(1, 2))  # noqa: F524


@raises()
def texts_with_fields_of_unknown_names():
    print("{k}".format())  # noqa: F524

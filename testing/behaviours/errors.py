"""Classes of errors."""

import numpy as np
import taichi as ti

from .seeing import raised


def names_that_are_not_there():
    @ti.kernel
    def f() -> ti.i32:
        return nowhere + 1  # noqa: F821

    return raised(f)


def functions_that_are_not_there():
    @ti.kernel
    def f() -> ti.i32:
        return nowhere(1)  # noqa: F821

    return raised(f)


def names_that_are_not_there_in_functions():
    @ti.func
    def g():
        return nowhere  # noqa: F821

    @ti.kernel
    def f() -> ti.i32:
        return g()

    return raised(f)


def names_of_a_branch_after_it():
    @ti.kernel
    def f(n: ti.i32) -> ti.i32:
        if n > 0:
            a = 1
        return a

    return raised(lambda: f(1))


def names_of_a_loop_after_it():
    @ti.kernel
    def f() -> ti.i32:
        for _ in range(3):
            a = 1
        return a

    return raised(f)


def names_that_are_deleted():
    @ti.kernel
    def f() -> ti.i32:
        a = 1
        del a
        return a  # noqa: F821

    return raised(f)


def attributes_that_modules_have_not():
    @ti.kernel
    def f() -> ti.f32:
        return np.nothing_of_it

    return raised(f)


def attributes_that_fields_have_not():
    x = ti.field(ti.f32, shape=4)

    @ti.kernel
    def f() -> ti.i32:
        return x.nothing_of_it

    return raised(f)


def attributes_that_numbers_have_not():
    @ti.kernel
    def f() -> ti.i32:
        a = 1
        return a.nothing_of_it

    return raised(f)


def components_that_vectors_have_not():
    @ti.kernel
    def f() -> ti.f32:
        v = ti.Vector([1.0, 2.0])
        return v.z

    return raised(f)


def members_that_structs_have_not():
    kind = ti.types.struct(a=ti.f32)

    @ti.kernel
    def f() -> ti.f32:
        s = kind(1.0)
        return s.b

    return raised(f)


def components_that_vectors_have_not_from_python():
    v = ti.Vector([1.0, 2.0])
    return [raised(lambda: v.z), raised(lambda: v[5])]


def indices_of_vectors_that_are_too_large():
    @ti.kernel
    def f() -> ti.f32:
        v = ti.Vector([1.0, 2.0])
        return v[2]

    return raised(f)


def indices_of_matrices_that_are_too_large():
    @ti.kernel
    def f() -> ti.f32:
        m = ti.Matrix([[1.0, 2.0], [3.0, 4.0]])
        return m[1, 2]

    return raised(f)


def indices_of_vectors_that_are_too_many():
    @ti.kernel
    def f() -> ti.f32:
        v = ti.Vector([1.0, 2.0])
        return v[1, 0]

    return raised(f)


def indices_of_fields_that_are_too_many():
    x = ti.field(ti.f32, shape=4)

    @ti.kernel
    def f() -> ti.f32:
        return x[1, 2]

    return raised(f)


def indices_of_fields_that_are_too_few():
    x = ti.field(ti.f32, shape=(4, 4))

    @ti.kernel
    def f() -> ti.f32:
        return x[1]

    return raised(f)


def indices_of_arrays_that_are_too_many():
    @ti.kernel
    def f(x: ti.types.ndarray()) -> ti.f32:
        return x[1, 2]

    return raised(lambda: f(np.zeros(4, np.float32)))


def indices_that_are_no_whole_numbers():
    x = ti.field(ti.f32, shape=4)

    @ti.kernel
    def f() -> ti.f32:
        a = 1.0
        return x[a]

    return raised(f)


def indices_of_arrays_that_are_no_whole_numbers():
    @ti.kernel
    def f(x: ti.types.ndarray()) -> ti.f32:
        a = 1.0
        return x[a]

    return raised(lambda: f(np.zeros(4, np.float32)))


def indices_of_numbers():
    @ti.kernel
    def f() -> ti.f32:
        a = 1.0
        return a[0]

    return raised(f)


def indices_outside_of_fields_in_debug_mode():
    ti.init(arch=ti.cpu, debug=True)
    x = ti.field(ti.f32, shape=4)

    @ti.kernel
    def f(i: ti.i32):
        x[i] = 1.0

    f(3)
    return ["TaichiAssertionError" in raised(lambda i=i: f(i)) for i in (4, -5)]


def indices_outside_of_arrays_in_debug_mode():
    ti.init(arch=ti.cpu, debug=True)

    @ti.kernel
    def f(x: ti.types.ndarray(), i: ti.i32) -> ti.f32:
        return x[i]

    a = np.zeros(4, np.float32)
    return [f(a, 3), "TaichiAssertionError" in raised(lambda: f(a, 7))]


def indices_outside_of_fields_from_python_in_debug_mode():
    ti.init(arch=ti.cpu, debug=True)
    x = ti.field(ti.f32, shape=4)

    def put():
        x[4] = 1.0

    return [raised(lambda: x[4]), raised(put)]


def indices_of_fields_from_python_that_are_too_many():
    x = ti.field(ti.f32, shape=4)
    return [raised(lambda: x[1, 2]), raised(lambda: x["a"])]


def assertions_that_do_not_hold():
    ti.init(arch=ti.cpu, debug=True)

    @ti.kernel
    def f(n: ti.i32):
        assert n > 3, "too small"

    return [raised(lambda: f(4)), raised(lambda: f(3))]


def assertions_in_parallel_loops_that_do_not_hold():
    ti.init(arch=ti.cpu, debug=True)
    x = ti.field(ti.i32, shape=8)

    @ti.kernel
    def f():
        for i in x:
            assert x[i] == 0 or i < 3
            x[i] = i

    return [raised(f), raised(f)]


def static_assertions_that_do_not_hold():
    @ti.kernel
    def f():
        ti.static_assert(1 > 2, "never")

    return raised(f)


def static_assertions_of_what_is_not_known():
    @ti.kernel
    def f(n: ti.i32):
        ti.static_assert(n > 2)

    return raised(lambda: f(3))


def kernels_with_too_few_arguments():
    @ti.kernel
    def f(a: ti.i32, b: ti.i32) -> ti.i32:
        return a + b

    return raised(lambda: f(1))


def kernels_with_too_many_arguments():
    @ti.kernel
    def f(a: ti.i32) -> ti.i32:
        return a

    return raised(lambda: f(1, 2))


def kernels_with_arguments_of_other_names():
    @ti.kernel
    def f(a: ti.i32) -> ti.i32:
        return a

    return [raised(lambda: f(b=1)), raised(lambda: f(1, a=2))]


def functions_with_too_few_arguments():
    @ti.func
    def g(a, b):
        return a + b

    @ti.kernel
    def f() -> ti.i32:
        return g(1)

    return raised(f)


def functions_with_too_many_arguments():
    @ti.func
    def g(a):
        return a

    @ti.kernel
    def f() -> ti.i32:
        return g(1, 2)

    return raised(f)


def functions_with_arguments_of_other_names():
    @ti.func
    def g(a):
        return a

    @ti.kernel
    def f() -> ti.i32:
        return g(b=1)

    return raised(f)


def texts_for_numbers():
    @ti.kernel
    def f(a: ti.i32) -> ti.i32:
        return a

    return raised(lambda: f("1"))


def none_for_numbers():
    @ti.kernel
    def f(a: ti.f32) -> ti.f32:
        return a

    return raised(lambda: f(None))


def floats_for_whole_numbers():
    @ti.kernel
    def f(a: ti.i32) -> ti.i32:
        return a

    return raised(lambda: f(1.5))


def lists_for_floats():
    @ti.kernel
    def f(a: ti.f32) -> ti.f32:
        return a

    return raised(lambda: f([1.0]))


def numbers_for_arrays():
    @ti.kernel
    def f(x: ti.types.ndarray()):
        x[0] = 1

    return raised(lambda: f(3))


def lists_for_arrays():
    @ti.kernel
    def f(x: ti.types.ndarray()):
        x[0] = 1

    return raised(lambda: f([1.0, 2.0]))


def arrays_of_another_type():
    @ti.kernel
    def f(x: ti.types.ndarray(dtype=ti.f32, ndim=1)):
        x[0] = 1

    x = ti.ndarray(ti.i32, shape=4)
    return raised(lambda: f(x))


def arrays_of_another_number_of_axes():
    @ti.kernel
    def f(x: ti.types.ndarray(dtype=ti.f32, ndim=1)):
        x[0] = 1

    x = ti.ndarray(ti.f32, shape=(4, 4))
    return [raised(lambda: f(x)), raised(lambda: f(np.zeros((4, 4), np.float32)))]


def vectors_of_another_length():
    @ti.kernel
    def f(v: ti.types.vector(3, ti.f32)) -> ti.f32:
        return v[0]

    return [raised(lambda: f(ti.Vector([1.0, 2.0]))), raised(lambda: f(1.0))]


def fields_for_numbers():
    x = ti.field(ti.f32, shape=4)

    @ti.kernel
    def f(a: ti.f32) -> ti.f32:
        return a

    return raised(lambda: f(x))


def parameters_without_a_type():
    def make():
        @ti.kernel
        def f(a) -> ti.i32:
            return a

        f(1)

    return raised(make)


def parameters_of_a_type_that_is_none():
    def make():
        @ti.kernel
        def f(a: "no type at all") -> ti.i32:  # noqa: F722
            return a

        f(1)

    return raised(make)


def parameters_with_stars():
    def make():
        @ti.kernel
        def f(*a: ti.i32):
            pass

        f(1)

    def name():
        @ti.kernel
        def f(**a: ti.i32):
            pass

        f(a=1)

    return [raised(make), raised(name)]


def parameters_with_defaults():
    def make():
        @ti.kernel
        def f(a: ti.i32 = 1) -> ti.i32:
            return a

        f()

    return raised(make)


def kernels_called_in_kernels():
    @ti.kernel
    def g():
        pass

    @ti.kernel
    def f():
        g()

    return raised(f)


def kernels_called_in_functions():
    @ti.kernel
    def g():
        pass

    @ti.func
    def h():
        g()

    @ti.kernel
    def f():
        h()

    return raised(f)


def functions_that_call_themselves():
    @ti.func
    def g(n):
        return g(n)

    @ti.kernel
    def f() -> ti.i32:
        return g(1)

    return raised(f)


def returns_without_a_type():
    @ti.kernel
    def f():
        return 1

    return raised(f)


def types_without_a_return():
    @ti.kernel
    def f() -> ti.i32:
        pass

    return raised(f)


def returns_of_too_many_numbers():
    @ti.kernel
    def f() -> ti.i32:
        return 1, 2

    return raised(f)


def returns_of_vectors_for_numbers():
    @ti.kernel
    def f() -> ti.i32:
        return ti.Vector([1, 2])

    return raised(f)


def returns_of_texts():
    @ti.kernel
    def f() -> ti.i32:
        return "a"

    return raised(f)


def returns_in_parallel_loops():
    @ti.kernel
    def f() -> ti.i32:
        for i in range(4):
            return i
        return 0

    return raised(f)


def yields():
    @ti.kernel
    def f():
        yield 1

    return raised(f)


def try_statements():
    @ti.kernel
    def f():
        try:  # noqa: SIM105
            a = 1
        except ValueError:
            pass

    return raised(f)


def with_statements():
    @ti.kernel
    def f():
        with open("a") as a:
            pass

    return raised(f)


def raise_statements():
    @ti.kernel
    def f():
        raise ValueError("a")

    return raised(f)


def lambdas():
    @ti.kernel
    def f() -> ti.i32:
        g = lambda a: a + 1  # noqa: E731
        return g(1)

    return raised(f)


def imports():
    @ti.kernel
    def f():
        import math  # noqa: F401

    return raised(f)


def global_statements():
    @ti.kernel
    def f():
        global _anything
        _anything = 1

    return raised(f)


def classes_in_kernels():
    @ti.kernel
    def f():
        class A:
            pass

    return raised(f)


def functions_in_kernels():
    @ti.kernel
    def f():
        def g():
            pass

        g()

    return raised(f)


def sets_and_set_comprehensions():
    @ti.kernel
    def f():
        a = {1, 2}

    @ti.kernel
    def g():
        a = {x for x in range(3)}  # noqa: C416

    return [raised(f), raised(g)]


def matrix_products_of_numbers():
    @ti.kernel
    def f() -> ti.f32:
        a = 1.0
        return a @ a

    return raised(f)


def matrix_products_that_do_not_fit():
    @ti.kernel
    def f():
        a = ti.Matrix([[1, 2], [3, 4]])
        b = ti.Vector([1, 2, 3])
        c = a @ b

    return raised(f)


def sums_of_vectors_of_two_lengths():
    @ti.kernel
    def f():
        a = ti.Vector([1, 2])
        b = ti.Vector([1, 2, 3])
        c = a + b

    return raised(f)


def sums_of_vectors_of_two_lengths_from_python():
    a, b = ti.Vector([1, 2]), ti.Vector([1, 2, 3])
    return raised(lambda: a + b)


def bits_of_floats():
    @ti.kernel
    def f() -> ti.i32:
        a = 1.5
        return a & 1

    return raised(f)


def shifts_of_floats():
    @ti.kernel
    def f() -> ti.i32:
        a = 1.5
        return a << 1

    return raised(f)


def the_inverse_of_floats():
    @ti.kernel
    def f() -> ti.f32:
        a = 1.5
        return ~a

    return raised(f)


def bits_of_floats_that_are_joined_in_place():
    @ti.kernel
    def f():
        a = 1.5
        a |= 1

    return raised(f)


def vectors_as_conditions():
    @ti.kernel
    def f() -> ti.i32:
        v = ti.Vector([1, 2])
        r = 0
        if v:
            r = 1
        return r

    return raised(f)


def vectors_as_conditions_of_while():
    @ti.kernel
    def f():
        v = ti.Vector([1, 2])
        while v:
            v -= 1

    return raised(f)


def vectors_put_into_numbers():
    @ti.kernel
    def f():
        a = 1.0
        a = ti.Vector([1.0, 2.0])

    return raised(f)


def numbers_put_into_vectors():
    @ti.kernel
    def f():
        a = ti.Vector([1.0, 2.0])
        a = 1.0

    return raised(f)


def vectors_put_into_fields_of_numbers():
    x = ti.field(ti.f32, shape=4)

    @ti.kernel
    def f():
        x[0] = ti.Vector([1.0, 2.0])

    return raised(f)


def vectors_of_another_length_put_into_fields():
    x = ti.Vector.field(3, ti.f32, shape=4)

    @ti.kernel
    def f():
        x[0] = ti.Vector([1.0, 2.0])

    return raised(f)


def tuples_of_another_length_are_unpacked():
    @ti.kernel
    def f():
        a, b = 1, 2, 3

    return raised(f)


def vectors_of_another_length_are_unpacked():
    @ti.kernel
    def f():
        _a, _b = ti.Vector([1, 2, 3])

    return raised(f)


def numbers_are_unpacked():
    @ti.kernel
    def f():
        c = 3
        _a, _b = c

    return raised(f)


def assignments_to_arguments():
    @ti.kernel
    def f(a: ti.i32):
        a = 3

    return raised(lambda: f(1))


def assignments_to_loop_variables():
    @ti.kernel
    def f():
        for i in range(3):
            i += 1

    return raised(f)


def assignments_to_numbers_of_the_module():
    @ti.kernel
    def f():
        _OUTER += 1  # noqa: F823

    return raised(f)


_OUTER = 3


def assignments_to_members_that_are_not_there():
    kind = ti.types.struct(a=ti.f32)

    @ti.kernel
    def f():
        s = kind(1.0)
        s.b = 2.0

    return raised(f)


def loops_over_numbers():
    @ti.kernel
    def f():
        for i in 10:
            pass

    return raised(f)


def loops_over_numbers_of_the_run():
    @ti.kernel
    def f(n: ti.i32):
        for i in n:
            pass

    return raised(lambda: f(3))


def loops_over_lists():
    @ti.kernel
    def f():
        for i in [1, 2, 3]:
            pass

    return raised(f)


def loops_with_else():
    @ti.kernel
    def f():
        for i in range(3):
            pass
        else:
            pass

    return raised(f)


def while_loops_with_else():
    @ti.kernel
    def f():
        a = 0
        while a < 3:
            a += 1
        else:
            a = 0

    return raised(f)


def loops_over_fields_with_too_many_indices():
    x = ti.field(ti.f32, shape=4)

    @ti.kernel
    def f():
        for i, j in x:
            x[i] = j

    return raised(f)


def ranges_of_floats():
    @ti.kernel
    def f():
        for i in range(2.5):
            pass

    return raised(f)


def ranges_of_too_many_bounds():
    @ti.kernel
    def f():
        for i in range(1, 2, 3, 4):
            pass

    return raised(f)


def ranges_without_bounds():
    @ti.kernel
    def f():
        for i in range():
            pass

    return raised(f)


def grouped_loops_over_numbers():
    @ti.kernel
    def f():
        for i in ti.grouped(10):
            pass

    return raised(f)


def breaks_of_parallel_loops():
    @ti.kernel
    def f():
        for i in range(10):
            if i == 3:
                break

    return raised(f)


def static_values_that_are_not_known():
    @ti.kernel
    def f(n: ti.i32) -> ti.i32:
        return ti.static(n)

    return raised(lambda: f(3))


def static_ranges_that_are_not_known():
    @ti.kernel
    def f(n: ti.i32) -> ti.i32:
        s = 0
        for i in ti.static(range(n)):
            s += i
        return s

    return raised(lambda: f(3))


def chained_comparisons_that_are_not_numbers():
    @ti.kernel
    def f() -> ti.i32:
        return 1 in ti.Vector([1, 2])

    return raised(f)


def is_and_is_not():
    @ti.kernel
    def f() -> ti.i32:
        a = 1
        b = 2
        return a is b

    return raised(f)


def sums_of_numbers_and_texts():
    @ti.kernel
    def f() -> ti.i32:
        return 1 + "a"

    return raised(f)


def sums_of_numbers_and_fields():
    x = ti.field(ti.f32, shape=4)

    @ti.kernel
    def f() -> ti.f32:
        return 1 + x

    return raised(f)


def sums_of_numbers_and_none():
    @ti.kernel
    def f() -> ti.i32:
        return 1 + None

    return raised(f)


def functions_of_the_language_with_too_many_arguments():
    @ti.kernel
    def f() -> ti.f32:
        return ti.sqrt(1.0, 2.0)

    return raised(f)


def functions_of_the_language_with_too_few_arguments():
    @ti.kernel
    def f() -> ti.f32:
        return ti.atan2(1.0)

    return raised(f)


def functions_of_the_language_on_texts():
    @ti.kernel
    def f() -> ti.f32:
        return ti.sqrt("a")

    return raised(f)


def functions_that_taichi_has_not():
    @ti.kernel
    def f() -> ti.f32:
        return ti.nothing_of_it(1.0)

    return raised(f)


def names_that_taichi_has_not():
    return raised(lambda: ti.nothing_of_it)


def atomics_on_numbers():
    @ti.kernel
    def f():
        ti.atomic_add(1, 2)

    return raised(f)


def casts_to_what_is_no_type():
    @ti.kernel
    def f() -> ti.i32:
        return ti.cast(1.5, "i32")

    return raised(f)


def numbers_are_called():
    @ti.kernel
    def f() -> ti.i32:
        a = 1
        return a(2)

    return raised(f)


def modules_are_called():
    @ti.kernel
    def f() -> ti.i32:
        return np(2)

    return raised(f)


def python_functions_that_fail():
    def g():
        raise KeyError("a")

    @ti.kernel
    def f():
        g()

    return raised(f)


def prints_with_keywords():
    @ti.kernel
    def f():
        print(1, file=3)

    return raised(f)


def the_inverse_of_a_matrix_that_is_not_square():
    @ti.kernel
    def f():
        m = ti.Matrix([[1, 2, 3], [4, 5, 6]])
        m.inverse()

    return raised(f)


def cross_products_of_two_lengths():
    @ti.kernel
    def f():
        a = ti.Vector([1, 2, 3])
        b = ti.Vector([1, 2])
        a.cross(b)

    return raised(f)


def dot_products_of_two_lengths():
    @ti.kernel
    def f() -> ti.i32:
        a = ti.Vector([1, 2, 3])
        b = ti.Vector([1, 2])
        return a.dot(b)

    return raised(f)


def methods_that_vectors_have_not():
    @ti.kernel
    def f():
        a = ti.Vector([1, 2, 3])
        a.nothing_of_it()

    return raised(f)


def matrices_with_rows_of_two_lengths():
    @ti.kernel
    def f():
        m = ti.Matrix([[1, 2], [3]])

    return raised(f)


def structs_with_too_many_members():
    kind = ti.types.struct(a=ti.f32)

    @ti.kernel
    def f():
        s = kind(1.0, 2.0)

    return raised(f)


def functions_called_from_python():
    @ti.func
    def g():
        return 1

    return raised(g)


def kernels_of_classes_that_are_not_marked():
    class Plain:
        @ti.kernel
        def f(self):
            pass

    return raised(lambda: Plain().f())


def fields_of_another_shape_are_copied():
    x, y = ti.field(ti.f32, shape=4), ti.field(ti.f32, shape=5)
    return raised(lambda: x.copy_from(y))


def arrays_of_another_shape_are_copied_into_fields():
    x = ti.field(ti.f32, shape=4)
    return raised(lambda: x.from_numpy(np.zeros(5, np.float32)))


def fields_of_no_type():
    return [raised(lambda: ti.field("f32", shape=4)), raised(lambda: ti.field(3, shape=4))]


def fields_of_a_wrong_shape():
    return [
        raised(lambda: ti.field(ti.f32, shape="a")),
        raised(lambda: ti.field(ti.f32, shape=(2, "b"))),
    ]


def fields_with_an_offset_of_another_length():
    return raised(lambda: ti.field(ti.f32, shape=(4, 4), offset=1))


def options_that_are_not_there():
    return raised(lambda: ti.init(arch=ti.cpu, nothing_of_it=3))


def fields_are_called():
    x = ti.field(ti.f32, shape=4)
    return raised(lambda: x(3))


def attributes_that_fields_have_not_from_python():
    x = ti.field(ti.f32, shape=4)
    return raised(lambda: x.nothing_of_it)


def kernels_without_source():
    space = {"ti": ti}

    def make():
        exec("@ti.kernel\ndef f():\n    pass\n", space)
        space["f"]()

    return raised(make)


def fields_without_a_place():
    x = ti.field(ti.f32)
    return [raised(lambda: x.to_numpy()), raised(lambda: x[0])]


def fields_that_are_placed_twice():
    x = ti.field(ti.f32, shape=4)
    return raised(lambda: ti.root.dense(ti.i, 4).place(x))


def fields_of_trees_that_are_destroyed():
    tree = ti.FieldsBuilder()
    x = ti.field(ti.f32)
    tree.dense(ti.i, 4).place(x)
    made = tree.finalize()
    made.destroy()
    return [raised(lambda: x[0]), raised(lambda: x.to_numpy())]


def builders_that_are_finalized_twice():
    tree = ti.FieldsBuilder()
    tree.dense(ti.i, 4).place(ti.field(ti.f32))
    tree.finalize()
    return raised(lambda: tree.finalize())


def nodes_with_an_extent_that_is_none():
    return [
        raised(lambda: ti.root.dense(ti.i, "a")),
        raised(lambda: ti.root.dense(ti.ij, (1, 2, 3))),
    ]


def nodes_with_what_is_no_axis():
    return raised(lambda: ti.root.dense(3, 4))


def what_is_no_field_is_placed():
    return raised(lambda: ti.root.dense(ti.i, 4).place(3))


def fields_are_copied_from_numbers():
    x = ti.field(ti.f32, shape=4)
    return [raised(lambda: x.copy_from(3)), raised(lambda: x.from_numpy([1, 2, 3, 4]))]


def indices_of_vectors_from_python_that_are_too_many():
    v, m = ti.Vector([1, 2, 3]), ti.Matrix([[1, 2], [3, 4]])
    return [raised(lambda: v[1, 0]), raised(lambda: m[0, 5]), raised(lambda: v["a"])]


def indices_of_ndarrays_from_python_that_are_too_many():
    x = ti.ndarray(ti.f32, shape=4)
    return raised(lambda: x[1, 2])


def ndarrays_of_another_shape_are_copied():
    x, y = ti.ndarray(ti.f32, shape=4), ti.ndarray(ti.f32, shape=5)
    return [raised(lambda: x.copy_from(y)), raised(lambda: x.from_numpy(np.zeros(5, np.float32)))]


def products_from_python_that_do_not_fit():
    v, w = ti.Vector([1, 2, 3]), ti.Vector([1, 2])
    m = ti.Matrix([[1, 2], [3, 4]])
    return [raised(lambda: v.dot(w)), raised(lambda: v.cross(w)), raised(lambda: m @ v)]


def vectors_with_components_of_two_kinds():
    return [
        raised(lambda: ti.Vector([1, "a"])),
        raised(lambda: ti.Vector(3)),
        raised(lambda: ti.Matrix([[1, 2], [3]])),
    ]


def members_that_fields_of_structs_have_not():
    x = ti.Struct.field({"a": ti.f32}, shape=4)
    return [raised(lambda: x.b), raised(lambda: x[0].b)]


def types_of_structs_with_members_that_are_none():
    kind = ti.types.struct(a=ti.f32)
    return raised(lambda: kind(b=3))


def options_of_a_wrong_type():
    return [
        raised(lambda: ti.init(arch="nothing of it")),
        raised(lambda: ti.init(arch=ti.cpu, default_fp=3)),
    ]


def types_of_vectors_without_a_length():
    return [
        raised(lambda: ti.types.vector("a", ti.f32)),
        raised(lambda: ti.types.matrix(2, ti.f32)),
    ]


def fields_of_vectors_of_a_wrong_type():
    return raised(lambda: ti.Vector.field(2, "f32", shape=3))


def loops_over_fields_from_python():
    x = ti.field(ti.f32, shape=4)
    return raised(lambda: list(x))


def words_of_kernels_called_from_python():
    x = ti.field(ti.f32, shape=4)
    return [
        raised(lambda: ti.atomic_add(x[0], 1)),
        raised(lambda: ti.grouped(x)),
        raised(lambda: ti.append(x, [], 1)),
    ]


def errors_of_numbers_in_kernels():
    ti.init(arch=ti.cpu, debug=True)

    @ti.kernel
    def f(a: ti.i32) -> ti.i32:
        return a

    return [
        raised(lambda: f(1 << 40)),
        raised(lambda: f(1 + 2j)),
        raised(lambda: f(np.float64(2.5))),
    ]


def templates_that_are_arrays():
    @ti.kernel
    def f(x: ti.template()) -> ti.f32:
        return x[0]

    return raised(lambda: f(np.zeros(4, np.float32)))


def arrays_of_complex_numbers():
    @ti.kernel
    def f(x: ti.types.ndarray()):
        pass

    return [raised(lambda: f(np.zeros(4, np.complex64))), raised(lambda: f(np.array(["a"])))]


def structs_for_numbers():
    kind = ti.types.struct(a=ti.f32)

    @ti.kernel
    def f(a: ti.f32) -> ti.f32:
        return a

    @ti.kernel
    def g(s: kind) -> ti.f32:
        return s.a

    return [raised(lambda: f(kind(1.0))), raised(lambda: g(1.0))]

"""Element types and what they are asked, and values that take other types than they are given in."""

import numpy as np
import taichi as ti

from .seeing import calls, each, raised, refused, returns, value

TYPES = (ti.i8, ti.i16, ti.i32, ti.i64, ti.u8, ti.u16, ti.u32, ti.u64, ti.f16, ti.f32, ti.f64)


def types_of_integers():
    return [bool(ti.types.is_integral(t)) for t in TYPES]


def types_of_floats():
    return [bool(ti.types.is_real(t)) for t in TYPES]


def types_of_signed_integers():
    return [bool(ti.types.is_signed(t)) for t in TYPES[:8]]


def names_of_types():
    return [t.to_string() for t in TYPES]


def types_as_texts():
    return [str(t) for t in TYPES]


def types_in_formatted_texts():
    return f"{ti.f32} and {ti.u8}"


def primitive_types_are_a_module():
    p = ti.types.primitive_types
    return [p.f32 == ti.f32, p.i32 == ti.i32, p.u8 == ti.u8, p.float64 == ti.f64]


def arrays_of_float_have_the_default_type():
    return [ti.ndarray(float, shape=2).to_numpy(), ti.ndarray(int, shape=2).to_numpy()]


def fields_of_float_have_the_default_type():
    return [ti.field(float, shape=2).to_numpy(), ti.field(int, shape=2).to_numpy()]


def array_arguments_of_float():
    @ti.kernel
    def f(x: ti.types.ndarray(dtype=float, ndim=1)) -> ti.f32:
        return x[0] + x[1]

    x = ti.ndarray(float, shape=2)
    x.fill(1.25)
    return f(x)


def array_arguments_of_int():
    @ti.kernel
    def f(x: ti.types.ndarray(dtype=int)) -> ti.i32:
        return x[0] + x[1]

    x = ti.ndarray(int, shape=2)
    x.fill(3)
    return f(x)


@each(127, -1, 255, 200)
def arguments_of_i8_take_bits(a: ti.i8) -> ti.i32:
    return a


@each(5, 255)
def arguments_of_u8_take_bits(a: ti.u8) -> ti.i32:
    return a


@each(2**31 - 1, 2**31, 2**32 - 1)
def arguments_of_i32_take_bits(a: ti.i32) -> ti.i32:
    return a


@each(65535, -2)
def arguments_of_i16_take_bits(a: ti.i16) -> ti.i32:
    return a


def arrays_of_vectors_keep_the_type_of_numpy():
    @ti.kernel
    def f(x: ti.types.ndarray(dtype=ti.math.vec2)):
        for i in x:
            x[i] += 1.0 / 3.0

    x = np.zeros((2, 2), np.float64)
    f(x)
    return x


def arrays_of_vectors_of_integers_from_numpy():
    @ti.kernel
    def f(x: ti.types.ndarray(dtype=ti.types.vector(2, ti.i32))):
        for i in x:
            x[i] = x[i] * 3 + 1

    x = np.arange(6, dtype=np.int64).reshape(3, 2)
    f(x)
    return x


def arrays_of_another_type_are_refused():
    @ti.kernel
    def f(x: ti.types.ndarray(dtype=ti.f32, ndim=1)):
        pass

    return [
        refused(lambda: f(np.zeros(2, np.float64))),
        refused(lambda: f(np.zeros(2, np.float32))),
    ]


def arrays_of_other_vectors_are_refused():
    @ti.kernel
    def f(x: ti.types.ndarray(dtype=ti.math.vec2)):
        pass

    return [
        raised(lambda: f(ti.Vector.ndarray(3, ti.f32, 4))),
        raised(lambda: f(ti.Matrix.ndarray(2, 1, ti.f32, 4))),
        raised(lambda: f(ti.Vector.ndarray(2, ti.f32, 4))),
    ]


def classes_of_arrays():
    kinds = (ti.Ndarray, ti.VectorNdarray, ti.MatrixNdarray)
    made = (
        ti.ndarray(ti.f32, 2),
        ti.Vector.ndarray(3, ti.f32, 2),
        ti.Matrix.ndarray(2, 2, ti.f32, 2),
        ti.ndarray(ti.math.vec3, 2),
    )
    return [[isinstance(x, kind) for kind in kinds] for x in made]


def arrays_of_vectors_by_their_class():
    x = ti.VectorNdarray(3, ti.i32, (2,))
    x[1] = [1, 2, 3]
    return x.to_numpy()


def arrays_of_matrices_by_their_class():
    x = ti.MatrixNdarray(2, 2, ti.f32, (2,))
    x[0] = [[1, 2], [3, 4]]
    return x.to_numpy()


def vectors_from_arrays_with_axes_of_one():
    x = ti.Vector.field(3, ti.i32, shape=2)
    x.from_numpy(np.arange(6).reshape(2, 3, 1))
    return x.to_numpy()


def columns_from_arrays_of_vectors():
    x = ti.Matrix.field(3, 1, ti.i32, shape=2)
    x.from_numpy(np.arange(6).reshape(2, 3))
    return x.to_numpy()


def equal_vectors_are_equal():
    v, w = ti.Vector([1, 2, 3]), ti.Vector([1, 2, 3])
    return bool(v == w)


def assertions_on_equal_vectors():
    v = ti.Vector.field(2, ti.f32, shape=2)
    v[1] = [0.5, 1.5]
    assert v[1] == [0.5, 1.5]
    assert v[0] == ti.Vector([0.0, 0.0])
    return "holds"


def different_vectors_are_not_equal():
    return bool(ti.Vector([1, 2, 3]) == ti.Vector([1, 2, 4]))


def vectors_with_one_other_component_differ():
    return bool(ti.Vector([1, 2, 3]) != ti.Vector([1, 2, 4]))


def equal_matrices_are_equal():
    return bool(ti.Matrix([[1, 2], [3, 4]]) == ti.Matrix([[1, 2], [3, 4]]))


@returns()
def diagonals_by_name() -> ti.types.matrix(3, 3, ti.i32):
    return ti.Matrix.diag(dim=3, val=5)


@returns(2.5)
def diagonals_of_numbers_at_run_time(a: ti.f32) -> ti.types.matrix(2, 2, ti.f32):
    return ti.Matrix.diag(2, a)


@returns()
def sums_of_rows_of_a_matrix() -> ti.types.vector(2, ti.i32):
    m = ti.Matrix([[1, 2, 3], [4, 5, 6]])
    return ti.Vector([ti.Vector([m[r, 0], m[r, 1], m[r, 2]]).sum() for r in ti.static(range(2))])


Q = ti.types.struct(x=ti.i32, y=ti.f32)


@ti.dataclass
class Pair:
    first: Q
    second: Q


@returns(3)
def structs_of_one_struct(a: ti.i32) -> ti.f32:
    pair = Pair(Q(x=a, y=0.5))
    return pair.first.x * 10 + pair.first.y + pair.second.x


def structs_whose_first_member_is_a_struct():
    pair = Pair(Q(x=2, y=1.5))
    return [pair.first.x, pair.first.y, pair.second.x]


@ti.real_func
def _double_in_place(a: ti.ref(ti.i32)):
    a *= 2


@each(3, -4)
def references_change_their_place(a: ti.i32) -> ti.i32:
    b = a
    _double_in_place(b)
    return b * 10 + a


@ti.real_func
def _swap(a: ti.ref(ti.f32), b: ti.ref(ti.f32)):
    t = a
    a = b
    b = t


@returns(1.5, 2.5)
def references_are_swapped(a: ti.f32, b: ti.f32) -> ti.f32:
    x, y = a, b
    _swap(x, y)
    return x * 10 + y


@returns(5)
def dicts_are_joined(a: ti.i32) -> ti.i32:
    one = {"x": a, "y": 2}
    two = {**one, "y": 3, "z": 4}
    return two["x"] * 100 + two["y"] * 10 + two["z"]


def fields_destroyed_and_made_anew():
    @ti.data_oriented
    class Made:
        def begin(self, n):
            self.x = ti.field(ti.i32)
            builder = ti.FieldsBuilder()
            builder.dense(ti.i, n).place(self.x)
            self.tree = builder.finalize()

        @ti.kernel
        def fill(self, k: ti.i32):
            for i in self.x:
                self.x[i] = i * k

    found = []
    made = Made()
    for k in (1, 2, 3):
        made.begin(4)
        made.fill(k)
        found.append(made.x.to_numpy())
        made.tree.destroy()
    return found


def _option(**options):
    return refused(lambda: ti.init(arch=ti.cpu, **options))


def options_of_the_debugger_are_taken():
    return _option(gdb_trigger=False)


def options_of_the_compiler_are_taken():
    return [
        _option(print_full_traceback=False),
        _option(opt_level=1),
        _option(unrolling_limit=16),
        _option(advanced_optimization=False),
        _option(offline_cache_file_path="/tmp/none"),
    ]


unknown_options_are_refused = calls(_option, gdb_triger=False)


@returns()
def vectors_of_a_call_of_a_type() -> ti.types.vector(3, ti.f32):
    return ti.math.vec3(1, 2, 3) * 0.5


def values_returned_are_compared():
    @ti.kernel
    def f() -> ti.math.vec3:
        return ti.math.vec3(1, 2, 3)

    return [bool(f() == [1, 2, 3]), value(f())]


@returns()
def arrays_without_axes_are_numbers() -> ti.i32:
    a = np.array(3)
    b = np.array(4, dtype=np.int32)
    return a * 10 + b


def components_placed_apart():
    v = ti.Vector.field(2, ti.i32)
    ti.root.dense(ti.i, 8).place(v.get_scalar_field(0))
    ti.root.dense(ti.i, 2).dense(ti.i, 4).place(v.get_scalar_field(1))

    @ti.kernel
    def f():
        for i in range(8):
            v[i] = [i, 10 * i]

    f()
    return v.to_numpy()


@returns()
def comprehensions_over_rows() -> ti.types.vector(2, ti.i32):
    m = ti.Matrix([[1, 2, 3], [4, 5, 6]])
    return ti.Vector([m[r, :].sum() for r in range(2)])


def arrays_of_vectors_of_any_length():
    @ti.kernel
    def f(x: ti.types.ndarray(dtype=ti.types.vector(), ndim=1)):
        for I in ti.grouped(x):
            x[I] += 1.0

    x, y = ti.ndarray(ti.math.vec3, 3), ti.ndarray(ti.math.vec2, 2)
    for given in (x, x, y):
        f(given)
    return [x.to_numpy(), y.to_numpy(), refused(lambda: f(ti.ndarray(ti.math.mat2, 3)))]


def arrays_of_matrices_of_any_size():
    @ti.kernel
    def f(x: ti.types.ndarray(dtype=ti.types.matrix())):
        for I in ti.grouped(x):
            x[I] += 2.0

    x, y = ti.ndarray(ti.math.mat2, 3), ti.ndarray(ti.math.mat3, (2, 2))
    f(x)
    f(y)
    return [x.to_numpy(), y.to_numpy(), refused(lambda: f(ti.ndarray(ti.math.vec2, 3)))]


def elements_are_equal_to_the_numbers_they_were_given():
    v = ti.Vector.field(2, ti.f32, shape=1)
    v[0] = [0.1, 0.7]
    return [bool(v[0] == [0.1, 0.7]), bool(v[0] == ti.Vector([0.1, 0.7]))]


def vectors_are_compared_with_rows():
    v = ti.Vector([1, 2])
    return [(v == [[1, 2], [1, 3]]).to_numpy(), bool(v == [v, v])]

"""Quantised types: numbers of a few bits, in words that several fields or elements share."""

import numpy as np
import taichi as ti

from .seeing import active, refused


def _packed(*types, n=None, bits=32, shared=False):
    """Fields of quantised types that share words: of one axis, or of none."""
    fields = [ti.field(t) for t in types]
    words = ti.BitpackedFields(max_num_bits=bits)
    words.place(*fields, shared_exponent=shared)
    (ti.root if n is None else ti.root.dense(ti.i, n)).place(words)
    return fields if len(fields) > 1 else fields[0]


def _numbers(x):
    """The numbers of a field of one axis, which Taichi copies to no array."""
    return [x[k] for k in range(x.shape[0])]


def _stored(kind, numbers, n_bits=32):
    """The values read back of numbers that a kernel stores, and of those that Python stores."""
    x = _packed(kind, n=len(numbers), bits=n_bits)
    y = _packed(kind, n=len(numbers), bits=n_bits)

    @ti.kernel
    def fill(given: ti.types.ndarray()):
        for i in x:
            x[i] = given[i]

    fill(np.array(numbers, dtype=np.float32))
    for k, number in enumerate(numbers):
        y[k] = number
    return [[x[k] for k in range(len(numbers))], [y[k] for k in range(len(numbers))]]


def integers_of_a_few_bits():
    a, b, c = _packed(
        ti.types.quant.int(13), ti.types.quant.int(14, False), ti.types.quant.int(5), n=16
    )

    @ti.kernel
    def fill():
        for i in a:
            a[i] = -i * 200
            b[i] = i * 1000
            c[i] = i - 8

    fill()
    return [_numbers(x) for x in (a, b, c)]


def integers_that_do_not_fit_wrap_around():
    a, b = _packed(ti.types.quant.int(4), ti.types.quant.int(4, False), n=40)

    @ti.kernel
    def fill():
        for i in a:
            a[i] = i - 20
            b[i] = i - 20

    fill()
    return [_numbers(a), _numbers(b)]


def words_of_two_sizes():
    found = []
    for bits, parts in ((32, (17, 11, 4)), (64, (18, 22, 24))):
        kinds = [ti.types.quant.int(n, k != 1, ti.i32) for k, n in enumerate(parts)]
        fields = _packed(*kinds, n=4, bits=bits)

        @ti.kernel
        def fill(a: ti.template(), b: ti.template(), c: ti.template()):
            for i in a:
                a[i] = i * 20000 - 30000
                b[i] = i * 600
                c[i] = 1 - i * 3

        fill(*fields)
        found.append([_numbers(x) for x in fields])
    return found


def floats_are_cut_for_integers():
    a = _packed(ti.types.quant.int(13))

    @ti.kernel
    def fill(x: ti.f32):
        a[None] = x

    fill(10.7)
    first = a[None]
    fill(-10.7)
    return [first, a[None]]


def fixed_point_numbers():
    steps = [0.0, 0.7, -0.7, 0.24, 0.26, 1.5, -1.99, 0.013]
    kinds = (
        ti.types.quant.fixed(bits=16, max_value=2),
        ti.types.quant.fixed(bits=9, scale=0.125),
        ti.types.quant.fixed(bits=32, max_value=2.0),
    )
    return [_stored(kind, steps) for kind in kinds]


def unsigned_fixed_point_numbers():
    return _stored(ti.types.quant.fixed(10, False, max_value=4.0), [0.0, 0.7, 3.99, 2.001, 0.0021])


def signed_floats():
    numbers = [0.0, 0.125, -0.5, 2.0, 7.03, -9.99, 1e-30, 1e-4, 300.0, 0.1]
    return [_stored(ti.types.quant.float(exp=6, frac=f), numbers) for f in (13, 8, 4)]


def unsigned_floats():
    numbers = [0.0, 1 / 1024, 0.25, 0.3, 7.0, 1024.0, 1.625, 1.75]
    return [_stored(ti.types.quant.float(exp=6, frac=f, signed=False), numbers) for f in (13, 2)]


def floats_as_exact_as_singles():
    return _stored(ti.types.quant.float(exp=8, frac=24), [np.pi, -np.pi * 2.0**100, 1e-30])


def floats_with_few_exponents():
    return _stored(ti.types.quant.float(exp=5, frac=10), [1e-6, 1e-5, 1e-4, 6e-5, 3e-5, 60000.0])


def _shared(signed, exp):
    return _packed(
        ti.types.quant.float(exp=exp, frac=10, signed=signed),
        ti.types.quant.float(exp=exp, frac=14, signed=signed),
        shared=True,
    )


def floats_share_an_exponent():
    found = []
    for exp in (5, 6, 8):
        a, b = _shared(False, exp)

        @ti.kernel
        def fill(a: ti.template(), b: ti.template(), x: ti.f32, y: ti.f32):
            a[None] = x
            b[None] = y

        pairs = ((3.2, 0.25), (1000.0, 1e-6), (1000.0, 1000.0), (0.0, 0.0), (0.1, 30.0), (7.7, 0.0))
        for x, y in pairs:
            fill(a, b, x, y)
            found.append([a[None], b[None]])
    return found


def floats_with_a_shared_exponent_change_alone():
    a, b = _shared(True, 7)
    found = []
    for x, y in (
        (4.0, None),
        (None, -3.25),
        (100.0, None),
        (None, 0.0),
        (0.27, None),
        (None, 1e-9),
    ):
        if x is not None:
            a[None] = x
        if y is not None:
            b[None] = y
        found.append([a[None], b[None]])
    return found


def vectors_share_an_exponent():
    v = ti.Vector.field(3, ti.types.quant.float(exp=6, frac=8))
    words = ti.BitpackedFields(max_num_bits=32)
    words.place(v, shared_exponent=True)
    ti.root.dense(ti.i, 6).place(words)

    @ti.kernel
    def fill():
        for i in v:
            v[i] = ti.Vector([i * 1.5, 0.1 * i, -3.0])

    @ti.kernel
    def swap():
        for i in v:
            v[i] = ti.Vector([v[i][1], v[i][2], v[i][0]])

    fill()
    first = [v[k].to_numpy().tolist() for k in range(6)]
    swap()
    return [first, [v[k].to_numpy().tolist() for k in range(6)]]


def matrices_of_fixed_point_numbers():
    m = ti.Matrix.field(2, 2, ti.types.quant.fixed(bits=16, max_value=1.2))
    for k in range(2):
        words = ti.BitpackedFields(max_num_bits=32)
        words.place(m.get_scalar_field(k, 0), m.get_scalar_field(k, 1))
        ti.root.place(words)
    m[None] = [[1.0, 0.0], [0.0, 1.0]]

    @ti.kernel
    def turn():
        m[None] = m[None] @ ti.Matrix([[0.8, 0.6], [-0.6, 0.8]])

    turn()
    turn()
    return np.round(m[None].to_numpy(), 3).tolist()


def several_types_in_one_word():
    p = ti.field(ti.types.quant.float(exp=5, frac=10))
    q = ti.field(ti.types.quant.float(exp=5, frac=13))
    r = ti.field(ti.types.quant.int(4, signed=False))
    words = ti.BitpackedFields(max_num_bits=32)
    words.place(p, q, shared_exponent=True)
    words.place(r)
    ti.root.dense(ti.i, 12).place(words)

    @ti.kernel
    def fill():
        for i in p:
            p[i] = i * 3
            q[i] = i * 2
            r[i] = i

    fill()
    return [_numbers(x) for x in (p, q, r)]


def updates_of_integers_and_fixed_point_numbers():
    x, y = _packed(ti.types.quant.int(13), ti.types.quant.int(5))
    u, v = _packed(ti.types.quant.fixed(13, scale=0.1), ti.types.quant.fixed(19, False, scale=0.1))

    @ti.kernel
    def add():
        x[None] = 3
        y[None] = 2
        u[None] = 0.7
        v[None] = 123.4
        for i in range(10):
            x[None] += 4
            y[None] -= 1
            u[None] -= 0.4
            v[None] += 100.1

    add()
    return [x[None], y[None], u[None], v[None]]


def updates_of_other_kinds():
    x, y = _packed(ti.types.quant.int(13), ti.types.quant.int(13), n=8)

    @ti.kernel
    def change():
        for i in x:
            x[i] = i + 1
            y[i] = i + 1
        for i in x:
            x[i] *= 3
            y[i] = x[i] // 2 - y[i]

    change()
    return [_numbers(x), _numbers(y)]


def counts_by_atomic_additions():
    x = ti.field(ti.types.quant.int(7, False))
    ti.root.dense(ti.i, 2).quant_array(ti.i, 4, max_num_bits=32).place(x)

    @ti.kernel
    def count():
        for i in range(400):
            x[i % 8] += 1

    count()
    return _numbers(x)


def arrays_of_bits():
    x = ti.field(ti.types.quant.int(1, False))
    ti.root.dense(ti.i, 3).quant_array(ti.i, 32, max_num_bits=32).place(x)

    @ti.kernel
    def fill():
        for i in range(96):
            x[i] = (i * i) % 3

    @ti.kernel
    def count() -> ti.i32:
        n = 0
        for i in x:
            n += ti.cast(x[i], ti.i32) * i
        return n

    fill()
    return [[x[k] for k in range(96)], count()]


def arrays_of_two_axes():
    x = ti.field(ti.types.quant.int(4))
    ti.root.dense(ti.ij, (2, 3)).quant_array(ti.ij, (2, 4), max_num_bits=32).place(x)

    @ti.kernel
    def fill():
        for i, j in x:
            x[i, j] = i * 5 - j

    fill()
    return [[x[i, j] for j in range(12)] for i in range(4)]


def arrays_of_fixed_point_numbers():
    x = ti.field(ti.types.quant.fixed(8, max_value=2))
    ti.root.quant_array(ti.i, 4, max_num_bits=32).place(x)

    @ti.kernel
    def fill():
        for i in range(4):
            x[i] = i * 0.5 - 0.75

    fill()
    return [x[k] for k in range(4)]


def neighbours_in_arrays_of_bits():
    x, y = (ti.field(ti.types.quant.int(1, False)) for _ in range(2))
    for field in (x, y):
        ti.root.dense(ti.ij, (8, 1)).quant_array(ti.j, 8, max_num_bits=8).place(field)

    @ti.kernel
    def fill():
        for i, j in ti.ndrange(8, 8):
            x[i, j] = (i * 3 + j * 5) % 7 < 3

    @ti.kernel
    def step():
        for i, j in ti.ndrange((1, 7), (1, 7)):
            n = 0
            for a, b in ti.static(ti.ndrange(3, 3)):
                n += ti.cast(x[i + a - 1, j + b - 1], ti.i32)
            y[i, j] = n == 3

    fill()
    step()
    return [[[f[i, j] for j in range(8)] for i in range(8)] for f in (x, y)]


def words_in_sparse_trees():
    x = ti.field(ti.types.quant.fixed(bits=32, max_value=1024))
    words = ti.BitpackedFields(max_num_bits=32)
    words.place(x)
    cell = ti.root.pointer(ti.i, 4)
    cell.dense(ti.i, 8).place(words)
    for k in range(0, 32, 16):
        x[k] = 0.0

    @ti.kernel
    def fill():
        for i in x:
            x[i] = i

    fill()
    return [np.round([x[k] for k in range(32)], 4), active(cell)]


def arrays_in_sparse_trees():
    x = ti.field(ti.types.quant.int(7))
    cell = ti.root.pointer(ti.i, 4)
    cell.dense(ti.i, 4).quant_array(ti.i, 4, max_num_bits=32).place(x)

    @ti.kernel
    def begin():
        for i in range(64):
            if i // 16 % 2 == 0:
                x[i] = i % 50

    @ti.kernel
    def lower():
        for i in x:
            x[i] -= 1

    begin()
    lower()
    return [[x[k] for k in range(64)], active(cell)]


def what_does_not_fit_is_refused():
    small, wide = ti.types.quant.int(5), ti.types.quant.int(20)
    real = ti.types.quant.float(exp=5, frac=10)

    def without_words():
        x = ti.field(small)
        ti.root.dense(ti.i, 4).place(x)
        x[0] = 1

    def too_many_bits():
        _packed(wide, wide)

    def one_shared():
        _packed(real, shared=True)

    return [refused(call) for call in (without_words, too_many_bits, one_shared)]


def components_of_matrices_have_types_of_their_own():
    real = ti.types.quant.float(exp=8, frac=5, signed=True)
    fixed = ti.types.quant.fixed(bits=10, signed=True, scale=0.1)
    a, b = (ti.Matrix.field(2, 2, dtype=[[real, fixed], [real, fixed]]) for _ in range(2))
    for x in (a, b):
        for row in range(2):
            word = ti.BitpackedFields(max_num_bits=32)
            word.place(*(x.get_scalar_field(row, k) for k in range(2)))
            ti.root.dense(ti.i, 2).place(word)

    @ti.kernel
    def work():
        a[0] = [[1.0, 3.0], [2.0, 1.0]]
        b[1] = a[0] + a[0]

    work()
    return [b[1].to_numpy(), b[0].to_numpy()]


def components_of_two_compute_types_are_refused():
    kinds = [ti.types.quant.int(10), ti.types.quant.fixed(bits=10, max_value=2.0)]
    return refused(lambda: ti.Vector.field(2, dtype=kinds))

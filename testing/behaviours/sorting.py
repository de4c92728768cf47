"""Parallel sorts."""

import numpy as np
import taichi as ti

from .seeing import f32, i32, raised, refused

KEYS = [(k * 37 + 11) % 101 for k in range(101)]


def _sorted(dtype, keys, values=None, offset=None):
    x = ti.field(dtype, shape=len(keys), offset=offset)
    x.from_numpy(np.array(keys))
    if values is None:
        ti.algorithms.parallel_sort(x)
        return x.to_numpy()
    y = ti.field(dtype, shape=len(keys), offset=offset)
    y.from_numpy(np.array(values))
    ti.algorithms.parallel_sort(x, y)
    return [x.to_numpy(), y.to_numpy()]


def integers_are_sorted():
    return _sorted(ti.i32, KEYS)


def floats_are_sorted():
    return _sorted(ti.f32, [k / 8 - 5 for k in KEYS])


def one_key_is_sorted():
    return _sorted(ti.i32, [3])


def two_keys_are_sorted():
    return [_sorted(ti.i32, [3, 2]), _sorted(ti.i32, [2, 3])]


def keys_of_a_power_of_two_are_sorted():
    return _sorted(ti.i32, KEYS[:64])


def equal_keys_are_sorted():
    return _sorted(ti.i32, [k % 5 for k in KEYS])


def sorted_keys_stay():
    return _sorted(ti.i32, list(range(33)))


def reversed_keys_are_sorted():
    return _sorted(ti.i32, list(range(50, 0, -1)))


def negative_keys_are_sorted():
    return _sorted(ti.i32, [50 - k for k in KEYS])


def values_follow_their_keys():
    return _sorted(ti.i32, KEYS, [k * 3 for k in range(101)])


def values_of_floats_follow_their_keys():
    return _sorted(ti.f32, [k / 4 for k in KEYS], [k / 2 for k in range(101)])


def fields_with_offsets_are_sorted():
    return [_sorted(ti.i32, KEYS, offset=7), _sorted(ti.i32, KEYS, KEYS, offset=-50)]


def keys_of_64_bits_are_sorted():
    return _sorted(ti.i64, [k * 2**33 for k in KEYS])


def kernels_read_what_is_sorted():
    x, y = i32(20)(), f32(20)()
    x.from_numpy(np.array(KEYS[:20]))

    @ti.kernel
    def half():
        for i in x:
            y[i] = x[i] / 2

    ti.algorithms.parallel_sort(x)
    half()
    return y.to_numpy()


def sorts_of_what_is_no_field():
    return refused(lambda: ti.algorithms.parallel_sort([3, 1, 2]))


def prefix_sums_of_other_types():
    x = ti.field(ti.f32, shape=4)
    return raised(lambda: ti.algorithms.PrefixSumExecutor(4).run(x))

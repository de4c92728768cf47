"""Classes of errors: fields, ndarrays, trees and options from Python."""

import numpy as np
import taichi as ti

from .seeing import f32, raised, raising

fields_of_another_shape_are_copied = raising(lambda: x.copy_from(y), x=f32(4), y=f32(5))
arrays_of_another_shape_are_copied_into_fields = raising(
    lambda: x.from_numpy(np.zeros(5, np.float32)), x=f32(4)
)
fields_of_no_type = raising(lambda: ti.field("f32", shape=4), lambda: ti.field(3, shape=4))
fields_of_a_wrong_shape = raising(
    lambda: ti.field(ti.f32, shape="a"), lambda: ti.field(ti.f32, shape=(2, "b"))
)
fields_with_an_offset_of_another_length = raising(lambda: ti.field(ti.f32, shape=(4, 4), offset=1))
fields_are_called = raising(lambda: x(3), x=f32(4))
fields_without_a_place = raising(lambda: x.to_numpy(), lambda: x[0], x=lambda: ti.field(ti.f32))
fields_that_are_placed_twice = raising(lambda: ti.root.dense(ti.i, 4).place(x), x=f32(4))


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


nodes_with_an_extent_that_is_none = raising(
    lambda: ti.root.dense(ti.i, "a"), lambda: ti.root.dense(ti.ij, (1, 2, 3))
)
nodes_with_what_is_no_axis = raising(lambda: ti.root.dense(3, 4))
what_is_no_field_is_placed = raising(lambda: ti.root.dense(ti.i, 4).place(3))
fields_are_copied_from_numbers = raising(
    lambda: x.copy_from(3), lambda: x.from_numpy([1, 2, 3, 4]), x=f32(4)
)
ndarrays_of_another_shape_are_copied = raising(
    lambda: x.copy_from(y),
    lambda: x.from_numpy(np.zeros(5, np.float32)),
    x=lambda: ti.ndarray(ti.f32, shape=4),
    y=lambda: ti.ndarray(ti.f32, shape=5),
)
options_of_a_wrong_type = raising(
    lambda: ti.init(arch="nothing of it"), lambda: ti.init(arch=ti.cpu, default_fp=3)
)
types_of_vectors_without_a_length = raising(
    lambda: ti.types.vector("a", ti.f32), lambda: ti.types.matrix(2, ti.f32)
)
fields_of_vectors_of_a_wrong_type = raising(lambda: ti.Vector.field(2, "f32", shape=3))
loops_over_fields_from_python = raising(lambda: list(x), x=f32(4))


@ti.kernel
def nothing():
    pass


def kernels_run_beside_fields_without_a_place():
    _ = ti.field(ti.i32)
    return raised(nothing)


def kernels_run_beside_gradients_without_a_place():
    ti.root.dense(ti.i, 1).place(ti.field(ti.f32, needs_grad=True))
    return raised(nothing)


def kernels_run_beside_duals_of_vectors_without_a_place():
    ti.root.dense(ti.i, 1).place(ti.Vector.field(3, ti.f32, needs_dual=True))
    return raised(nothing)


gradients_of_integers = raising(
    lambda: ti.field(ti.i32, shape=1, needs_grad=True),
    lambda: ti.field(ti.math.ivec3, shape=1, needs_grad=True),
    lambda: ti.field(ti.i32, shape=1, needs_dual=True),
)

"""Graphs of kernels."""

import taichi as ti

from .seeing import refused


@ti.kernel
def _fill(x: ti.types.ndarray(dtype=ti.i32, ndim=1), k: ti.i32):
    for i in x:
        x[i] = i * k


@ti.kernel
def _add(x: ti.types.ndarray(dtype=ti.i32, ndim=1), y: ti.types.ndarray(dtype=ti.i32, ndim=1)):
    for i in x:
        y[i] += x[i]


def _array(name, ndim=1):
    return ti.graph.Arg(ti.graph.ArgKind.NDARRAY, name, ti.i32, ndim=ndim)


def _number(name):
    return ti.graph.Arg(ti.graph.ArgKind.SCALAR, name, ti.i32)


def kernels_of_a_graph_run_in_order():
    x, y, k = _array("x"), _array("y"), _number("k")
    builder = ti.graph.GraphBuilder()
    builder.dispatch(_fill, x, k)
    builder.dispatch(_add, x, y)
    graph = builder.compile()
    a, b = ti.ndarray(ti.i32, 4), ti.ndarray(ti.i32, 4)
    graph.run({"x": a, "y": b, "k": 3})
    graph.run({"x": a, "y": b, "k": 10})
    return [a.to_numpy(), b.to_numpy()]


def rows_of_calls_are_appended_often():
    x, y, k = _array("x"), _array("y"), _number("k")
    builder = ti.graph.GraphBuilder()
    builder.dispatch(_fill, x, k)
    row = builder.create_sequential()
    row.dispatch(_add, x, y)
    for _ in range(3):
        builder.append(row)
    a, b = ti.ndarray(ti.i32, 4), ti.ndarray(ti.i32, 4)
    builder.compile().run({"x": a, "y": b, "k": 2})
    return b.to_numpy()


def arrays_of_graphs_are_others_each_time():
    x, k = _array("x"), _number("k")
    builder = ti.graph.GraphBuilder()
    builder.dispatch(_fill, x, k)
    graph = builder.compile()
    made = [ti.ndarray(ti.i32, n) for n in (2, 5)]
    for n, a in enumerate(made):
        graph.run({"x": a, "k": n + 1})
    return [a.to_numpy() for a in made]


def arguments_of_graphs_that_are_missing():
    builder = ti.graph.GraphBuilder()
    builder.dispatch(_fill, _array("x"), _number("k"))
    graph = builder.compile()
    return refused(lambda: graph.run({"k": 1}))


def arguments_of_graphs_with_other_axes():
    builder = ti.graph.GraphBuilder()
    return refused(lambda: builder.dispatch(_fill, _array("x", 2), _number("k")))


def two_arguments_of_graphs_of_one_name():
    builder = ti.graph.GraphBuilder()
    builder.dispatch(_fill, _array("x"), _number("k"))
    return refused(lambda: builder.dispatch(_fill, _array("x"), _number("x")))

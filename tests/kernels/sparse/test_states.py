"""Masks, lists and allocators of nodes as states: which tasks change them, and the order that follows."""

from collections.abc import Iterator

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.recorder import Recording, record_program
from kernelscape.kernels.ir.access import State
from kernelscape.kernels.ir.task import Problem, Task
from kernelscape.kernels.tasks.dependence import dependences
from kernelscape.kernels.tasks.non_affine import LISTING, SETTLING
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.kernels.tasks.state_flow import StateFlowGraph, build_graph, show_graph
from kernelscape.kernels.tasks.task_text import stated_tasks
from kernelscape.testing.sparse_drawn import drawn_parts, drawn_tree
from kernelscape.testing.sparse_programs import World

Drawn = list[tuple[Recording, Problem, StateFlowGraph]]
TASKS = f"""\
  task   fill0.tree0_0_counters  {SETTLING}: reads allocator(tree0_0.0) \
writes allocator(tree0_0.0), tree0_0_field0, tree0_0_field1
  task   fill0.tree0_0_table0    reads allocator(tree0_0.0), mask(tree0_0.0) \
writes allocator(tree0_0), allocator(tree0_0.0), mask(tree0_0.0), tree0_0_field0
    for i<16:i64:
      activate tree0_0.1[i64(i)]
      tree0_0_field0[i] = 1.0
  task   add0.tree0_0_list0      {LISTING}: reads mask(tree0_0.0) writes list(tree0_0.0)
  task   add0.tree0_0_field1     reads list(tree0_0.0), tree0_0_field0, tree0_0_field1 writes tree0_0_field1
    for i in active tree0_0.1:
      tree0_0_field1[i] += tree0_0_field0[i]
  task   add1                    reads list(tree0_0.0), tree0_0_field0, tree0_0_field1 writes tree0_0_field1
    for i in active tree0_0.1:
      tree0_0_field1[i] += tree0_0_field0[i]
"""
EDGES = """\
  fill0.tree0_0_counters -> fill0.tree0_0_table0  flow allocator(tree0_0.0)@1
  fill0.tree0_0_table0 -> add0.tree0_0_list0  flow mask(tree0_0.0)@1
  add0.tree0_0_list0 -> add0.tree0_0_field1  flow list(tree0_0.0)@1
  add0.tree0_0_list0 -> add1  flow list(tree0_0.0)@1
"""


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    """Random sequences on random trees."""
    found = []
    for number in range(8):
        rng = np.random.default_rng(number)
        world = World(drawn_tree(rng))
        world.begin(int(rng.integers(40)))
        recording, _ = world.recorded(drawn_parts(rng, 3))
        world.end()
        problem = normalise(recording)
        found.append((recording, problem, build_graph(problem)))
    return found


def test_what_arrays_order_is_ordered_by_states(drawn: Drawn) -> None:
    """Kind: an order that is lost where many arrays are one state. The states say it with far fewer edges."""
    n_edges = n_dependences = 0
    for _, problem, graph in drawn:
        after = [{t} for t in range(len(problem.tasks))]
        for e in sorted(graph.edges, reverse=True):
            after[e.source] |= after[e.sink]
        found = dependences(problem)
        assert all(d.sink in after[d.source] for d in found)
        n_edges, n_dependences = n_edges + len(graph.edges), n_dependences + len(found)
    assert 0 < 3 * n_edges < n_dependences


def test_loops_use_lists_of_the_present_masks(drawn: Drawn) -> None:
    """Kind: a list that is reused though cells have changed. Settling a pool changes masks of containers without active cells."""
    n_reused = 0
    for recording, problem, graph in drawn:
        trees = {t.tree.name: t.tree for t in recording.trees}
        maker = {(state, version): t for t, state, version in graph.written_versions}
        for t, state, version in graph.read_versions:
            if state.kind != "list" or state in graph.nodes[t].writes:
                continue
            tree, _, node = state.name.rpartition(".")
            masks = {State("mask", f"{tree}.{n}") for n in trees[tree].path(int(node))}
            between = range(maker[state, version] + 1, t)
            n_reused += len(between) > 1
            for k in between:
                assert settles(problem.tasks[k]) or masks.isdisjoint(graph.nodes[k].writes)
    assert n_reused


def settles(task: Task) -> bool:
    return task.body is not None and task.body.reason.text == SETTLING


@pytest.fixture
def recording() -> Iterator[Recording]:
    ks.init(arch=ks.cpu)
    x, y = ks.field(ks.f32), ks.field(ks.f32)
    ks.root.pointer(ks.i, 4).dense(ks.i, 8).place(x, y)

    @ks.kernel
    def fill() -> None:
        for i in range(16):
            x[i] = 1.0

    @ks.kernel
    def add() -> None:
        for i in x:
            y[i] += x[i]

    def step() -> None:
        fill()
        add()
        add()

    yield record_program(step, ())[0]
    ks.reset()


def test_graphs_have_states_by_their_names(recording: Recording) -> None:
    """Settling, activation, the making of a list, and two loops that use it."""
    lines = show_graph(build_graph(normalise(recording))).splitlines(keepends=True)
    assert "".join(x for x in lines if "->" in x and "value(" not in x) == EDGES


def test_tasks_are_shown_as_the_program_states_them(recording: Recording) -> None:
    """Kind: a page that shows how sparse fields are lowered in place of what the program does."""
    assert (
        stated_tasks(normalise(recording)).partition("  task ")[1:]
        == TASKS.partition("  task ")[1:]
    )

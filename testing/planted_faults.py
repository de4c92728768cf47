"""The faults that `planted.py` plants: what a test of the folder must see. A fault names no file, so that files may be renamed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


def _topic(name: str) -> str:
    """The behaviours of a topic, through the interpreter."""
    tests = "tests/experiments/test_taichi_behaviours.py"
    return f"{tests}::test_behaviours_of_a_topic_are_those_of_taichi[{name}]"


FRONTEND, MEANING = (f"tests/kernels/frontend/test_{name}.py" for name in ("frontend", "meaning"))
SPARSE = tuple(
    _topic(f"sparse_{name}") for name in ("activation", "lists", "loops", "python", "trees")
)
STATEMENTS = "tests/kernels/sparse/test_statements.py"
PROBES = "tests/kernels/sparse/test_probes.py"
PLANS = "tests/runtime/engine/test_planned_window.py::test_plans_notice_what_changes_cells_between_windows"
RUNNING = "tests/cli/test_running_programs.py::test_{}".format
ACCESSES = "tests/runtime/engine/test_planned_window.py::test_an_access_ends_a_window_only_where_a_call_of_it_depends_on_it"
WINDOWS = "tests/kernels/tasks/test_window_kernels.py"
MUTUAL = "tests/kernels/sparse/test_mutual_activation.py"
WINDOW_STORES = "tests/kernels/tasks/test_window_stores.py"
SEQUENCES = "tests/kernels/sparse/test_sequences.py"
FIELD_COPIES = "tests/kernels/sparse/test_field_copies.py"
LAST_STEPS = "tests/kernels/tasks/test_last_steps.py"
MERGED = "tests/kernels/transforms/test_merged_calls.py"
EFFECTS = "tests/kernels/analysis/test_effects.py"
INSIDE = "tests/kernels/tasks/test_bounds_check.py"
DISTRIBUTION = "tests/kernels/tasks/test_distribution.py"
DOMAINS = "tests/kernels/analysis/test_domain_bounds.py"
NARROWING = "tests/kernels/tasks/test_narrowing.py"
WAVEFRONTS = "tests/codegen/test_wavefronts.py::test_the_skew_is_the_least_that_enumeration_allows"
TEAM_BARRIERS = "tests/codegen/test_loops.py::test_no_hazard_is_left_between_barriers_of_a_team"
LEGAL = "tests/codegen/test_corpus.py::test_candidates_are_legal"
COLOURED = "tests/codegen/test_scatter.py::test_coloured_blocks_compute_what_the_interpreter_does"
ROWS = "tests/codegen/test_scatter.py::test_rows_are_those_of_all_updates_and_of_indices_that_are_known_before"
COMMON_COLOURS = "tests/codegen/test_common_colours.py::test_{}".format
COMMON_ROWS = COMMON_COLOURS("colours_serve_later_tasks_that_update_some_of_the_rows")
ROUNDED_ROWS = (
    "tests/codegen/test_scatter.py::test_locals_that_are_rounded_from_floats_are_kept_for_the_body"
)
JOINED = "tests/kernels/transforms/test_joined_updates.py::test_updates_are_one_where_nobody_sees_a_part_of_the_sum"
SUMS_BY_CELL = (
    "tests/kernels/sparse/test_sums_by_cell.py::test_tiles_are_added_to_active_cells_alone"
)
BLOCKS_IN_TREES = "tests/kernels/sparse/test_random_sequences.py::test_particles_update_cells_of_leaves_block_by_block"
ACTIVATING = "tests/kernels/sparse/test_sorted_activation.py::test_ways_of_particles_that_activate_and_of_those_in_order"
UPDATE_TILES = "tests/kernels/sparse/test_update_tiles.py::test_{}".format
HELD_COLOURS = "tests/runtime/cpu/test_calls.py::test_kept_colours_belong_to_a_call_until_its_last_launch_has_used_them"
HELD_ORDERS = (
    "tests/runtime/cpu/test_calls.py::test_calls_from_several_threads_have_orders_of_their_own"
)
LENGTH_ORDERS = "tests/codegen/test_row_lengths.py::test_rows_in_the_order_of_their_lengths_compute_what_the_interpreter_does"
KEPT_SORTS = "tests/codegen/test_scatter.py::test_kept_sorts_are_made_again_when_blocks_change"
SORTED_COLOURS = "tests/codegen/test_scatter.py::test_blocks_of_one_colour_are_apart_and_threads_meet_between_colours"
IN_TURN = "tests/codegen/test_grid_stride.py"
IN_FRAGMENTS = "tests/codegen/test_fragments.py"
IN_TRANSPOSED = "tests/codegen/test_transposed_copies.py"
AHEAD_IN_REGISTERS = "tests/codegen/test_register_stages.py"
IN_BANDS = "tests/codegen/test_block_order.py"
WARPS = "tests/codegen/test_warp_tile.py"
WARPS_BOUND = "tests/search/bound/test_gpu.py"
ACTIVATION = "tests/kernels/sparse/test_emulated_activation.py::test_threads_activate_at_once_in_three_periods"
GRID_BARRIERS = "tests/codegen/test_grid_barriers.py"
STAYING = "tests/codegen/test_whole_grid.py"
LAST_BLOCK = "tests/codegen/test_last_block.py"
RECLAIMED = "tests/kernels/sparse/test_emulated.py::test_many_threads_reclaim_pools"
KEPT_COLOURS = (
    "tests/runtime/cpu/test_calls.py::test_kept_colours_are_made_again_when_an_index_changes"
)
PACKED = (
    "tests/codegen/test_sources.py::test_golden_programs",
    "tests/codegen/test_random_candidates.py::test_tiles_of_packed_operands_are_computed_whole",
)
SHARED = "tests/codegen/test_materialisation.py"
VERIFY = "tests/runtime/worker/test_verify.py"
JOURNAL = "tests/runtime/records/test_journal.py"
FOLDERS = "tests/space/engine/test_own_folders.py"
SEARCH = "tests/search/test_parts.py"
ENDS = "tests/kernels/frontend/test_repeat_until.py"
ENDED = "tests/runtime/test_ended_repeats.py"


@final
@dataclass(frozen=True)
class Fault:
    """A text that stands once in the files of a room, what it is made of, and tests of which at least one must fail then."""

    kind: str
    room: str
    old: str
    new: str
    tests: tuple[str, ...]


FAULTS = (
    # --- what operations mean
    Fault(
        "an operator: a quotient of two signs",
        "kernels/ir",
        "is_below = ((a < 0) != (b < 0))",
        "is_below = ((a < 0) & (b < 0))",
        (_topic("element_wise"),),
    ),
    Fault(
        "a comparison",
        "kernels/frontend",
        'ast.GtE: "ge",',
        'ast.GtE: "gt",',
        (_topic("conditions"),),
    ),
    # --- types
    Fault(
        "a cast: of two integers the wider type counts",
        "kernels/frontend",
        "return a if a.size_bytes > b.size_bytes else b",
        "return b if a.size_bytes > b.size_bytes else a",
        (_topic("casts"),),
    ),
    Fault(
        "a cast: literals of a program",
        "kernels/frontend",
        "literal = adopt(x.expr, rules.default_float)",
        "literal = adopt(x.expr, DType.f32)",
        (_topic("casts"),),
    ),
    # --- scopes and what is refused
    Fault(
        "a scope rule: names end with their block",
        "kernels/frontend",
        "        if node.id in frame.ended:\n",
        "        if False:\n",
        (FRONTEND,),
    ),
    Fault(
        "a check: an else of a loop",
        "kernels/frontend",
        '        if node.orelse:\n            state.fail(\n                "for-else',
        '        if False:\n            state.fail(\n                "for-else',
        (FRONTEND,),
    ),
    Fault(
        "a check: a break of a parallel loop",
        "kernels/frontend",
        "            if not jumps.can_break:\n",
        "            if False:\n",
        (MEANING,),
    ),
    Fault(
        "a check: shapes of a product",
        "kernels/frontend",
        "if len(rows[0]) != len(columns[0]):",
        "if len(rows[0]) > len(columns[0]):",
        (_topic("errors"),),
    ),
    # --- sparse fields
    Fault(
        "an activation: the length of a list from Python",
        "kernels/fields",
        'np.maximum.at(self.arrays[f"length{k}"], container, cell + 1)',
        'np.maximum.at(self.arrays[f"length{k}"], container, cell)',
        (_topic("sparse_lists"), _topic("sparse_python")),
    ),
    Fault(
        "an activation: the bit of a mask",
        "kernels/fields",
        'np.bitwise_or.at(self.arrays[f"mask{k}"], w, bits)',
        'np.bitwise_and.at(self.arrays[f"mask{k}"], w, bits)',
        SPARSE,
    ),
    Fault(
        "an activation: slots of cells that are not there",
        "kernels/fields",
        "active &= slot != 0",
        "active &= slot >= 0",
        SPARSE,
    ),
    Fault(
        "an index: where a cell is in its container",
        "kernels/fields",
        "x = indices[axes.index(axis)] // prod(parts[at + 1 :]) % extent",
        "x = indices[axes.index(axis)] // prod(parts[at:]) % extent",
        SPARSE,
    ),
    Fault(
        "a barrier: what is given back is taken before it is settled",
        "kernels/sparse",
        "            settle(b, pools, tree, n)\n    pools.given_back",
        "            pass\n    pools.given_back",
        (STATEMENTS,),
    ),
    Fault(
        "a legality rule: cells that stay active behind a statement",
        "kernels/sparse",
        "    if any(isinstance(x, ir.Deactivate) for x in inside):\n        return {}\n",
        "",
        (STATEMENTS,),
    ),
    # --- windows of calls
    Fault(
        "a mark: cells that have changed between two runs of a window",
        "runtime/engine",
        "if not seen or seen[t] != flags[t].tobytes()]",
        "if not seen]",
        (PLANS,),
    ),
    Fault(
        "a mark: a list that was made behind a change",
        "runtime/engine",
        "            flags[flags == 0] = -number\n",
        "",
        (PLANS,),
    ),
    Fault(
        "assumed cells: runs in a row behind which a found plan may run",
        "explorer",
        " and self._marks.are_behind(self._n_runs, trees)",
        "",
        (RUNNING("plans_on_trees_that_activate_each_other_take_over_what_two_runs_have_left"),),
    ),
    Fault(
        "a window of a program: runs in a row that its search may assume",
        "explorer",
        "MOST_RUNS if self.ran.marks.are_behind(MOST_RUNS, sure) else 1",
        "MOST_RUNS",
        (RUNNING("two_runs_are_assumed_if_no_cell_changed_between_the_last_two"),),
    ),
    Fault(
        "a host access: what a write of Python must wait for",
        "runtime/engine",
        "self._used if access.writes else self._written",
        "self._written",
        (ACCESSES,),
    ),
    Fault(
        "a legality rule: what a loop of a window moves past",
        "kernels/transforms",
        "return not (a.changed.isdisjoint(b.uses) and b.changed.isdisjoint(a.uses))",
        "return not a.changed.isdisjoint(b.uses)",
        (WINDOWS, MERGED),
    ),
    Fault(
        "a legality rule: a plan behind fewer runs than make true what it assumes",
        "runtime/engine",
        "return all(self._n_runs[t] >= n_runs for t in trees)",
        "return True",
        (MUTUAL,),
    ),
    Fault(
        "a legality rule: dead stores of a window in front of what may fail",
        "kernels/tasks",
        "if other.may_fail or array in other.part.read",
        "if array in other.part.read",
        (WINDOW_STORES,),
    ),
    Fault(
        "a legality rule: dead stores of a window whose boxes have gaps",
        "kernels/tasks",
        "for (a, b), n in ends), False)",
        "for (a, b), n in ends), True)",
        (WINDOW_STORES,),
    ),
    Fault(
        "a legality rule: loops over cells that meet in their own ones",
        "kernels/transforms",
        "                if not _is_one_sum(array, a, b, fast_math=fast_math)\n",
        "                if array not in a.sums\n",
        (WINDOWS,),
    ),
    Fault(
        "a legality rule: dead stores of cells that may be deactivated between",
        "kernels/tasks",
        "are_active = are_active and not stores.may_shrink(other)",
        "pass",
        (PROBES,),
    ),
    Fault(
        "a legality rule: dead zeros of slots that no cell has",
        "kernels/tasks",
        "return not (self.may_shrink(task) or is_settling(task))",
        "return not self.may_shrink(task)",
        (f"{SEQUENCES}::test_slots_are_zero_when_cells_take_them_behind_a_loop_over_the_others",),
    ),
    Fault(
        "a legality rule: copies of fields whose cells may be deactivated between",
        "kernels/tasks",
        "cells_stay = cells_stay and not self._stores.may_shrink(t)",
        "pass",
        (FIELD_COPIES,),
    ),
    Fault(
        "a legality rule: a copy of some cells of a field",
        "kernels/tasks",
        "if not overwrites_active(task, target, known[target].shape):",
        "if False:",
        (FIELD_COPIES,),
    ),
    Fault(
        "a renaming: arrays that a loop is lowered with again",
        "kernels/tasks",
        "sections={p: moved.get(x, x) for p, x in call.sections.items()},",
        "sections=call.sections,",
        (FIELD_COPIES,),
    ),
    Fault(
        "a repeat: a step that is written out runs once more",
        "kernels/tasks",
        "around = (*outer, replace(loop, extent=r.count - 1)) if r.count > 2 else outer",
        "around = (*outer, loop) if r.count > 2 else outer",
        (LAST_STEPS,),
    ),
    Fault(
        "a repeat: loops inside of two texts of a step as one",
        "kernels/tasks",
        "last.append(with_steps(replace(t, repeats=(*outer, *inside)), names))",
        "last.append(replace(t, repeats=(*outer, *inside)))",
        (LAST_STEPS,),
    ),
    Fault(
        "a name: staged fields of two texts of a step",
        "kernels/tasks",
        "lists, tiles = named(trees.lists), named(trees.tiles)",
        "lists, tiles = named(trees.lists), trees.tiles",
        (LAST_STEPS,),
    ),
    # --- dependences, bounds of indices
    Fault(
        "a bound: the last iteration of a loop",
        "kernels/analysis",
        "self.bounds[names[loop.name]] = (0, loop.extent - 1)",
        "self.bounds[names[loop.name]] = (0, loop.extent - 2)",
        (EFFECTS,),
    ),
    Fault(
        "a bound: the remainder of an index",
        "kernels/analysis",
        "rest = self.fresh(prefix, 0, axis.divisor - 1)",
        "rest = self.fresh(prefix, 0, axis.divisor - 2)",
        (EFFECTS,),
    ),
    Fault(
        "an index: the first element behind an array",
        "kernels/tasks",
        "self.may_be(affine.combine([(1, x), (1, affine.constant(-n))]))",
        "self.may_be(affine.combine([(1, x), (1, affine.constant(-n - 1))]))",
        (INSIDE,),
    ),
    Fault(
        "an index: a clamp of the program in place of the array's",
        "kernels/tasks",
        "x.dtype.is_index and last == extent - 1",
        "x.dtype.is_index and last < extent",
        ("tests/kernels/tasks/test_extremes.py",),
    ),
    Fault(
        "an extreme: a value of the iterations up to its place",
        "kernels/tasks",
        'here = ir.Compare("eq", _number_of(over), place)',
        'here = ir.Compare("le", _number_of(over), place)',
        ("tests/kernels/tasks/test_extremes.py",),
    ),
    Fault(
        "AsyncTaichi's faults: loops with a path between as one",
        "kernels/tasks",
        "if differ and is_one and not self._has_path(k, n):",
        "if differ and is_one:",
        (PROBES,),
    ),
    Fault(
        "needless work: dead stores of one of two removals",
        "kernels/tasks",
        "dropped = (every, live), (apart, left), (joined, done)",
        "dropped = (apart, left), (joined, done)",
        (PROBES,),
    ),
    Fault(
        "calls that are not split: temporaries without their zeros",
        "kernels/tasks",
        "every = map(_without_loops, zero_temporaries(tuple(tasks), recording.temps))",
        "every = map(_without_loops, tasks)",
        ("tests/codegen/test_whole_calls.py",),
    ),
    Fault(
        "a legality rule: weights that may cancel",
        "kernels/analysis",
        "if not _is_never_negative(weights):",
        "if False:",
        ("tests/codegen/test_rescaling.py::test_terms_without_a_correction_wait",),
    ),
    Fault(
        "a neutral element: of sums whose maximum stays at infinity",
        "kernels/analysis",
        'is_lost = ir.Binary("and", changes, nothing, ir.DType.bool_)',
        "is_lost = nothing",
        ("tests/codegen/test_rescaling.py",),
    ),
    Fault(
        "a tolerance: values of the program in its own types count as those of perturbed runs",
        "runtime/worker",
        "np.count_nonzero(found & ~same[:, 0])",
        "np.count_nonzero(found)",
        ("tests/runtime/worker/test_rounding.py",),
    ),
    Fault(
        "a legality rule: stores between those of a row",
        "kernels/analysis",
        "return bool(read & changed) or stores or loads",
        "return bool(read & changed) or loads",
        ("tests/codegen/test_row_stores.py",),
    ),
    Fault(
        "a legality rule: loads between the stores of a row",
        "kernels/analysis",
        "(read & changed) or stores or loads",
        "(read & changed) or stores",
        ("tests/codegen/test_row_stores.py",),
    ),
    Fault(
        "a legality rule: blocks of a batch that two tasks write",
        "kernels/tasks",
        "is_alone = not any(block.array.name in arrays_written(x) for x in others)",
        "is_alone = True",
        ("tests/codegen/test_batch_layout.py",),
    ),
    Fault(
        "an index: the first element that a local selects",
        "kernels/transforms",
        "least, most = -(first // step), (extent - 1 - first) // step",
        "least, most = 1 - (first // step), (extent - 1 - first) // step",
        ("tests/codegen/test_local_arrays.py",),
    ),
    Fault(
        "a copy: blocks of a batch that are written back",
        "kernels/tasks",
        "block = BatchBlock(array, loops, any(x.writes for x in accesses))",
        "block = BatchBlock(array, loops, False)",
        ("tests/codegen/test_batch_layout.py",),
    ),
    Fault(
        "a value: integers that a front computes in 32 bits",
        "kernels/transforms",
        "return _is_long(e) and (e.dtype is DType.bool_ or self._ranges.fits(e))",
        "return _is_long(e)",
        ("tests/kernels/transforms/test_lane_fronts.py",),
    ),
    Fault(
        "a legality rule: arrays that the rest of a body writes behind its front",
        "kernels/transforms",
        "self.arrays |= t.written | (t.loaded & self._written)",
        "pass",
        ("tests/codegen/test_lane_parts.py",),
    ),
    Fault(
        "a value: locals that change behind the place where the rest reads them",
        "kernels/transforms",
        "key = e, tuple(self.versions[name] for name in locals_read(e))",
        "key = e, ()",
        ("tests/codegen/test_lane_parts.py",),
    ),
    Fault(
        "a mask: iterations that do not fill a vector",
        "codegen/bodies",
        'rest = self.iterations(whole, c.Bin("-", end, whole))',
        "rest = self.iterations(whole, end)",
        ("tests/codegen/test_ranges.py",),
    ),
    Fault(
        "a legality rule: a value in front of a loop that is fused",
        "kernels/transforms",
        "and not any(_conflict(a, _NamesIn.of(x)) for x in between)",
        "and True",
        ("tests/kernels/transforms/test_loop_fusion.py",),
    ),
    Fault(
        "a legality rule: two statements of one loop",
        "kernels/tasks",
        "if not loop.is_step and meet_at(b.elements, a.elements, shared, level):",
        "if False and meet_at(b.elements, a.elements, shared, level):",
        (DISTRIBUTION,),
    ),
    Fault(
        "a legality rule: the skew of a wavefront",
        "kernels/analysis",
        "if not any(crosses(a, b, loops, skew) for a, b in pairs):",
        "if not any(crosses(a, b, loops, skew + 1) for a, b in pairs):",
        (WAVEFRONTS,),
    ),
    # --- ranges of numbers
    Fault(
        "a bound: the greatest number of a narrow type",
        "kernels/tasks",
        "if low < least or high > most:",
        "if low < least:",
        (NARROWING,),
    ),
    Fault(
        "a bound: the greatest number of an index in 32 bits",
        "kernels/tasks",
        "if not (least <= low and high <= most):",
        "if not least <= low:",
        (NARROWING,),
    ),
    Fault(
        "a bound: an index that several iterations share counts once",
        "kernels/analysis",
        "total *= _count(group, sized, next(iter(others)))",
        "total *= _count(group, sized)",
        (DOMAINS,),
    ),
    Fault(
        "an operator: the ends of two ranges",
        "kernels/ir",
        "return min(corners), max(corners)",
        "return corners[0], corners[-1]",
        (NARROWING,),
    ),
    # --- launches of many threads
    Fault(
        "a barrier: from the end of a loop to its next iteration",
        "codegen/passes",
        "if is_loop and _conflict(pending, _reached(threads, placed)[0]):",
        "if False:",
        (TEAM_BARRIERS,),
    ),
    Fault(
        "an index: the loop that selects a block of an operand",
        "codegen/passes",
        "return max(k for k, here in enumerate(chosen) if here)",
        "return min(k for k, here in enumerate(chosen) if here)",
        PACKED,
    ),
    Fault(
        "a colouring: blocks that update one row",
        "codegen/write",
        'each(c.Assign(word, bit, "|")),',
        'each(c.Assign(word, bit, "&")),',
        (COLOURED,),
    ),
    Fault(
        "a kept colouring: an index that has changed",
        "codegen/write",
        "return c.If(differs, (c.Evaluate(store),))",
        "return c.If(_ZERO, (c.Evaluate(store),))",
        (KEPT_COLOURS,),
    ),
    Fault(
        "a kept sort: an iteration that is in another block",
        "codegen/write",
        'c.Bin("!=", blocks, here)',
        'c.Bin("!=", here, here)',
        (KEPT_SORTS,),
    ),
    Fault(
        "an order by length: a length that has changed",
        "codegen/write",
        'changed = c.Bin("!=", c.Index(lengths, i), found)',
        'changed = c.Bin("!=", found, found)',
        (
            "tests/codegen/test_row_lengths.py::test_a_kept_order_is_made_again_where_a_length_has_changed",
        ),
    ),
    Fault(
        "an order by length: memory that no call has filled, or that another one uses",
        "codegen/write",
        'opening = (c.Declare("int", differs.name, c.Un("!", is_valid)),)',
        'opening = (c.Declare("int", differs.name, c.Num("0")),)',
        (LENGTH_ORDERS, HELD_ORDERS),
    ),
    Fault(
        "a barrier: between a sort by length and its loop",
        "codegen/passes",
        "if task.sort is not None or task.by_length is not None:",
        "if task.sort is not None:",
        ("tests/codegen/test_row_lengths.py::test_threads_meet_between_a_sort_and_its_loop",),
    ),
    Fault(
        "an order by length: lengths that the sequence writes",
        "space/families",
        "is_fixed = not written.intersection(x.array for x in loads(length))",
        "is_fixed = bool(written)",
        (
            "tests/codegen/test_row_lengths.py::test_lengths_that_the_sequence_writes_are_sorted_in_each_call",
        ),
    ),
    Fault(
        "blocks of a sort: windows that reach into the next block",
        "space/families",
        "if n > 1 and span > 1)",
        "if n > 1 and span > 2)",
        (SORTED_COLOURS,),
    ),
    Fault(
        "layouts of leaves: fields from which a colouring finds rows",
        "space/families",
        "if found[t].get(array, frozenset()) & {*arrays}:",
        "if found[t].get(array, frozenset()) > {*arrays}:",
        (
            "tests/kernels/sparse/test_layouts.py::test_fields_that_a_colouring_reads_keep_their_layout",
        ),
    ),
    Fault(
        "sums by cell: updates outside of the domain",
        "kernels/sparse",
        "return own if ok == const(True, ir.DType.bool_) else ir.If(ok, (own,), (), s.where)",
        "return own",
        (SUMS_BY_CELL,),
    ),
    Fault(
        "sums by cell: cells of the tile that iterations update beyond its block",
        "codegen/write",
        "behind = c.linear(((start, 1),), x.tile[axis])",
        "behind = c.linear(((start, 1),), x.tile[axis] - reach.span + 1)",
        (SUMS_BY_CELL,),
    ),
    Fault(
        "sums by cell: extremes of cells that no iteration updates",
        "kernels/sparse",
        'if dtype.is_float and s.op in ("min", "max"):',
        'if dtype.is_integer and s.op in ("min", "max"):',
        ("tests/kernels/sparse/test_sums_by_cell.py::test_tiles_hold_maxima_and_counts",),
    ),
    Fault(
        "copies of threads: plain updates of other arrays beside them",
        "codegen/plan",
        "u for u in conflicts if overlap is None and u.array not in copied",
        "u for u in conflicts if overlap is None and not copied",
        (
            "tests/runtime/engine/test_threads.py::test_threads_activate_the_cells_that_they_add_to_in_copies",
        ),
    ),
    Fault(
        "sums by cell: a problem that was decided for updates in place",
        "codegen/plan",
        "if value == SCATTER[TILE] and problem.tasks[site[0]].logical is not None:",
        "if value == SCATTER[TILE] and problem.tasks[site[0]].logical is None:",
        (SUMS_BY_CELL,),
    ),
    Fault(
        "sums by cell: tiles that are added while threads activate cells",
        "space/families",
        "body.trees.shared.isdisjoint(changed)",
        "body.trees.shared.isdisjoint(())",
        (ACTIVATING,),
    ),
    Fault(
        "deterministic: threads that take slots of hash nodes",
        "space",
        "not hashed.isdisjoint(body.trees.shared)",
        "not hashed.isdisjoint(())",
        (ACTIVATING,),
    ),
    Fault(
        "windows in trees: extents of the array in place of coordinates",
        "kernels/analysis",
        "extents=cells.extents, is_in_tree=True",
        "is_in_tree=True",
        (BLOCKS_IN_TREES,),
    ),
    Fault(
        "updates of one element as one: an index that changes in between",
        "kernels/transforms",
        "or not names.isdisjoint(map(local_changed, every))",
        "or False",
        (JOINED,),
    ),
    Fault(
        "updates of one element as one: a part of the sum that somebody reads",
        "kernels/transforms",
        "            array in read\n            or not sources",
        "            not sources",
        (JOINED,),
    ),
    Fault(
        "the end of a loop: an element that iterations write",
        "kernels/tasks",
        "and isinstance(j, ir.Const) and i.value != j.value",
        "and isinstance(j, ir.Const)",
        (
            "tests/kernels/tasks/test_non_affine.py::test_a_loop_ends_where_an_element_says_that_no_iteration_writes",
        ),
    ),
    Fault(
        "a tile of updates: leaves that are not active",
        "kernels/sparse",
        "if any(direction):",
        "if False:",
        (UPDATE_TILES("tiles_are_added_to_what_the_updates_reach"),),
    ),
    Fault(
        "a tile of updates: several updates of one cell",
        "kernels/sparse",
        "total = binary(s.op, ir.LocalElement(tile.name, at, dtype), s.value)",
        "total = s.value",
        (UPDATE_TILES("tiles_are_added_to_what_the_updates_reach"),),
    ),
    Fault(
        "a tile of updates: cells that one iteration updates alone",
        "kernels/tasks",
        "if x.updated not in apart)",
        "if True)",
        (UPDATE_TILES("fields_whose_cells_one_iteration_updates_have_no_tiles"),),
    ),
    Fault(
        "a tile of updates: an earlier colouring",
        "space/families",
        'own = (s.v.of_tasks["colouring"][u], all_but(COLOURING, REUSE))',
        'own = (s.v.of_tasks["colouring"][u], ~0)',
        (UPDATE_TILES("tiles_have_colours_of_their_own"),),
    ),
    Fault(
        "an earlier colouring: conditions under which a row is updated",
        "kernels/analysis",
        "any(needed <= here for needed in conditions.get(number, ()))",
        "number in conditions",
        (COMMON_ROWS,),
    ),
    Fault(
        "an earlier colouring: indices that a task in between writes",
        "space/backbone",
        "if read.intersection(arrays_written(before)):",
        "if False:",
        (COMMON_ROWS,),
    ),
    Fault(
        "an earlier colouring: kept memory that a later launch still needs",
        "codegen/write",
        "last |= {x.maker: k for x in found if x is not None}",
        "last = {x.maker: k for x in found if x is not None} | last",
        (HELD_COLOURS,),
    ),
    Fault(
        "an earlier colouring: blocks of another size",
        "space/families",
        "same = (blocks[found.task], bits(k))",
        "same = (blocks[found.task], ~0)",
        (COMMON_COLOURS("an_earlier_colouring_is_greedy_has_equal_blocks_and_comes_first"),),
    ),
    Fault(
        "rows of an iteration: positions that the loop itself moves",
        "kernels/analysis",
        "if not is_set or not all(_is_pure(e, written) for e in behind):",
        "if not is_set:",
        (ROUNDED_ROWS,),
    ),
    Fault(
        "rows of an iteration: a rounded local that is set twice",
        "kernels/analysis",
        "if isinstance(s, ir.SetLocal) and changed.count(s.name) == 1:",
        "if isinstance(s, ir.SetLocal):",
        (ROUNDED_ROWS,),
    ),
    Fault(
        "rows of an iteration: a local of an index that changes between updates",
        "kernels/analysis",
        "seen.clear()  # a local of an index may have changed",
        "pass",
        (ROWS,),
    ),
    Fault(
        "a legality rule: tasks of one launch",
        "space/families",
        "return (ab, bc, ac).count(SAME_LAUNCH) != 2",
        "return True",
        (LEGAL,),
    ),
    Fault(
        "a legality rule: values are stored before they are loaded",
        "space/families",
        "order = (s.b.order(bodies[t], bodies[u]), bits(BEFORE))",
        "order = (s.b.order(bodies[t], bodies[u]), bits(*range(5)))",
        (f"{SHARED}::test_filters_lose_nothing",),
    ),
    Fault(
        "shared values: operands that another task overwrites",
        "kernels/tasks",
        "changed |= set(arrays_written(task))",
        "changed |= set()",
        (f"{SHARED}::test_values_whose_operands_are_overwritten_are_not_shared",),
    ),
    Fault(
        "shared values: locals with several values in an iteration",
        "kernels/tasks",
        "return (is_cheap or is_near) and all(name in defined for name in operands)",
        "return is_cheap or is_near",
        (f"{SHARED}::test_random_bodies_load_the_bits_that_they_would_compute",),
    ),
    Fault(
        "snapshots: arrays behind an adjoint",
        "program",
        "            self._restore(saved.values())\n",
        "            pass\n",
        ("tests/program/test_tape.py::test_snapshots_give_time_loops_in_place_their_gradients",),
    ),
    Fault(
        "blocks in turn: the step from a tile of a block to its next",
        "codegen/write",
        "return c.number(node.n_blocks * node.step)",
        "return c.number((node.n_blocks + 1) * node.step)",
        (IN_TURN,),
    ),
    Fault(
        "blocks in turn: partial results, one a block",
        "codegen/passes",
        "return p.n_blocks or -(-p.loop.extent // p.tile)",
        "return p.n_blocks and p.n_blocks - 1 or -(-p.loop.extent // p.tile)",
        (IN_TURN,),
    ),
    Fault(
        "blocks in turn: tiles of results that the last block combines",
        "codegen/write",
        "(tile, p.n_blocks * p.tile)",
        "(tile, p.tile)",
        (IN_TURN,),
    ),
    Fault(
        "blocks in turn: sums of many results in registers",
        "space/families",
        "return stride == A_TILE or order != INSIDE or free in WITHOUT_LOOP",
        "return True",
        (f"{IN_TURN}::test_sums_of_blocks_in_turn_are_inside_loops_over_results",),
    ),
    Fault(
        "fragments: the lane of a copy",
        "codegen/write",
        "lane = point.copies[row] % width",
        "lane = 0",
        (IN_FRAGMENTS,),
    ),
    Fault(
        "fragments: neighbours of threads that tasks share",
        "space/families",
        'b.clause("threads of one task", [*either, unshared, apart])',
        "pass",
        (IN_TRANSPOSED,),
    ),
    Fault(
        "fragments: threads between the copies",
        "codegen/plan",
        "return self.mid if self.is_thread and not self.has_neighbours else 1",
        "return self.mid if self.is_thread else 1",
        (IN_FRAGMENTS, IN_TRANSPOSED),
    ),
    Fault(
        "transposed copies: the row of an element",
        "codegen/write",
        "{**here, along: (here[along][0], k)}",
        "{**here, along: (here[along][0], 0)}",
        (IN_TRANSPOSED,),
    ),
    Fault(
        "register stages: the step that is loaded",
        "codegen/write",
        "following = c.linear(((c.Id(loop.var), 1),), loop.step)",
        "following = c.Id(loop.var)",
        (AHEAD_IN_REGISTERS,),
    ),
    Fault(
        "register stages: steps of two tasks",
        "space/families",
        'b.clause("steps of one task", [at_once, (s.order(step, e), APART)])',
        "pass",
        (AHEAD_IN_REGISTERS,),
    ),
    Fault(
        "bands of blocks: the rows of the last band",
        "codegen/write",
        'self.named("height", c.minimum(rest, height))',
        'self.named("height", height)',
        (IN_BANDS,),
    ),
    Fault(
        "bands of blocks: one order in a launch",
        "space/families",
        "return fused == SEPARATE or here == there",
        "return True",
        (f"{IN_BANDS}::test_a_launch_has_one_order_of_blocks",),
    ),
    Fault(
        "warps as rectangles: those side by side",
        "codegen/write",
        "lanes, warps = lanes * n, warps * (q.mid // n)",
        "lanes, warps = lanes * n, warps * n",
        (f"{WARPS}::test_each_warp_is_a_rectangle_and_all_of_them_the_block",),
    ),
    Fault(
        "warps as rectangles: a register of another thread",
        "space/families",
        "return space != REGISTER or producer == turned(consumer)",
        "return True",
        (f"{WARPS}::test_a_value_in_a_register_stays_in_its_thread",),
    ),
    Fault(
        "warps as rectangles: threads of a warp in the bound",
        "search/bound",
        "most = most_a if k == a else most_b if k == b else 1",
        "most = 1",
        (f"{WARPS_BOUND}::test_no_bound_of_warps_is_above_the_simulated_gpu",),
    ),
    Fault(
        "activation by threads: an entry that nobody marks",
        "kernels/sparse",
        'old = round_.fetch(table, (entry,), "bit_or", const(BUSY, U32))',
        'old = round_.fetch(table, (entry,), "bit_or", const(0, U32))',
        (ACTIVATION,),
    ),
    Fault(
        "activation by threads: lanes that take one slot",
        "codegen/bodies",
        "return old + x * __popc(here & ((1u << lane) - 1));",
        "return old;",
        (ACTIVATION,),
    ),
    Fault(
        "activation by threads: loads of what others change",
        "codegen/write",
        "    writer.v.strong = _changing(scene, task)\n",
        "",
        (ACTIVATION,),
    ),
    Fault(
        "publication: no fence",
        "codegen/bodies",
        "    __threadfence();\n    store_strong(p, x);\n",
        "    store_strong(p, x);\n",
        ("tests/runtime/cuda/test_cuda_build.py",),
    ),
    Fault(
        "the last block: which block completes the count",
        "codegen/bodies",
        "atomicInc((unsigned *)n_finished, n_blocks - 1) == n_blocks - 1",
        "atomicInc((unsigned *)n_finished, n_blocks - 1) == 0",
        (LAST_BLOCK,),
    ),
    Fault(
        "the last block: what the blocks before it left is seen",
        "codegen/bodies",
        "    __threadfence();\n    __syncthreads();\n    if (tid == 0) {{{{\n",
        "    __syncthreads();\n    if (tid == 0) {{{{\n",
        (LAST_BLOCK,),
    ),
    Fault(
        "grids that stay: what the blocks before a barrier left is seen",
        "codegen/bodies",
        "        __threadfence();\n        if (atomicInc((unsigned *)n_arrived, last) == last) {",
        "        if (atomicInc((unsigned *)n_arrived, last) == last) {",
        (GRID_BARRIERS,),
    ),
    Fault(
        "grids that stay: the barrier behind a sum of several blocks",
        "codegen/passes",
        "            yield Touch(task.target.array, True, by)\n            yield from (",
        "            yield from (",
        (STAYING,),
    ),
    Fault(
        "grids that stay: sums that a last block combines before the barrier",
        "codegen/write",
        "        self.finish_sums()\n        write_grid_barrier(self.kernel)",
        "        write_grid_barrier(self.kernel)",
        (STAYING,),
    ),
    Fault(
        "grids that stay: values that a block keeps from the others",
        "space/families",
        '_own_loops_keep(s, f, var, "one block")',
        "pass",
        (STAYING,),
    ),
    Fault(
        "grids that stay: sums that another kernel finishes",
        "space/families",
        's.b.clause("another kernel finishes a sum", [finished, reasons[1]])',
        "pass",
        (STAYING,),
    ),
    Fault(
        "grids that stay: nests with as many blocks",
        "space/families",
        's.b.clause("as many blocks", [*apart, other, same])',
        "pass",
        (STAYING,),
    ),
    Fault(
        "grids that stay: threads of all resident blocks",
        "space/families",
        "terms = [*threads_of(s, t), *blocks_of_a_core(s, t)]",
        "terms = threads_of(s, t)",
        (STAYING,),
    ),
    Fault(
        "grids that stay: shared memory of all resident blocks",
        "space/families",
        "groups = [g._replace(terms=(*blocks, *g.terms)) for g in groups]",
        "groups = []",
        (STAYING,),
    ),
    Fault(
        "pools of a GPU: counters that change before the last pool's loop",
        "codegen/write",
        """    for x in found:
        yield partial(_cleared, x=x), ""
    yield partial(_committed, found=found), "changes the counters of pools"
""",
        """    for k, x in enumerate(found):
        if k == len(found) - 1:
            yield partial(_committed, found=found), "changes the counters of pools"
        yield partial(_cleared, x=x), ""
""",
        (RECLAIMED,),
    ),
    Fault(
        "pools of a GPU: slots that nobody clears",
        "codegen/write",
        "first, end, n_blocks * SETTLING_THREADS, one",
        "first, end, 2 * n_blocks * SETTLING_THREADS, one",
        (
            "tests/kernels/sparse/test_emulated.py::test_threads_reclaim_more_slots_than_a_grid_has_threads",
        ),
    ),
    Fault(
        "pools of a GPU: loops that read counters which change before",
        "kernels/ir",
        "return not (_meet(stored, touched) or _meet(held, set(_writes(loops))))",
        "return not _meet(held, set(_writes(loops)))",
        ("tests/kernels/ir/test_settlements.py",),
    ),
    # --- what is believed
    Fault(
        "a comparison: a result that is no number",
        "runtime/worker",
        "both_nan = np.isnan(got) & np.isnan(want)",
        "both_nan = np.isnan(got) | np.isnan(want)",
        (VERIFY,),
    ),
    Fault(
        "a bound: the error that many summands hide",
        "runtime/worker",
        "return max(factor, float(n_summands)) if is_seen else factor",
        "return max(factor, float(n_summands))",
        (VERIFY,),
    ),
    Fault(
        "a fallback: a line that was not written to its end",
        "runtime/records",
        "if is_last and not _is_json(whole):",
        "if not _is_json(whole):",
        (JOURNAL,),
    ),
    Fault(
        "a check: folders that a group may write to",
        "space/engine",
        "_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH",
        "_OTHERS_WRITE = stat.S_IWOTH",
        (FOLDERS,),
    ),
    # --- repeats that an array ends
    Fault(
        "a dead store: what ends a repeat is read behind each step",
        "kernels/tasks",
        "if any(loop.until == array for t in (task, *later) for loop in t.repeats):",
        "if False:",
        (ENDS,),
    ),
    Fault(
        "a copy: how many steps exchange its arrays is open",
        "kernels/tasks",
        "r.least < 2",
        "r.count < 2",
        (ENDS,),
    ),
    Fault(
        "a test: of one text, behind each step",
        "codegen/write",
        'p.line(f"if (*{program.names[r.until]}) break;")',
        'p.line(f"if (!*{program.names[r.until]}) break;")',
        (ENDED,),
    ),
    # --- what a search says
    Fault(
        "a comparison: of equal times the first stands",
        "search",
        "at = bisect.bisect_right(self._top, ranked.time_ns, key=lambda r: r.time_ns)",
        "at = bisect.bisect_left(self._top, ranked.time_ns, key=lambda r: r.time_ns)",
        (SEARCH,),
    ),
    Fault(
        "a fallback: no gap behind a time below its bound",
        "search",
        "if not self._top or self._doubted or self.is_by_ratio:",
        "if not self._top or self.is_by_ratio:",
        (SEARCH,),
    ),
)

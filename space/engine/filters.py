"""Filters (propagators) of the constraint engine, which only remove values, and their shared scratch memory.

Every filter is monotone and stateless: it narrows domains, and returns False if one would become
empty. `propagate` runs the filters to their common fixpoint. Variables and masks are int64
everywhere, so that each function is compiled once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .jit import jit_flat_internal
from .model import LITERAL, PRODUCT, Arrays, Model
from .order import AFTER, ANY_ORDER, BEFORE

# Positions in Scratch.state.
VAR_HEAD, N_VARS, LIGHT_HEAD, N_LIGHT, HEAVY_HEAD, N_HEAVY = range(6)
CULPRIT, N_TRAIL, N_DECISIONS, N_PROPAGATIONS, N_BACKTRACKS = range(6, 11)
_N_STATE = 11
NOBODY = np.int32(2**31 - 1)  # behind the last object of a row

Int = int | np.int64
Mask = npt.NDArray[np.uint32]
Ints = npt.NDArray[np.int32]


class PropagationScratch(NamedTuple):
    """Working memory of one propagation at a time, allocated once per space.

    Between calls its queues are empty.
    """

    state: npt.NDArray[np.int64]  # [11] heads and lengths of the queues, culprit, counts
    var_queue: Ints  # [n_vars] ring
    var_queued: npt.NDArray[np.uint8]  # [n_vars]
    light_queue: Ints  # [n_constraints] ring of tables and clauses
    heavy_queue: Ints  # [n_constraints] ring of counters
    queued: npt.NDArray[np.uint8]  # [n_constraints]
    trail_var: Ints  # [total values] narrowed variable
    trail_mask: Mask  # [total values] its domain before
    stack: Ints  # [n_searchable + 1, 4] decisions: var, value, trail length, place in the order


def make_scratch(model: Model) -> PropagationScratch:
    """Returns scratch memory for this model, which threads must not share."""
    n_vars, n_constraints = model.n_vars, len(model.declarations)
    n_values = sum(len(choice.values) for choice in model.choices)  # a narrowing removes a value
    return PropagationScratch(
        state=np.zeros(_N_STATE, np.int64),
        var_queue=np.zeros(n_vars + 1, np.int32),
        var_queued=np.zeros(n_vars + 1, np.uint8),
        light_queue=np.zeros(n_constraints + 1, np.int32),
        heavy_queue=np.zeros(n_constraints + 1, np.int32),
        queued=np.zeros(n_constraints + 1, np.uint8),
        trail_var=np.zeros(n_values + 1, np.int32),
        trail_mask=np.zeros(n_values + 1, np.uint32),
        stack=np.zeros((len(model.searchable) + 1, 4), np.int32),
    )


# ---- queues and narrowing


@jit_flat_internal
def push_var(scratch: PropagationScratch, var: Int) -> None:
    if scratch.var_queued[var]:
        return
    scratch.var_queued[var] = 1
    state = scratch.state
    place = state[VAR_HEAD] + state[N_VARS]
    size = scratch.var_queue.size
    scratch.var_queue[place if place < size else place - size] = var
    state[N_VARS] += 1


@jit_flat_internal
def push_constraint(scratch: PropagationScratch, constraint: Int, is_heavy: bool) -> None:
    if scratch.queued[constraint]:
        return
    scratch.queued[constraint] = 1
    state = scratch.state
    size = scratch.queued.size
    if is_heavy:
        place = state[HEAVY_HEAD] + state[N_HEAVY]
        scratch.heavy_queue[place if place < size else place - size] = constraint
        state[N_HEAVY] += 1
    else:
        place = state[LIGHT_HEAD] + state[N_LIGHT]
        scratch.light_queue[place if place < size else place - size] = constraint
        state[N_LIGHT] += 1


@jit_flat_internal
def narrow(arrays: Arrays, scratch: PropagationScratch, domains: Mask, var: Int, mask: Int) -> bool:
    """Intersects the domain of `var` with `mask`.

    False if no value would be left; the domain is then unchanged.
    """
    old = np.int64(domains[var])
    new = old & mask
    if new == old:
        return True
    state = scratch.state
    if new == 0:
        state[CULPRIT] = var
        return False
    scratch.trail_var[state[N_TRAIL]] = var
    scratch.trail_mask[state[N_TRAIL]] = old
    state[N_TRAIL] += 1
    domains[var] = new
    mirror = np.int64(arrays.mirror[var])
    if mirror != var:
        domains[mirror] = arrays.inverse[new]
    push_var(scratch, var if var < mirror else mirror)
    return True


@jit_flat_internal
def undo(arrays: Arrays, scratch: PropagationScratch, domains: Mask, length: Int) -> None:
    state = scratch.state
    while state[N_TRAIL] > length:
        state[N_TRAIL] -= 1
        var = scratch.trail_var[state[N_TRAIL]]
        mask = scratch.trail_mask[state[N_TRAIL]]
        domains[var] = mask
        mirror = arrays.mirror[var]
        if mirror != var:
            domains[mirror] = arrays.inverse[mask]


@jit_flat_internal
def clear(scratch: PropagationScratch) -> None:
    state = scratch.state
    for k in range(state[N_VARS]):
        scratch.var_queued[scratch.var_queue[(state[VAR_HEAD] + k) % scratch.var_queue.size]] = 0
    size = scratch.queued.size
    for k in range(state[N_LIGHT]):
        scratch.queued[scratch.light_queue[(state[LIGHT_HEAD] + k) % size]] = 0
    for k in range(state[N_HEAVY]):
        scratch.queued[scratch.heavy_queue[(state[HEAVY_HEAD] + k) % size]] = 0
    state[N_VARS] = 0
    state[N_LIGHT] = 0
    state[N_HEAVY] = 0


# ---- filters: False when a domain would become empty


@jit_flat_internal
def filter_order(arrays: Arrays, scratch: PropagationScratch, domains: Mask, var: Int) -> bool:
    """Path consistency of all triples of objects that contain the pair (a, b) whose order `var` changed."""
    a, b = np.int64(arrays.owner[var]), np.int64(arrays.neighbour[var])
    ab = domains[var]
    if ab == ANY_ORDER or a == b:
        return True
    ba = arrays.inverse[ab]
    row_a, row_b = np.int64(arrays.row[a]), np.int64(arrays.row[b])
    after_ab, after_ba = arrays.composition[ab], arrays.composition[ba]
    if arrays.row_set[a] != arrays.row_set[b]:
        return _filter_rows(arrays, scratch, domains, a, b, ab)
    for c in range(
        arrays.row[a + 1] - row_a
    ):  # c = a and c = b too: the diagonal is MERGED, and nothing is removed
        ac, bc = domains[row_a + c], domains[row_b + c]
        left = ac & after_ab[bc]
        if left != ac and not narrow(arrays, scratch, domains, row_a + c, np.int64(left)):
            return False
        right = bc & after_ba[left]
        if right != bc and not narrow(arrays, scratch, domains, row_b + c, np.int64(right)):
            return False
    return True


@jit_flat_internal
def _filter_rows(
    arrays: Arrays, scratch: PropagationScratch, domains: Mask, a: Int, b: Int, ab: np.uint32
) -> bool:
    """Path consistency (`filter_order`) if objects a and b are related to different sets of objects.

    Unrelated objects are ordered as their places.
    """
    after_ab, after_ba = arrays.composition[ab], arrays.composition[arrays.inverse[ab]]
    at_a, at_b = np.int64(arrays.row[a]), np.int64(arrays.row[b])
    end_a, end_b = np.int64(arrays.row[a + 1]), np.int64(arrays.row[b + 1])
    while at_a < end_a or at_b < end_b:
        in_a = arrays.neighbour[at_a] if at_a < end_a else NOBODY
        in_b = arrays.neighbour[at_b] if at_b < end_b else NOBODY
        ac, bc = np.uint32(0), np.uint32(0)
        if in_a <= in_b:
            ac = domains[at_a]
        else:
            ac = np.uint32(1) << (BEFORE if arrays.place[a] < arrays.place[in_b] else AFTER)
        if in_b <= in_a:
            bc = domains[at_b]
        else:
            bc = np.uint32(1) << (BEFORE if arrays.place[b] < arrays.place[in_a] else AFTER)
        if in_a <= in_b:
            left = ac & after_ab[bc]
            if left != ac and not narrow(arrays, scratch, domains, at_a, np.int64(left)):
                return False
            ac = left
        if in_b <= in_a:
            right = bc & after_ba[ac]
            if right != bc and not narrow(arrays, scratch, domains, at_b, np.int64(right)):
                return False
        if in_a <= in_b:
            at_a += 1
        if in_b <= in_a:
            at_b += 1
    return True


@jit_flat_internal
def filter_table2(
    arrays: Arrays, scratch: PropagationScratch, domains: Mask, constraint: Int
) -> bool:
    start = arrays.start[constraint]
    a, b = np.int64(arrays.scope[start]), np.int64(arrays.scope[start + 1])
    row = arrays.first_row[constraint]
    left, right = np.int64(domains[a]), np.int64(domains[b])
    keep_left, keep_right, value = np.int64(0), np.int64(0), 0
    while left >> value:
        if left >> value & 1:
            support = np.int64(arrays.rows[row + value]) & right
            if support:
                keep_left |= np.int64(1) << value
                keep_right |= support
        value += 1
    return narrow(arrays, scratch, domains, a, keep_left) and narrow(
        arrays, scratch, domains, b, keep_right
    )


@jit_flat_internal
def filter_table3(
    arrays: Arrays, scratch: PropagationScratch, domains: Mask, constraint: Int
) -> bool:
    start = arrays.start[constraint]
    a, b = np.int64(arrays.scope[start]), np.int64(arrays.scope[start + 1])
    c = np.int64(arrays.scope[start + 2])
    row, width = arrays.first_row[constraint], arrays.width[constraint]
    first, second, third = np.int64(domains[a]), np.int64(domains[b]), np.int64(domains[c])
    keep_first, keep_second, keep_third = np.int64(0), np.int64(0), np.int64(0)
    i = 0
    while first >> i:
        if first >> i & 1:
            j = 0
            while second >> j:
                if second >> j & 1:
                    support = np.int64(arrays.rows[row + i * width + j]) & third
                    if support:
                        keep_first |= np.int64(1) << i
                        keep_second |= np.int64(1) << j
                        keep_third |= support
                j += 1
        i += 1
    return (
        narrow(arrays, scratch, domains, a, keep_first)
        and narrow(arrays, scratch, domains, b, keep_second)
        and narrow(arrays, scratch, domains, c, keep_third)
    )


@jit_flat_internal
def filter_clause(
    arrays: Arrays, scratch: PropagationScratch, domains: Mask, constraint: Int
) -> bool:
    start, stop = arrays.start[constraint], arrays.start[constraint + 1]
    alive = -1
    for k in range(start, stop):
        domain = domains[arrays.scope[k]]
        hit = domain & arrays.scope_mask[k]
        if hit == 0:
            continue
        if hit == domain or alive >= 0:
            return True
        alive = k
    if alive < 0:
        scratch.state[CULPRIT] = arrays.scope[start]
        return False
    var, mask = np.int64(arrays.scope[alive]), np.int64(arrays.scope_mask[alive])
    return narrow(arrays, scratch, domains, var, mask)


@jit_flat_internal
def _lightest(arrays: Arrays, domains: Mask, entry: Int) -> Int:
    """Returns the least weight over the values left of a term's variable, given that its condition is true."""
    domain = np.int64(domains[arrays.scope[entry]])
    first = arrays.scope_weights[entry]
    lightest = np.int64(-1)
    value = 0
    while domain >> value:
        if domain >> value & 1:
            weight = arrays.weights[first + value]
            if lightest < 0 or weight < lightest:
                lightest = weight
        value += 1
    return lightest


@jit_flat_internal
def filter_counter(
    arrays: Arrays, scratch: PropagationScratch, domains: Mask, constraint: Int
) -> bool:
    """Removes values whose weight would exceed the limit even if every other term had its least weight."""
    # As in `filter_budget`: other integers would be compiled once more, by another process at the same time.
    start, stop = np.int64(arrays.start[constraint]), np.int64(arrays.start[constraint + 1])
    limit = arrays.limit[constraint]
    is_product = arrays.kind[constraint] == PRODUCT
    total = np.int64(1) if is_product else np.int64(0)
    for k in range(start, stop):
        condition = np.int64(arrays.scope_condition[k])
        if condition >= 0 and domains[condition] & arrays.scope_mask[k] != domains[condition]:
            continue  # not surely counted
        weight = _lightest(arrays, domains, k)
        total = total * weight if is_product else total + weight
        if total > limit:
            scratch.state[CULPRIT] = arrays.scope[k]
            return False
    for k in range(start, stop):
        condition = np.int64(arrays.scope_condition[k])
        is_sure = True
        if condition >= 0:
            hit = domains[condition] & arrays.scope_mask[k]
            if hit == 0:
                continue
            is_sure = hit == domains[condition]
        lightest = _lightest(arrays, domains, k)
        if not is_sure:
            heavier = total * lightest if is_product else total + lightest
            if heavier > limit:
                mask = ~np.int64(arrays.scope_mask[k])
                if not narrow(arrays, scratch, domains, condition, mask):
                    return False
            continue
        # A term that got heavier during this pass makes `others` too small, which only removes
        # less; its own change wakes this filter again.
        if is_product:
            heaviest = limit // max(total // lightest, np.int64(1))
        else:
            heaviest = limit - max(total - lightest, np.int64(0))
        if not _drop_heavy(arrays, scratch, domains, k, heaviest):
            return False
    return True


@jit_flat_internal
def _drop_heavy(
    arrays: Arrays, scratch: PropagationScratch, domains: Mask, entry: Int, heaviest: Int
) -> bool:
    var = np.int64(arrays.scope[entry])
    domain = np.int64(domains[var])
    first = arrays.scope_weights[entry]
    keep, value = np.int64(0), 0
    while domain >> value:
        if domain >> value & 1 and arrays.weights[first + value] <= heaviest:
            keep |= np.int64(1) << value
        value += 1
    return narrow(arrays, scratch, domains, var, keep)


@jit_flat_internal
def _first_term(arrays: Arrays, entry: Int) -> Int:
    """Returns the entry of the first term of a group, which begins with its literals at `entry`.

    A group has at least one literal and one term.
    """
    while arrays.scope_weights[entry] == LITERAL:
        entry += 1
    return entry


@jit_flat_internal
def _end_of_terms(arrays: Arrays, entry: Int, stop: Int) -> Int:
    while entry < stop and arrays.scope_weights[entry] != LITERAL:
        entry += 1
    return entry


@jit_flat_internal
def _surely_counts(arrays: Arrays, domains: Mask, first: Int, end: Int) -> bool:
    """True if one of a group's literals is true for all values left."""
    for k in range(first, end):
        domain = domains[arrays.scope[k]]
        if domain & arrays.scope_mask[k] == domain:
            return True
    return False


@jit_flat_internal
def _least_product(
    arrays: Arrays, domains: Mask, first: Int, end: Int, but: Int, limit: Int
) -> Int:
    """Returns the least product of a group's terms, without the term at `but`.

    It returns limit + 1 for products above `limit`.
    """
    least = np.int64(1)
    for k in range(first, end):
        if k != but:
            least = min(least * np.int64(_lightest(arrays, domains, k)), np.int64(limit + 1))
    return least


@jit_flat_internal
def filter_budget(
    arrays: Arrays, scratch: PropagationScratch, domains: Mask, constraint: Int
) -> bool:
    """Removes values whose weight would exceed the limit even if every other group had its least count."""
    start, stop = arrays.start[constraint], arrays.start[constraint + 1]
    limit = arrays.limit[constraint]
    total = np.int64(0)
    k = np.int64(start)
    while k < stop:
        first = _first_term(arrays, k)
        end = _end_of_terms(arrays, first, stop)
        if _surely_counts(arrays, domains, k, first):
            total += _least_product(arrays, domains, first, end, np.int64(-1), limit)
            if total > limit:
                scratch.state[CULPRIT] = arrays.scope[first]
                return False
        k = np.int64(end)
    k = np.int64(start)
    while k < stop:
        first = _first_term(arrays, k)
        end = _end_of_terms(arrays, first, stop)
        least = _least_product(arrays, domains, first, end, np.int64(-1), limit)
        if not _surely_counts(arrays, domains, k, first):
            for entry in range(k, first) if total + least > limit else range(0):
                var = np.int64(arrays.scope[entry])
                if not narrow(arrays, scratch, domains, var, ~np.int64(arrays.scope_mask[entry])):
                    return False
        else:
            # What got heavier during this pass makes this too much, which only removes less.
            left = limit - max(total - least, np.int64(0))
            for entry in range(first, end):
                others = _least_product(arrays, domains, first, end, entry, limit)
                if others > 0 and not _drop_heavy(arrays, scratch, domains, entry, left // others):
                    return False
        k = np.int64(end)
    return True

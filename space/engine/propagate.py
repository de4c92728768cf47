"""Propagation engine: runs filters until no domain changes, and contains the searches that use propagation.

Every filter is monotone, and a change wakes all filters of the variable, also the one that made it.
So the fixpoint depends neither on the order of decisions nor on the order of filters. Cheap filters
run first: order composition, then tables and clauses, then counters.

A status is FIXPOINT, or it says which constraint found the dead end: the number of a declaration
(>= 0), ORDER_ALGEBRA, or EXCLUDED (the decided value was not in the domain). LIMIT means that
guided completion used up its backtracks. At a dead end `scratch.state[CULPRIT]` is the variable
whose domain would have become empty.

All functions here expect domains at a fixpoint (except for the variables they name), and leave the
queues empty. `Arrays` are shared and constant; a `PropagationScratch` serves one call at a time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .filters import (
    CULPRIT,
    HEAVY_HEAD,
    LIGHT_HEAD,
    N_BACKTRACKS,
    N_DECISIONS,
    N_HEAVY,
    N_LIGHT,
    N_PROPAGATIONS,
    N_TRAIL,
    N_VARS,
    VAR_HEAD,
    Int,
    Ints,
    Mask,
    PropagationScratch,
    clear,
    filter_budget,
    filter_clause,
    filter_counter,
    filter_order,
    filter_table2,
    filter_table3,
    make_scratch,
    narrow,
    push_constraint,
    push_var,
    undo,
)
from .jit import jit_flat, jit_flat_internal
from .model import BUDGET, CLAUSE, SUM, TABLE2, TABLE3, Arrays, Model

FIXPOINT = -1
ORDER_ALGEBRA = -2
EXCLUDED = -3
LIMIT = -4

__all__ = [
    "CULPRIT",
    "EXCLUDED",
    "FIXPOINT",
    "LIMIT",
    "N_BACKTRACKS",
    "N_DECISIONS",
    "N_PROPAGATIONS",
    "ORDER_ALGEBRA",
    "PropagationScratch",
    "constraint_blocks",
    "decide",
    "expand",
    "explain",
    "guided_completion",
    "make_scratch",
    "propagate",
    "propagate_all",
    "random_descent",
    "shave",
]


@jit_flat_internal
def _wake(arrays: Arrays, scratch: PropagationScratch, domains: Mask, var: Int) -> None:
    for k in range(arrays.watch_start[var], arrays.watch_start[var + 1]):
        # A clause can only be hurt by a literal that just became false.
        if domains[var] & arrays.watch_mask[k]:
            continue
        constraint = np.int64(arrays.watch[k])
        push_constraint(scratch, constraint, arrays.kind[constraint] >= SUM)


@jit_flat_internal
def _filter(arrays: Arrays, scratch: PropagationScratch, domains: Mask, constraint: Int) -> bool:
    kind = arrays.kind[constraint]
    if kind == TABLE3:
        return filter_table3(arrays, scratch, domains, constraint)
    if kind == TABLE2:
        return filter_table2(arrays, scratch, domains, constraint)
    if kind == CLAUSE:
        return filter_clause(arrays, scratch, domains, constraint)
    if kind == BUDGET:
        return filter_budget(arrays, scratch, domains, constraint)
    return filter_counter(arrays, scratch, domains, constraint)


@jit_flat_internal
def _fixpoint(arrays: Arrays, scratch: PropagationScratch, domains: Mask) -> Int:
    state = scratch.state
    n_order = arrays.owner.size
    while True:
        if state[N_VARS] > 0:
            var = np.int64(scratch.var_queue[state[VAR_HEAD]])
            state[VAR_HEAD] = (state[VAR_HEAD] + 1) % scratch.var_queue.size
            state[N_VARS] -= 1
            state[N_PROPAGATIONS] += 1
            scratch.var_queued[var] = 0
            if var < n_order and not filter_order(arrays, scratch, domains, var):
                clear(scratch)
                return ORDER_ALGEBRA
            _wake(arrays, scratch, domains, var)
            continue
        if state[N_LIGHT] > 0:
            constraint = np.int64(scratch.light_queue[state[LIGHT_HEAD]])
            state[LIGHT_HEAD] = (state[LIGHT_HEAD] + 1) % scratch.queued.size
            state[N_LIGHT] -= 1
        elif state[N_HEAVY] > 0:
            constraint = np.int64(scratch.heavy_queue[state[HEAVY_HEAD]])
            state[HEAVY_HEAD] = (state[HEAVY_HEAD] + 1) % scratch.queued.size
            state[N_HEAVY] -= 1
        else:
            return FIXPOINT
        state[N_PROPAGATIONS] += 1
        scratch.queued[constraint] = 0  # before the filter runs: it may wake itself
        if not _filter(arrays, scratch, domains, constraint):
            clear(scratch)
            return constraint


@jit_flat
def propagate(
    arrays: Arrays, scratch: PropagationScratch, domains: Mask, changed_vars: Ints
) -> Int:
    """Brings `domains` to the fixpoint, in place, after `changed_vars` were narrowed. Returns a status."""
    scratch.state[N_TRAIL] = 0
    for k in range(changed_vars.size):
        var, mirror = np.int64(changed_vars[k]), np.int64(arrays.mirror[changed_vars[k]])
        push_var(scratch, var if var < mirror else mirror)
    return _fixpoint(arrays, scratch, domains)


@jit_flat
def propagate_all(arrays: Arrays, scratch: PropagationScratch, domains: Mask) -> Int:
    """Brings any `domains` to the fixpoint, in place. Returns a status."""
    state = scratch.state
    state[N_TRAIL] = 0
    for var in range(domains.size):
        if domains[var] == 0:
            state[CULPRIT] = var
            return EXCLUDED
    for var in range(domains.size):
        if var <= arrays.mirror[var]:
            push_var(scratch, var)
    for constraint in range(arrays.kind.size):
        push_constraint(scratch, constraint, arrays.kind[constraint] >= SUM)
    return _fixpoint(arrays, scratch, domains)


@jit_flat_internal
def _decide(arrays: Arrays, scratch: PropagationScratch, domains: Mask, var: Int, mask: Int) -> Int:
    if not narrow(arrays, scratch, domains, var, mask):
        return EXCLUDED
    return _fixpoint(arrays, scratch, domains)


@jit_flat
def decide(
    arrays: Arrays,
    scratch: PropagationScratch,
    domains_in: Mask,
    var: Int,
    mask: Int,
    domains_out: Mask,
) -> Int:
    """Writes to `domains_out` the fixpoint of `domains_in` with `var` narrowed to `mask`. Returns a status."""
    for k in range(domains_in.size):  # a slice assignment would allocate when they overlap
        domains_out[k] = domains_in[k]
    scratch.state[N_TRAIL] = 0
    return _decide(arrays, scratch, domains_out, var, mask)


@jit_flat
def expand(
    arrays: Arrays,
    scratch: PropagationScratch,
    domains: Mask,
    var: Int,
    out: npt.NDArray[np.uint32],
    statuses: npt.NDArray[np.int64],
    culprits: npt.NDArray[np.int64],
) -> None:
    """Decides `var` to each of its values v in turn, from the same `domains`.

    Results: the fixpoint in out[v] ([n_values, n_vars]), statuses[v], and for dead ends
    culprits[v]. A value that `domains` excludes gets the status EXCLUDED, and out[v] is not
    written.
    """
    for value in range(out.shape[0]):
        statuses[value] = EXCLUDED
        culprits[value] = var
        if np.int64(domains[var]) >> value & 1:
            bit = np.int64(1) << value
            statuses[value] = decide(arrays, scratch, domains, var, bit, out[value])
            culprits[value] = scratch.state[CULPRIT]


@jit_flat
def constraint_blocks(arrays: Arrays, blocks: Ints) -> None:
    """Fills blocks[var] ([n_vars]) with the connected component of the constraint graph that contains `var`.

    A component is named by its smallest variable.
    """
    for var in range(blocks.size):
        blocks[var] = var
    for var in range(arrays.owner.size):
        _join(blocks, var, np.int64(arrays.row[arrays.owner[var]]))
        _join(blocks, var, np.int64(arrays.mirror[var]))
    for constraint in range(arrays.kind.size):
        start = arrays.start[constraint]
        first = np.int64(arrays.scope[start])
        for k in range(start, arrays.start[constraint + 1]):
            _join(blocks, np.int64(arrays.scope[k]), first)
            if arrays.scope_condition[k] >= 0:
                _join(blocks, np.int64(arrays.scope_condition[k]), first)
    for var in range(blocks.size):
        blocks[var] = _leader(blocks, var)


@jit_flat_internal
def _leader(blocks: Ints, var: Int) -> Int:
    while blocks[var] != var:
        blocks[var] = blocks[blocks[var]]
        var = np.int64(blocks[var])
    return np.int64(var)


@jit_flat_internal
def _join(blocks: Ints, a: Int, b: Int) -> None:
    first, second = _leader(blocks, a), _leader(blocks, b)
    blocks[max(first, second)] = min(first, second)


@jit_flat
def shave(
    arrays: Arrays, scratch: PropagationScratch, domains: Mask, chosen: Ints, seen: Mask
) -> Int:
    """Removes, in place, all values of the `chosen` variables that fail at once when decided.

    Returns a status.
    It repeats until no value fails. Failure is monotone in the domains, so the result depends on no
    order. A fixpoint that decides further variables shows that their values there do not fail:
    these are not tried again before the next round. `seen`: [n_vars] working memory.
    """
    state = scratch.state
    is_removing = True
    while is_removing:
        is_removing = False
        for k in range(chosen.size):
            seen[chosen[k]] = 0
        for k in range(chosen.size):
            var = np.int64(chosen[k])
            domain = np.int64(domains[var])
            if domain & (domain - 1) == 0:
                continue
            dead, value = np.int64(0), 0
            while domain >> value:
                bit = np.int64(1) << value
                if domain & bit & ~np.int64(seen[var]):
                    state[N_TRAIL] = 0
                    if _decide(arrays, scratch, domains, var, bit) == FIXPOINT:
                        _note_decided(arrays, scratch, domains, seen)
                    else:
                        dead |= bit
                    undo(arrays, scratch, domains, np.int64(0))
                value += 1
            if dead:
                state[N_TRAIL] = 0
                status = _decide(arrays, scratch, domains, var, ~dead)
                if status != FIXPOINT:
                    return status
                is_removing = True
    return FIXPOINT


@jit_flat_internal
def _note_decided(arrays: Arrays, scratch: PropagationScratch, domains: Mask, seen: Mask) -> None:
    """Adds to `seen` the values of the variables that were decided since the trail began."""
    for k in range(scratch.state[N_TRAIL]):
        var = np.int64(scratch.trail_var[k])
        domain = np.int64(domains[var])
        if domain & (domain - 1) == 0:
            mirror = arrays.mirror[var]
            seen[var] |= domains[var]
            seen[mirror] |= domains[mirror]


@jit_flat_internal
def _pick(domain: Int, rank: Int) -> Int:
    """Returns the position of the set bit of `domain` that has `rank` set bits below it."""
    value = 0
    while True:
        if domain >> value & 1:
            if rank == 0:
                return value
            rank -= 1
        value += 1


@jit_flat_internal
def count_values(domain: Int) -> Int:
    """Returns the number of values in a domain."""
    count = 0
    while domain:
        domain &= domain - 1
        count += 1
    return count


@jit_flat
def _descend(
    arrays: Arrays, scratch: PropagationScratch, domains: Mask, var_order: Ints, seed: Int
) -> Int:
    state = scratch.state
    state[N_TRAIL] = 0
    state[N_DECISIONS] = 0
    state[N_PROPAGATIONS] = 0
    # Lehmer's generator: the same numbers with the JIT on and off, and no state outside.
    draw = np.int64(seed) % 2147483646 + 1
    for _ in range(4):
        draw = draw * 48271 % 2147483647
    for k in range(var_order.size):
        var = np.int64(var_order[k])
        domain = np.int64(domains[var])
        if domain & (domain - 1) == 0:
            continue
        state[N_DECISIONS] += 1
        while domain & (domain - 1):
            draw = draw * 48271 % 2147483647
            value = _pick(domain, draw % count_values(domain))
            mark = np.int64(state[N_TRAIL])
            status = _decide(arrays, scratch, domains, var, np.int64(1) << value)
            if status != FIXPOINT:
                # Only a choice all of whose values fail is a dead end (Telamon section 5.2).
                undo(arrays, scratch, domains, mark)
                status = _decide(arrays, scratch, domains, var, ~(np.int64(1) << value))
                if status != FIXPOINT:
                    return status
            domain = np.int64(domains[var])
    return FIXPOINT


def random_descent(
    model: Model,
    scratch: PropagationScratch,
    domains: Mask,
    seed: int,
    priority: npt.NDArray[np.integer] | None = None,
) -> tuple[int, int, int]:
    """Decides open variables to random values, in place, until none is open or a dead end is found.

    A value that fails is removed and another one drawn (uniformly); a variable without values left
    is a dead end.
    `priority`: [n_vars], the smallest is decided first, ties in random order (None: all tie).
    Returns the status, the number of decisions and the number of propagations; deterministic for a
    seed.
    """
    key = np.random.default_rng(seed).random(len(model.searchable))
    if priority is not None:
        key += priority[model.searchable]
    var_order = model.searchable[np.argsort(key, kind="stable")]
    status = _descend(model.arrays, scratch, domains, var_order, int(seed))
    return int(status), int(scratch.state[N_DECISIONS]), int(scratch.state[N_PROPAGATIONS])


@jit_flat_internal
def _next_value(domain: Int, preference: npt.NDArray[np.uint8], var: Int) -> Int:
    for k in range(preference.shape[1]):
        if domain >> np.int64(preference[var, k]) & 1:
            return np.int64(preference[var, k])
    return _pick(domain, np.int64(0))


@jit_flat
def _complete(
    arrays: Arrays,
    scratch: PropagationScratch,
    domains: Mask,
    preference: npt.NDArray[np.uint8],
    var_order: Ints,
    max_backtracks: Int,
) -> Int:
    """Depth-first search: decides x = v, and on failure x != v.

    `stack` holds the decisions x = v that are not refuted.
    """
    state, stack = scratch.state, scratch.stack
    state[N_TRAIL] = 0
    state[N_DECISIONS] = 0
    state[N_PROPAGATIONS] = 0
    state[N_BACKTRACKS] = 0
    depth, place = 0, 0
    while place < var_order.size:
        var = np.int64(var_order[place])
        domain = np.int64(domains[var])
        if domain & (domain - 1) == 0:
            place += 1
            continue
        value = _next_value(domain, preference, var)
        stack[depth, 0] = var
        stack[depth, 1] = value
        stack[depth, 2] = state[N_TRAIL]
        stack[depth, 3] = place
        depth += 1
        state[N_DECISIONS] += 1
        status = _decide(arrays, scratch, domains, var, np.int64(1) << value)
        while status != FIXPOINT:
            if depth == 0:
                return status
            if state[N_BACKTRACKS] >= max_backtracks:
                return LIMIT
            state[N_BACKTRACKS] += 1
            depth -= 1
            var = np.int64(stack[depth, 0])
            place = stack[depth, 3]
            undo(arrays, scratch, domains, np.int64(stack[depth, 2]))
            refuted = np.int64(1) << np.int64(stack[depth, 1])
            status = _decide(arrays, scratch, domains, var, ~refuted)
    return FIXPOINT


def guided_completion(
    model: Model,
    scratch: PropagationScratch,
    domains: Mask,
    preference: npt.NDArray[np.uint8] | None = None,
    var_order: npt.NDArray[np.integer] | None = None,
    max_backtracks: int = 200,
) -> int:
    """Completes `domains` in place: tries preferred values first, and backtracks chronologically.

    Returns a status.
    `preference`: [n_vars, up to 32] values, the preferred first; other values come last.
    `var_order`: variables to decide first, in this order; the others follow in declaration order.
    The status is FIXPOINT (complete), a dead end (proof that there is no completion), or LIMIT
    (`max_backtracks` used up).
    """
    if preference is None:
        preference = np.zeros((model.n_vars, 0), np.uint8)
    first = np.zeros(0, np.int32) if var_order is None else np.asarray(var_order, np.int32)
    order = np.concatenate([first, model.searchable])
    preferred = np.ascontiguousarray(preference, np.uint8)
    return int(_complete(model.arrays, scratch, domains, preferred, order, int(max_backtracks)))


def explain(model: Model, culprit: int, status: int) -> tuple[str, str]:
    """Returns the name of the choice that lost its last value in a dead end, and the reason as a sentence."""
    choice = model.choices[culprit].name
    if status == EXCLUDED:
        return choice, "the decision leaves no value"
    if status == LIMIT:
        return choice, "no completion found within the backtracks allowed"
    if status == ORDER_ALGEBRA:
        return choice, "no loop forest has these orders"
    return choice, f"{model.declarations[status].name} leaves no value"

"""Reference recordings: kernels on sparse fields activate cells at each write, without hoisted activation.

So the results of standalone kernels and candidates, which hoist activations, are compared with those of kernels that do not.
"""

from __future__ import annotations

from dataclasses import replace

from ..frontend.recorder import Call, Recording
from ..sparse.calls import logical_kernel
from ..sparse.hoisted_activation import once_a_leaf
from .default_lowering import lower_by_default


def cell_by_cell(recording: Recording) -> Recording:
    """Returns the recording with activations in each cell instead of hoisted activations."""
    known: dict[tuple[int, tuple[str, ...]], Call] = {}  # references compile equal kernels once
    made = []
    for call in recording.calls:
        key = id(call.ir), call.arrays
        if key not in known:
            known[key] = _cell_by_cell(call, recording)
        made.append(replace(call, ir=known[key].ir, arrays=known[key].arrays))
    return replace(recording, calls=tuple(made))


def as_run(recording: Recording) -> Recording:
    """Returns the recording with what runs only: kernels on sparse fields as they were lowered."""
    calls = tuple(replace(call, logical=None) for call in recording.calls)
    return replace(recording, calls=calls)


def _cell_by_cell(call: Call, recording: Recording) -> Call:
    logical = call.logical
    if logical is None:
        return call
    trees = {t.tree.name: t.tree for t in recording.trees}
    if not once_a_leaf(logical.ir, trees):
        return call
    kernel = logical_kernel(logical, recording.trees)
    lowered = lower_by_default(kernel, activates_once=False)
    of_tree = {t.tree.name: t.arrays for t in recording.trees}
    arrays = dict(zip((p.name for p in call.ir.arrays), call.arrays, strict=True))
    arrays |= {n: of_tree[t][key] for n, t, key in lowered.sections if key in of_tree[t]}
    if any(p.name not in arrays for p in lowered.ir.arrays):
        return call  # it accesses a section that the rest of the sequence does not use
    return replace(call, ir=lowered.ir, arrays=tuple(arrays[p.name] for p in lowered.ir.arrays))

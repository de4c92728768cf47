"""Common parts of tests of packed operands: recorded sequences, their inputs, and candidates with a certain copy."""

from __future__ import annotations

import numpy as np
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.library import load
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space.backbone import MID
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, DeadEnd
from kernelscape.space.decisions import restore
from kernelscape.testing import checking

TRIES = 40  # for each candidate that is wanted


def recorded(name, dtype, **sizes):
    """A library sequence and its arguments."""
    entry = load(name)
    args = entry.make_arguments(sizes, np.dtype(dtype), np.random.default_rng(sum(sizes.values())))
    return record_sequence(entry.sequence, args, name), args


def inputs_of(recording, args):
    n = len(recording.arrays)
    arrays = dict(zip((a.name for a in recording.arrays), args, strict=False))
    scalars = dict(zip((s.name for s in recording.scalars), args[n:], strict=True))
    return checking.make_inputs(recording, normalise(recording), arrays, scalars)


def decided(recording, wanted, cores):
    """The complete candidate with these decisions; of a tile that would hold more than its loop the smallest that holds it."""
    space = build_space(normalise(recording), checking.target(cores, 32))
    found = restore(space, (wanted | dict(_covers(space, wanted))).items())
    assert isinstance(found, Candidate), found
    made = found.complete()
    assert isinstance(made, Candidate), made
    return made


def _covers(space, wanted):
    for d, sizes in space.variables.universe.items():
        mid, inner = f"size({d.name})", f"size({d.name.removesuffix('mid')}inner)"
        if d.level == MID and mid in wanted:
            n = int(wanted.get(inner, 1))
            cover = next((size for size in sizes if size * n >= d.loop.extent), sizes[-1])
            yield mid, str(min(cover, int(wanted[mid])))


def random_copies(recording, wanted, n, cores, seed):
    """So many random candidates in which an operand has the values that are wanted of it, by kind of choice."""
    space = build_space(normalise(recording), checking.target(cores, 32))
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(TRIES * n):
        of_two = [o for o in space.variables.staged if len(o.loops) == 2]
        operand = of_two[rng.integers(len(of_two))]
        root = space.root()
        for kind, value in wanted.items():
            var = getattr(space.variables, kind)[operand]
            root = root if isinstance(root, DeadEnd) else root.decide(var, 1 << value)
        made = root if isinstance(root, DeadEnd) else checking.random_candidate(root, rng)
        if isinstance(made, Candidate):
            found.append(made)
        if len(found) == n:
            break
    return found

"""Kernel fusion: the partition of tasks into launches."""

from __future__ import annotations

from itertools import combinations

from ..draft import Draft, Family, bits
from ..targets.kind import CPU, GPU
from .order import AFTER, BEFORE

SAME_LAUNCH, SEPARATE = range(2)
FUSED = (
    "SAME_LAUNCH",  # both tasks run in one launch: one team of threads, barriers where a hazard needs one
    "SEPARATE",  # the team ends between them
)


def equivalence(ab: int, bc: int, ac: int) -> bool:
    return (ab, bc, ac).count(SAME_LAUNCH) != 2


def separate(fused: int, order: int) -> bool:
    return fused == SAME_LAUNCH or order in (BEFORE, AFTER)


def declare(s: Draft) -> None:
    for t, u in s.backbone.launch_pairs():
        names = (s.problem.tasks[t].name, s.problem.tasks[u].name)
        s.v.fused[t, u] = s.b.add("fused", names, FUSED)


def launches(s: Draft) -> None:
    """Coherence: sharing a launch is an equivalence relation with convex classes.

    Objects of different launches are not nested.
    """
    b, v = s.b, s.v
    for t, near in enumerate(s.backbone.neighbours):
        for u, w in combinations((x for x in near if x > t), 2):
            if s.backbone.may_share_launch(u, w):
                pairs = (v.fused[t, u], v.fused[u, w], v.fused[t, w])
                b.table3("launches are an equivalence", *pairs, equivalence, share=equivalence)
    for t, u in s.backbone.launch_pairs():
        for w in s.backbone.neighbours[u]:
            if w > u and not s.backbone.may_share_launch(t, w):
                apart = [(v.fused[pair], bits(SEPARATE)) for pair in ((t, u), (u, w))]
                b.clause("launches are short", apart)
    for t, u in s.backbone.launch_pairs():
        for x in s.objects_of(t):
            for y in s.objects_of(u):
                pair = (v.fused[t, u], b.order(x, y))
                b.table2("separate launches", *pair, separate, share=separate)
        first, last = s.backbone.neighbours[t].start, s.backbone.neighbours[u].stop
        for w in range(first, last):
            if w not in (t, u):
                _convex(s, t, u, w)


def _convex(s: Draft, t: int, u: int, w: int) -> None:
    """Requires that task `w` shares the launch of tasks `t` and `u` if it runs between them."""
    bodies, fused = s.backbone.body_ids, s.v.fused
    both = (min(t, w), max(t, w))
    shared = [(fused[both], bits(SAME_LAUNCH))] if both in fused else []
    for first, last in ((t, u), (u, t)):
        outside = []
        for x, y in ((first, w), (w, last)):
            if s.backbone.may_share_launch(x, y):
                outside.append((s.b.order(bodies[x], bodies[y]), bits(AFTER)))
            elif x > y:  # in the order of the program: never between
                break
        else:
            apart = (fused[t, u], bits(SEPARATE))
            s.b.clause("launches are convex", [*outside, apart, *shared])


FAMILY = Family("fusion", {CPU: (launches,), GPU: (launches,)}, declare)

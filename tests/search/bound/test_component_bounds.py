"""Bounds of components: each is that of a problem with its tasks alone, and only what changed is computed again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.library.axpydot import axpydot
from kernelscape.kernels.library.bicgk import bicgk
from kernelscape.kernels.library.matmul import matmul
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.bound.component_bounds import ComponentBounder
from kernelscape.space.backbone import objects
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, Space
from kernelscape.testing.machines import root_of, round_target


def products(a: Any, b: Any, c: Any) -> None:
    matmul(a, b, c)


def vectors(w: Any, v: Any, u: Any, z: Any, r: Any) -> None:
    axpydot(w, v, u, z, r, 0.5)


def pairs(d: Any, p: Any, q: Any, s: Any, t: Any) -> None:
    bicgk(d, p, q, s, t)


PARTS = {
    products: ((64, 48), (48, 80), (64, 80)),
    vectors: ((1 << 16,), (1 << 16,), (1 << 16,), (1 << 16,), (1,)),
    pairs: ((512, 640), (640,), (512,), (512,), (640,)),
}


def all_parts(*arrays: Any) -> None:
    for part, shapes in PARTS.items():
        part(*arrays[: len(shapes)])
        arrays = arrays[len(shapes) :]


def space_of(sequence: Any, *shapes: tuple[int, ...]) -> Space:
    arrays = [np.zeros(shape, np.float32) for shape in shapes]
    target = round_target(loads_per_ns=20.0, stores_per_ns=20.0, call_ns=0.0)
    return build_space(normalise(record_sequence(sequence, arrays)), target)


def test_a_component_is_bounded_as_if_it_were_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: rows of tables that refer to other tables by number, cut at the wrong place."""
    monkeypatch.setattr(objects, "LAUNCH_TASKS", 2)
    monkeypatch.setattr(objects, "LAUNCH_OBJECTS", 0)
    whole = space_of(all_parts, *(shape for shapes in PARTS.values() for shape in shapes))
    bounder = ComponentBounder(Bounder(whole))
    assert [len(c.tasks) for c in bounder.components] == [1, 2, 2]
    rng, n_seen = np.random.default_rng(5), 0
    for k, (sequence, shapes) in enumerate(PARTS.items()):
        alone = Bounder(space_of(sequence, *shapes))
        chosen = list(bounder.components[k].choices)
        assert len(chosen) == alone.space.n_choices
        for made in (root_of(whole), *(root_of(whole).random_completion(rng) for _ in range(5))):
            if isinstance(made, Candidate):
                n_seen += 1
                assert bounder.ns(k, made) == pytest.approx(alone.ns(made.domains[chosen]))
    assert n_seen > 6


def test_only_a_changed_component_is_bounded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "LAUNCH_TASKS", 2)
    monkeypatch.setattr(objects, "LAUNCH_OBJECTS", 0)
    whole = space_of(all_parts, *(shape for shapes in PARTS.values() for shape in shapes))
    bounder, fresh = (ComponentBounder(Bounder(whole)) for _ in range(2))
    asked: list[int] = []
    ns = bounder.ns
    monkeypatch.setattr(bounder, "ns", lambda k, c: asked.append(k) or ns(k, c))
    at, rng = root_of(whole), np.random.default_rng(3)
    bounder.each(at)
    assert asked == [0, 1, 2]
    while not at.is_complete:
        var = int(at.open_choices()[0])
        children = [c for _, c in at.expand(var) if isinstance(c, Candidate)]
        if not children:
            break
        at = children[int(rng.integers(len(children)))]
        asked.clear()
        found = bounder.each(at)
        assert len(asked) == 1
        assert found.tolist() == [fresh.ns(k, at) for k in range(3)]

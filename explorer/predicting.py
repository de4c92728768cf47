"""Predicted times in a session: terms of the bound times factors of this machine, fitted to measurements."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from ..runtime.api.backend import AbstractDevice
from ..runtime.records.record import EvaluationRecord
from ..runtime.records.replay import StaleError, restore_complete
from ..search.bound.bounder import Bounder
from ..search.predict import FACTORS, LEAST, NO_FACTORS, Predictor, fitted

_KEPT = 256  # measurements that factors are fitted to: the fastest


def predictor_of(bounder: Bounder, device: AbstractDevice) -> Predictor | None:
    """Returns the predictor of a space on a device.

    None for a GPU, whose prediction uses registers (search/learn/registers.py).
    """
    if bounder.gpu is not None:
        return None
    stored = device.machine.stored_facts()
    known = () if stored is None else stored.factors()
    return Predictor(bounder, known if len(known) == len(FACTORS) else NO_FACTORS)


def learn_from(
    predictor: Predictor, evaluations: Sequence[EvaluationRecord], device: AbstractDevice
) -> None:
    """Fits the factors to the fastest measurements of a run, and stores them with the machine's calibration."""
    stored = device.machine.stored_facts()
    if stored is None:
        return
    parts, times_ns = measured(predictor, evaluations)
    if len(times_ns) >= LEAST:
        stored.learn_factors(fitted(parts, times_ns))


def _at_start(r: EvaluationRecord) -> float:
    """Returns the time of an evaluation on the machine of the session's start; as measured if that were below its bound.

    The slowness is a product of ratios of several controls, so that an error in one of them stays.
    """
    assert r.time_ns is not None
    ns = r.time_ns / r.slowness
    return ns if ns >= (r.bound_ns or 0.0) else r.time_ns


def measured(
    predictor: Predictor, evaluations: Sequence[EvaluationRecord]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns terms [n, n_factors] of the fastest measured candidates, and their times [n] in ns on the machine of the start."""
    timed = sorted((_at_start(r), k) for k, r in enumerate(evaluations) if r.time_ns)
    parts, times_ns = [], []
    for ns, k in timed[:_KEPT]:
        with suppress(StaleError):
            candidate = restore_complete(predictor.bounder.space, evaluations[k].decisions)
            if not candidate.is_apart:
                parts.append(predictor.parts(candidate))
                times_ns.append(ns)
    return np.array(parts).reshape(len(parts), len(FACTORS)), np.array(times_ns)

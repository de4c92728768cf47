"""Registers that compilers reported: what is learned of them, what the bound makes of them, and a space that is widened."""

from __future__ import annotations

import itertools
from collections import Counter
from math import ceil, prod

import numpy as np
import pytest
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.search import events as ev
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.budget import Budget
from kernelscape.search.learn.registers import Compiled, RegisterModel
from kernelscape.search.options import STRATEGIES
from kernelscape.space.candidate import Candidate
from kernelscape.space.values import REGISTER_ROOMS
from kernelscape.testing.checking import random_candidate
from kernelscape.testing.machines import library_space, root_of
from kernelscape.tests.search import searching
from kernelscape.tests.search.bound.test_gpu import PRODUCT, N, decided, gpu_target, tile_of
from kernelscape.tests.search.toy import ToyBench, ToySpace, best_ns, first_open, toy_bound


def taught(*kernels: tuple[int, int, int]) -> RegisterModel:
    model = RegisterModel()
    model.note(itertools.starmap(Compiled, kernels))
    return model


# --- the model ----------------------------------------------------------------------------------


def test_without_reports_a_count_is_taken_at_its_word():
    model = RegisterModel()
    assert (model.room, model.least_ratio, model.n_reports) == (1, 1.0, 0)
    assert [model.expected(n) for n in (1, 64, 255)] == [1, 64, 255]


def test_reports_above_the_count_are_expected_again_and_cut_nothing():
    model = taught((16, 48, 0), (32, 64, 0), (64, 96, 0))
    assert (model.room, model.least_ratio) == (1, 1.0)
    assert model.line == (32, 1)
    assert model.expected(100) == 132


@pytest.mark.parametrize(
    ("registers", "room"), [(200, 1), (128, 1), (127, 2), (64, 2), (63, 4), (20, 8), (1, 8)]
)
def test_a_report_below_the_count_loosens_the_cut(registers, room):
    model = taught((128, registers, 0), (8, 40, 0))
    assert model.least_ratio == min(1.0, registers / 128)
    assert model.room == room
    assert model.room in REGISTER_ROOMS


def test_what_spilled_loosens_nothing_and_needed_what_it_spilled():
    model = taught((128, 32, 400))
    assert model.room == 1
    assert model.expected(128) == 32 + 100


def test_wild_reports_do_not_move_what_is_expected():
    plain = [(n, 30 + n, 0) for n in (4, 8, 16, 24, 32, 48, 64, 96, 128) for _ in range(3)]
    model = taught(*plain, (128, 32, 8000), (4, 250, 0), (96, 33, 0))
    assert model.line == (30, 1)


def test_equal_reports_in_any_order_give_equal_answers():
    kernels = [(16, 48, 0), (32, 20, 0), (64, 96, 12), (16, 50, 0), (64, 70, 0)]
    models = [taught(*order) for order in itertools.permutations(kernels)]
    assert len({(m.line, m.room, m.least_ratio) for m in models}) == 1


def test_what_sums_nothing_up_says_nothing():
    assert taught((0, 200, 0)).n_reports == 0


# --- counts and bounds --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["matmul", "gemver", "bicgk", "axpydot"])
def test_counts_are_those_of_the_plan(name):
    """The sums of a thread, copies with accumulators of their own included; what is open counts least."""
    space = library_space(name, gpu_target())
    bounder, rng, seen = Bounder(space), np.random.default_rng(3), Counter()
    least = bounder.registers(root_of(space))
    for _ in range(30):
        made = random_candidate(root_of(space), rng)
        if not isinstance(made, Candidate):
            continue
        for k, (t, n) in enumerate(zip(plan_of(made).tasks, bounder.registers(made), strict=True)):
            summed = [p for p in t.loops if not p.loop.is_reduction or p.has_lanes]
            words = -(-t.task.dtype.size_bytes // 4)
            assert n == (words * prod(p.inner for p in summed) if t.task.is_reduction else 0)
            assert least[k] <= n
            seen[n > 1] += 1
    assert seen[True] > 3


STAGED = {"staged(multiply0.a)": "COPY", "staged(multiply0.b)": "COPY"}


def product(rows: int) -> tuple[Bounder, Candidate]:
    """On a machine that is busy with additions in a row, so that waves decide."""
    space = library_space("matmul", gpu_target(cores=2, add_latency_ns=400.0), m=N, n=N, k=N)
    a_tile = {f"grid_stride(multiply0.{loop}.outer)": "NONE" for loop in "ijk"}
    return Bounder(space), decided(space, PRODUCT | a_tile | tile_of(rows) | STAGED)


@pytest.mark.parametrize(("registers", "resident"), [(0, 8), (16, 8), (64, 4), (128, 2), (255, 1)])
def test_blocks_wait_for_registers_that_are_known(registers, resident):
    """256 threads a block, of 65536 registers: a bound with what the compiler gave counts the waves that this leaves."""
    bounder, candidate = product(4)
    terms = dict(bounder.bound(candidate, registers=[registers]).terms)
    waves = ceil(256 / (2 * resident))
    assert terms["latency"] == pytest.approx(waves * ((N - 1) * 400.0 + 20.0), rel=1e-6)


def test_known_registers_never_lower_a_bound():
    bounder, candidate = product(4)
    found = [bounder.ns(candidate, registers=[n]) for n in (0, 1, 16, 64, 128, 255)]
    assert found == sorted(found)
    assert found[0] == bounder.ns(candidate) < found[-1]


def test_what_is_expected_is_the_bound_with_the_registers_expected():
    bounder, candidate = product(4)
    assert bounder.registers(candidate) == (16,)
    assert bounder.expected_ns(candidate, 48.0, 5.0) == bounder.ns(candidate, registers=[128])
    assert bounder.expected_ns(candidate, 0.0, 0.0) == bounder.ns(candidate)


# --- searching ----------------------------------------------------------------------------------


COSTS = tuple(tuple(float((3 * c + 7 * v) % 11) for v in range(4)) for c in range(4))
NARROW = ToySpace(COSTS, frozenset({((0, v), (1, w)) for v in range(4) for w in range(1, 4)}))
WIDE = ToySpace(COSTS)


def searched(strategy: str, *, widens=False, expected=None, space=NARROW, seed=1) -> list[ev.Event]:
    bench = ToyBench()
    asked = []

    def widened():
        """After the first measurement, once."""
        if widens and bench.measured and not asked:
            asked.append(True)
            return WIDE.root()
        return None

    return list(
        searching.searched(
            space.root(),
            bound=toy_bound(),
            evaluate=bench,
            next_choice=first_open,
            strategy=strategy,
            budget=Budget(clock=lambda: 0.0),
            rng=np.random.default_rng(seed),
            expected=expected,
            widened=widened,
        )
    )


@pytest.mark.parametrize("strategy", sorted(set(STRATEGIES) - {"random"}))
def test_a_widened_space_is_searched_to_its_end(strategy):
    narrow, wide = (searched(strategy, widens=w)[-1] for w in (False, True))
    assert isinstance(narrow, ev.Finished)
    assert isinstance(wide, ev.Finished)
    assert narrow.status == wide.status == "optimal"
    assert wide.best.time_ns == best_ns(WIDE) < narrow.best.time_ns


def test_what_was_measured_before_is_not_measured_again():
    events = searched("exhaustive", widens=True)
    assert sum(isinstance(e, ev.Widened) for e in events) == 1
    measured = [e.key for e in events if isinstance(e, ev.Evaluated) and e.origin == "measured"]
    assert len(set(measured)) == len(measured)


def test_rollouts_avoid_what_is_expected_to_be_slow_and_rule_nothing_out():
    """A value that is part of the best is expected to be slow: first descents do without it, and the search proves all the same."""
    dear = 1 << 3  # the best value of choice 1

    def expected(candidate):
        return 1e9 if candidate.domains[1] == dear else 0.0

    met = {}
    for guess in (None, expected):
        runs = [searched("mcts", expected=guess, space=WIDE, seed=seed) for seed in range(12)]
        firsts = [next(e for e in events if isinstance(e, ev.Evaluated)) for events in runs]
        met[guess] = sum(e.candidate.domains[1] == dear for e in firsts)
        assert {events[-1].status for events in runs} == {"optimal"}
        assert {events[-1].best.time_ns for events in runs} == {best_ns(WIDE)}
    assert met[None] > met[expected] == 0

"""Outcomes of a candidate's run: a measurement, or a failure with its cause and a remedy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

Status = Literal["ok", "compile", "launch", "crash", "timeout", "wrong", "memory"]
FailureKind = Literal["compile", "launch", "crash", "timeout", "wrong", "memory"]
UNDECIDED = 1e-5  # share of the elements of an array that may lie on a branch: rounding.py
FIRST_RUN_NS = 20e6  # a first run may take so much longer than later ones, whatever its speed
LONG_NS = 4 * FIRST_RUN_NS  # of times to beat in which that is a small part
STATUSES: tuple[str, ...] = get_args(Status)


@dataclass(frozen=True)
class Disagreement:
    """The first element that differs from the reference, and the number of differing elements in its array."""

    input_set: int  # its number
    array: str
    index: tuple[int, ...]
    got: str  # to six digits: candidates that round otherwise have the same
    want: str
    n_wrong: int
    n_elements: int


@dataclass(frozen=True)
class Failure:
    """A failed evaluation of a candidate; `kind` is one of six words.

    compile: the compiler refused it or ran too long. launch: it could not be loaded or launched. crash: a signal, an exit or a
    fault of the device while it ran. timeout: no answer before the deadline. wrong: an output differs, or a write was out of
    bounds. memory: it exhausted the memory that it may use.

    `advice` is one sentence for people, `log` is the output of the tool or the system, `at` is the place where an output differs.
    `n_right` is the number of verifying runs before it that were right and need not be repeated; None if all are to be repeated.
    """

    kind: FailureKind
    advice: str
    log: str = ""
    at: Disagreement | None = None
    n_right: int | None = None


@dataclass(frozen=True)
class Measurement:
    """Times of one candidate in ns per call of the whole sequence, with warm caches (calls in succession)."""

    time_ns: float  # median over samples
    spread: float  # half the inter-quartile range over the median
    min_ns: float
    n_samples: int
    n_calls: int  # calls a sample
    disturbed: int  # samples thrown away because other work held the cores
    stopped_early: bool = False  # clearly slower than the cut: fewer samples were taken
    paired_ns: float | None = (
        None  # timed in turn with others: the median, had the machine been as usual in every turn
    )
    paired_spread: float = 0.0  # likewise
    quantiles_ns: tuple[
        float, ...
    ] = ()  # of the samples: least, quarter, median, three quarters, most
    is_partly_verified: bool = False  # on the timed input set only: nothing may be claimed of it
    ratio: float | None = (
        None  # to a control in turn with it: the time is that of the control, undisturbed, times this
    )
    component_ns: tuple[float, ...] = ()  # per call, in the order of `Source.components`
    component_spread: tuple[float, ...] = ()  # of each of these, as `spread`; () where not taken

    @property
    def fair_ns(self) -> float:
        """Time in ns that ranks candidates: the paired time if it was taken, else the plain one."""
        return self.time_ns if self.paired_ns is None else self.paired_ns

    @property
    def fair_spread(self) -> float:
        """The spread of `fair_ns`."""
        return self.spread if self.paired_ns is None else self.paired_spread

    @property
    def is_disturbed(self) -> bool:
        """True if other work disturbed at least as many samples as were kept; of pairs, at least half."""
        kept = self.n_samples if self.ratio is None else self.n_samples / 2
        return self.disturbed >= kept


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Timing protocol: limits on samples and time for each candidate."""

    sample_ns: float = 1e6  # a sample repeats calls until it lasts about this long
    min_samples: int = 5
    max_samples: int = 40
    target_spread: float = 0.01  # enough samples once the spread is this small
    budget_ns: float = 150e6  # no new sample after this much timed work
    max_disturbed: int = 30  # samples thrown away at most; then the least disturbed ones count
    cut_ns: float | None = None  # the time to beat
    claims_below_ns: float | None = (
        None  # slower ones are verified on the timed input set only; None: all are on all sets
    )
    control_ns: float | None = (
        None  # time of the undisturbed control: the first of two programs in turn
    )
    first_factor: float = 3.0  # stop after the first sample when it is this many cuts long
    long_factor: float = 2.0  # the same if the time to beat is `LONG_NS` or more
    later_factor: float = (
        1.3  # stop after `min_samples // 2 + 1` when the fastest is this many cuts long
    )
    times_components: bool = False  # takes a time of each component, where the artifact has several

    def is_hopeless(self, first_run_ns: float) -> bool:
        """True if the first run was so long that timing would stop at the first sample.

        The first run includes costs of its own (pages, waking threads), but not the time that its threads waited for a core.
        """
        if self.cut_ns is None or first_run_ns < (self.claims_below_ns or 0.0):
            return False
        return first_run_ns > self.factor_of_first * self.cut_ns + FIRST_RUN_NS

    @property
    def factor_of_first(self) -> float:
        """The number of cuts from which on the first sample is the last one.

        It is less if the time to beat is long: a moment of other work is a small part of it, and two more samples take seconds.
        """
        is_long = self.cut_ns is not None and self.cut_ns >= LONG_NS
        return self.long_factor if is_long else self.first_factor

    def with_cut(self, cut_ns: float | None) -> Protocol:
        """Returns the same protocol with `cut_ns` as the time to beat."""
        return replace(self, cut_ns=cut_ns)


FINAL = Protocol(min_samples=15, max_samples=60, target_spread=0.003, budget_ns=4e8)
"""For the interleaved re-measurement of the best candidates. Samples stay short: on a busy machine
a sample of a whole time slice (4 ms) is hardly ever undisturbed."""

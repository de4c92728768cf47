"""Calibration of a machine: its measured facts."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...space.targets.target import Target

Factor = Annotated[float, msgspec.Meta(gt=0.0, le=1e6)]


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A target (facts of a machine) with the spread of each measured number."""

    schema: int
    machine: str
    target: Target
    # By sample name: half the inter-quartile range over the median, the largest seen.
    spreads: dict[str, float]
    n_calibrations: int
    factors: tuple[Factor, ...] = ()  # of the prediction (search/predict.py); (): not fitted yet
    alarms: int = 0  # measurements below their bound; each raised the rates that did not explain it
    unsure: tuple[
        str, ...
    ] = ()  # names of samples of which no calibration saw the best value twice
    # Share of the time that threads waited for a core, in the best round of the last calibration.
    other_work: float = 0.0

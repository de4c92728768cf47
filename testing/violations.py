"""The judge of complete candidates: what they break, by the truths of the declarations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..space.engine.model import Model
from ..space.engine.order import holds_order


def violations(model: Model, values: Sequence[int] | npt.NDArray[np.int64]) -> list[str]:
    """Names of what a complete assignment (value per position) breaks."""
    plain = [int(value) for value in values]
    broken = [
        f"domain of {model.choices[var].name}"
        for var in range(model.n_vars)
        if not int(model.initial[var]) >> plain[var] & 1
    ]
    blocks = (model.rows.objects_of(block) for block in model.rows.places.blocks())
    if not all(holds_order(model.relation_matrix(plain, block)) for block in blocks):
        broken.append("order algebra")
    return broken + [d.name for d in model.declarations if not d.holds(plain)]

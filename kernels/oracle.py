"""The reference result of a recorded sequence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .interpret import evaluate_scalar, run_kernel
from .ir import Store, Update
from .lanes import statements
from .rewrite import widened
from .sequence import Call, Recording


def run_reference(
    recording: Recording,
    arrays: Mapping[str, np.ndarray[Any, Any]],
    scalars: Mapping[str, Any],
    dtype: Any = None,
) -> dict[str, np.ndarray[Any, Any]]:
    """All arrays of the sequence after its calls ran in order on copies (temporaries start as
    zeros).

    With `dtype=np.float64` every f32 of the computation is widened to f64, results too: a reference
    of higher precision. Arrays that no call writes are the given ones themselves, unconverted:
    copies in double of large inputs would cost more than the computation.
    """
    is_wide = dtype is not None and np.dtype(dtype) == np.float64
    seen = widened(recording) if is_wide else recording
    written = {name for call in seen.calls for name in _written(call)}
    found: dict[str, np.ndarray[Any, Any]] = {
        p.name: np.array(arrays[p.name], dtype=p.dtype.numpy, order="C")
        if p.name in written
        else arrays[p.name]
        for p in seen.arrays
    }
    for p in seen.temps:
        found[p.name] = np.zeros(p.shape, dtype=p.dtype.numpy)
    numbers = {p.name: p.dtype.numpy.type(scalars[p.name]) for p in seen.scalars}
    for call in seen.calls:
        run_kernel(
            call.ir,
            {p.name: found[name] for p, name in zip(call.ir.arrays, call.arrays, strict=True)},
            {
                p.name: evaluate_scalar(x, numbers)
                for p, x in zip(call.ir.scalars, call.scalars, strict=True)
            },
        )
    return found


def _written(call: Call) -> set[str]:
    """Arrays of the sequence that a call writes."""
    names = dict(zip((p.name for p in call.ir.arrays), call.arrays, strict=True))
    return {names[s.array] for s in statements(call.ir.body) if isinstance(s, (Store, Update))}

"""Results of a recorded sequence by the interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..kernels.frontend.recorder import Recording
from ..kernels.interpret.reference import Array, initial_arrays, run_calls
from ..kernels.ir.walk import widened


def run_reference(
    recording: Recording,
    arrays: Mapping[str, Array],
    scalars: Mapping[str, Any],
    dtype: Any = None,
) -> dict[str, Array]:
    """All arrays of the sequence after its calls ran in order on copies (temporaries start as
    zeros).

    With `dtype=np.float64` every f32 of the computation is widened to f64, results too: a reference
    of higher precision. Arrays that no call writes are the given ones themselves, unconverted:
    copies in double of large inputs would cost more than the computation.
    """
    seen = widened(recording) if dtype is not None and np.dtype(dtype) == np.float64 else recording
    found = initial_arrays(seen, arrays)
    run_calls(seen, found, scalars)
    return found

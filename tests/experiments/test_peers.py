"""Libraries that the search is compared with compute the sequences, and the table keeps what it measured."""

from __future__ import annotations

import importlib
import importlib.util

import numpy as np
import pytest
from kernelscape.experiments.libraries.formulas import FORMULAS, places
from kernelscape.kernels.library import load

MODULES = {
    "numpy_out": "numpy",
    "numba_fused": "numba",
    "torch_compiled": "torch",
    "jax_jit": "jax",
}


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # the libraries' own are not ours
@pytest.mark.parametrize("module", MODULES)
def test_a_library_computes_every_sequence(module):
    if importlib.util.find_spec(MODULES[module]) is None:
        pytest.skip(f"{MODULES[module]} is not installed")
    peers = importlib.import_module(f"kernelscape.experiments.libraries.{module}").peers
    for name in FORMULAS:
        entry = load(name)
        sizes = {k: 9 + 8 * i for i, k in enumerate(entry.sizes)}
        for dtype in (np.float32, np.float64):
            args = entry.make_arguments(sizes, dtype, np.random.default_rng(1))
            want = [np.array(a) if isinstance(a, np.ndarray) else a for a in args]
            entry.reference(*want)
            got = getattr(peers, name)(*args)
            for k, result in zip(places(name)[1], got, strict=True):
                assert np.asarray(result).dtype == dtype, (name, dtype)
                np.testing.assert_allclose(result, want[k], rtol=1e-3, atol=1e-3, err_msg=name)

"""Every library sequence computes its formula."""

from __future__ import annotations

import numpy as np
import pytest
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.library import LibrarySequence, load, names
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.testing.interpreted import run_reference
from kernelscape.testing.run_tasks import run_tasks

WANTED = {
    "atax",
    "axpy",
    "axpydot",
    "bicgk",
    "gemver",
    "gesummv",
    "heat",
    "madd",
    "matmul",
    "matmul_strided",
    "sgemv",
    "sgemvt",
    "sscal",
    "standardise",
    "vadd",
    "waxpby",
}
SIZES = ({"m": 1, "n": 1, "k": 1}, {"m": 5, "n": 3, "k": 2}, {"m": 7, "n": 33, "k": 13})
TOLERANCE = {"float32": 2e-4, "float64": 1e-11}


def test_names() -> None:
    assert set(names()) >= WANTED
    assert list(names()) == sorted(names())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", names())
def test_sequence_computes_its_formula(name: str, sizes: dict[str, int], dtype: str) -> None:
    entry = load(name)
    own = {k: sizes[k] for k in entry.sizes}
    args = entry.make_arguments(own, dtype, np.random.default_rng(3))
    recording = record_sequence(entry.sequence, args, name=name)
    n = len(recording.arrays)
    arrays = dict(zip((p.name for p in recording.arrays), args[:n], strict=True))
    scalars = dict(zip((p.name for p in recording.scalars), args[n:], strict=True))
    by_calls = run_reference(recording, arrays, scalars)
    by_tasks = run_tasks(normalise(recording), arrays, scalars)
    entry.reference(*args)  # in place
    limit = TOLERANCE[dtype]
    for key, wanted in arrays.items():
        np.testing.assert_allclose(by_calls[key], wanted, rtol=limit, atol=limit, err_msg=key)
        np.testing.assert_allclose(by_tasks[key], wanted, rtol=limit, atol=limit, err_msg=key)


@pytest.mark.parametrize("name", names())
def test_entry_is_complete(name: str) -> None:
    entry = load(name)
    assert entry.name == name
    assert entry.formula
    assert all(set(sizes) == set(entry.sizes) for sizes in entry.benchmark_sizes)
    args = entry.make_arguments(entry.complete({"n": 4}), "float32", np.random.default_rng(0))
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    assert all(a.dtype == np.float32 and a.flags["C_CONTIGUOUS"] for a in arrays)
    assert any((a < 0).any() for a in arrays)
    assert entry.flops(entry.complete({})) > 0


def test_sizes_follow_n() -> None:
    entry: LibrarySequence = load("BiCGK")
    assert entry.complete({}) == {"m": 4096, "n": 4096}
    assert entry.complete({"n": 100}) == {"m": 100, "n": 100}
    assert entry.complete({"m": 3, "n": 100}) == {"m": 3, "n": 100}
    with pytest.raises(ValueError, match="no size 'q': its sizes are m, n"):
        entry.complete({"q": 1})
    with pytest.raises(ValueError, match="at least 1"):
        entry.complete({"n": 0})


def test_unknown_name() -> None:
    with pytest.raises(KeyError, match="no library sequence 'gemm': there are atax"):
        load("gemm")

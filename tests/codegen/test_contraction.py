"""A product that feeds a step (floor, a comparison, a remainder, a whole number) is rounded by itself, and so is each in a kernel
with fast_math=False. The kind of fault: a multiply-add rounds once, and what is on a step in NumPy falls beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.analysis.contraction import divides, fed
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.cpu.compiler import find_compiler, other_compilers
from kernelscape.runtime.engine.toolchain import flags_of
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing import checking
from kernelscape.testing.calling import InputSet
from kernelscape.testing.checking import Way

N = 4096
nd: Any = ks.types.ndarray()


@ks.kernel
def steps(x: nd, y: nd, z: nd, out: nd, k: nd):
    for i in range(x.shape[0]):
        out[0, i] = ks.floor(x[i] * y[i] + z[i])
        out[1, i] = 1 if x[i] * y[i] + z[i] < 0 else 0
        out[2, i] = (x[i] * y[i] + z[i]) % 2.0
        k[i] = int((x[i] * y[i] + z[i]) * 1e17)
        at = x[i] * y[i]
        out[3, i] = ks.ceil(at + z[i])


@ks.kernel
def products(x: nd, y: nd, p: nd):
    for i in range(x.shape[0]):
        p[i] = x[i] * y[i]


@ks.kernel
def steps_of_products(p: nd, z: nd, out: nd):
    for i in range(p.shape[0]):
        out[i] = ks.floor(p[i] + z[i])


@ks.kernel(fast_math=False)
def exact(x: nd, y: nd, z: nd, out: nd):
    for i in range(x.shape[0]):
        out[0, i] = x[i] * y[i] + z[i]
        out[1, i] = z[i]
        out[1, i] += x[i] * y[i]
        out[2, i] = z[i] + 0.0


@ks.kernel
def quotients(x: nd, out: nd):
    for i in range(x.shape[0]):
        out[i] = ks.floor(x[i] / 49.0)


@ks.kernel
def orbit(c: nd, out: nd):
    for i in range(c.shape[0]):
        z = c[i]
        n = 0.0
        while z * z < 4.0 and n < 20.0:
            z = z * z + c[i]
            n += 1.0
        out[i] = n


def numbers() -> tuple[np.ndarray[Any, Any], ...]:
    """x, y, z of which z is the rounded product with another sign: x * y + z is 0, and the multiply-add is not."""
    x, y = np.random.default_rng(1).uniform(1, 2, (2, N))
    z = -(x * y)
    z[::7] = -0.0
    return x, y, z


def test_steps_of_a_kernel_are_those_of_numpy() -> None:
    x, y, z = numbers()
    out, k = np.zeros((4, N)), np.zeros(N, np.int64)
    steps(x, y, z, out, k)
    total = x * y + z
    want = [np.floor(total), total < 0, np.mod(total, 2.0), np.ceil(total)]
    assert np.array_equal(out, np.array(want, float))
    assert np.array_equal(k, (total * 1e17).astype(np.int64))


def test_kernels_without_fast_math_are_ieee() -> None:
    x, y, z = numbers()
    out = np.zeros((3, N))
    exact(x, y, z, out)
    assert np.array_equal(out, [x * y + z, x * y + z, z])
    assert not np.signbit(out[2, ::7]).any()  # -0.0 + 0.0
    (flag,) = flags_of(exact.instantiate(x, y, z, out))
    assert flag == "-ffp-contract=off"


def test_a_quotient_that_feeds_a_step_is_no_product_with_a_reciprocal() -> None:
    x = np.arange(float(N))
    out = np.zeros(N)
    quotients(x, out)
    assert np.array_equal(out, np.floor(x / 49.0))
    assert divides(quotients.instantiate(x, out).body)
    assert not divides(orbit.instantiate(x, out).body)


def test_what_is_computed_from_itself_is_contracted() -> None:
    """Sums and iterations go on from what they were: their speed is that of multiply-adds."""
    x = np.zeros(N)
    assert fed(orbit.instantiate(x, x.copy()).body) == frozenset()
    names = fed(steps.instantiate(x, x, x, np.zeros((4, N)), np.zeros(N, np.int64)).body)
    assert names == {"at"}


def sequence(x: Any, y: Any, z: Any, out: Any, k: Any, p: Any, row: Any, strict: Any) -> None:
    steps(x, y, z, out, k)
    products(x, y, p)
    steps_of_products(p, z, row)
    exact(x, y, z, strict)


@pytest.mark.compiler
@pytest.mark.parametrize("which", ["gcc", "clang"])
def test_candidates_round_what_feeds_steps(which: str, tmp_path: Path) -> None:
    """With the flags that users' builds have, whatever is fused, in scalars and in vectors."""
    own = find_compiler()
    known = {Path(c.path).name: c for c in (own, *other_compilers(own))}
    if which not in known:
        pytest.skip(f"no {which}")
    x, y, z = numbers()
    arrays = {"x": x, "y": y, "z": z, "out": np.zeros((4, N)), "k": np.zeros(N, np.int64)}
    arrays |= {"p": np.zeros(N), "row": np.zeros(N), "strict": np.zeros((3, N))}
    recording = record_sequence(sequence, tuple(arrays.values()), name="steps")
    space = build_space(normalise(recording), checking.target(2, 32))
    total = x * y + z
    want = dict(arrays) | {
        "out": np.array([np.floor(total), total < 0, np.mod(total, 2.0), np.ceil(total)], float),
        "k": (total * 1e17).astype(np.int64),
        "p": x * y,
        "row": np.floor(total),
        "strict": np.array([total, total, z + 0.0]),
    }
    rng = np.random.default_rng(5)
    drawn = [checking.random_candidate(space.root(), rng) for _ in range(3)]
    sources = [checking.source_of(c) for c in drawn if isinstance(c, Candidate)]
    contracts = next(f for f in known[which].flags if f.startswith("-ffp-contract="))
    flags = ("-O2", "-march=native", contracts)
    inputs = [InputSet(arrays, {}, want, 0.0, 0.0)]
    given = (sources, inputs, tmp_path, Way(repeats=1))
    assert not checking.fault(*given, compiler=which, more_flags=flags, may_warn=True)

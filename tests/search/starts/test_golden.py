"""The first candidates of every library sequence, decision by decision, on machines of round numbers: what is tried first decides
what a short search finds, so it only changes where it is meant to.
"""

from __future__ import annotations

from hashlib import sha256

from kernelscape.kernels.library import load, names
from kernelscape.search.starts.complete import sketched_candidates
from kernelscape.space.candidate import Space
from kernelscape.space.decisions import to_names
from kernelscape.testing.machines import library_space, round_target
from kernelscape.tests.space.gpu_target import GPU

_PLACES = (
    (round_target(), 96),
    (round_target(), 2048),
    (GPU, 2048),
)  # in the caches, and in memory


def _listed(space: Space) -> list[str]:
    """A line a candidate, in the order of trying: a digest of all its decisions by name."""
    found = []
    for _, candidate in sketched_candidates(space):
        text = "\n".join(f"{name}={value}" for name, value in sorted(to_names(candidate)))
        found.append(f"  {sha256(text.encode()).hexdigest()[:16]}")
    return found


def test_first_candidates_are_those_that_they_were(golden) -> None:
    lines = []
    for name in names():
        for target, n in _PLACES:
            sizes = dict.fromkeys(load(name).sizes, n)
            space = library_space(name, target, **sizes)
            lines += [f"{name} {n} on {target.backend}", *_listed(space)]
    golden("\n".join(lines) + "\n", "first_candidates.txt")

"""Are the generated kernels right, and does NVRTC take them? Random candidates of GPU spaces, against the interpreter.

    python -m kernelscape.experiments.gpu_correctness [--n 2000] [--seed 1] [--add]

writes experiments/results/gpu_correctness.md. With --add the pieces of other seeds that are there stay, and the counts
are those of all. Every candidate is compiled by NVRTC for two architectures, and run with threads in forward, backward and random
order. The exit status is 1 when any is wrong, refused, or compiles with warnings.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..codegen.text.source import Source
from ..testing import gpu_checking
from ..testing.calling import InputSet
from ..testing.sampling import Checker, Faults
from .conditions import stamp
from .features import GPU_FEATURES, gpu_features
from .sampling import Sampling, run

_BUILDS_AT_ONCE = 2
_CORES = (
    0,
    2,
    1,
)  # multiprocessors, 0: as on the data sheet. With few, blocks take tiles of small problems in turn


def _check(sources: Sequence[Source], inputs: Sequence[InputSet], stem: Path) -> list[Faults]:
    folder = stem.parent
    with ThreadPoolExecutor(_BUILDS_AT_ONCE) as pool:
        found = pool.map(lambda s: gpu_checking.check(s, inputs, folder), sources)
        said = pool.map(lambda s: gpu_checking.compiler_says(s, folder), sources)
        checked = list(zip(sources, found, said, strict=True))
    for k, (source, wrong, log) in enumerate(checked):
        if wrong or log:
            stem.with_name(f"{stem.name}_{k}.cu").write_text(source.text)
    return [
        ({"wrong": wrong} if wrong else {}) | ({"refused": log} if log else {})
        for _, wrong, log in checked
    ]


QUESTION = Sampling(
    file="gpu_correctness",
    heading="Correctness of generated kernels",
    method=(
        "Random complete candidates, compiled by NVRTC for sm_80 and sm_90, run on the emulator with threads in forward,\n"
        "backward and random order, against the interpreter in float64."
    ),
    faults={"wrong": "wrong", "refused": "refused by NVRTC, or with warnings"},
    features=GPU_FEATURES,
    random_share=0.5,
    checker=Checker(
        candidates_of_a_problem=4,
        target=lambda number: gpu_checking.target(_CORES[zlib.crc32(b"%d" % number) % len(_CORES)]),
        source_of=gpu_checking.source_of,
        features_of=gpu_features,
        check=_check,
    ),
    conditions=stamp,
)
report = QUESTION.page


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    return run(QUESTION, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())

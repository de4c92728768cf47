"""Small hand-written sources and the inputs they run on."""

from __future__ import annotations

import numpy as np
from kernelscape.codegen.text.source import Argument, Source
from kernelscape.runtime.measure.conditions import Conditions
from kernelscape.runtime.records.record import BestFile
from kernelscape.runtime.records.stored import StoredSequence
from kernelscape.runtime.worker.input_sets import InputSet, InputSets
from kernelscape.runtime.worker.verify import Expected

N = 1000

ARGUMENTS = (
    Argument("x", "array", "float32", (N,)),
    Argument("y", "array", "float32", (N,)),
    Argument("z", "array", "float32", (N,)),
    Argument("alpha", "scalar", "float32", ()),
)

PRELUDE = """
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
enum { N = 1000 };
struct ks_team;
typedef void ks_part(void *given, long tid, long n_threads, struct ks_team *team);
void ks_team_run(ks_part *part, void *given, long n_threads, int meets);
struct given { const float *x; float *y, *z, alpha; };
static inline void part(void *given, long tid, long n_threads, struct ks_team *team) {
  struct given *g = given;
  for (long i = N * tid / n_threads; i < N * (tid + 1) / n_threads; i++) g->y[i] = g->z[i] = g->alpha * g->x[i] + g->y[i];
}
void entry(void **args) {
  const float *x = args[0]; float *y = args[1]; float *z = args[2];
  const float alpha = *(const float *)args[3];
"""

# z = alpha x + y, then y = z: an output and an array updated in place.
CORRECT = """
  struct given given = {x, y, z, alpha};
  ks_team_run(part, &given, 2, 0);
"""


def source(body: str = CORRECT, *, entry: str = "entry", workspace_bytes: int = 0) -> Source:
    """A source whose entry has `body`, on x (input), y (inout), z (output) and alpha."""
    arguments = ARGUMENTS
    if workspace_bytes:
        arguments += (Argument("workspace", "workspace", "uint8", (workspace_bytes,)),)
    return Source(PRELUDE + body + "}\n", entry, arguments, n_threads=2)


def input_sets(n_sets: int = 2) -> InputSets:
    rng = np.random.default_rng(7)
    sets = []
    for _ in range(n_sets):
        x = rng.uniform(-1, 1, N).astype(np.float32)
        y = rng.uniform(-1, 1, N).astype(np.float32)
        z = np.zeros(N, np.float32)
        want = np.float64(np.float32(0.5)) * x.astype(np.float64) + y
        expected = {"y": Expected(want), "z": Expected(want)}
        sets.append(InputSet({"x": x, "y": y, "z": z}, {"alpha": 0.5}, expected))
    return InputSets({"x": "input", "y": "inout", "z": "output"}, tuple(sets))


CONDITIONS = Conditions(
    taken="2030-01-01T00:00:00+00:00",
    machine="cpu-x",
    cpu="x",
    cores=2,
    caches={"L1": 1024},
    kernel="Linux",
    compiler="cc 1",
    flags=["-O2"],
    versions={},
    load_1min=0.0,
    huge_pages="",
    governor="",
    binding="",
    memory_bytes_per_ns=50.0,
)


def best(time_ns: float = 10.0, n: int = 8) -> BestFile:
    """A well-formed best.json."""
    return BestFile(
        schema=1,
        sequence="axpydot",
        sizes={"n": n},
        dtype="f32",
        problem_key=f"p{n}",
        space_key="s",
        target="cpu",
        decisions=(("order(a,b)", "BEFORE"),),
        source_key="k",
        time_ns=time_ns,
        spread=0.01,
        bound_ns=4.0,
        gap=(time_ns - 4.0) / time_ns,
        status="time_limit",
        baseline_ns=20.0,
        numpy_ns=None,
        evaluations=3,
        seed=1,
        verified="3 input sets",
        conditions=CONDITIONS,
        stored=StoredSequence("", "{}", (), {}, {}),
    )

"""`explore check`: somebody else's function for a known sequence."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kernelscape.explorer.external_function import functions_in
from kernelscape.runtime.worker.worker import Worker

from .command import USER_FILE, objects

RIGHT = """
// void not_this(float *p) { }
static void helper(float *p) { *p = 0; }
void mine(const float *w, const float *v, const float *u, float *z, float *r, float alpha) {
  float s = 0;
  for (int i = 0; i < N; i++) {
    z[i] = w[i] - alpha * v[i];
    s += z[i] * u[i];
  }
  *r = s;
}
"""
AS = ("--as", "axpydot", "--size", "n=1000")
needs_compiler = pytest.mark.compiler


@pytest.fixture
def mine() -> Path:
    path = Path("mine.c")
    path.write_text(RIGHT)
    return path


def edited(path: Path, old: str, new: str) -> Path:
    assert old in RIGHT
    path.write_text(RIGHT.replace(old, new, 1))
    return path


@needs_compiler
def test_a_right_function_is_timed_beside_ours(explore, mine: Path) -> None:
    code, out, err = explore("check", mine, *AS, "--json")
    assert code == 0, err
    (found,) = objects(out)
    assert (found["status"], found["function"], found["input_sets"]) == ("ok", "mine", 3)
    assert found["ours_is"].startswith("the first candidate ")
    assert 0 < found["bound_ns"] < found["ours_ns"]
    assert found["gap"] == pytest.approx(1 - found["bound_ns"] / found["time_ns"])


@needs_compiler
@pytest.mark.parametrize(
    ("old", "new", "code", "status", "words"),
    [
        ("i < N", "i < N - 1", 5, "wrong", "z[999] is nan"),
        ("*r = s", "*(volatile int *)0 = 1", 5, "crash", ""),
        ("*r = s", "for (volatile int k = 0;;) k++", 5, "timeout", "no answer within"),
        ("float s = 0", "float s = q", 2, "compile", "mine.c:5:"),
        ("const float *w", "const double *w", 2, "compile", ""),
    ],
)
def test_what_is_not_right_is_an_outcome(
    explore, mine: Path, monkeypatch, old: str, new: str, code: int, status: str, words: str
) -> None:
    if status == "timeout":
        monkeypatch.setattr(Worker, "deadline_s", lambda *_: 1.0)
    edited(mine, old, new)
    got, out, _ = explore("check", mine, *AS, "--json")
    (found,) = objects(out)
    assert (got, found["status"], found["verified"]) == (code, status, False)
    assert (found["time_ns"], found["ours_ns"], found["gap"]) == (None, None, None)
    assert words in found["detail"]


@needs_compiler
def test_a_vector_of_addresses_is_taken_as_generated_code_takes_it(explore) -> None:
    """Programs of experts are written so, with the size, the type and the threads as macros."""
    Path("scale.c").write_text(
        "void both(void **args) {\n  const REAL *x = args[0], f = *(REAL *)args[3];\n"
        "  REAL *y = args[1], *z = args[2];\n"
        "  for (long i = 0; i < N * THREADS / THREADS; i++) z[i] = f * (y[i] = f * x[i]);\n}\n"
    )
    Path("theirs.py").write_text(USER_FILE)
    code, out, err = explore(
        "check", "scale.c", "--as", "theirs.py:both", "--size", "n=8", "--dtype", "f64"
    )
    assert code == 0, err
    assert "verified on 3 input sets" in out


@needs_compiler
@pytest.mark.skipif(not shutil.which("g++") and not shutil.which("clang++"), reason="no C++")
def test_a_kernel_is_run_by_the_emulator(explore) -> None:
    pytest.importorskip("kernelscape.runtime.emulator")
    text = (
        'extern "C" __global__ void vadd(const float *w, const float *y, const float *z, float *x) {\n'
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < 300) x[i] = w[i] + y[i] + z[i];\n}\n"
    )
    Path("k.cu").write_text(text)
    given = ("--as", "vadd", "--size", "n=300", "--target", "emulator", "--grid", 3, "--block")
    code, out, err = explore("check", "k.cu", *given, 128)
    assert code == 0, err
    assert "verified on 3 input sets" in out and "times mean nothing" in out
    assert explore("check", "k.cu", *given, 64)[0] == 5
    code, _, err = explore("check", "k.cu", "--as", "vadd", "--target", "emulator", "--size", "n=9")
    assert code == 2 and "needs --grid and --block" in err


def test_functions_are_found_in_a_text() -> None:
    text = (
        'extern "C" void a(void) {}\nvoid\nb(int x[],\n  float y)\n{ if (x) { y(2); } }\nvoid c();'
    )
    assert [(f.name, f.parameters) for f in functions_in(text, kernels=False)] == [
        ("a", ()),
        ("b", ("int x[]", "float y")),
    ]
    kernel = (
        '__device__ void h(int n) {}\nextern "C" __global__ void\n__launch_bounds__(64) k(int n) {}'
    )
    assert [f.name for f in functions_in(kernel, kernels=True)] == ["k"]
    assert functions_in(kernel, kernels=False) == ()

"""Taichi's names, and programs that use them, as they are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import kernelscape as ks
import kernelscape.compat.taichi as ti
import numpy as np
import pytest
from kernelscape.compat.taichi import install
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.errors import LanguageError

WAVES = """
import subprocess
import sys
import taichi as ti

ti.init(arch=ti.cpu, default_fp=ti.float32)
img = ti.field(ti.f32, shape=(16, 8))

@ti.kernel
def paint(t: ti.f32):
    for i, j in img:
        img[i, j] = t + i * 0.01

gui = ti.GUI("waves", (16, 8))
t = 0.0
while gui.running and not gui.get_event(ti.GUI.ESCAPE):
    paint(t)
    t += 0.1
    gui.set_image(img)
    gui.show()
"""


@pytest.fixture(autouse=True)
def _no_program_before_or_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    yield
    ks.reset()


def test_names_are_ours_or_of_the_table() -> None:
    assert ti.kernel is ks.kernel and ti.float32 is ks.f32 and ti.field is ks.field
    assert ti.GUI.ESCAPE == "Escape" and ti.ui.LMB == "LMB"
    assert ti.types.vector is ks.types.vector and ti.types.f32 is ks.f32
    assert ti._lib.core.with_vulkan() is False


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("global_thread_idx", "of one block are not there yet"),
        ("Texture", "textures, which Taichi has on Vulkan and OpenGL alone, are not there"),
        ("nonsense", "ti.nonsense is not here"),
    ],
)
def test_a_name_that_is_not_here_says_so_at_its_line(name: str, said: str) -> None:
    with pytest.raises(LanguageError, match=said) as found:
        getattr(ti, name)
    assert found.value.where is not None and found.value.where.file == __file__
    assert not hasattr(ti, name)


def test_it_is_a_package_and_a_public_name() -> None:
    """The kind: a stand-in that only an attribute leads to, so that programs with one more import line end."""
    import kernelscape.compat.taichi.lang.exception as errors
    import kernelscape.compat.taichi.math as tm
    from kernelscape.compat.taichi.types import vector

    assert tm is ti.math and tm.vec3 is ks.math.vec3 and vector is ks.types.vector
    assert errors.TaichiIndexError is ks.errors.KernelIndexError
    assert ks.compat.taichi is ti
    with pytest.raises(ImportError, match=r"test_taichi.py:\d+: ti.aot is not here: modules"):
        import kernelscape.compat.taichi.aot  # noqa: F401
    with pytest.raises(AttributeError, match="has no attribute 'numba'"):
        _ = ks.compat.numba


def test_install_ends_with_its_block() -> None:
    before = sys.modules.get("taichi")
    with install():
        import taichi
        import taichi.ui as ui

        assert taichi.f32 is ks.f32 and ui.SPACE == " "
    assert sys.modules.get("taichi") is before and "taichi.ui" not in sys.modules


def test_a_program_runs_as_it_is_and_ends_after_its_frames(explore, tmp_path: Path) -> None:
    file = tmp_path / "waves.py"
    file.write_text(WAVES)
    code, _, err = explore("taichi", str(file), "--frames", "2", "-o", "pictures")
    assert code == 0 and "ended after 2 frames; 2 pictures in pictures" in err
    assert sorted(p.name for p in Path("pictures").iterdir()) == ["000001.png", "000002.png"]


OUTSIDE = """
import taichi as ti

ti.init()
x = ti.field(ti.f32, shape=4)

@ti.kernel
def shift():
    for i in x:
        x[i + 1] = 1

shift()
"""


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("import taichi as ti\nti.Texture\n", 2, "a.py:2: ti.Texture is not here"),
        ("import taichi as ti\nti.math.no\n", 2, "a.py:2: ti.math.no is not here\n"),
        ("\nfrom taichi import f32, Texture\n", 2, "a.py:2: ti.Texture is not here: textures"),
        ("import taichi.simt\n", 2, "a.py:1: ti.simt is not here: threads and shared memory"),
        ("from taichi.aot import X\n", 2, "a.py:1: ti.aot is not here: modules"),
        ("import taichi\n1 / 0\n", 1, "ZeroDivisionError: division by zero"),
        ("raise FileNotFoundError(2, 'No such file', 'a.png')\n", 1, "line 1, in <module>"),
        ("raise MemoryError\n", 1, "line 1, in <module>"),
        (
            OUTSIDE,
            1,
            "IndexError: the index `i + 1` of x leaves 0..3 (axis 0; kernel shift, line 10)",
        ),
        (
            OUTSIDE.replace("\nshift()", "\ntry:\n    shift()\nexcept IndexError:\n    1 / 0"),
            1,
            "During handling of the above exception",
        ),
        ("import sys\nsys.exit(3)\n", 3, ""),
        ("1 +\n", 2, "a.py:1: invalid syntax"),
        ("x = 1\0\n", 2, "explore: a.py: source code string cannot contain null bytes"),
    ],
)
def test_what_ends_a_program_is_told_as_it_is(
    explore, tmp_path: Path, text: str, code: int, said: str
) -> None:
    (tmp_path / "a.py").write_text(text)
    found, _, err = explore("taichi", "a.py", "-q")
    assert found == code and said in err
    assert ("Traceback" in err) == (code == 1)
    assert set(re.findall(r'File "(.*?)"', err)) <= {"a.py"}


def test_a_bug_of_ours_is_shown_whole_where_somebody_asks(explore) -> None:
    Path("a.py").write_text(OUTSIDE)
    _, _, err = explore("taichi", "a.py", "-v")
    files = [Path(name) for name in re.findall(r'File "(.*?)"', err)]
    assert any(file.is_relative_to(ks.__path__[0]) for file in files)


def test_an_import_of_what_is_not_here_may_be_done_without(explore) -> None:
    Path("a.py").write_text(
        "try:\n    from taichi.aot import Module\nexcept ImportError as e:\n    print(e)\n"
    )
    code, out, _ = explore("taichi", "a.py", "-q")
    assert code == 0 and out.startswith("a.py:2: ti.aot is not here: modules")


def test_pictures_that_cannot_be_written_are_told_before_the_program_runs(explore) -> None:
    Path("a.py").write_text("print('ran')\n")
    Path("file").touch()
    code, out, err = explore("taichi", "a.py", "-o", "file")
    assert (code, out) == (2, "") and "explore: file: File exists" in err


def test_a_picture_that_cannot_be_written_is_ours_to_tell(explore) -> None:
    Path("a.py").write_text(
        "import shutil, taichi as ti\ngui = ti.GUI('a', 8)\nshutil.rmtree('pictures')\n"
        "open('pictures', 'w').close()\ngui.show()\n"
    )
    code, _, err = explore("taichi", "a.py", "-o", "pictures")
    assert code == 2 and "explore: pictures: File exists" in err and "Traceback" not in err


def test_arguments_are_the_programs_own(explore, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import sys\nprint(sys.argv)\n")
    assert explore("taichi", "a.py", "-q", "x", "--size", "3")[0] == 0
    _, out, _ = explore("taichi", "a.py", "-q", "x", "--size", "3")
    assert out == "['a.py', 'x', '--size', '3']\n"


def test_a_graph_is_a_sequence() -> None:
    """Kind: calls that Taichi keeps elsewhere, and that a recorded function makes as any other."""
    ti.init(arch=ti.cpu)

    @ti.kernel
    def scale(x: ti.types.ndarray(dtype=ti.f32, ndim=1), k: ti.f32):
        for i in x:
            x[i] *= k

    @ti.kernel
    def add(x: ti.types.ndarray(dtype=ti.f32), y: ti.types.ndarray(dtype=ti.f32)):
        for i in x:
            y[i] += x[i]

    x, y = (ti.graph.Arg(ti.graph.ArgKind.NDARRAY, n, ti.f32, ndim=1) for n in "xy")
    builder = ti.graph.GraphBuilder()
    builder.dispatch(scale, x, 2.0)
    builder.dispatch(add, x, y)
    graph = builder.compile()

    def step(a: Any, b: Any) -> None:
        graph.run({"x": a, "y": b})

    a = np.ones(8, np.float32)
    recording = record_sequence(step, [a, a.copy()])
    ks.reset()
    assert [call.ir.name for call in recording.calls] == ["scale", "add"]


def test_a_program_may_end_within_its_block() -> None:
    code = "from kernelscape.compat.taichi import install\nc = install()\nc.__enter__()\nimport taichi as ti\nprint(ti.f32)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout and not done.stderr


def test_programs_ask_how_long_compilers_took() -> None:
    ti.init(arch=ti.cpu)
    seconds = ti.lang.impl.get_runtime().prog.get_total_compilation_time()
    subprocess.run([sys.executable, "-c", "sum(range(10**6))"], check=True)
    assert ti.lang.impl.get_runtime().prog.get_total_compilation_time() > seconds
    ti.reset()

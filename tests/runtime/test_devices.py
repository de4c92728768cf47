"""The device contract, and what is particular to the cpu device."""

from __future__ import annotations

import shutil
import subprocess
import sys

import numpy as np
import pytest
from kernelscape.codegen.text.source import Source
from kernelscape.runtime.api.errors import DeviceError
from kernelscape.runtime.api.outcome import Failure, Measurement, Protocol
from kernelscape.runtime.cpu.compiler import (
    FEWER_PASSES,
    LEVEL,
    compiler_named,
    find_compiler,
    run_compiler,
)
from kernelscape.runtime.device import DeviceOptions, open_device
from kernelscape.runtime.fake.device import FakeDevice, FakeWorker
from kernelscape.runtime.worker.channel import Channel

from ..contracts.device import DeviceContract
from .sources import ARGUMENTS, N
from .sources import source as make_source


class TestCpuDevice(DeviceContract):
    @pytest.fixture
    def device(self, cpu):
        return cpu

    @pytest.fixture
    def source(self):
        return make_source()

    @pytest.fixture
    def broken_source(self):
        return make_source("#error no\n")


class TestFakeDevice(DeviceContract):
    @pytest.fixture
    def device(self):
        return FakeDevice()

    @pytest.fixture
    def source(self):
        return make_source()

    @pytest.fixture
    def broken_source(self):
        return make_source("#error no\n")


def test_missing_backend_is_a_sentence():
    with pytest.raises(DeviceError, match="no backend 'quantum'; this installation has cpu"):
        open_device("quantum")


def test_missing_compiler_is_a_sentence():
    device = open_device("cpu", DeviceOptions(compiler="no-such-compiler"))
    with pytest.raises(DeviceError, match=r"no-such-compiler: not found.*here (is|are) "):
        device.builder.build(make_source())


def test_compiler_that_is_none_is_a_sentence():
    with pytest.raises(DeviceError, match="true: "):
        find_compiler("true")


@pytest.mark.compiler
@pytest.mark.skipif(shutil.which("clang") is None, reason="needs clang")
def test_only_gcc_is_spared_passes_of_gcc():
    gcc, clang = find_compiler("gcc"), find_compiler("clang")
    assert set(FEWER_PASSES) <= set(gcc.flags) and LEVEL not in gcc.flags
    assert not set(FEWER_PASSES) & set(clang.flags) and LEVEL in clang.flags
    for compiler in (gcc, clang):
        whole = compiler.unspared().flags
        assert whole.count(LEVEL) == 1 and not set(FEWER_PASSES) & set(whole)


@pytest.mark.compiler
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_gcc_that_does_not_know_a_flag_does_all_of_the_level(tmp_path):
    old = tmp_path / "gcc"
    old.write_text(
        '#!/bin/sh\ncase "$*" in *-fno-ipa-modref*) echo unknown option >&2; exit 1;; esac\n'
        f'exec {shutil.which("gcc")} "$@"\n'
    )
    old.chmod(0o755)
    flags = find_compiler(str(old)).flags
    assert LEVEL in flags and not set(FEWER_PASSES) & set(flags)


def test_compiler_past_its_deadline_is_killed(tmp_path):
    """Kind: what a program that is killed leaves in the system's temporary folder."""
    failure = run_compiler(["sh", "-c", 'touch "$TMPDIR/left"; sleep 60'], 1.0, tmp_path)
    assert failure is not None
    assert failure.kind == "compile"
    assert "1 s" in failure.advice
    assert (tmp_path / "left").exists()


def test_compile_failure_shows_what_the_compiler_said(cpu):
    failure = cpu.builder.build(make_source("#error these words\n"))
    assert isinstance(failure, Failure)
    assert "these words" in failure.log


def test_printed_command_line_builds(cpu, tmp_path):
    text = tmp_path / "kernel.c"
    text.write_text(make_source().text)
    output = tmp_path / "kernel.so"
    printed = cpu.builder.compiler.command_line(text, output).split()
    assert run_compiler(printed, 60.0) is None
    assert output.exists()
    own = cpu.builder.compiler.command(text, output, ())
    source = printed.index(str(text))
    assert own[: source + 1] == printed[: source + 1], "they differ in what is linked alone"


@pytest.mark.compiler
@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")
def test_gcc_need_not_read_the_c_library(tmp_path):
    """A library linked so finds functions of mathematics and of memory wherever it is loaded."""
    gcc = find_compiler("gcc")
    assert "-nostdlib" in gcc.linked and "-nostdlib" not in gcc.unspared().linked
    text, output = tmp_path / "all.c", tmp_path / "all.so"
    text.write_text(
        "#include <math.h>\n#include <string.h>\n"
        "double all(double *p, int n);\n"
        "double all(double *p, int n) {\n"
        "  memset(p, 0, n * sizeof *p);\n"
        "  p[0] += exp(n) + sin(n);\n"
        "  return p[0];\n"
        "}\n"
    )
    assert run_compiler(gcc.command(text, output, ()), 60.0) is None
    load = f"import ctypes; ctypes.CDLL({str(output)!r}).all"
    assert subprocess.run([sys.executable, "-S", "-c", load], check=False).returncode == 0
    named = output.read_bytes()
    assert b"libm.so" in named and b"libc.so" not in named


def test_numpy_arrays_are_used_in_place(cpu):
    module = cpu.runner.load(cpu.builder.build(make_source()))
    x, y, z = np.ones(N, np.float32), np.ones(N, np.float32), np.zeros(N, np.float32)
    module.run([x, y, z, 3.0])
    assert (z == 4).all()
    assert (y == 4).all()


@pytest.mark.parametrize(
    "bad",
    [np.ones(N), np.ones(N + 1, np.float32), np.ones(2 * N, np.float32)[::2], 1.0],
    ids=["dtype", "shape", "strides", "scalar"],
)
def test_arguments_that_do_not_fit_are_named(cpu, bad):
    module = cpu.runner.load(cpu.builder.build(make_source()))
    fine = np.ones(N, np.float32)
    with pytest.raises(TypeError, match="argument y must be"):
        module.run([fine, bad, fine, 1.0])


def test_own_workspace_is_there_when_none_is_given(cpu):
    body = "for (int i = 0; i < 64; i++) ((char *)args[4])[i] = 1; z[0] = 5;"
    module = cpu.runner.load(cpu.builder.build(make_source(body, workspace_bytes=64)))
    x = np.ones(N, np.float32)
    module.run([x, x, x, 1.0])
    assert x[0] == 5


@pytest.mark.parametrize("n_bytes", [4, 4096, 5 << 20])
def test_arrays_are_aligned_and_guarded(cpu, n_bytes):
    array = cpu.runner.allocate((n_bytes,), np.dtype(np.uint8))
    first, end = array.span
    assert first % 64 == 0
    assert end - first == n_bytes
    array.poison()
    array._behind[0] = 0
    assert array.trespass() == "behind it"
    array.poison()
    assert array.trespass() is None


def test_views_outlive_their_array(cpu):
    view = cpu.runner.allocate((5000,), np.dtype(np.float32)).host[10:]
    view[:] = 1
    assert view.sum() == 4990


def test_other_flags_give_other_artifacts(cpu):
    plain = make_source()
    flagged = Source(plain.text, "entry", ARGUMENTS, 2, flags=("-DX=1",))
    assert cpu.builder.build(plain).key != cpu.builder.build(flagged).key


def test_fake_device_follows_its_script():
    good, slow = make_source(), make_source("int slow;")
    device = FakeDevice(lambda key: 5.0 if key == good.key else 9.0, {slow.key: "crash"})
    worker = FakeWorker(device)
    assert worker.evaluate(device.builder.build(good), Protocol()) == Measurement(5, 0, 5, 1, 1, 0)
    outcome = worker.evaluate(device.builder.build(slow), Protocol())
    assert isinstance(outcome, Failure)
    assert outcome.kind == "crash"
    assert worker.n_evaluations == 2


def test_a_compiler_is_found_again_by_what_it_says_of_itself(tmp_path, monkeypatch):
    for name in ("gcc", "clang"):
        fake = tmp_path / name
        fake.write_text(f"#!/bin/sh\necho {name} 99.1\n")
        fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert compiler_named("clang 99.1") == "clang"
    assert compiler_named("gcc 99.1") is None  # it is taken anyway
    assert compiler_named("icc 7") is None


@pytest.mark.compiler
@pytest.mark.skipif(shutil.which("clang") is None, reason="needs clang, which stands in for zig")
def test_where_no_compiler_is_that_of_pypi_is_found(tmp_path, monkeypatch, explore):
    """The clang of ziglang is the sub-command `cc` of a program in a package, and no command of the system."""
    package = tmp_path / "ziglang"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "zig").write_text(
        f'#!/bin/sh\n[ "$1" = cc ] || exit 9\nshift\nexec {shutil.which("clang")} "$@"\n'
    )
    (package / "zig").chmod(0o755)
    tools = tmp_path / "bin"  # what clang itself calls, and no compiler
    tools.mkdir()
    (tools / "ld").symlink_to(shutil.which("ld"))
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(DeviceError, match=r"zig: not found.*pip install.*\[compiler\]"):
        find_compiler()
    monkeypatch.syspath_prepend(tmp_path)
    found = find_compiler()
    assert found.path == str(package / "zig")
    assert f"{package / 'zig'} cc " in found.command_line("a.c", "a.so")
    assert f"{found.path}: {found.version}, works" in explore("doctor", "-v")[1]


def test_settings_of_a_child_are_those_it_is_given(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    given = {"OPENBLAS_NUM_THREADS": "2"}
    environment = Channel("cpu", None, tmp_path, environment=given)._environment()
    assert environment["OPENBLAS_NUM_THREADS"] == "2"
    assert "OPENBLAS_CORETYPE" not in environment and "OMP_NUM_THREADS" not in environment


def test_what_others_wrote_is_built_with_all_passes(cpu):
    """As a search's own texts are not; a device that spares none is its own."""
    theirs = cpu.with_all_passes()
    assert not set(FEWER_PASSES) & set(theirs.reporter.flags())
    assert LEVEL in theirs.reporter.flags()
    assert theirs.builder.options.build_folder == cpu.builder.options.build_folder
    assert cpu.reporter.flags() == cpu.builder.compiler.flags != theirs.reporter.flags()
    fake = FakeDevice()
    assert fake.with_all_passes() is fake

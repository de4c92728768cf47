"""`ks.init` and the options of a program."""

from __future__ import annotations

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.fields.program import current_program, element_dtype
from kernelscape.kernels.frontend.recorder import record_program
from kernelscape.kernels.ir.kernel import DType


def test_init_keeps_its_options():
    ks.init(ks.cpu, default_fp=ks.f64, default_ip=ks.i64, debug=True, random_seed=5)
    config = current_program().config
    assert (config.default_fp, config.default_ip) == (DType.f64, DType.i64)
    assert config.debug and config.random_seed == 5 and config.fast_math
    assert (ks.cfg.arch, ks.cfg.random_seed, ks.cfg.debug) == (ks.cpu, 5, True)


def test_float_and_int_are_the_defaults_of_the_program():
    assert (element_dtype(float), element_dtype(int)) == (DType.f32, DType.i32)
    ks.init(default_fp=np.float32, default_ip=np.int64)
    assert (element_dtype(float), element_dtype(int)) == (DType.f32, DType.i64)


def test_options_of_taichi_without_meaning_are_taken():
    ks.init(arch=ks.cpu, kernel_profiler=True, device_memory_fraction=0.5)
    assert ks.cfg.kernel_profiler is True and ks.cfg.print_ir is None
    assert current_program().ignored["device_memory_fraction"] == 0.5
    with pytest.raises(AttributeError, match="no option 'nonsense'"):
        _ = ks.cfg.nonsense


@pytest.mark.parametrize("arch", [ks.gpu, ks.cuda, ks.vulkan, [ks.cuda, ks.metal]])
def test_a_gpu_is_the_cpu_and_that_is_said(arch, capsys):
    ks.init(arch=arch)
    said = capsys.readouterr().err
    assert ks.cfg.arch is ks.cpu and said.count("\n") == 1 and "runs on the CPU" in said


@pytest.mark.parametrize("arch", [ks.cpu, ks.x64, [ks.cuda, ks.cpu], None])
def test_a_cpu_is_silent(arch, capsys):
    ks.init(arch=arch)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"nonsense": 3},
            "ks.init has no option nonsense: it has ad_stack_size, arch, async_flush_every, async_mode, cpu_max_num_threads",
        ),
        ({"gdb_triger": 3}, r"ks.init has no option gdb_triger: did you mean gdb_trigger\?"),
        ({"arch": "cpu"}, "'cpu' is nothing that programs run on"),
        (
            {"default_fp": ks.i32},
            "default_fp is .*i32.*, it must be a type of floats such as ks.f32",
        ),
        ({"default_ip": bool}, "default_ip is .*bool.*, it must be a type of integers such as"),
        ({"default_fp": float}, "default_fp is .*float.*, it must be a type of floats"),
        ({"random_seed": 1.5}, "random_seed is 1.5, it must be a whole number"),
        ({"cpu_max_num_threads": -1}, "cpu_max_num_threads is -1"),
    ],
)
def test_wrong_options_are_one_sentence_with_its_line(options, sentence):
    with pytest.raises(ks.LanguageError, match=sentence) as caught:
        ks.init(**options)
    assert caught.value.where.file == __file__


def test_a_program_that_was_not_begun_has_no_fields():
    ks.reset()
    assert current_program() is None
    for make in (lambda: ks.field(ks.f32, 3), ks.FieldsBuilder, lambda: ks.root.shape):
        with pytest.raises(ks.LanguageError, match=r"needs a program: call ks.init\(\) first"):
            make()


def test_fields_end_with_their_program():
    x = ks.field(ks.f32, 3)
    v = ks.Vector.field(2, ks.f32, 3)
    x.fill(1)
    ks.init()
    for use in (lambda: x[0], lambda: v.to_numpy()):
        with pytest.raises(ks.LanguageError, match="is gone: its program has ended"):
            use()
    assert current_program().fields == []


def test_sync_returns():
    assert ks.sync() is None


@pytest.mark.parametrize(
    "between",
    [
        lambda x, _: x.__setitem__(1, 2),
        lambda x, _: x[1],
        lambda x, _: x.from_numpy(np.ones(4, np.float32)),
        lambda _, node: ks.activate(node, 1),
    ],
)
def test_python_reads_and_writes_no_field_within_a_sequence(between):
    ks.init()
    x = ks.field(ks.f32)
    node = ks.root.pointer(ks.i, 4)
    node.place(x)
    dense = ks.field(ks.f32, shape=4)

    @ks.kernel
    def add():
        for i in x:
            x[i] += 1

    def step(f):
        n = int(dense[0]) + 1  # before the first call
        for _ in range(n):
            add()
        between(f, node)
        add()

    for f in (x, dense):
        with pytest.raises(ks.LanguageError, match=r"test_program.py:.*only calls kernels"):
            record_program(lambda f=f: step(f), ())
    add()
    between(x, node)  # outside of one it may

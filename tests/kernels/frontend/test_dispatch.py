"""Calls go to one executor: that of the block around them, else the one that is installed."""

from __future__ import annotations

import re
import runpy
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.fields.program import current_program
from kernelscape.kernels.frontend.dispatch import Executor, current, eager, install, using
from kernelscape.kernels.frontend.instance import KernelCall
from kernelscape.kernels.frontend.recorder import Recorder, record_sequence
from kernelscape.kernels.interpret.executor import Interpreter

ROOT = Path(__file__).parents[3]
HEADING = "### Where would you add an executor that logs calls?"
MOST_LINES = 30


class Log(Executor):
    """Names of the kernels that were called; as a list it is empty at first, and so false."""

    def __init__(self, behind: Executor) -> None:
        self.behind, self.names = behind, []

    def __len__(self) -> int:
        return len(self.names)

    def run(self, call: KernelCall) -> Any:
        self.names.append(call.instance.ir.name)
        return self.behind.run(call)


@pytest.fixture(autouse=True)
def no_program_afterwards() -> Iterator[None]:
    yield
    ks.reset()


@ks.kernel
def add(x: ks.types.ndarray(), a: float):
    for i in range(x.shape[0]):
        x[i] += a


@ks.kernel
def total(x: ks.types.ndarray()) -> float:
    s = 0.0
    for i in range(x.shape[0]):
        s += x[i]
    return s


@pytest.mark.compiler
@pytest.mark.parametrize("make", [eager, Interpreter, lambda: Log(eager())])
def test_each_executor_does_what_the_kernel_says(make: Callable[[], Executor]) -> None:
    """Plain arrays with a result, one array twice, fields, and sparse fields, whose kernels executors see in two forms."""

    @ks.kernel
    def both(x: ks.types.ndarray(), y: ks.types.ndarray()):
        for i in range(4):
            x[i] += y[i]

    with using(make()):
        x = np.ones(4)
        add(x, 1.0)
        assert total(x) == 8
        both(x, x)
        assert x.tolist() == [4.0] * 4
        ks.init()
        f, s = ks.field(ks.i32, 4), ks.field(ks.i32)
        ks.root.pointer(ks.i, 2).dense(ks.i, 2).place(s)

        @ks.kernel
        def fields():
            for i in f:
                f[i] += i
            for i in s:
                s[i] += f[i]

        s[2] = 1
        fields()
        assert f.to_numpy().tolist() == [0, 1, 2, 3]
        assert s.to_numpy().tolist() == [0, 0, 3, 3]
        with pytest.raises(ks.LanguageError, match="this call gives 1") as caught:
            add(x)
        assert caught.value.where.file == __file__


@pytest.mark.compiler
def test_the_innermost_block_has_the_calls() -> None:
    outer, inner, x = Log(eager()), Log(Interpreter()), np.ones(4)
    with using(outer):
        add(x, 1.0)
        with pytest.raises(ks.LanguageError, match="this call gives 1"), using(inner):
            add(x)
        with using(inner):
            add(x, 1.0)
        assert current() is outer
        recording = record_sequence(lambda y: add(y, 1.0), (x,))
        with ks.record() as recorder:
            assert isinstance(current(), Recorder)
            with ks.interpret():
                add(x, 1.0)
                assert isinstance(ks.ndarray(float, 3), ks.Ndarray)
    assert (outer.names, inner.names) == (["add"], ["add"])
    assert len(recording.calls) == 1 and recorder.calls == () and x[0] == 4


@pytest.mark.compiler
def test_calls_that_are_quick_still_go_to_the_executor_of_a_block() -> None:
    """The kind: a cache in front of the executors that answers for one that it has not asked."""
    ks.init()
    x = ks.field(ks.f32, 4)

    @ks.kernel
    def more():
        for i in x:
            x[i] += 1

    for _ in range(3):
        more()
    quick = more.quick
    quick._known[()] = object()  # whoever asks the cache for it fails
    of_program = current()
    quick._program, quick._executor = current_program(), of_program
    log = Log(eager())
    with using(log):
        more()
    with ks.interpret():
        more()
    with ks.record() as recorder:
        more()
    install(log)
    more()
    assert log.names == ["more", "more"] and len(recorder.calls) == 1
    with pytest.raises(AttributeError):
        install(of_program) or more()
    assert x.to_numpy().tolist() == [6.0] * 4


@pytest.mark.compiler
def test_what_is_installed_has_the_calls_of_all_threads_until_the_program_ends() -> None:
    log, x = Log(eager()), np.ones(4)
    install(log)
    thread = threading.Thread(target=add, args=(x, 1.0))
    thread.start()
    thread.join()
    assert log.names == ["add"] and x[0] == 2
    ks.reset()
    assert current() is eager()


@pytest.mark.compiler
def test_the_example_of_an_executor_logs_calls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text().partition(HEADING)[2]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None and found[1].count("\n") <= MOST_LINES
    program = tmp_path / "program.py"
    program.write_text(found[1])
    names = runpy.run_path(str(program))
    assert names["x"].tolist() == [4.0] * 4
    said = capsys.readouterr().out.splitlines()
    assert [re.sub(r"\d+", "LINE", line) for line in said] == ["LINE: double(x)"] * 2

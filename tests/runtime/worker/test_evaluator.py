"""Calls that an evaluation makes of a program, counted: those of long programs take most of a search."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kernelscape.codegen.text.source import Argument
from kernelscape.runtime.api.outcome import Measurement, Protocol
from kernelscape.runtime.worker import messages
from kernelscape.runtime.worker.evaluator import Evaluator


class Module:
    """A program that counts its calls, as a runner loads it and times it."""

    component_ns = ()

    def __init__(self) -> None:
        self.n_calls = 0
        self.artifact = SimpleNamespace(
            arguments=[Argument("x", "array", "float32", (4,))], workspace_bytes=0
        )

    def run(self, values: Any) -> None:
        self.n_calls += 1

    def close(self) -> None:
        pass

    def load(self, artifact: Any) -> Module:
        return self

    def time(self, calls: Any, protocol: Protocol) -> list[Measurement]:
        return [Measurement(1.0, 0.0, 1.0, 1, 1, 0)] * len(calls)


@pytest.mark.parametrize(("role", "n_calls"), [("output", 1), ("inout", 0)])
@pytest.mark.parametrize("control", [None, "control"])
def test_programs_that_are_restored_before_samples_are_not_called_before_the_first(
    role: str, n_calls: int, control: str | None
) -> None:
    """Restoring ends with a call, which is before the first sample, too."""
    module: Any = Module()
    evaluator = Evaluator(SimpleNamespace(), module, 1)  # type: ignore[arg-type]
    evaluator._roles = {"x": role}
    placed: Any = SimpleNamespace(arrays={"x": 0}, contents={"x": 0}, scalars={}, expected={})
    evaluator._sets = [placed]
    beside: Any = None if control is None else module.artifact
    request = messages.Evaluate(module.artifact, Protocol(), False, beside)
    assert isinstance(evaluator._evaluate(request), Measurement)
    assert module.n_calls == n_calls * (1 if control is None else 2)

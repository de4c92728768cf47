"""Runs generated CUDA text on the GPU of this machine, with arguments made to show mistakes, and compares what it leaves.

Arrays lie between guards and the workspace holds NaN, as in calling.py. Texts of a batch share a child, whose context they all lose
where one of them leaves its arrays: those behind it run in another. This process itself never opens the GPU, since no context
outlives a fork.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from ..codegen.text.source import Source
from ..runtime.api.artifact import Artifact
from ..runtime.api.backend import AbstractArray, AbstractModule, AbstractRunner, RunError
from ..runtime.api.errors import DeviceError
from ..runtime.api.outcome import Failure
from ..runtime.device import DeviceOptions, open_device
from ..space.targets.target import Target
from .calling import Arrays, InputSet, Judge, in_child, mismatch

_BUILDS_AT_ONCE = 4
_BUILD_S = 240.0  # of a text of random decisions, beside other compilers
_BATCH_S, _ALONE_S = 240.0, 30.0
_MOST, _LONGEST = 6, 500  # answers of a child, and characters of one: a pipe holds so much

Run = Callable[["Loaded", int], str]
"""The fault of a text, the n-th of a batch; "" for none."""


class Loaded:
    """A text that is loaded, in the process that calls it."""

    def __init__(self, source: Source, module: AbstractModule, runner: AbstractRunner) -> None:
        self.source, self.module, self._runner = source, module, runner

    def call(self, inputs: InputSet, judge: Judge | None = None) -> str:
        """The fault of a call, "" for none; `judge` returns that of the values, if given."""
        held: dict[str, AbstractArray] = {}
        values: list[AbstractArray | int | float | bool] = []
        for a in self.source.arguments:
            if a.kind == "scalar":
                values.append(np.array(inputs.scalars[a.name], a.dtype).item())
                continue
            # NaN as f32 and as f64: an accumulator that nobody set spoils the result.
            garbage = np.full(a.shape, 0xFF, np.uint8)
            contents = inputs.arrays[a.name] if a.kind == "array" else garbage
            held[a.name] = array = self._runner.allocate(a.shape, contents.dtype)
            array.upload(np.ascontiguousarray(contents))
            values.append(array)
        self.module.run(values)
        for name, array in held.items():
            where = array.trespass()
            if where is not None:
                return f"{name} was written {where}"
        got = {a.name: held[a.name].download() for a in self.source.arguments if a.kind == "array"}
        return _wrong(got, inputs, judge)


def _wrong(got: Arrays, inputs: InputSet, judge: Judge | None) -> str:
    for name, n_kept in inputs.kept.items():
        if name in got and not np.array_equal(
            got[name][..., :n_kept], inputs.arrays[name][..., :n_kept], equal_nan=False
        ):
            return f"the first {n_kept} elements of a row of {name} were written"
    if judge is not None:
        return judge(got)
    return next((said for name in got if (said := mismatch(got[name], inputs, name))), "")


def why_not(device: str = "cuda") -> str:
    """Why texts cannot run on this machine, "" where they can."""

    def asked() -> str:
        try:
            open_device(device).runner.check()
        except DeviceError as e:
            return str(e)
        return ""

    return in_child(asked, _ALONE_S)


@cache
def target(device: str = "cuda") -> Target:
    """The facts of the GPU. Raises DeviceError where there is none."""
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        return pool.submit(_facts, device).result()


def _facts(device: str) -> Target:
    found = open_device(device)
    found.runner.check()
    return found.machine.facts()


def faults(sources: Sequence[Source], run: Run, folder: Path, device: str = "cuda") -> list[str]:
    """The fault of each text, "" for none: built in a folder, and run."""
    found: dict[int, str] = {}
    first = 0
    while first < len(sources):
        numbers = range(first, len(sources))
        said = in_child(partial(_batch, sources, numbers, run, folder, device), _BATCH_S)
        if said.startswith("{"):
            answer = json.loads(said)
            found |= {int(k): what for k, what in answer["wrong"].items()}
            first = answer["next"]
            continue
        for k in numbers:  # the child ended: by which of them?
            said = in_child(partial(_batch, sources, (k,), run, folder, device), _ALONE_S)
            found[k] = json.loads(said)["wrong"].get(str(k), "") if said.startswith("{") else said
        break
    return [found.get(k, "") for k in range(len(sources))]


def _batch(
    sources: Sequence[Source], numbers: Sequence[int], run: Run, folder: Path, device: str
) -> str:
    """The faults of some texts, and the number of the first that has not run."""
    here = open_device(device, DeviceOptions(build_folder=folder, compile_timeout_s=_BUILD_S))
    with ThreadPoolExecutor(_BUILDS_AT_ONCE) as pool:
        built = [*pool.map(lambda k: here.builder.build(sources[k]), numbers)]
    wrong: dict[int, str] = {}
    for k, artifact in zip(numbers, built, strict=True):
        what, is_lost = _one(artifact, sources[k], k, run, here.runner)
        if what:
            wrong[k] = " ".join(what.split())[:_LONGEST]
        if is_lost or len(wrong) == _MOST:
            return json.dumps({"wrong": wrong, "next": k + 1})
    return json.dumps({"wrong": wrong, "next": numbers[-1] + 1})


def _one(
    built: Artifact | Failure, source: Source, number: int, run: Run, runner: AbstractRunner
) -> tuple[str, bool]:
    """The fault of a text, and True if its process can run no other."""
    if isinstance(built, Failure):
        return f"not built: {built.kind}: {built.advice} {built.log}", False
    module = runner.load(built)
    if isinstance(module, Failure):
        return f"not loaded: {module.kind}: {module.advice}", False
    try:
        return run(Loaded(source, module, runner), number), False
    except RunError as e:
        return f"{e.failure.kind}: {e.failure.advice}", e.is_lost
    finally:
        module.close()

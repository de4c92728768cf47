"""Texts that run on a GPU are judged as others are; here the emulator stands for one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from kernelscape.codegen.text.source import Source
from kernelscape.testing import gpu_running
from kernelscape.testing.calling import InputSet

from ..runtime import gpu_sources as gpu
from ..runtime.sources import N

TEXTS = {
    "right": gpu.CORRECT,
    "a value": gpu.CORRECT + "    if (i == 17) z[17] += 1;\n",
    "what is kept": gpu.CORRECT + "    if (i == 0) ((float *)x)[1] = 2;\n",
    "just behind": gpu.CORRECT + "    if (i == 0) z[1000] = 0;\n",
    "also right": gpu.CORRECT,
    "no text": "#error these words\n",
    "ends": gpu.CORRECT + "    __builtin_trap();\n",
}


def inputs() -> InputSet:
    x, y = (np.arange(N, dtype=np.float32) + k for k in (1, 2))
    z = 0.5 * x + y
    want = {"x": x, "y": z, "z": z}
    arrays = {"x": x, "y": y, "z": np.full(N, np.nan, np.float32)}
    return InputSet(arrays, {"alpha": 0.5}, want, 4.0, 2.0 * N, {"x": 3})


def ran(texts: list[str], folder: Path) -> list[str]:
    given, sources = inputs(), [gpu.source(text) for text in texts]
    return gpu_running.faults(sources, lambda x, _: x.call(given), folder, "emulator")


def test_each_text_is_told_what_is_wrong_with_it(tmp_path: Path) -> None:
    said = dict(zip(TEXTS, ran([*TEXTS.values()], tmp_path), strict=True))
    assert said["right"] == said["also right"] == ""
    assert said["a value"].startswith("z[17] is")
    assert "x" in said["what is kept"]
    assert "z" in said["just behind"]
    assert said["no text"].startswith("not built: compile")
    assert said["ends"].startswith("crashed with signal")


def test_those_behind_a_lost_context_run_in_another(
    tmp_path: Path,
) -> None:
    given, good = inputs(), gpu.source()

    def run(loaded: gpu_running.Loaded, k: int) -> str:
        if k == 1:
            raise gpu_running.RunError(
                gpu_running.Failure("crash", "it left its arrays"), is_lost=True
            )
        return loaded.call(given)

    bad: Source = gpu.source(TEXTS["a value"])
    said = gpu_running.faults([good, good, bad], run, tmp_path, "emulator")
    assert said[:2] == ["", "crash: it left its arrays"]
    assert said[2].startswith("z[17]")


def test_what_stands_for_a_gpu_is_there() -> None:
    assert gpu_running.why_not("emulator") == ""
    assert gpu_running.target("emulator").backend == "emulator"

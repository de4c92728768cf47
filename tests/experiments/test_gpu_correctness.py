"""The experiment on generated kernels can be made in pieces."""

from __future__ import annotations

import msgspec
import pytest

pytest.importorskip("kernelscape.runtime.emulator")
pytest.importorskip("kernelscape.runtime.cuda")
from kernelscape.experiments import gpu_checking, gpu_correctness
from kernelscape.experiments.gpu_correctness import Record, Tally, main, run, stored_tally


@pytest.fixture
def checked(monkeypatch):
    """Texts that were checked; nothing is compiled, and every seventh text is wrong."""
    texts = []

    def check(source, inputs, folder):
        texts.append(source.key)
        return "wrong" if len(texts) % 7 == 0 else ""

    monkeypatch.setattr(gpu_checking, "check", check)
    monkeypatch.setattr(gpu_checking, "compiler_says", lambda source, folder: "")
    monkeypatch.setattr(gpu_correctness, "BUILDS_AT_ONCE", 1)
    return texts


def test_pieces_are_the_whole(checked, tmp_path):
    whole = Tally("key")
    assert run(whole, 30, 5, 0.4, tmp_path)
    texts = list(checked)
    checked.clear()
    part = Tally("key")
    while not run(part, 30, 5, 0.4, tmp_path, lambda tally: tally.n_problems % 3 != 0):
        record = msgspec.json.encode(Record(part, gpu_correctness.take_conditions()))
        part = msgspec.json.decode(record, type=Record).tally  # as from the file
    assert checked == texts
    assert (part.n_candidates, part.of_library) == (30, 18)
    assert (part.n_library, part.n_random) == (whole.n_library, whole.n_random)
    assert part.features == whole.features
    assert part.texts == set(texts)
    assert len(part.wrong) == len(whole.wrong) == 4


def test_a_command_stops_in_time_goes_on_and_says_what_is_wrong(checked, tmp_path, capsys):
    given = ["--n", "5", "--random-share", "0", "-o", str(tmp_path)]
    assert main([*given, "--minutes", "1e-9"]) == 2
    assert "run the same again" in capsys.readouterr().out
    n_before = len(checked)
    assert 0 < n_before < 5
    assert main(given) == 0
    assert len(checked) == 5
    place = tmp_path / "gpu_correctness.json"
    key = msgspec.json.decode(place.read_bytes(), type=Record).tally.key
    assert stored_tally(place, key).n_candidates == 5
    assert stored_tally(place, "of other code").n_candidates == 0
    assert main([*given, "--seed", "2", "--n", "9"]) == 1
    assert "| **wrong** | 2 |" in (tmp_path / "gpu_correctness.md").read_text()

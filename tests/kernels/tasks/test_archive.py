import json
from typing import Any

import numpy as np
import pytest
from kernelscape.kernels.frontend.recorder import Recording, record_sequence
from kernelscape.kernels.library import load, names
from kernelscape.kernels.tasks.archive import ArchiveError, from_values, to_values


def recording_of(name: str) -> Recording:
    entry = load(name)
    sizes = entry.complete(dict.fromkeys(entry.sizes, 8))
    arguments = entry.make_arguments(sizes, np.float32, np.random.default_rng(0))
    return record_sequence(entry.sequence, arguments, entry.name)


@pytest.mark.parametrize("name", names())
def test_round_trip(name: str) -> None:
    recording = recording_of(name)
    text = json.dumps(to_values(recording), allow_nan=False)
    assert from_values(json.loads(text)) == recording


def nodes(x: Any) -> list[dict[str, Any]]:
    below = x.values() if isinstance(x, dict) else x if isinstance(x, list) else ()
    return ([x] if isinstance(x, dict) else []) + [n for e in below for n in nodes(e)]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda n: n.update({"is": "Popen"}), "is not expected here"),
        (lambda n: n.update({"more": 1}), "has the fields"),
        (lambda n: n.clear(), "is not expected here"),
        (lambda n: n.update({next(k for k in n if k != "is"): {"is": []}}), "."),
    ],
)
def test_other_values_are_refused(change: Any, sentence: str) -> None:
    for k in range(len(nodes(to_values(recording_of("axpydot"))))):
        values = json.loads(json.dumps(to_values(recording_of("axpydot"))))
        change(nodes(values)[k])
        with pytest.raises(ArchiveError, match=sentence):
            from_values(values)


@pytest.mark.parametrize("values", [None, 3, [], {}, {"is": "Recording"}, "x"])
def test_no_recording_is_refused(values: Any) -> None:
    with pytest.raises(ArchiveError):
        from_values(values)


def test_no_file_says_that_indices_are_right() -> None:
    values = json.loads(json.dumps(to_values(recording_of("axpydot"))))
    assert not {"trees", "placed", "independent", "trusted", "shared"} & set(
        values["calls"][0]["ir"]
    )
    values["calls"][0]["ir"]["trusted"] = ["x"]
    with pytest.raises(ArchiveError, match="says what is trusted"):
        from_values(values)

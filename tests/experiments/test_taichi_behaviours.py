"""Small programs in Taichi's language show what Taichi showed, but for those whose difference has a reason."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import kernelscape as ks
import pytest
from kernelscape.experiments.taichi_behaviours import FILE, REASONS, report, same, unpacked
from kernelscape.experiments.writing import RESULTS
from kernelscape.kernels.interpret.executor import interpret
from kernelscape.runtime.device import backends
from kernelscape.testing.observing import (
    behaviours,
    files,
    is_like,
    observe,
    plain,
    run,
    sentence,
    taichi_of,
)

# Each machine ran some of the topics.
RAW = sorted((RESULTS / "raw").glob(f"{FILE}.*.json"))
VALUES: dict[str, Any] = json.loads(RAW[0].read_text())
VALUES["rows"] = [row for raw in RAW for row in json.loads(raw.read_text())["rows"]]
SHOWN = {f"{r['file']}:{r['name']}": r for r in unpacked(VALUES["rows"])}
# Compiled here; the others are by the experiment.
COMPILED = [
    "arguments:arguments_of_type_bool",
    "arguments:arrays_of_small_integers",
    "boundaries:clamped_stores",
    "casts:augmented_assignment_keeps_the_type",
    "casts:bools_of_u1_are_kept_in_fields",
    "casts:small_integers_meet",
    "classes:methods_are_functions",
    "classes:methods_are_kernels",
    "conditions:and_and_or_of_numbers",
    "element_wise:quotients_of_integers_are_floats",
    "element_wise:two_operands_of_floats",
    "element_wise:two_operands_of_integers",
    "errors_of_statements:assertions_in_parallel_loops_that_do_not_hold",
    "errors_of_statements:assertions_that_do_not_hold",
    "errors_of_indices:indices_outside_of_fields_in_debug_mode",
    "fields:offsets_shift_indices",
    "functions:plain_functions_are_inlined",
    "grouped:grouped_loops_over_fields",
    "jumps:escape_times_of_a_fractal",
    "large_vectors:stores_to_components_of_64",
    "loops:statements_stand_between_loops",
    "matrices:rows_are_chosen_at_run_time",
    "printing:unsigned_numbers_are_printed_whole",
    "random_numbers:a_seed_gives_the_same_numbers_again",
    "random_numbers:another_call_draws_other_numbers",
    "reductions:most_atomics_give_the_old_value",
    "reductions:old_values_are_different_in_parallel",
    "return_values:wide_numbers_are_returned_whole",
    "sparse_activation:cells_are_deactivated_and_activated_often_in_one_kernel",
    "sparse_activation:deactivated_cells_of_pointers_read_zero_and_begin_anew",
    "sparse_activation:deactivation_of_a_node_takes_all_below_along",
    "sparse_activation:is_active_takes_vectors_and_lists",
    "sparse_lists:lists_below_pointers",
    "sparse_lists:structs_are_appended",
    "sparse_loops:cells_that_a_loop_activates_are_not_visited_by_it",
    "sparse_loops:indices_are_rescaled_between_levels",
    "sparse_loops:loops_may_deactivate_their_own_cell",
    "sparse_loops:loops_over_nodes_of_each_level",
    "sparse_python:deactivate_all_of_a_node",
    "sparse_sequences:many_mixed_kernels_one_after_the_other",
    "structs:dataclasses_have_methods",
    "structs:methods_of_elements_of_fields",
    "templates:dictionaries_are_constant_tables",
]
# What a topic needs of others.
NEEDED = {"sparse_matrices": "scipy"}
# As CUDA text on the emulator: True if all of their kernels run there.
EMULATED = {
    "casts:small_integers_meet": True,
    "element_wise:two_operands_of_floats": True,
    "fields:offsets_shift_indices": True,
    "jumps:escape_times_of_a_fractal": True,
    "loops:statements_stand_between_loops": True,
    "matrices:rows_are_chosen_at_run_time": True,
    "printing:unsigned_numbers_are_printed_whole": False,
    "random_numbers:another_call_draws_other_numbers": True,
    "reductions:most_atomics_give_the_old_value": True,
    "sparse_loops:loops_may_deactivate_their_own_cell": True,
    "sparse_sequences:many_mixed_kernels_one_after_the_other": True,
    "structs:methods_of_elements_of_fields": True,
}


@pytest.fixture(autouse=True)
def _no_program_afterwards():
    yield
    ks.reset()


def unlike(lines: list[dict[str, Any]]) -> list[str]:
    """The behaviours that do not show what Taichi showed."""
    keys = {f"{line['file']}:{line['name']}": line for line in lines if "begun" not in line}
    assert keys
    return [
        key
        for key, line in keys.items()
        if "value" in SHOWN[key]["taichi"] and not same(line, SHOWN[key]["taichi"])
    ]


@pytest.mark.filterwarnings("ignore:.*the nearest element is read")
@pytest.mark.parametrize("file", files())
def test_behaviours_of_a_topic_are_those_of_taichi(
    file: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Through the interpreter, which is quick to begin."""
    if file in NEEDED:
        pytest.importorskip(NEEDED[file], reason=f"{file} needs {NEEDED[file]}")
    with interpret(), capfd.disabled():
        lines = list(run("ours", [file]))
    found = unlike(lines)
    failed = {f"{file}:{line['name']}" for line in lines if "error" in line}
    assert failed <= REASONS.keys(), "a behaviour that fails here judges nothing"
    assert sorted(found) == sorted(key for key in REASONS if key.startswith(f"{file}:"))


def test_derivatives_of_kernels_are_compared_in_80_ways() -> None:
    with taichi_of("ours"):
        assert len(behaviours("derivatives")) >= 80


def test_compiled_ones_are_those_of_taichi(capfd: pytest.CaptureFixture[str]) -> None:
    with capfd.disabled():
        found = unlike(list(run("ours", COMPILED)))
    assert found == []


@pytest.mark.skipif("emulator" not in backends(), reason="there is no emulator")
@pytest.mark.filterwarnings("ignore:the kernel .* runs on the CPU, since it prints")
def test_emulated_ones_are_those_of_taichi(capfd: pytest.CaptureFixture[str]) -> None:
    """The others are by `python -m kernelscape.testing.observing emulator`."""
    with capfd.disabled():
        lines = [x for x in run("emulator", list(EMULATED)) if "begun" not in x]
    assert unlike(lines) == []
    ran_on = {
        f"{x['file']}:{x['name']}": {name for runs in x["runs"].values() for name in runs}
        for x in lines
    }
    assert {key: names == {"emulator"} for key, names in ran_on.items()} == EMULATED


def test_what_is_refused_is_refused_by_a_sentence_with_its_place() -> None:
    with taichi_of("ours"), interpret():
        from kernelscape.testing.behaviours.seeing import heard

        heard.clear()
        list(run("ours", ["functions", "jumps", "loops", "matrices", "return_values"]))
    assert len(heard) > 20
    for error in (
        e for e in heard if not isinstance(e, AttributeError)
    ):  # `hasattr` asks for these
        assert isinstance(error, ks.LanguageError | AssertionError), repr(error)
        assert re.fullmatch(r"\S+\.py:\d+: .+", str(error)), repr(error)
    heard.clear()


def test_values_are_like_where_types_and_numbers_are() -> None:
    assert is_like([1, 2.0], [1, 2.0000001]) and not is_like([1, 2.0], [1, 2.001])
    assert not is_like(1, 1.0) and not is_like(True, 1) and not is_like([1], [1, 1])
    assert is_like(float("nan"), float("nan")) and not is_like(float("nan"), 1.0)
    assert not is_like(plain(ks.f64(1)), plain(ks.f64(1 + 1e-9)))
    assert is_like(plain(ks.f32(1)), plain(ks.f32(1 + 1e-6)))
    with pytest.raises(TypeError, match="a behaviour returned a set"):
        plain({1})


def test_a_behaviour_that_fails_shows_its_error() -> None:
    def fails() -> None:
        raise ValueError("two\nlines")

    with taichi_of("ours"):
        assert observe(fails) == {"error": "ValueError: two lines"}


def test_errors_are_kept_without_sources_and_places() -> None:
    mark = '\nFile "/usr/it/file.py", line 4, in work:\n        k = f(3)\n            ^^^^\n'
    below = 'Traceback (most recent call last):\n  File "/usr/t.py", line 2, in f\n    raise E(x)\n'
    assert sentence(f"{mark}f takes no numbers.") == "f takes no numbers."
    assert sentence(f"{mark}{below}E: f has no k\n") == "E: f has no k"
    assert sentence("some/file.py:12: f calls itself: a / b") == "f calls itself: a / b"
    assert sentence("no file /usr/it/data.json here") == "no file data.json here"


def test_the_page_counts_and_gives_reasons(tmp_path: Path) -> None:
    text = report(VALUES)
    wrong = [key for key, r in SHOWN.items() if key in REASONS]
    known = [r for r in SHOWN.values() if "value" in r["taichi"]]
    right = len(known) - len(wrong)
    assert f"{right} of {len(known)} behaviours are Taichi's: {right / len(known):.1%}." in text
    assert right >= 0.9 * len(known) and "not looked at yet" not in text

"""Samples of candidates are counted, and pieces of a sample add up."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest
from kernelscape.experiments import correctness, gpu_correctness, sampling
from kernelscape.experiments.sampling import report, run, stored_pieces, texts_of
from kernelscape.experiments.writing import write_results
from kernelscape.kernels.library import names
from kernelscape.testing.cases import SIZES, library_cases, random_cases

# Nothing is compiled: what is wrong is made up.
RIGHT = replace(
    correctness.QUESTION.checker, check=lambda sources, inputs, stem: [{} for _ in sources]
)
QUESTION = replace(correctness.QUESTION, checker=RIGHT, random_share=0.0)
WRONG = replace(
    QUESTION,
    checker=replace(
        RIGHT, check=lambda sources, inputs, stem: [{"wrong": "off by one"} for _ in sources]
    ),
)


def sampled(folder, *more, question=QUESTION):
    return run(question, None, ["--n", "8", "-o", str(folder), *more])


def test_pieces_of_several_seeds_add_up(tmp_path, capsys):
    assert sampled(tmp_path, "--seed", "1") == 0
    assert sampled(tmp_path, "--seed", "2", "--add") == 0
    pieces = stored_pieces("correctness", tmp_path)
    assert [p["seed"] for p in pieces] == [1, 2]
    assert all(p["n_candidates"] == len(p["texts"].split()) == 8 for p in pieces)
    assert len(texts_of(pieces)) == 16
    text = (tmp_path / "correctness.md").read_text()
    assert "| candidates, of different texts | 16 |" in text
    for seed in (1, 2):
        assert f"correctness --n 8 --seed {seed} --random-share 0.0` in " in text
    assert text.count("numpy ") == text.count(f"generator {sampling.generator_hash()}") == 2


def test_a_piece_of_the_same_seed_is_made_again_and_without_add_all_are(tmp_path, capsys):
    sampled(tmp_path, "--seed", "1")
    first = stored_pieces("correctness", tmp_path)
    sampled(tmp_path, "--seed", "1", "--add")
    again = stored_pieces("correctness", tmp_path)
    assert len(again) == 1
    assert again[0]["texts"] == first[0]["texts"]
    sampled(tmp_path, "--seed", "2")
    assert [p["seed"] for p in stored_pieces("correctness", tmp_path)] == [2]


def test_faults_are_counted_told_and_fail(tmp_path, capsys):
    assert sampled(tmp_path, question=WRONG) == 1
    assert "wrong: atax {'m': 2, 'n': 3}, 2 cores, 64 B, " in capsys.readouterr().err
    assert sampled(tmp_path, "--seed", "2", "--add") == 0
    assert "| **wrong** | 8 |" in (tmp_path / "correctness.md").read_text()
    assert sampled(tmp_path, "--stop", question=WRONG) == 1
    assert stored_pieces("correctness", tmp_path)[0]["n_candidates"] < 8


@pytest.mark.parametrize("question", [correctness.QUESTION, gpu_correctness.QUESTION])
def test_results_of_a_single_run_are_a_piece(question, tmp_path):
    old = {
        "n_candidates": 2000,
        "n_wrong": 0,
        "features": {"VECTOR": 7},
        "conditions": {"taken": "then", "cpu": "a CPU", "cores": 2, "kernel": "Linux", "versions": {}},
    }  # fmt: skip
    write_results(question.file, question.page, old, tmp_path)
    pieces = stored_pieces(question.file, tmp_path)
    text = report(question, pieces)
    assert f"{question.file} --n 2000`: then, a CPU" in text
    assert "| candidates, of different texts | 2000 |" in text
    assert "| VECTOR | 7 |" in text


def test_only_named_sequences_are_taken():
    only = ["matmul", "axpy"]
    assert {c.name.split()[0] for c in islice(library_cases(1, only), 8)} == {*only}


def test_pieces_begin_with_other_sizes_and_other_random_problems():
    n = len(names())
    whole = [c.name for c in islice(library_cases(), (len(SIZES) + 1) * n)]
    assert whole[:n] == whole[len(SIZES) * n :]
    assert [c.name for c in islice(library_cases(1), n)] == whole[n : 2 * n]
    one, two = ([c.problem for c in islice(random_cases(seed), 2)] for seed in (1, 2))
    assert one != two
    assert one == [c.problem for c in islice(random_cases(1), 2)]


@pytest.mark.compiler
@pytest.mark.slow
@pytest.mark.parametrize("experiment", [correctness, gpu_correctness])
def test_a_few_candidates_of_both_kinds_are_right(experiment, tmp_path, capsys):
    if experiment is gpu_correctness:
        pytest.importorskip("kernelscape.runtime.emulator")
    assert experiment.main(["--n", "8", "-o", str(tmp_path)]) == 0, capsys.readouterr().err
    [piece] = stored_pieces(experiment.QUESTION.file, tmp_path)
    assert (piece["n_candidates"], piece["n_wrong"]) == (8, 0)
    assert 0 < piece["of_library"] < 8
    assert sum(piece["features"].values()) > 8

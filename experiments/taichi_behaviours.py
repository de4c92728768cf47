"""Do the small programs of testing/behaviours show the same here and with Taichi?

    python -m kernelscape.experiments.taichi_behaviours [--taichi PYTHON] [--only FILE ...]

PYTHON is the interpreter of an environment with taichi 1.7.4. Without it what Taichi showed the last time is compared with, if the
behaviour has not changed its name. A file runs in a process of its own; one that ends it counts as wrong, and the others go on in
another. Writes experiments/results/taichi_behaviours.md; takes two minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..testing.observing import behaviours, files, is_like, taichi_of, title
from .conditions import stamp, stamp_text, versions_in
from .turns import this_package
from .writing import parser_of, read_results, table, write_results

FILE = "taichi_behaviours"
LIMIT_S = 240.0  # of one file with one of the two
# Why what differs is left as it is.
_MORE = "More is allowed here: it means what it means in Python."
_NARROWER = "Both refuse it; the class here derives from Taichi's and says more."
_PYTHONS = "Both refuse it; the class here is Python's for such a mistake, Taichi's follows from how it is written."
_INDEX = "It is Taichi's class, and Python's IndexError too."
_LOST = "Taichi takes it, and what is given would be lost without a word."
REASONS: dict[str, str] = {
    "casts:true_and_false_are_numbers": "Sums of truth values are whole numbers here; Taichi's have one bit, so that 1 + 1 is 0.",
    "conditions:ternaries_evaluate_one_side": "As in Python; Taichi evaluates both sides and their side effects.",
    "conditions:and_and_or_stop_early": "As in Python; Taichi does so with `short_circuit_operators` only.",
    "conditions:tuples_are_unpacked": _MORE,
    "conditions:membership_of_numbers_at_run_time": _MORE,
    "derivatives:local_matrices_that_loops_multiply": (
        "The derivative of the trace of A A A by an element of its diagonal is 3 times that element of A A; Taichi's is another."
    ),
    "element_wise:remainders_of_negative_constants": "Taichi folds constants as C does, and computes numbers of the run as here.",
    "errors_of_fields:gradients_of_integers": _PYTHONS,
    "errors_of_statements:assignments_to_numbers_of_the_module": _NARROWER,
    "element_types:different_vectors_are_not_equal": "Taichi takes each vector for true, also one of zeros.",
    "errors_of_arguments:arrays_of_complex_numbers": _MORE,
    "errors_of_operators:bits_of_floats_that_are_joined_in_place": "Refused as `a | 1` is; Taichi ends the process at its use.",
    "errors_of_fields:builders_that_are_finalized_twice": _PYTHONS,
    "errors_of_operators:chained_comparisons_that_are_not_numbers": _MORE,
    "errors_of_names:components_that_vectors_have_not_from_python": "An AttributeError, which `hasattr` asks for.",
    "errors_of_operators:cross_products_of_two_lengths": _NARROWER,
    "errors_of_arguments:errors_of_numbers_in_kernels": _LOST,
    "errors_of_fields:fields_are_copied_from_numbers": _PYTHONS,
    "errors_of_fields:fields_without_a_place": _PYTHONS,
    "errors_of_arguments:functions_called_from_python": _MORE,
    "errors_of_indices:indices_of_fields_from_python_that_are_too_many": _INDEX,
    "errors_of_indices:indices_of_vectors_from_python_that_are_too_many": _PYTHONS,
    "errors_of_indices:indices_outside_of_fields_from_python_in_debug_mode": _INDEX,
    "errors_of_fields:loops_over_fields_from_python": _PYTHONS,
    "errors_of_statements:loops_over_lists": _MORE,
    "errors_of_names:members_that_structs_have_not": _NARROWER,
    "errors_of_fields:ndarrays_of_another_shape_are_copied": _PYTHONS,
    "errors_of_fields:nodes_with_an_extent_that_is_none": _PYTHONS,
    "errors_of_fields:options_of_a_wrong_type": "Taichi takes a text for an architecture, and asserts that types are types.",
    "errors_of_arguments:parameters_with_defaults": _MORE,
    "errors_of_operators:products_from_python_that_do_not_fit": _PYTHONS,
    "errors_of_statements:ranges_of_floats": "Refused as Python does; Taichi warns and cuts.",
    "errors_of_arguments:returns_of_texts": _NARROWER,
    "errors_of_arguments:returns_of_too_many_numbers": _NARROWER,
    "errors_of_arguments:returns_of_vectors_for_numbers": _NARROWER,
    "errors_of_names:structs_with_too_many_members": _LOST,
    "errors_of_names:types_of_structs_with_members_that_are_none": _LOST,
    "errors_of_fields:types_of_vectors_without_a_length": _PYTHONS,
    "errors_of_arguments:vectors_of_another_length": _PYTHONS,
    "errors_of_statements:vectors_put_into_numbers": "Taichi ends with a failure of its own where the result is used.",
    "errors_of_operators:vectors_with_components_of_two_kinds": _LOST,
    "errors_of_names:words_of_kernels_called_from_python": _PYTHONS,
    "functions:early_returns_of_functions": _MORE,
    "functions:functions_are_not_called_from_python": "A function without its mark is run by Python: kernels are compared with it.",
    "jumps:returns_in_while_loops_are_an_error": _MORE,
    "jumps:a_break_in_a_static_loop_needs_a_static_condition": _MORE,
    "loops:inner_ranges_have_steps": _MORE,
    "matrices:components_counted_from_the_end": _MORE,
    "packs:packs_with_other_members_are_refused": _LOST,
    "return_values:early_returns_of_kernels": _MORE,
    "sparse_activation:activation_of_a_leaf_activates_all_above_it": (
        "Taichi makes the cell active in the container that all inactive cells above share."
    ),
    "sparse_activation:deactivated_cells_of_bitmasked_nodes_keep_what_they_had": (
        "What is deactivated begins anew with zero, whatever the node; Taichi clears the bit only."
    ),
    "sparse_loops:extents_of_one_axis_that_are_no_powers_of_two": (
        "Taichi leaves out the last cells of a leaf of 7 where the extents above are no powers of two."
    ),
    "sparse_trees:hash_nodes": _MORE,
}


def observed(who: str, python: str, asked: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What was asked for (`FILE:NAME`) shows, run in as few processes as there are ends of processes."""
    found: dict[str, dict[str, Any]] = {}
    left = list(asked)
    with this_package() as (place, environment):
        while left:
            command = [python, "-m", "kernelscape.testing.observing", who, *left]
            begun = ""
            try:
                done = subprocess.run(
                    command,
                    env=os.environ | environment,
                    cwd=place,
                    capture_output=True,
                    text=True,
                    timeout=LIMIT_S,
                )
                text, end = done.stdout, f"ended the process with code {done.returncode}"
            except subprocess.TimeoutExpired as e:
                text, end = (e.stdout or b"").decode(), f"no end within {LIMIT_S:.0f} s"
            for line in text.splitlines():
                if line.startswith('{"begun"'):
                    begun = json.loads(line)["begun"]
                elif line.startswith('{"file"'):
                    said = json.loads(line)
                    key = f"{said.pop('file')}:{said.pop('name')}"
                    found[key] = said
            if begun not in found:
                found[begun or left[0]] = {"error": end}
            left = [key for key in left if key not in found]
    return found


def verdict(row: Mapping[str, Any]) -> str:
    """`right`, `wrong`, or `not known` where Taichi itself showed nothing."""
    if "taichi" not in row or "error" in row["taichi"]:
        return "not known"
    return "right" if same(row["ours"], row["taichi"]) else "wrong"


def same(ours: Mapping[str, Any], taichi: Mapping[str, Any]) -> bool:
    """Whether both show the same."""
    return "value" in ours and is_like(ours["value"], taichi["value"])


def words(name: str) -> str:
    """A behaviour's name as words."""
    return name.replace("_", " ")


def shown(said: Mapping[str, Any], most: int = 90) -> str:
    """What one of the two showed, shortened, for a cell of a table."""
    text = str(said.get("value", said.get("error", "nothing")))
    text = " ".join(text.split()).replace("|", "/")
    return text if len(text) <= most else f"{text[:most]}..."


def report(values: dict[str, Any]) -> str:
    """The results as Markdown."""
    rows = unpacked(values["rows"])
    known = [r for r in rows if verdict(r) != "not known"]
    right = [r for r in known if verdict(r) == "right"]
    wrong = [r for r in known if verdict(r) == "wrong"]
    unknown = [r for r in rows if verdict(r) == "not known"]
    topics = []
    for file in sorted({r["file"] for r in rows}):
        mine = [r for r in known if r["file"] == file]
        good = sum(verdict(r) == "right" for r in mine)
        topics.append([title(file), *map(str, (len(mine), good, len(mine) - good))])
    share = len(right) / max(len(known), 1)
    blocks = [
        "# Behaviours of Taichi's language",
        "\n".join(
            [
                stamp_text(values["stamp"]),
                f"- taichi {values['version']}, on the CPU. Each behaviour is a function of `testing/behaviours/`,"
                " the same text for both; it returns what is to be seen, and that is compared:"
                " types and lengths, floats to 4e-6 (f64 arrays to 1e-12).",
            ]
        ),
        f"{len(right)} of {len(known)} behaviours are Taichi's: {share:.1%}.",
        table(["topic", "tried", "right", "wrong"], topics),
    ]
    if wrong:
        body = [
            [
                f"{r['file']}: {words(r['name'])}",
                shown(r["ours"]),
                shown(r["taichi"]),
                REASONS.get(f"{r['file']}:{r['name']}", "not looked at yet"),
            ]
            for r in wrong
        ]
        blocks += ["What is wrong, and why:", table(["what", "here", "Taichi", "reason"], body)]
    if unknown:
        body = [[f"{r['file']}: {words(r['name'])}", shown(r.get("taichi", {}))] for r in unknown]
        blocks += [
            "Tried and not counted, as Taichi itself fails:",
            table(["what", "Taichi"], body),
        ]
    blocks += ["What was tried, by topic:"]
    for file in sorted({r["file"] for r in rows}):
        names = [words(r["name"]) for r in rows if r["file"] == file]
        blocks.append(f"## {title(file)}\n\n" + "\n".join(f"- {name}" for name in names))
    return "\n\n".join(blocks) + "\n"


def run(taichi: str | None, chosen: Sequence[str], folder: Path | None) -> None:
    """Runs files of behaviours, and writes what came out."""
    values: dict[str, Any] = {"rows": [], "version": ""} | read_results(FILE, folder)
    before = {f"{r['file']}:{r['name']}": r for r in unpacked(values["rows"])}
    if taichi is not None:
        values["version"] = versions_in({"taichi": taichi})["taichi"]
    rows = []
    with taichi_of("ours"):
        names = {file: list(behaviours(file)) for file in files()}
    for file in files():
        keys = [f"{file}:{name}" for name in names[file]]
        if file not in chosen:
            rows += [before[key] for key in keys if key in before]
            continue
        ours = observed("ours", sys.executable, keys)
        theirs = observed("taichi", taichi, keys) if taichi else {}
        for name, key in zip(names[file], keys, strict=True):
            row = {"file": file, "name": name, "ours": ours[key]}
            said = theirs.get(key) or before.get(key, {}).get("taichi")
            rows.append(row | ({"taichi": said} if said else {}))
        mine = [r for r in rows if r["file"] == file]
        bad = [r["name"] for r in mine if verdict(r) == "wrong"]
        print(f"{file}: {len(mine)} tried, wrong: {', '.join(bad) or 'none'}", flush=True)
    values |= {"rows": packed(rows), "stamp": stamp()}
    write_results(FILE, report, values, folder)


def packed(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows as they are kept: each is one line of text."""
    return [json.dumps(row) for row in rows]


def unpacked(rows: Sequence[str]) -> list[dict[str, Any]]:
    """The reverse of `packed`."""
    return [json.loads(row) for row in rows]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--taichi", metavar="PYTHON")
    parser.add_argument("--only", nargs="*", default=(), metavar="FILE")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.only if name not in files()]
    if unknown:
        parser.error(f"there is no file {', '.join(unknown)}: {', '.join(files())}")
    run(given.taichi, given.only or files(), given.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())

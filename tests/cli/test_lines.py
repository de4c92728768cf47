"""Lines of `--json`: what they hold, and that each is declared in one place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from kernelscape.cli.schema import events, line_schema
from kernelscape.explorer import stages as st
from kernelscape.explorer.alike import disagreed
from kernelscape.kernels.ir.body import Closure
from kernelscape.runtime.api.outcome import Disagreement
from kernelscape.search import events as ev
from kernelscape.search.line import AbstractLine, Inside, line_class, line_fields, line_text
from kernelscape.testing.machines import library_space

TALLY = ev.Tally(explored=5, pruned_bound=2, rollout_bound=1, pruned_csp=3, ok=4, bad=1)


def told() -> Iterator[Any]:
    """The events of a run that are lines, each once, and one that is none."""
    space = library_space("axpydot", n=64)
    yield st.Compiling("half of it")
    yield st.Opened(
        run_dir="runs/one",
        problem=space.problem.name,
        problem_key="0123",
        space_key="4567",
        target=space.target.name,
        calibrated=space.target.calibrated,
        seed=1,
        resumed=3,
        notes=("a note",),
        fixed={"fused": "SEPARATE"},
        space=space,
        given=(("max_evals", "3"),),
        prepare_s=0.5,
        calibrated_by="explore calibrate",
    )
    yield st.Rooted(100.5, {"memory": 100.5, "operations": 3.0})
    yield st.OutOfTime(2.0, "the reference was computed")
    yield st.ReferenceTooSlow(1.0, False)
    yield st.FirstWrong("89ab", "z[3] is off")
    yield st.RoundingMeasured(1, ("1 of 9 elements of z lies on a branch",))
    yield disagreed(8, Disagreement(0, "z", (7, 1), "1", "2", 1, 256))
    yield st.Compared(300.0, None, 3)
    yield st.NumpyTimed(400.0, 0.01, 20, 2)
    yield st.MachineChanged(1.6)
    again = (
        st.RemeasuredCandidate("89ab", 200.0, 0.02, 210.0),
        st.RemeasuredCandidate("cdef", 201.0, 0.03, 190.0),
    )
    yield st.Remeasured(again, 2, False)
    yield st.Confirmed("two/cpu", 204.0, 1.02, 0.97, False)
    yield st.OtherCompiler("clang 14", 190.0, 0.95)
    yield ev.Row(
        elapsed_s=1.235,
        source="W",
        new_best=True,
        explored=TALLY.explored,
        open=9,
        pruned_bound=3,
        pruned_csp=3,
        bound_ns=100.5,
        best_ns=200.0,
        spread=0.02,
        gap=0.4975,
        ok=4,
        wrong=1,
        crash=0,
        timeout=0,
        unbuilt=0,
        tally=TALLY,
    )
    yield ev.AdmissibilityAlarm(90.0, 100.5, b"89ab")
    yield ev.Widened(80.0)
    yield ev.Components(
        (
            ev.ComponentRow(
                name="smooth0 to smooth1",
                places=4,
                time_ns=150.0,
                share=0.75,
                bound_ns=60.0,
                tried=9,
                is_explored=False,
                decisions={"fused smooth0 smooth1": "SAME_LAUNCH"},
            ),
        )
    )
    yield st.Ended(status="time_limit", run_dir="runs/one", elapsed_s=2.5)
    yield st.Ended(
        status="optimal_open",
        best_ns=200.0,
        spread=0.02,
        bound_ns=100.5,
        gap=0.4975,
        bound_now_ns=110.0,
        gap_now=0.45,
        baseline_ns=300.0,
        numpy_ns=400.0,
        evaluations=5,
        failures={"crash": 1, "wrong": 1},
        verified=True,
        compiler="gcc 12",
        run_dir="runs/one",
        elapsed_s=2.5,
        non_affine=(
            st.NonAffineRow("positive0", Closure.IN_TURN, "a while loop", "skipping.py", 9),
        ),
        doubts=("few candidates",),
        fixed={"fused": "SEPARATE"},
        n_input_sets=3,
        is_for_input=True,
    )


def test_lines_of_a_run_are_what_they_were(golden) -> None:
    """The kind: a field that a change of an event renames, moves, adds or drops for those who read the lines."""
    lines = [e for e in told() if isinstance(e, AbstractLine)]
    for line in lines:
        msgspec.convert(msgspec.json.decode(line_text(line)), line_class(type(line)))
    golden("".join(f"{line_text(line)}\n" for line in lines), "run_lines.jsonl")


def test_the_schema_is_what_it_was(golden) -> None:
    parts = line_schema()["$defs"]
    shown = []
    for name in sorted(events()):
        (part,) = [p for p in parts.values() if kind_of(p) == name]
        assert set(part["required"]) <= part["properties"].keys()
        fields = {k: shape(x, parts) for k, x in part["properties"].items() if k != "event"}
        optional = part["properties"].keys() - set(part["required"])
        shown += [name, *(f"  {k}{'?' * (k in optional)}: {x}" for k, x in fields.items())]
    golden("\n".join(shown) + "\n", "line_schema.txt")


def kind_of(part: dict[str, Any]) -> str | None:
    return (part.get("properties", {}).get("event", {}).get("enum") or [None])[0]


def shape(x: dict[str, Any], parts: dict[str, Any]) -> str:
    """A JSON schema in a few words."""
    if "$ref" in x:
        return shape(parts[x["$ref"].split("/")[-1]], parts)
    if "anyOf" in x:
        return " or ".join(sorted(shape(y, parts) for y in x["anyOf"]))
    if "enum" in x:
        return "|".join(sorted(map(str, x["enum"])))
    if "prefixItems" in x:
        return f"[{', '.join(shape(y, parts) for y in x['prefixItems'])}]"
    if x.get("type") == "array":
        return f"[{shape(x['items'], parts)}]"
    if "properties" in x:
        assert x["additionalProperties"] is False
        return "{" + ", ".join(f"{k}: {shape(y, parts)}" for k, y in x["properties"].items()) + "}"
    if x.get("type") == "object":
        return f"{{text: {shape(x.get('additionalProperties') or {}, parts)}}}"
    return str(x.get("type", "anything"))


class Part(msgspec.Struct, frozen=True):
    shown: int
    hidden: Inside[object]


class Whole(msgspec.Struct, frozen=True, tag="whole", tag_field="event"):
    """A record like a line, of no command."""

    parts: tuple[Part, ...]
    kind: Closure
    hidden: Inside[object]
    more: int | msgspec.UnsetType = msgspec.UNSET


def test_what_is_inside_is_in_no_line_and_in_no_schema() -> None:
    """The kind: an object of the process that is printed, or a line that its schema refuses."""
    line = Whole((Part(1, object()),), Closure.BRANCH, object())
    assert line_text(line) == '{"event": "whole", "parts": [{"shown": 1}], "kind": "branch"}'
    assert line_fields(msgspec.structs.replace(line, more=2))["more"] == 2
    printed = line_class(Whole)
    assert printed.__struct_fields__ == ("parts", "kind", "more")
    assert msgspec.json.decode(line_text(line), type=printed).parts[0].shown == 1


def test_every_closure_can_be_told() -> None:
    """The kind: two lists of one thing, of which one falls behind: lines with a non-affine task of a newer kind had no schema."""
    kinds = [c.value for c in Closure]
    for part in line_schema()["$defs"].values():
        if set(part.get("enum", ())) & set(kinds):
            assert sorted(part["enum"]) == sorted(kinds)

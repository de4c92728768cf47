"""Decisions by name: stores a candidate as names of choices and of their values, and restores it.

A stored decision survives a change of positions in the domain vector. A decision about a choice
that no longer exists is left out or reported; it is never taken for another choice's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from .candidate import Candidate, DeadEnd, Space
from .draft import AS_IT_IS, Decisions, SequencePart
from .engine.declarations import Choice
from .renamed import is_gone, name_in

_OR = "|"  # between the values that a narrowed but open choice has left
_SHOWN = 4  # names in a sentence


class DecisionError(ValueError):
    """Raised if a decision names an unknown choice or value, or if other decisions exclude it.

    The message is one sentence.
    """


def to_names(candidate: Candidate) -> tuple[tuple[str, str], ...]:
    """Returns (choice name, value name) for every decided searchable choice, in order of position.

    An open choice that has lost values appears too, with its remaining values joined by "|". So
    `restore` returns an equal candidate, complete or not. The first values of choices in `Variables.apart` are not named.
    """
    space = candidate.space
    root = (space.whole or space).root()
    unsaid = {*space.variables.apart}  # of the tree of a search all candidates have the first value
    named = []
    for var in map(int, space.searchable):
        domain = int(candidate.domains[var])
        if domain & (domain - 1) and isinstance(root, Candidate) and domain == root.domains[var]:
            continue
        choice = space.choices[var]
        if var in unsaid and domain == 1:
            continue
        names = _OR.join(choice.values[value] for value in candidate.values(var))
        named.append((choice.name, names))
    return tuple(named)


def by_kind(candidate: Candidate) -> Decisions:
    """Returns the decisions of a complete candidate, by kind and site.

    An incomplete candidate is a bug of the caller.
    Kind `order` has pairs of objects of the order algebra. Choices about parts of trees with the
    program's own value are left out.
    """
    space, values = candidate.space, candidate.assignment().tolist()
    found: dict[str, dict[Any, str]] = {}
    for table in space.variables.tables():
        for site, var in table.items():
            if not isinstance(site, SequencePart) or values[var] != AS_IT_IS:
                choice = space.choices[var]
                found.setdefault(choice.kind, {})[site] = choice.values[values[var]]
    pairs = enumerate(space.model.rows.pairs())
    found["order"] = {pair: space.choices[k].values[values[k]] for k, pair in pairs}
    return found


def restore(space: Space, decisions: Iterable[tuple[str, str]]) -> Candidate | DeadEnd:
    """Returns the candidate that results from the decisions. Raises DecisionError for unknown names."""
    domains = space.model.initial.copy()
    positions = space.model.positions
    for name, value_names in decisions:
        var = positions.get(name_in(positions, name))
        if var is None and is_gone(name):
            continue
        if var is None:
            near = get_close_matches(name, positions, n=1, cutoff=0.4)
            raise DecisionError(f"this space has no choice {name}{_suggest(near)}")
        mask = _mask(space.choices[var], value_names)
        if not int(domains[var]) & mask:
            return DeadEnd(name, f"{value_names} is not possible here")
        space.model.narrow(domains, var, mask)
    return space.candidate(domains)


def fixed_text(fixed: Sequence[tuple[str, str]]) -> str:
    """Returns a description, for people, of the decisions that a user fixed before the search."""
    return f"{fixed_count(fixed)} fixed: {_listed(dict(fixed))}"


def fixed_count(fixed: Sized) -> str:
    """Returns the number of fixed choices in words, such as `3 choices`."""
    return "1 choice" if len(fixed) == 1 else f"{len(fixed)} choices"


def fix(space: Space, decisions: Iterable[tuple[str, str]]) -> Space:
    """Returns the space restricted to the given decisions.

    Only its root changes: positions and `key` stay the same.
    A name is that of a choice, of a kind (all of its choices), or a pattern with `*` and `?`. A
    kind or pattern means every choice that still has the value in its domain. A value may be
    several, joined by "|". Raises DecisionError for an unknown name or value, and for a value that
    earlier decisions exclude. `fixed` of the result names single choices.
    """
    decisions = tuple(decisions)
    root = space.open_root()
    if isinstance(root, DeadEnd) or not decisions:
        return space
    fixed: dict[str, str] = {}
    for name, values in decisions:
        for var, mask in _matches(root, name, values, fixed):
            choice = space.choices[var]
            chosen = _OR.join(x for k, x in enumerate(choice.values) if mask >> k & 1)
            child = root.decide(var, mask)
            if isinstance(child, DeadEnd):
                raise DecisionError(_ruled_out(choice, chosen, child, fixed))
            root, fixed[choice.name] = child, chosen
    part = replace(
        space,
        model=replace(space.model, initial=root.domains),
        fixed=(*space.fixed, *fixed.items()),
        whole=space.whole or space,
    )
    root = part.root()
    if isinstance(root, DeadEnd):
        raise DecisionError(
            f"there is no implementation with {_listed(fixed)}: {root.choice}, {root.why}"
        )
    return part


def _matches(
    root: Candidate, name: str, values: str, fixed: dict[str, str]
) -> list[tuple[int, int]]:
    """Returns (position, mask of values) of each choice that a name means. Raises DecisionError."""
    space = root.space
    positions = space.model.positions
    var = positions.get(name_in(positions, name))
    if var is not None:
        mask = _mask(space.choices[var], values.upper())
        if not int(root.domains[var]) & mask:
            left = _OR.join(space.choices[var].values[k] for k in root.values(var))
            raise DecisionError(f"{name} cannot be {values} here: it is {left}{_given(fixed)}")
        return [(var, mask)]
    named = [v for v in map(int, space.searchable) if _is_meant(space.choices[v], name)]
    if not named:
        raise DecisionError(f"there is no choice {name!r:.100}{_near(space, name)}")
    wanted = values.upper().split(_OR)
    masks = [(v, space.choices[v].mask(*_known(space.choices[v], wanted))) for v in named]
    found = [(v, mask) for v, mask in masks if int(root.domains[v]) & mask]
    if not found:
        possible = dict.fromkeys(space.choices[v].values[k] for v in named for k in root.values(v))
        raise DecisionError(
            f"no choice {name} can be {values} here: there is {_OR.join(possible)}{_given(fixed)}"
        )
    return found


def _is_meant(choice: Choice, name: str) -> bool:
    return choice.kind == name or (("*" in name or "?" in name) and fnmatchcase(choice.name, name))


def _known(choice: Choice, wanted: Iterable[str]) -> list[str]:
    return [value for value in wanted if value in choice.values]


def _near(space: Space, name: str) -> str:
    """Returns a suggestion in place of an unknown name: similar names or kinds, else choices of its kind, else all kinds."""
    names = [space.choices[v].name for v in map(int, space.searchable)]
    kinds = list(dict.fromkeys(space.choices[v].kind for v in map(int, space.searchable)))
    near = get_close_matches(name, [*names, *kinds], n=_SHOWN, cutoff=0.6)
    if not near:
        near = [x for x in names if x.startswith(name.partition("(")[0])][:_SHOWN]
    return f"; near it are {', '.join(near)}" if near else f"; there are {', '.join(kinds)}"


def _ruled_out(choice: Choice, chosen: str, end: DeadEnd, fixed: dict[str, str]) -> str:
    why = f"{end.choice}, {end.why}" if end.choice != choice.name else end.why
    return f"{choice.name} cannot be {chosen}{_given(fixed)}: {why}"


def _given(fixed: dict[str, str]) -> str:
    return f" with {_listed(fixed)}" if fixed else ""


def _listed(fixed: dict[str, str]) -> str:
    shown = [f"{name} = {value}" for name, value in fixed.items()][:_SHOWN]
    more = len(fixed) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _mask(choice: Choice, value_names: str) -> int:
    mask = 0
    for value in value_names.split(_OR):
        if value not in choice.values:
            near = get_close_matches(value, choice.values, n=1, cutoff=0.0)
            raise DecisionError(f"{choice.name} has no value {value}{_suggest(near)}")
        mask |= 1 << choice.values.index(value)
    return mask


def _suggest(near: list[str]) -> str:
    return f"; the nearest is {near[0]}" if near else ""

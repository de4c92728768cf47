"""Units: the text of each component (tasks connected by choices), and the sequence's entry as a table of calls.

Names of arguments and locals in a unit are numbers by first occurrence. So components that are
equal up to names share one unit, and no decision about another component changes a unit's text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...kernels.ir.repeats import Repeat
from ...kernels.ir.task import Problem
from ..passes.pipeline import PASSES
from ..passes.storage import Workspace
from ..text import csyntax as c
from ..text import source
from ..text.cprint import Printer
from ..text.dialect import Dialect
from ..text.names import own_names
from .program_text import LoweredProgram, arguments_of, function_lines, print_body, title

_WORKSPACE = "workspace"  # its parameter in functions
_INDENT = "    "
# By bytes, in an entry without headers.
_INTEGERS = {1: "signed char", 2: "short", 4: "int", 8: "long long"}
_MEMORY = ""  # its name among arguments: no array has it
_SUMMED = re.compile(r"(?<=:)[A-Za-z_]\w*(?=\))")  # in a pragma: a variable of a reduction
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\b[A-Za-z_]\w*')


@dataclass(frozen=True)
class Unit:
    """Text of a component with normalised names.

    `arguments`: the sequence's names of its arguments, in their order.
    """

    text: source.UnitText
    arguments: tuple[str, ...]
    workspace_bytes: int


def unit_of(program: LoweredProgram, dialect: Dialect) -> Unit | None:
    """Returns the unit of a program without an entry; None if its bodies may end the sequence's call early."""
    if program.may_fail:
        return None
    functions = tuple(replace(f, comment="") for f in program.functions)
    called = {name for name, _ in program.calls}
    parameters = {p.name: p for f in functions if f.name in called for p in f.parameters}
    lines = [
        *function_lines(replace(program, functions=functions), dialect),
        *_entry_lines(program, tuple(parameters.values()), dialect),
    ]
    own = frozenset((*_declared(functions), *parameters)) - {_WORKSPACE}
    p = Printer(dialect)
    print_body(p, program, dialect, _renamed(lines, own))
    text = source.UnitText(
        "\n".join(p.lines) + "\n",
        program.n_threads,
        dialect.suffix,
        own_names(program.prelude, program.defined),
        dialect.team if program.has_team else "",
    )
    named = {identifier: name for name, identifier in program.names.items()}
    arguments = tuple(named.get(x, _MEMORY) for x in parameters)
    return Unit(text, arguments, program.workspace_bytes)


def _declared(functions: Sequence[c.Function]) -> Iterator[str]:
    """Yields the names of variables that are declared inside functions."""
    left: list[Any] = [part for f in functions for part in (f.before, f.body, f.after)]
    while left:
        x = left.pop()
        if isinstance(x, tuple):
            left += x
            continue
        if isinstance(x, c.Declare):
            yield x.name
        elif isinstance(x, c.For):
            yield x.var
        left += c.parts(x)


def _entry_lines(
    program: LoweredProgram, parameters: tuple[c.Parameter, ...], dialect: Dialect
) -> list[str]:
    """Returns the lines of the function that runs a unit's launches on an argument vector."""
    p = Printer(dialect)
    place = {x.name: k for k, x in enumerate(parameters)}
    kinds = {x.name: x.type for x in parameters}

    def given(name: str) -> str:
        argument = f"args[{place[name]}]"
        return argument if kinds[name].endswith("*") else f"*({kinds[name]}*){argument}"

    p.line(f"void {source.UNIT_ENTRY}(void **args);")
    p.open_function("void ", source.UNIT_ENTRY, (c.Parameter("void **", "args"),))
    if not parameters:
        p.line("(void)args;")
    for name, names in program.calls:
        p.line(f"{name}({', '.join(map(given, names))});")
    if program.streams:
        p.hint(dialect.stream_fence)
    p.close_function()
    return p.lines


def _renamed(lines: Sequence[str], own: frozenset[str]) -> list[str]:
    """Returns the lines with each name in `own` replaced by a numbered one, in order of first occurrence."""
    stem = "v"
    others = {x for line in lines for x in _TOKEN.findall(line)} - own
    while any(re.fullmatch(rf"{stem}\d+", name) for name in others):
        stem += "v"
    found: dict[str, str] = {}

    def named(match: re.Match[str]) -> str:
        token = match[0]
        return found.setdefault(token, f"{stem}{len(found)}") if token in own else token

    return [(_SUMMED if x.startswith("#") else _TOKEN).sub(named, x) for x in lines]


def linked(
    problem: Problem,
    n_threads: int,
    units: Sequence[tuple[int, Unit]],
    repeats: tuple[Repeat, ...],
    dialect: Dialect,
) -> source.Source:
    """Returns the source that calls units one after the other.

    `units`: each with the number of its component.
    The workspace holds the temporary arrays first. Behind them is memory that each unit uses anew;
    no unit finds values of another there.
    """
    memory, places = Workspace(n_threads), dict[str, source.Slot]()
    arguments = arguments_of(problem, 1)
    for k, a in enumerate(arguments[:-1]):
        places[a.name] = source.Slot(k)
    named = {name for _, unit in units for name in unit.arguments}
    last = len(arguments) - 1
    for array in problem.arrays:
        if array.role == "temp" and array.name in named:
            n = array.size_bytes // array.dtype.size_bytes
            buffer = memory.allocate(array.name, array.dtype, n, is_private=False)
            places[array.name] = source.Slot(last, buffer.offset_bytes)
    apart = PASSES["cpu"].apart_bytes
    places[_MEMORY] = source.Slot(last, memory.size_bytes + apart)
    places |= {r.index: source.Slot(-1, k) for k, r in enumerate(repeats)}
    most = max((unit.workspace_bytes for _, unit in units), default=0)
    distinct = {unit.text.key: unit.text for _, unit in units}
    numbers = {key: k for k, key in enumerate(distinct)}
    table = source.UnitTable(
        tuple(
            source.UnitCall(
                numbers[unit.text.key], component, tuple(places[x] for x in unit.arguments)
            )
            for component, unit in units
        ),
        repeats,
        tuple(_test(problem, places, r) for r in repeats),
    )
    components = {component: unit.text.key for component, unit in units}
    return source.Source(
        "\n".join((*title(problem, ()), *_table_lines(table, tuple(distinct)))) + "\n",
        source.ENTRY,
        arguments_of(problem, memory.size_bytes + apart + most if _uses(table, last) else 0),
        n_threads,
        suffix=dialect.suffix,
        components=tuple(components[k] for k in sorted(components) if k >= 0),
        units=tuple(distinct.values()),
        table=table,
    )


def _test(problem: Problem, places: Mapping[str, source.Slot], r: Repeat) -> source.EndTest | None:
    if not r.until:
        return None
    return source.EndTest(places[r.until].argument, problem.array(r.until).dtype.size_bytes)


def _uses(table: source.UnitTable, argument: int) -> bool:
    return any(slot.argument == argument for call in table.calls for slot in call.slots)


def _table_lines(table: source.UnitTable, keys: Sequence[str]) -> Iterator[str]:
    """Yields the lines of the entry: a C function that calls the units, inside the loops of repeats.

    `keys`: the keys of the units' texts, for a comment.
    """
    yield "/* Units, by the keys of their texts:"
    yield from (f" *   {k}: {key}" for k, key in enumerate(keys))
    yield " */"
    yield f"void {source.ENTRY}(void **args);"
    yield f"void {source.ENTRY}(void **args) {{"
    if table.repeats:
        yield f"    long steps[{len(table.repeats)}];"
    opened: list[int] = []  # numbers of the repeats around
    for k, call in enumerate(table.calls):
        for number, r in enumerate(table.repeats):
            if r.first == k:
                step = f"steps[{number}]"
                yield f"{_INDENT * (1 + len(opened))}for ({step} = 0; {step} < {r.count}; ++{step}) {{"
                opened.append(number)
        places = ", ".join(map(_place, call.slots)) or "0"
        unit = source.labelled(source.UNIT_ENTRY, call.unit)
        yield f"{_INDENT * (1 + len(opened))}{unit}((void *[]){{{places}}});"
        while opened and table.repeats[opened[-1]].stop == k + 1:
            test = table.tests[opened.pop()]
            if test is not None:
                value = f"*(const {_INTEGERS[test.n_bytes]} *)args[{test.argument}]"
                yield f"{_INDENT * (2 + len(opened))}if ({value}) break;"
            yield f"{_INDENT * (1 + len(opened))}}}"
    yield "}"


def _place(slot: source.Slot) -> str:
    if slot.argument < 0:
        return f"&steps[{slot.offset}]"
    place = f"args[{slot.argument}]"
    return f"(char *){place} + {slot.offset}" if slot.offset else place

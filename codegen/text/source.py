"""Source: printed C or CUDA text, with the data to build and to call it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

from ...kernels.ir.repeats import Repeat

# What generated C exports, for those who load it.
ENTRY = "run_sequence"  # runs all of it on an argument vector
UNIT_ENTRY = "run_unit"  # runs the launches of a unit on the argument vector of one call
CHECK, FIND = "check_indices", "find_index"  # the functions of index_checks.py
MESSAGE, MESSAGE_BYTES = (
    "ks_message",
    1024,
)  # of the assertion that failed: see FAILING in vectors.py


def labelled(name: str, label: int | str) -> str:
    """Returns `name` with a label, for a name that several texts of one file define."""
    return f"{name}_of_{label}"


@dataclass(frozen=True)
class Argument:
    """One entry of the argument vector of `Source.entry`: arrays come first, then scalars, then the workspace."""

    name: str
    kind: str  # "array", "scalar" or "workspace"
    dtype: str  # NumPy name; "uint8" for the workspace
    shape: tuple[int, ...]  # () for scalars; (bytes,) for the workspace


@dataclass(frozen=True)
class KernelLaunch:
    """One launch of a GPU kernel: its name, grid, block, bytes of shared memory, and arguments."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int  # dynamic shared memory; 0 when all is static
    arguments: tuple[int, ...]  # indices into Source.arguments, in the order of the parameters
    # Numbers of the tasks that it computes; none for the start or end of a reduction over blocks. Independent of the text.
    tasks: tuple[int, ...] = field(default=(), repr=False)
    # Numbers of steps of repeats, its last arguments: none in the keys of texts before there were any.
    steps: tuple[int, ...] = field(default=(), repr=False)
    component: int = field(default=-1, repr=False)  # that it is of; -1: of none, or of the only one
    # True if its blocks wait for each other, so that all must be resident at once. Its text says so too.
    stays: bool = field(default=False, repr=False)


@dataclass(frozen=True)
class Slot:
    """Origin of one argument of a unit: an offset in bytes into a sequence's argument, or a repeat's current step."""

    argument: int  # its number; -1: a step
    offset: int = 0  # bytes; the number of the repeat


@dataclass(frozen=True)
class UnitText:
    """C text of a unit (one component), which exports `void run_unit(void **args)`.

    `names` and `team`: as in `Source`.
    """

    text: str
    n_threads: int
    suffix: str
    names: tuple[str, ...]
    team: str = field(default="", repr=False)

    @cached_property
    def source(self) -> Source:
        """The unit as a source of its own, for a compiler."""
        return Source(
            self.text,
            UNIT_ENTRY,
            (),
            self.n_threads,
            suffix=self.suffix,
            names=self.names,
            team=self.team,
        )

    @cached_property
    def key(self) -> str:
        return self.source.key

    def renamed(self, label: str) -> str:
        """Returns the text with `label` added to each name that it defines, for a file with several units."""
        opened = (f"#define {name} {labelled(name, label)}" for name in self.names)
        return "\n".join((*opened, self.text, *(f"#undef {name}" for name in self.names)))


@dataclass(frozen=True)
class UnitCall:
    """Call of unit number `unit` of a source, with the origins of its arguments."""

    unit: int
    component: int  # that its launches are of; -1: it converts, and is of none
    slots: tuple[Slot, ...]


@dataclass(frozen=True)
class EndTest:
    """Test behind each step of a repeat, which ends it: argument number `argument`, one integer of so many bytes, is not 0."""

    argument: int
    n_bytes: int


@dataclass(frozen=True)
class UnitTable:
    """Entry of a sequence as data: calls of units in order.

    `repeats`: repeated runs of calls, outer ones first. `tests`: for each of them the test that ends it, None for a fixed number of
    steps.
    """

    calls: tuple[UnitCall, ...]
    repeats: tuple[Repeat, ...] = ()
    tests: tuple[EndTest | None, ...] = ()


@dataclass(frozen=True)
class Source:
    """C text that exports `void entry(void **args)`; `args[k]` points to argument k (for a scalar, to its value).

    GPU text has kernels `extern "C" __global__` instead, and `launches` describes their calls:
    arrays are pointers, scalars are passed by value, the workspace is a `char *`. Temporary arrays
    of the sequence are in the workspace (64-byte aligned, contents arbitrary on entry), so
    `arguments` lists only the user's arrays. `n_threads` is the team size for which the text was
    lowered.
    A source of several components may hold their texts as `units`, each once. Then `table` is its
    entry, and `text` is the same entry in C, which calls unit k as `run_unit_of_k`.
    """

    text: str
    entry: str
    arguments: tuple[Argument, ...]
    n_threads: int
    flags: tuple[str, ...] = ()  # compiler flags the text relies on
    notes: tuple[str, ...] = field(default=(), compare=False)
    launches: tuple[KernelLaunch, ...] = ()  # for GPU text, in order, on one stream; empty for C
    suffix: str = ".c"  # of a file that holds the text
    names: tuple[str, ...] = field(default=(), compare=False)
    """Names that the text defines for its file. A compiler of several texts at once renames them; empty: it is compiled alone."""

    components: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """Keys of the texts of the problem's components, in their order; () where there is one only."""

    team: str = field(default="", compare=False, repr=False)
    """The definition of the team of threads that runs its launches; "": it has no parallel ones, or threads of another kind."""

    units: tuple[UnitText, ...] = field(default=(), compare=False, repr=False)
    table: UnitTable | None = field(default=None, compare=False, repr=False)
    known_as: str = field(default="", compare=False, repr=False)
    """The key of the source in units that computes the same; "": there is none."""

    @property
    def n_characters(self) -> int:
        """Number of characters that a compiler gets for this source, units included."""
        return len(self.text) + sum(len(unit.source.text) for unit in self.units)

    @property
    def file_text(self) -> str:
        """Text of one file that compiles alone: the source with its units and its team."""
        if self.units:
            renamed = (unit.renamed(str(k)) for k, unit in enumerate(self.units))
            team = next((unit.team for unit in self.units if unit.team), "")
            opening = "#define _GNU_SOURCE" if team else ""
            return "\n".join(filter(None, (opening, *renamed, self.text, team)))
        if not self.team:
            return self.text
        at = self.text.index("#include")
        return f"{self.text[:at]}#define _GNU_SOURCE\n{self.text[at:]}\n{self.team}"

    @property
    def key(self) -> str:
        """Content key: sources with equal text, flags and launches have equal keys.

        A source with one text for several components has the key of the source in units that
        computes the same.
        """
        if self.known_as:
            return self.known_as
        steps = (f"{k} steps {x.steps}" for k, x in enumerate(self.launches) if x.steps)
        parts = (self.text, *self.flags, *map(repr, self.launches), *steps)
        return hashlib.blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()

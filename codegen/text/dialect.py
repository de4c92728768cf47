"""Dialect: how one member of the C family spells constructs.

Data only; runtime/<backend>/ holds the dialects.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """Spelling, in one member of the C family, of the constructs that the printer needs."""

    name: str
    suffix: str  # of files
    headers: tuple[str, ...]
    math_header: str  # where a text names something of it; "": there is none
    barrier: str
    intrinsics_prelude: str  # declares the target's own vector instructions, where they are used
    stream_fence: str  # at the end of an entry that streams; what other threads streamed is ordered by the end of their team
    team_prelude: str = ""  # declares the team of threads that runs parallel launches
    team: str = ""  # and defines it
    prelude: str = ""  # at the top of each text, after the headers
    integers_prelude: str = ""  # behind it, where a text names small or unsigned integers
    inlined: str = ""  # before the type of a function that becomes part of its callers
    closed: str = ""  # before the type of a function that the compiler may put into vectors
    closed_prelude: str = ""  # defines what such functions name, where there are any
    sum_loop: str = ""  # before a loop that only sums up, in any order; {reductions} says what
    free_loop: str = ""  # before a loop whose sums may be reordered
    independent_loop: str = ""  # before a loop whose iterations may run at once
    scalar_loop: str = ""  # before a loop that compilers must not vectorise
    scalar_body: str = ""  # at the head of its body
    unrolled_loop: str = ""  # before a loop whose body is to be written out {copies} times
    kernel_open: str = ""  # before the name of a kernel; {threads} is the size of its blocks
    shared_array: str = ""  # before the type of an array that a block shares

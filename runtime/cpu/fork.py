"""Forks of a process that has run tuned code: the child has none of the threads that gcc's OpenMP library keeps for the next call.

A call in the child would wait for them for ever. They are ended before the fork, which the library's own interface can do; parent
and child start new ones when they call. clang's library sees to this itself.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

_LIBRARY = "libgomp.so.1"
_PAUSE_SOFT = 1  # of omp_pause_resource_t: what is kept between regions may be given back


@cache
def let_fork() -> None:
    """From now on a child of `os.fork` can call tuned code as its parent did."""
    os.register_at_fork(before=_end_team)


def _end_team() -> None:
    """Ends the team of the thread that forks, which is the one that lives on in the child."""
    try:
        library = ctypes.CDLL(_LIBRARY, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:  # it is not in this process
        return
    pause = getattr(library, "omp_pause_resource_all", None)  # of gcc 9 and newer
    if pause is not None:
        pause(ctypes.c_int(_PAUSE_SOFT))

"""PTX of generated CUDA text, and the instructions of its innermost loops; NVRTC compiles it without a GPU."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator

from kernelscape.runtime.cuda import nvrtc

_LABEL = re.compile(r"(\$\w+):")
_BRANCH = re.compile(r"bra(?:\.uni)?\s+(\$\w+);")
_INSTRUCTION = re.compile(r"(?:@!?%p\d+\s+)?([a-z][\w.]*)(?:\s.*)?;")


def ptx_of(text: str, architecture: str) -> str:
    """Returns the PTX of a CUDA text. Raises ValueError with the compiler's log if it is refused."""
    library, program = nvrtc.library(), ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
    options = [o.encode() for o in (f"--gpu-architecture={architecture}", *nvrtc.OPTIONS)]
    try:
        given = (ctypes.c_char_p * len(options))(*options)
        status = library.nvrtcCompileProgram(program, len(options), given)
        what = "PTX" if status == 0 else "ProgramLog"
        size = ctypes.c_size_t()
        getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        found = ctypes.create_string_buffer(size.value)
        getattr(library, f"nvrtcGet{what}")(program, found)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
    if status != 0:
        raise ValueError(found.value.decode(errors="replace"))
    return found.value.decode()


def innermost_loops(ptx: str) -> Iterator[list[str]]:
    """Yields the names of the instructions of each innermost loop, in order: from a label to a branch back to it."""
    lines = [line.strip() for line in ptx.splitlines()]
    labels = {found[1]: k for k, line in enumerate(lines) if (found := _LABEL.match(line))}
    loops = []
    for k, line in enumerate(lines):
        found = _BRANCH.search(line)
        if found and labels.get(found[1], k) < k:
            loops.append((labels[found[1]], k))
    for begin, end in loops:
        if not any(begin < other and last < end for other, last in loops):
            inside = (_INSTRUCTION.match(line) for line in lines[begin : end + 1])
            yield [found[1] for found in inside if found]

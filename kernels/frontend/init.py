"""`ks.init` and `ks.reset`: begin and end of a program, and of the executors for its calls."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np

from ..fields.caller_location import fail
from ..fields.host_access import publish, settle
from ..fields.program import (
    WITHOUT_MEANING,
    Arch,
    Config,
    Program,
    begin,
    cpu,
    element_dtype,
    end,
)
from ..ir.errors import (
    ProgramKeyError,
    ProgramRuntimeError,
    ProgramTypeError,
    ProgramValueError,
)
from ..ir.kernel import DType
from . import dispatch

if TYPE_CHECKING:
    from pathlib import Path

    from .dispatch import AbstractDeferringExecutor


def init(
    arch: Arch | Sequence[Arch] | None = None,
    default_fp: Any = None,
    default_ip: Any = None,
    *,
    decisions: bool | str | Path | Sequence[str | Path] = False,
    **options: Any,
) -> None:
    """Begins a program, and ends the previous one: its fields are gone.

    `arch` is the requested architecture, of several the first that exists: `ks.cpu`; `ks.cuda`, a GPU; `ks.emulator`, which runs
    the text for a GPU on the CPU, slowly, and finds races. Where none exists the CPU is taken, and a line says so. A kernel that a
    device cannot run is run by the CPU after a warning. With `enable_fallback=False` an architecture that is missing is an error.

    `default_fp` (f32) and `default_ip` (i32) are the types of literals and of `float` and `int`. Further options: `debug` (False:
    True checks indices and asserts), `random_seed` (0), `cpu_max_num_threads` (all cores), `fast_math` (True: sums may be
    reassociated), `deterministic` (False: True keeps the order of sums, so two runs give equal bytes), `offline_cache`. With
    `offline_cache` (True) compiled kernels are stored for later processes. With False none is stored, and none stored by an earlier
    process is used. `ad_stack_size` is the most iterations of a loop of unknown length whose locals an adjoint keeps; 0: it grows.

    `async_mode` (False): calls on fields wait until Python reads what they write or writes what they use, or `async_flush_every`
    (1024) of them wait. Calls that come again run by a plan for all of them, built in the background. Values are the same; an
    error of a kernel on a full tree is raised when it runs.

    `decisions` names results of `explore run program.py:function`: a best.json or the directory of its run, or several. With True
    they are those of the tuned store for this file on this machine, and plans of `async_mode` run components of the store where
    calls are the same. Wherever the program then calls these kernels on fields in that order, the found implementation runs in
    their place. Calls are deferred until the sequence is whole, or something else happens.
    Kernels that draw random numbers, return a value or take arrays other than fields are not replaced, and none in `debug`. An
    unusable result, such as a file of another machine, is a warning, and the kernels run as without it.

    LanguageError for unknown options; Taichi's options without a meaning here are ignored.
    """
    given = {"arch": arch, "default_fp": default_fp, "default_ip": default_ip, **options}
    given = {name: x for name, x in given.items() if x is not None}
    names = {f.name for f in fields(Config)}
    unknown = given.keys() - names - WITHOUT_MEANING
    if unknown:
        near = [
            m for n in sorted(unknown) for m in get_close_matches(n, names | WITHOUT_MEANING, 1)
        ]
        advice = (
            f"did you mean {', '.join(near)}?" if near else f"it has {', '.join(sorted(names))}"
        )
        fail(f"ks.init has no option {', '.join(sorted(unknown))}: {advice}", ProgramKeyError)
    config = Config(
        **{name: _checked(name, given[name]) for name in names & given.keys() - {"arch"}}
    )
    reset()
    falls_back = given.get("enable_fallback", True)
    config, device = _on_arch(config, _forced.get() or given.get("arch", cpu), falls_back)
    program = Program(config, {name: given[name] for name in given.keys() - names})
    if not config.debug:  # that names the kernel and the line of what is wrong
        window = device or dispatch.window(_limit(config))
        follower = dispatch.follower(decisions, window) if decisions else None
        program.follower = deferring = window if follower is None else follower
        dispatch.install(deferring)
        if window.holds_accesses:
            from .host_kernels import WaitingAccesses  # which imports the frontend

            program.host_kernels = WaitingAccesses()
    begin(program)
    dispatch.eager().start()  # beside the fields that come next


def reset() -> None:
    """Ends the program: its fields are gone, and numbers have NumPy's types again."""
    end()
    dispatch.install(None)


def sync() -> None:
    """Completes all deferred kernels.

    These are kernels whose code is still compiled, and those of an unfinished sequence (`ks.init(decisions=...)`). All others have
    run. Tensors in device memory then have what Python wrote to their fields.
    """
    settle()
    publish()


def _checked(name: str, x: Any) -> Any:
    match name:
        case "default_fp" | "default_ip":
            dtype = (
                DType.bool_ if x in (int, float) else element_dtype(x)
            )  # what they mean is asked here
            if dtype.is_float != (name == "default_fp") or dtype is DType.bool_:
                kind = "float" if name == "default_fp" else "integer"
                fail(
                    f"ks.init: {name} is {x!r}, it must be a type of {kind}s such as {'ks.f32' if kind == 'float' else 'ks.i32'}",
                    ProgramTypeError,
                )
            return dtype
        case "debug" | "fast_math" | "offline_cache" | "deterministic" | "async_mode":
            return bool(x)
    is_negative = isinstance(x, (int, np.integer)) and name != "random_seed" and x < 0
    if not isinstance(x, (int, np.integer)) or is_negative:
        fail(f"ks.init: {name} is {x!r}, it must be a whole number", ProgramTypeError)
    return int(x)


_forced: ContextVar[Arch | None] = ContextVar("arch", default=None)


@contextmanager
def forced_arch(arch: Arch) -> Iterator[None]:
    """Makes programs that begin within the block run on `arch`, whatever architecture they request."""
    token = _forced.set(arch)
    try:
        yield
    finally:
        _forced.reset(token)


def _on_arch(
    config: Config, x: Any, falls_back: bool
) -> tuple[Config, AbstractDeferringExecutor | None]:
    """Returns the options with the first architecture of `x` that exists, and an executor for it (None: the CPU).

    If none exists, the program runs on the CPU, and a line on stderr says why. If it may not (`falls_back` False), raises
    ProgramRuntimeError.
    """
    asked = tuple(x) if isinstance(x, (list, tuple)) else (x,)
    if not asked or not all(isinstance(a, Arch) for a in asked):
        fail(
            f"ks.init: {x!r} is nothing that programs run on, use ks.cpu, ks.gpu, ks.cuda, ks.emulator",
            ProgramValueError,
        )
    why = ""
    for arch in asked:
        if arch.is_cpu:
            return config, None
        made = _device(arch, config)
        if not isinstance(made, str):
            return replace(config, arch=arch), made
        why = why or made
    if not falls_back:
        fail(f"ks.init: {why}, and enable_fallback=False forbids the CPU", ProgramRuntimeError)
    print(f"ks.init: {why}: this program runs on the CPU", file=sys.stderr)
    return config, None


def _limit(config: Config) -> int:
    """Returns the number of calls that may be deferred."""
    return config.async_flush_every if config.async_mode else 0


def _device(arch: Arch, config: Config) -> AbstractDeferringExecutor | str:
    if not arch.is_device:
        return f"programs do not run on {arch.value}"
    if config.debug:
        return f"debug=True is not for {arch.value}"
    return dispatch.on_device(arch.value, _limit(config))

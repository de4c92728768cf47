"""Rewrites of a sequence by rules, for its explanation: needless operations, and what AsyncTaichi would have done wrongly."""

from __future__ import annotations

import msgspec

from ..kernels.frontend.recorder import Recording
from ..kernels.tasks.async_taichi import async_faults
from ..kernels.tasks.cleaned_calls import cleaned_calls
from ..kernels.tasks.needless import needless_work


class AsyncFaultRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Calls with the pattern of probes that AsyncTaichi gets wrong.

    `rule`: its rewrite that lacks a premise. `probes`: names of the probes. `text`: one sentence.
    """

    rule: str
    probes: tuple[str, ...]
    text: str


class Rewrites(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Operations that calls of a sequence ask for and no task does, each as "call: what".

    `lists`: lists of active cells that are reused. `activations`: activations of active cells. `stores`: dead stores.
    `async_faults`: what AsyncTaichi (Taichi 0.7.32 to 1.0.4, `async_mode`) would have done wrongly.
    """

    lists: tuple[str, ...]
    activations: tuple[str, ...]
    stores: tuple[str, ...]
    async_faults: tuple[AsyncFaultRow, ...]


def rewrites_of(recording: Recording) -> Rewrites:
    """Returns the rewrites of a recorded sequence."""
    cleaned = cleaned_calls(recording)
    needless = needless_work(cleaned)
    return Rewrites(
        lists=needless.lists,
        activations=needless.activations,
        stores=needless.stores,
        async_faults=tuple(
            AsyncFaultRow(rule=x.rule, probes=x.probes, text=x.text) for x in async_faults(cleaned)
        ),
    )

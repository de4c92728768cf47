"""Pools of sparse trees on a device: the part of a tree's arrays that a kernel may access, known ahead of its launch."""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

from ..kernels.fields.storage import TreeStorage
from ..kernels.fields.tree import SectionSource
from ..kernels.frontend.instance import Instance, KernelCall
from ..kernels.sparse.taken_slots import Taking, most_taken, takings
from ..runtime.engine.device_arrays import DeviceArrays

_KEY = ("slots that it takes",)
_CALLS_AHEAD = 16  # pools grow for so many calls at once where there is room: each growth waits for the calls before it

_Taken = dict[str, dict[int, int]]


class DevicePools:
    """Upper bounds of the slots in use, by tree: those of the counters on the host, and those that later calls may take."""

    def __init__(self, arrays: DeviceArrays) -> None:
        self._arrays = arrays
        self._taken: WeakKeyDictionary[TreeStorage, dict[int, int]] = WeakKeyDictionary()

    def sections(self, call: KernelCall) -> dict[str, SectionSource]:
        """Returns the sections of trees among the arrays of a call, by array."""
        return {name: x for name, x in call.instance.fields if isinstance(x, SectionSource)}

    def used(self, call: KernelCall) -> dict[str, int]:
        """Returns how many elements of each row of a section the call may access, by array."""
        return self._used(call, 1)

    def wanted(self, call: KernelCall) -> dict[str, int]:
        """Returns how many elements of each row of a section the call and later ones like it may access, by array."""
        return self._used(call, _CALLS_AHEAD)

    def outdated(self, call: KernelCall) -> list[SectionSource]:
        """Returns sections of trees from whose pools calls may have taken slots since the host read their counters."""
        return [x for x in self.sections(call).values() if any(self._before(call)[x.tree].values())]

    def note(self, call: KernelCall) -> None:
        """Counts the slots that a call may take, before it is known to change the counters."""
        behind = self._behind(call)
        for name, storage in call.instance.storages.items():
            self._taken[storage] = behind[name]

    def _used(self, call: KernelCall, n_calls: int) -> dict[str, int]:
        behind = self._behind(call, n_calls)
        return {name: x.n_used(behind[x.tree]) for name, x in self.sections(call).items()}

    def _before(self, call: KernelCall) -> _Taken:
        found: _Taken = {}
        for name, storage in call.instance.storages.items():
            is_older = self._arrays.is_newer(storage.arrays["counters"])
            found[name] = dict(self._taken.get(storage, {})) if is_older else {}
        return found

    def _behind(self, call: KernelCall, n_calls: int = 1) -> _Taken:
        storages = call.instance.storages

        def n_items(tree: str, node: int, more: Mapping[int, int]) -> int:
            return storages[tree].used(node, more)[1]

        return most_taken(_takings(call.instance), n_items, self._before(call), n_calls)


def _takings(instance: Instance) -> tuple[Taking, ...]:
    found: tuple[Taking, ...] | None = instance.derived.get(_KEY)
    if found is None:
        trees = {name: s.layout.tree for name, s in instance.structures}
        assert instance.logical is not None or not trees
        body = () if instance.logical is None else instance.logical.ir.body
        found = instance.derived.setdefault(_KEY, takings(body, trees))
    return found

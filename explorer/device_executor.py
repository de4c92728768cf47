"""Executor of programs on a GPU or the emulator: arrays stay on the device until Python uses them.

`ks.init(arch=ks.cuda)` selects it.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from typing import Any

from ..kernels.fields.accessed_memory import HostAccess
from ..kernels.fields.device_memory import DeviceMemory
from ..kernels.frontend.dispatch import AbstractDeferringExecutor, Caller
from ..kernels.frontend.instance import KernelCall
from ..kernels.frontend.lowering import lowered_call
from ..kernels.ir.errors import KernelRuntimeError
from ..kernels.ir.kernel import KernelIR
from ..runtime.api.arguments import fitting_array
from ..runtime.api.backend import AbstractDevice, RunError
from ..runtime.api.errors import DeviceError
from ..runtime.by_identity import ByIdentity
from ..runtime.device import open_device
from ..runtime.engine import current_engine
from ..runtime.engine.device_arrays import DeviceArrays, Part
from ..runtime.engine.window_stats import Stats
from ..runtime.records.signature import number
from .device_kernels import DeviceKernel, RefusedError, make_kernel
from .device_pools import DevicePools
from .device_window import DeviceWindow


class DeviceExecutor(AbstractDeferringExecutor):
    """Runs calls on a device. A kernel that the device cannot run is run by the CPU, with a warning.

    Each call runs at once, or up to `limit` calls are deferred until Python uses what they change (`async_mode`). `waits` is true
    while calls are deferred, or the device has contents of arrays: the host's may be older, or must not change unnoticed.
    """

    repeats = False
    holds_accesses = True  # what Python does with whole fields is done on the device

    def __init__(self, device: AbstractDevice, limit: int = 0) -> None:
        self._device = device
        self._arrays = DeviceArrays(device.runner)
        self._pools = DevicePools(self._arrays)
        self._window = DeviceWindow(device.runner, limit)
        self._kernels = ByIdentity[KernelIR, DeviceKernel | RefusedError]()
        self._lock = threading.RLock()
        self.stats = Stats(backend=device.name)

    @property
    def waits(self) -> bool:
        return not self._window.is_empty or self._arrays.are_used

    def run(self, call: KernelCall) -> Any:
        plain = lowered_call(call)
        ir = plain.instance.ir
        with self._lock:
            kernel = self._kernel(ir)
            if isinstance(kernel, RefusedError):
                self._run_window("a kernel on the CPU")
                self._arrays.to_host()
                current_engine().run(ir, *plain.in_order)
                self._arrays.publish()
                self.stats.note_run(ir.name, "cpu")
            else:
                self._run_here(kernel, plain)
                self.stats.note_run(ir.name, self._device.name)
        return call.result()

    def deferring(self, call: KernelCall) -> Caller | None:
        return None

    def again(self, kernel: object, args: tuple[Any, ...]) -> bool:
        return False

    def give_way(self) -> bool:
        return False  # all calls use `run`

    def release(self) -> None:
        with self._lock:
            self._run_window("all calls must have run")
            self._arrays.to_host()

    def release_for(self, access: HostAccess) -> None:
        with self._lock:
            if self._window.conflicts(access):
                self._run_window(access.says)
            self._arrays.refresh(access.regions, writes=access.writes)

    def lend(self, array: Any) -> DeviceMemory | None:
        with self._lock:
            self._run_window("other libraries use a field")
            try:
                return self._arrays.lend(array)
            except RunError as e:
                raise KernelRuntimeError(f"a field on the {self._device.name}: {e}") from e

    def publish(self) -> None:
        with self._lock:
            self._arrays.publish()

    def outdate(self) -> None:
        """Copies arrays to the host and frees their memory on the device, unless other libraries have it.

        Called when fields are deleted or shared.
        """
        with self._lock:
            self._run_window("fields are deleted or shared")
            self._arrays.take_all_back()

    def end(self) -> None:
        """Frees all arrays and unloads all kernels on the device, without copying back."""
        with self._lock:
            self._window.close()
            self._arrays.clear()
            for ir, kernel in self._kernels.items():
                self._kernels.remove(ir)
                if isinstance(kernel, DeviceKernel) and kernel.module is not None:
                    kernel.module.close()

    def start(self) -> None:
        current_engine().start()

    def _kernel(self, ir: KernelIR) -> DeviceKernel | RefusedError:
        found = self._kernels.get(ir)
        if found is not None:
            return found
        made: DeviceKernel | RefusedError
        try:
            made = make_kernel(ir, self._device)
        except RefusedError as e:
            warnings.warn(
                f"the kernel {ir.name} runs on the CPU, since {e}", RuntimeWarning, stacklevel=2
            )
            made = e
        return self._kernels.setdefault(ir, made)

    def _run_here(self, kernel: DeviceKernel, call: KernelCall) -> None:
        """Runs or defers a call. Arrays that Python may change unnoticed are copied to the device before and back after."""
        arrays, numbers = fitting(kernel, *call.in_order)
        own = {name for name, x in call.instance.fields if not x.is_lent}
        lent = [a for p, a in zip(kernel.ir.arrays, arrays, strict=True) if p.name not in own]
        if lent:
            self._run_window("a call on memory that others see")
        try:
            parts = self._parts(call)
            there = [
                self._arrays.on_device(
                    a, is_written=p.name in kernel.written, part=parts.get(p.name)
                )
                for p, a in zip(kernel.ir.arrays, arrays, strict=True)
            ]
            if not lent and self._window.defers:
                self._window.add(kernel, arrays, there, numbers)
                if self._window.is_full:
                    self._run_window("as many calls as may wait")
                return
            self.stats.n_at_once += 1
            kernel.run(there, numbers)
        except RunError as e:
            what = f"kernel {kernel.ir.name} on the {self._device.name}: {e}"
            raise KernelRuntimeError(what) from e
        finally:
            self._arrays.take_back(lent)
            self._arrays.publish()

    def _parts(self, call: KernelCall) -> dict[str, Part]:
        """Returns the parts of trees' arrays that a call may access, by array.

        If pools have to grow, the counters on the device tell first how many slots are in use.
        """
        if not call.instance.structures:
            return {}
        pools, sections = self._pools, self._pools.sections(call)
        wanted = used = pools.used(call)
        held = {name: self._arrays.n_held(x.storage) for name, x in sections.items()}
        if any(n is None or n < used[name] for name, n in held.items()):
            outdated = pools.outdated(call)
            if outdated and any(n is not None and n < used[name] for name, n in held.items()):
                self._run_window("pools grow")
                self._arrays.read([x.counters for x in outdated])
                used = pools.used(call)
            wanted = pools.wanted(call)
        pools.note(call)
        return {name: Part(x, used[name], wanted[name]) for name, x in sections.items()}

    def _run_window(self, why: str) -> None:
        """Runs the deferred calls, if there are any; `why`: the reason, for the statistics."""
        window = self._window
        if window.is_empty:
            return
        names = window.kernels
        self.stats.n_windows += 1
        self.stats.n_calls += len(names)
        self.stats.note_end(why)
        try:
            window.run()
        except RunError as e:
            what = f"kernels {', '.join(dict.fromkeys(names))} on the {self._device.name}: {e}"
            raise KernelRuntimeError(what) from e


def fitting(
    kernel: DeviceKernel, arrays: Sequence[Any], scalars: Sequence[Any]
) -> tuple[list[Any], list[int | float]]:
    """Returns the arguments of a call as plain arrays and numbers.

    Raises TypeError and ValueError if their types or shapes are not those of the kernel.
    """
    ir, plain = kernel.ir, []
    for p, array in zip(ir.arrays, arrays, strict=True):
        plain.append(fitting_array(p.name, p.dtype.numpy, p.shape, array))
        if p.name in kernel.written and not plain[-1].flags.writeable:
            raise ValueError(f"the array {p.name} of the kernel {ir.name} is read-only and written")
    return plain, [number(p, x) for p, x in zip(ir.scalars, scalars, strict=True)]


def executor_on(name: str, limit: int = 0) -> DeviceExecutor | str:
    """Returns the executor for the device called `name`; a sentence with the reason if there is no such device.

    `limit`: number of calls that it may defer.
    """
    try:
        device = open_device(name)
        device.runner.check()
    except DeviceError as e:
        return str(e)
    return DeviceExecutor(device, limit)

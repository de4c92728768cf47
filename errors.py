"""All exceptions that the package raises on purpose, loaded at first use: `kernelscape.errors.RecordError`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .compat.taichi import MissingImportError as MissingImportError
    from .compat.taichi import MissingNameError as MissingNameError
    from .explorer.entry import NothingFoundError as NothingFoundError
    from .explorer.sitting import TooLateError as TooLateError
    from .explorer.user_reference import FailedReferenceError as FailedReferenceError
    from .explorer.user_reference import WrongReferenceError as WrongReferenceError
    from .kernels.ir.errors import KernelArgumentError as KernelArgumentError
    from .kernels.ir.errors import KernelAssertionError as KernelAssertionError
    from .kernels.ir.errors import KernelError as KernelError
    from .kernels.ir.errors import KernelIndexError as KernelIndexError
    from .kernels.ir.errors import KernelNameError as KernelNameError
    from .kernels.ir.errors import KernelRuntimeError as KernelRuntimeError
    from .kernels.ir.errors import KernelRuntimeIndexError as KernelRuntimeIndexError
    from .kernels.ir.errors import KernelRuntimeValueError as KernelRuntimeValueError
    from .kernels.ir.errors import KernelSyntaxError as KernelSyntaxError
    from .kernels.ir.errors import KernelTypeError as KernelTypeError
    from .kernels.ir.errors import KernelValueError as KernelValueError
    from .kernels.ir.errors import LanguageError as LanguageError
    from .kernels.ir.errors import ProgramBoundsError as ProgramBoundsError
    from .kernels.ir.errors import ProgramIndexError as ProgramIndexError
    from .kernels.ir.errors import ProgramKeyError as ProgramKeyError
    from .kernels.ir.errors import ProgramRuntimeError as ProgramRuntimeError
    from .kernels.ir.errors import ProgramTypeError as ProgramTypeError
    from .kernels.ir.errors import ProgramValueError as ProgramValueError
    from .plugins import PluginError as PluginError
    from .report.plot import NothingToDrawError as NothingToDrawError
    from .runtime.api.backend import RunError as RunError
    from .runtime.api.errors import DeviceError as DeviceError
    from .runtime.engine.folder import CompileError as CompileError
    from .runtime.records.record import RecordError as RecordError
    from .runtime.records.replay import StaleError as StaleError
    from .runtime.worker.forked_inputs import SlowReferenceError as SlowReferenceError
    from .runtime.worker.inputs import ArgumentsError as ArgumentsError
    from .runtime.worker.worker import WorkerError as WorkerError
    from .space.decisions import DecisionError as DecisionError

_HOMES: Final = {
    "compat.taichi": "MissingImportError MissingNameError",
    "explorer.entry": "NothingFoundError",
    "explorer.sitting": "TooLateError",
    "explorer.user_reference": "FailedReferenceError WrongReferenceError",
    "kernels.ir.errors": (
        "LanguageError KernelError KernelArgumentError KernelAssertionError KernelIndexError KernelNameError KernelRuntimeError"
        " KernelRuntimeIndexError KernelRuntimeValueError KernelSyntaxError KernelTypeError KernelValueError"
        " ProgramBoundsError ProgramIndexError ProgramKeyError ProgramRuntimeError ProgramTypeError ProgramValueError"
    ),
    "plugins": "PluginError",
    "report.plot": "NothingToDrawError",
    "runtime.api.backend": "RunError",
    "runtime.device": "DeviceError",
    "runtime.engine.folder": "CompileError",
    "runtime.records.record": "RecordError",
    "runtime.records.replay": "StaleError",
    "runtime.worker.inputs": "ArgumentsError",
    "runtime.worker.forked_inputs": "SlowReferenceError",
    "runtime.worker.worker": "WorkerError",
    "space.decisions": "DecisionError",
}
_MODULES: Final = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_MODULES)


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"kernelscape.errors has no {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f".{_MODULES[name]}", __package__), name)

"""kernelscape: every implementation of a sequence of kernels as one space, searched with a bound and a gap.

The public names live in the table below and load on first use (PEP 562), so that importing the package costs nothing. So do the
executors of calls: `kernels.language.dispatch`, which imports nothing that takes time, is told how they are made.
"""

from __future__ import annotations

from importlib import import_module

from .kernels.language import dispatch as _dispatch

TYPE_CHECKING = False  # that of `typing`, whose import would take longer than all else here

if TYPE_CHECKING:
    from typing import Any

    from . import compat as compat
    from . import errors as errors
    from .kernels.language.dispatch import AbstractDeferringExecutor, Executor

_PUBLIC = {
    "kernel": "kernels.language.kernel",
    "func": "kernels.language.kernel",
    "types": "kernels.language.kernel",
    "template": "kernels.language.kernel",
    "static": "kernels.language.kernel",
    "ndrange": "kernels.language.kernel",
    "atomic_add": "kernels.language.kernel",
    "atomic_max": "kernels.language.kernel",
    "atomic_min": "kernels.language.kernel",
    "real_func": "kernels.language.kernel",
    "pyfunc": "kernels.language.kernel",
    "data_oriented": "kernels.language.kernel",
    "grouped": "kernels.language.kernel",
    "select": "kernels.language.kernel",
    "bit_cast": "kernels.language.kernel",
    "loop_config": "kernels.language.kernel",
    "static_print": "kernels.language.kernel",
    "static_assert": "kernels.language.kernel",
    "atomic_sub": "kernels.language.kernel",
    "atomic_mul": "kernels.language.kernel",
    "atomic_and": "kernels.language.kernel",
    "atomic_or": "kernels.language.kernel",
    "atomic_xor": "kernels.language.kernel",
    "random": "kernels.language.intrinsics",
    "randn": "kernels.language.intrinsics",
    "zero": "kernels.language.intrinsics",
    "one": "kernels.language.intrinsics",
    "sqrt": "kernels.language.functions",
    "exp": "kernels.language.functions",
    "log": "kernels.language.functions",
    "sin": "kernels.language.functions",
    "cos": "kernels.language.functions",
    "floor": "kernels.language.functions",
    "ceil": "kernels.language.functions",
    "trunc": "kernels.language.functions",
    "rint": "kernels.language.functions",
    "round": "kernels.language.functions",
    "tan": "kernels.language.functions",
    "asin": "kernels.language.functions",
    "acos": "kernels.language.functions",
    "atan": "kernels.language.functions",
    "sinh": "kernels.language.functions",
    "cosh": "kernels.language.functions",
    "tanh": "kernels.language.functions",
    "asinh": "kernels.language.functions",
    "acosh": "kernels.language.functions",
    "atanh": "kernels.language.functions",
    "exp2": "kernels.language.functions",
    "expm1": "kernels.language.functions",
    "log2": "kernels.language.functions",
    "log10": "kernels.language.functions",
    "log1p": "kernels.language.functions",
    "erf": "kernels.language.functions",
    "erfc": "kernels.language.functions",
    "gamma": "kernels.language.functions",
    "lgamma": "kernels.language.functions",
    "rsqrt": "kernels.language.functions",
    "isnan": "kernels.language.functions",
    "isinf": "kernels.language.functions",
    "pow": "kernels.language.functions",
    "atan2": "kernels.language.functions",
    "hypot": "kernels.language.functions",
    "popcnt": "kernels.language.functions",
    "clz": "kernels.language.functions",
    "ctz": "kernels.language.functions",
    "bit_shr": "kernels.language.functions",
    "raw_div": "kernels.language.functions",
    "raw_mod": "kernels.language.functions",
    "svd": "kernels.linear",
    "polar_decompose": "kernels.linear",
    "eig": "kernels.linear",
    "sym_eig": "kernels.linear",
    "solve": "kernels.linear",
    "max": "kernels.language.intrinsics",
    "min": "kernels.language.intrinsics",
    "cast": "kernels.language.kernel",
    "f16": "kernels.language.kernel",
    "f32": "kernels.language.kernel",
    "f64": "kernels.language.kernel",
    "i8": "kernels.language.kernel",
    "i16": "kernels.language.kernel",
    "i32": "kernels.language.kernel",
    "i64": "kernels.language.kernel",
    "init": "kernels.language.init",
    "reset": "kernels.language.init",
    "sync": "kernels.language.init",
    "cfg": "kernels.fields.program",
    "Arch": "kernels.fields.program",
    "cpu": "kernels.fields.program",
    "gpu": "kernels.fields.program",
    "x64": "kernels.fields.program",
    "arm64": "kernels.fields.program",
    "cuda": "kernels.fields.program",
    "amdgpu": "kernels.fields.program",
    "vulkan": "kernels.fields.program",
    "metal": "kernels.fields.program",
    "opengl": "kernels.fields.program",
    "gles": "kernels.fields.program",
    "dx11": "kernels.fields.program",
    "dx12": "kernels.fields.program",
    "axes": "kernels.fields.tree",
    "i": "kernels.fields.tree",
    "j": "kernels.fields.tree",
    "k": "kernels.fields.tree",
    "l": "kernels.fields.tree",
    "ij": "kernels.fields.tree",
    "ik": "kernels.fields.tree",
    "il": "kernels.fields.tree",
    "jk": "kernels.fields.tree",
    "jl": "kernels.fields.tree",
    "kl": "kernels.fields.tree",
    "ijk": "kernels.fields.tree",
    "ijl": "kernels.fields.tree",
    "ikl": "kernels.fields.tree",
    "jkl": "kernels.fields.tree",
    "ijkl": "kernels.fields.tree",
    "Layout": "kernels.fields.tree",
    "SNode": "kernels.fields.tree",
    "root": "kernels.fields.builder",
    "deactivate_all_snodes": "kernels.fields.builder",
    "activate": "kernels.fields.node_cells",
    "deactivate": "kernels.fields.node_cells",
    "is_active": "kernels.fields.node_cells",
    "append": "kernels.fields.node_cells",
    "length": "kernels.fields.node_cells",
    "rescale_index": "kernels.fields.node_cells",
    "get_addr": "kernels.fields.addresses",
    "no_activate": "kernels.language.sparse",
    "loop_unique": "kernels.language.sparse",
    "block_local": "kernels.language.sparse",
    "FieldsBuilder": "kernels.fields.builder",
    "field": "kernels.fields.factories",
    "ScalarField": "kernels.fields.element_fields",
    "MatrixField": "kernels.fields.element_fields",
    "StructField": "kernels.fields.struct_field",
    "Vector": "kernels.fields.matrix",
    "Matrix": "kernels.fields.matrix",
    "Struct": "kernels.fields.structs",
    "dataclass": "kernels.fields.compound",
    "Ndarray": "kernels.fields.ndarray",
    "from_dlpack": "kernels.fields.dlpack",
    "u1": "kernels.language.intrinsics",
    "u8": "kernels.language.kernel",
    "u16": "kernels.language.kernel",
    "u32": "kernels.language.kernel",
    "u64": "kernels.language.kernel",
    "ndarray": "kernels.language.record",
    "record": "kernels.language.record",
    "empty": "runtime.cpu.memory",
    "LanguageError": "kernels.ir.errors",
    "interpret": "kernels.interpret.executor",
    "explore": "explorer.entry",
    "replay": "explorer.results",
    "load": "explorer.results",
    "plot": "report",
    "load_tuned": "explorer.family",
}

_MODULES = {"math": "kernels.math", "errors": "errors", "compat": "compat"}

__all__ = sorted((*_PUBLIC, *_MODULES))


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name in _PUBLIC:
        return getattr(import_module("." + _PUBLIC[name], __name__), name)
    if name in _MODULES:
        return import_module("." + _MODULES[name], __name__)
    raise AttributeError(f"kernelscape has no public name {name!r}; it has {', '.join(__all__)}")


def _make_eager() -> Executor:
    from .runtime.engine.executor import Eager

    return Eager()


def _make_follower(decisions: object, behind: Executor) -> AbstractDeferringExecutor | None:
    from .explorer.plan_replay import follow

    return follow(decisions, behind)


_dispatch.register(_make_eager, _make_follower)


def _version() -> str:
    """Returns the version of the installed package, or of a checkout that is on the path and not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("kernelscape")
    except PackageNotFoundError:
        import tomllib
        from pathlib import Path

        settings = tomllib.loads((Path(__file__).parent / "pyproject.toml").read_text())
        return str(settings["project"]["version"])

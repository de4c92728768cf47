"""kernelscape: every implementation of a sequence of kernels as one space, searched with a bound and a gap.

The public names live in the table below and load on first use (PEP 562), so that importing the package costs nothing. So do the
executors of calls: `kernels.frontend.dispatch`, which imports nothing that takes time, is told how they are made.
"""

from __future__ import annotations

from importlib import import_module

from .kernels.frontend import dispatch as _dispatch

TYPE_CHECKING = False  # that of `typing`, whose import would take longer than all else here

if TYPE_CHECKING:
    from typing import Any

    from . import compat as compat
    from . import errors as errors
    from .kernels.frontend.dispatch import AbstractDeferringExecutor, Executor

_PUBLIC = {
    "kernel": "kernels.frontend.kernel",
    "func": "kernels.frontend.kernel",
    "types": "kernels.frontend.kernel",
    "template": "kernels.frontend.kernel",
    "static": "kernels.frontend.kernel",
    "ndrange": "kernels.frontend.kernel",
    "atomic_add": "kernels.frontend.kernel",
    "atomic_max": "kernels.frontend.kernel",
    "atomic_min": "kernels.frontend.kernel",
    "real_func": "kernels.frontend.kernel",
    "pyfunc": "kernels.frontend.kernel",
    "data_oriented": "kernels.frontend.kernel",
    "grouped": "kernels.frontend.kernel",
    "select": "kernels.frontend.kernel",
    "bit_cast": "kernels.frontend.kernel",
    "loop_config": "kernels.frontend.kernel",
    "static_print": "kernels.frontend.kernel",
    "static_assert": "kernels.frontend.kernel",
    "atomic_sub": "kernels.frontend.kernel",
    "atomic_mul": "kernels.frontend.kernel",
    "atomic_and": "kernels.frontend.kernel",
    "atomic_or": "kernels.frontend.kernel",
    "atomic_xor": "kernels.frontend.kernel",
    "random": "kernels.frontend.intrinsics",
    "randn": "kernels.frontend.intrinsics",
    "zero": "kernels.frontend.intrinsics",
    "one": "kernels.frontend.intrinsics",
    "sqrt": "kernels.frontend.functions",
    "exp": "kernels.frontend.functions",
    "log": "kernels.frontend.functions",
    "sin": "kernels.frontend.functions",
    "cos": "kernels.frontend.functions",
    "floor": "kernels.frontend.functions",
    "ceil": "kernels.frontend.functions",
    "trunc": "kernels.frontend.functions",
    "rint": "kernels.frontend.functions",
    "round": "kernels.frontend.functions",
    "tan": "kernels.frontend.functions",
    "asin": "kernels.frontend.functions",
    "acos": "kernels.frontend.functions",
    "atan": "kernels.frontend.functions",
    "sinh": "kernels.frontend.functions",
    "cosh": "kernels.frontend.functions",
    "tanh": "kernels.frontend.functions",
    "asinh": "kernels.frontend.functions",
    "acosh": "kernels.frontend.functions",
    "atanh": "kernels.frontend.functions",
    "exp2": "kernels.frontend.functions",
    "expm1": "kernels.frontend.functions",
    "log2": "kernels.frontend.functions",
    "log10": "kernels.frontend.functions",
    "log1p": "kernels.frontend.functions",
    "erf": "kernels.frontend.functions",
    "erfc": "kernels.frontend.functions",
    "gamma": "kernels.frontend.functions",
    "lgamma": "kernels.frontend.functions",
    "rsqrt": "kernels.frontend.functions",
    "isnan": "kernels.frontend.functions",
    "isinf": "kernels.frontend.functions",
    "pow": "kernels.frontend.functions",
    "atan2": "kernels.frontend.functions",
    "hypot": "kernels.frontend.functions",
    "popcnt": "kernels.frontend.functions",
    "clz": "kernels.frontend.functions",
    "ctz": "kernels.frontend.functions",
    "bit_shr": "kernels.frontend.functions",
    "raw_div": "kernels.frontend.functions",
    "raw_mod": "kernels.frontend.functions",
    "svd": "kernels.linear",
    "polar_decompose": "kernels.linear",
    "eig": "kernels.linear",
    "sym_eig": "kernels.linear",
    "solve": "kernels.linear",
    "max": "kernels.frontend.intrinsics",
    "min": "kernels.frontend.intrinsics",
    "cast": "kernels.frontend.kernel",
    "f16": "kernels.frontend.kernel",
    "f32": "kernels.frontend.kernel",
    "f64": "kernels.frontend.kernel",
    "i8": "kernels.frontend.kernel",
    "i16": "kernels.frontend.kernel",
    "i32": "kernels.frontend.kernel",
    "i64": "kernels.frontend.kernel",
    "init": "kernels.frontend.init",
    "reset": "kernels.frontend.init",
    "sync": "kernels.frontend.init",
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
    "no_activate": "kernels.frontend.sparse",
    "loop_unique": "kernels.frontend.sparse",
    "block_local": "kernels.frontend.sparse",
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
    "u1": "kernels.frontend.intrinsics",
    "u8": "kernels.frontend.kernel",
    "u16": "kernels.frontend.kernel",
    "u32": "kernels.frontend.kernel",
    "u64": "kernels.frontend.kernel",
    "ndarray": "kernels.frontend.record",
    "record": "kernels.frontend.record",
    "empty": "runtime.cpu.memory",
    "LanguageError": "kernels.ir.errors",
    "interpret": "kernels.interpret.executor",
    "explore": "explorer.entry",
    "replay": "explorer.results",
    "load": "explorer.results",
    "plot": "report",
    "load_tuned": "explorer.family",
}

_MODULES = {
    "ad": "program",
    "math": "kernels.math",
    "errors": "errors",
    "compat": "compat",
}

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

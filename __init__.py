"""kernelscape: every implementation of a sequence of kernels as one space, searched with a bound and a gap.

The public names live in the table below and load on first use (PEP 562), so that importing the package costs nothing.
"""

from importlib import import_module
from typing import Any

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
    "sqrt": "kernels.language.functions",
    "exp": "kernels.language.functions",
    "log": "kernels.language.functions",
    "sin": "kernels.language.functions",
    "cos": "kernels.language.functions",
    "floor": "kernels.language.functions",
    "cast": "kernels.language.kernel",
    "f32": "kernels.language.kernel",
    "f64": "kernels.language.kernel",
    "i32": "kernels.language.kernel",
    "i64": "kernels.language.kernel",
    "ndarray": "kernels.language.record",
    "record": "kernels.language.record",
    "empty": "runtime.cpu.memory",
    "LanguageError": "kernels.language.errors",
    "interpret": "kernels.interpret.kernel",
    "explore": "explorer",
    "replay": "explorer",
    "load": "explorer",
    "plot": "report",
    "load_tuned": "explorer",
}

__all__ = sorted(_PUBLIC)


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name in _PUBLIC:
        return getattr(import_module("." + _PUBLIC[name], __name__), name)
    raise AttributeError(f"kernelscape has no public name {name!r}; it has {', '.join(__all__)}")


def _version() -> str:
    """Of the installed package, or of a checkout that is on the path and not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("kernelscape")
    except PackageNotFoundError:
        import tomllib
        from pathlib import Path

        settings = tomllib.loads((Path(__file__).parent / "pyproject.toml").read_text())
        return str(settings["project"]["version"])

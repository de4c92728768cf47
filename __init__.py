"""kernelscape: every implementation of a sequence of kernels as one space, searched with a bound and a gap.

The public names live in the table below and load on first use (PEP 562), so that importing the package costs nothing.
"""

from importlib import import_module
from typing import Any

_PUBLIC = {
    "kernel": "kernels.language",
    "func": "kernels.language",
    "types": "kernels.language",
    "template": "kernels.language",
    "static": "kernels.language",
    "ndrange": "kernels.language",
    "atomic_add": "kernels.language",
    "atomic_max": "kernels.language",
    "atomic_min": "kernels.language",
    "sqrt": "kernels.language",
    "exp": "kernels.language",
    "log": "kernels.language",
    "sin": "kernels.language",
    "cos": "kernels.language",
    "floor": "kernels.language",
    "cast": "kernels.language",
    "f32": "kernels.language",
    "f64": "kernels.language",
    "i32": "kernels.language",
    "i64": "kernels.language",
    "ndarray": "kernels.sequence",
    "record": "kernels.sequence",
    "empty": "runtime.cpu.memory",
    "LanguageError": "kernels.errors",
    "interpret": "kernels.interpret",
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

"""Commands that extend this installation, in the form for the way in which it was installed."""

from __future__ import annotations

import json
import shutil
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

_NAME = "kernelscape"
_MANAGERS = (
    ("apt-get", "apt install"),
    ("dnf", "dnf install"),
    ("zypper", "zypper install"),
    ("pacman", "pacman -S"),
    ("apk", "apk add"),
)


def extra(name: str) -> str:
    """Returns the command that installs the optional dependencies `name` of this package."""
    wanted = f'"{_NAME}[{name}]"'
    if (Path(sys.prefix) / "pipx_metadata.json").is_file():
        return f"pipx install --force {wanted}"
    if (Path(sys.prefix) / "uv-receipt.toml").is_file():
        return f"uv tool install {wanted}"
    found = _distribution()
    pip = "uv pip" if found is not None and _text(found, "INSTALLER") == "uv" else "pip"
    if found is None or _is_editable(found):
        return f'{pip} install -e ".[{name}]"'
    return f"{pip} install {wanted}"


def system_package(name: str) -> str:
    """Returns the command that installs a system package; in Debian's form if no package manager is found."""
    managers = (command for program, command in _MANAGERS if shutil.which(program))
    return f"{next(managers, _MANAGERS[0][1])} {name}"


def a_compiler() -> str:
    """Returns the commands that install a C compiler."""
    return f"{system_package('gcc')} (or clang), or without rights {extra('compiler')}"


def _distribution() -> Distribution | None:
    try:
        return distribution(_NAME)
    except PackageNotFoundError:
        return None


def _is_editable(found: Distribution) -> bool:
    try:
        return bool(json.loads(_text(found, "direct_url.json") or "{}")["dir_info"]["editable"])
    except (ValueError, KeyError, TypeError):
        return False


def _text(found: Distribution, file: str) -> str:
    return (found.read_text(file) or "").strip()

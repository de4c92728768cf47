"""Settings of a run: their values, the source of each value, and the parsing of texts.

Precedence: flags, KERNELSCAPE_* variables, kernelscape.toml, [tool.kernelscape] of pyproject.toml, the user's config.toml,
defaults. Unknown keys are errors. Only this module reads KERNELSCAPE_* variables.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..runtime.api.outcome import UNDECIDED
from ..runtime.files import NOTE_BYTES, read_regular
from ..search.options import strategies

_PREFIX = "KERNELSCAPE_"
_SIZE = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*([0-9_]+)\s*(?:(\^|\*\*|e)\s*([0-9]+)|([kKMG]))?\s*")
_UNITS = {"k": 1 << 10, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class SettingsError(Exception):
    """A setting is unknown or invalid; the message is one sentence that names its source."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a run. `origins` has the source of each given value, by key."""

    target: str = "cpu"
    dtype: str = "f32"
    strategy: str = "mcts"
    seed: int = 1
    time_limit_s: float | None = 60.0
    max_evals: int | None = None
    gap: float = 0.0
    runs: Path = Path("runs")
    compiler: str | None = None
    compile_timeout_s: float = 10.0
    log_every_s: float = 5.0
    final_top: int = 8
    input_sets: int = 3
    tolerance: float = 0.25
    store: bool = True
    undecided: float = UNDECIDED
    deterministic: bool = False
    origins: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)  # the texts themselves, by key


def parse_duration(text: str | float) -> float:
    """Returns the seconds of "500ms", "30s", "2m", "1h" or a plain number of seconds. Raises ValueError."""
    match = re.fullmatch(r"\s*([0-9.]+(?:e-?[0-9]+)?)\s*(ms|us|s|m|min|h)?\s*", str(text))
    unit_s = {None: 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
    try:
        seconds = float(match[1]) * unit_s[match[2]] if match else -1.0
    except ValueError:
        seconds = -1.0
    if seconds <= 0:
        raise ValueError(f"{text!r} is not a duration such as 500ms, 30s or 2m")
    return seconds


def parse_share(text: str | float) -> float:
    """Returns the share in [0, 1) of a text such as "5%" or "0.05". Raises ValueError."""
    words = str(text).strip()
    try:
        share = float(words[:-1]) / 100 if words.endswith("%") else float(words)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise ValueError(f"{text!r} is not a share such as 5% or 0.05")
    return share


def parse_tolerance(text: str | float) -> float:
    """Returns the share, at least 0, of a text such as "25%" or "0.25". Raises ValueError."""
    words = str(text).strip()
    try:
        share = float(words[:-1]) / 100 if words.endswith("%") else float(words)
    except ValueError:
        share = -1.0
    if not 0 <= share < float("inf"):
        raise ValueError(f"{text!r} is not a share such as 25% or 0.25")
    return share


def parse_sizes(texts: Sequence[str]) -> dict[str, int]:
    """Returns extents by name from texts like "n=4096,m=2^10"; 4k is 4096, 1e3 is 1000. Raises ValueError."""
    sizes: dict[str, int] = {}
    for item in (i for text in texts for i in text.split(",") if i.strip()):
        match = _SIZE.fullmatch(item)
        if match is None or len(match[2]) > 18 or len(match[4] or "") > 2:
            raise ValueError(
                f"{item.strip()!r} is not a size such as n=4096, n=4k, n=2^24 or n=1e6"
            )
        name, extent = match[1], _extent(match)
        if not 1 <= extent < 1 << 40:
            raise ValueError(f"size {name} = {extent} is not between 1 and 2^40")
        if name in sizes and sizes[name] != extent:
            raise ValueError(f"size {name} is given twice, as {sizes[name]} and as {extent}")
        sizes[name] = extent
    return sizes


def _extent(size: re.Match[str]) -> int:
    """Returns the number in a matched size text such as 4k or 2^10."""
    number, power = int(size[2]), int(size[4] or 1)
    if size[3] == "e":
        return int(number * 10**power)
    return int(number**power) * _UNITS.get(size[5], 1)


def _one_of(*names: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in names:
            raise ValueError(f"{value!r} is not one of {', '.join(names)}{nearest(value, names)}")
        return str(value)

    return parse


def _strategy(value: Any) -> str:
    return _one_of(*strategies())(value)


def _whole(least: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        words = str(value).strip()
        if not re.fullmatch(r"[0-9_]+", words) or int(words) < least:
            raise ValueError(f"{value!r} is not a whole number of at least {least}")
        return int(words)

    return parse


def _switch(value: Any) -> bool:
    words = str(value).strip().lower()
    if words in ("1", "true", "yes", "on"):
        return True
    if words in ("0", "false", "no", "off"):
        return False
    raise ValueError(f"{value!r} is neither true nor false")


DTYPES = ("f32", "f64")

# Key in files, flags and variables -> field of Settings, and how its text is read.
_KEYS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "target": ("target", str),
    "dtype": ("dtype", _one_of(*DTYPES)),
    "strategy": ("strategy", _strategy),
    "seed": ("seed", _whole(0)),
    "time_limit": ("time_limit_s", parse_duration),
    "max_evals": ("max_evals", _whole(1)),
    "gap": ("gap", parse_share),
    "runs": ("runs", lambda value: Path(str(value)).expanduser()),
    "compiler": ("compiler", str),
    "compile_timeout": ("compile_timeout_s", parse_duration),
    "log_every": ("log_every_s", parse_duration),
    "final_top": ("final_top", _whole(1)),
    "input_sets": ("input_sets", _whole(1)),
    "tolerance": ("tolerance", parse_tolerance),
    "store": ("store", _switch),
    "undecided": ("undecided", parse_share),
    "deterministic": ("deterministic", _switch),
}


def load_settings(
    flags: Mapping[str, Any],
    *,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Settings:
    """Returns the settings from all sources. Raises SettingsError.

    `flags`: options of the command line, None if not given. `config`: file read instead of the project's and the user's files.
    """
    environ = os.environ if environ is None else environ
    given: dict[str, tuple[Any, str]] = {}
    files = (config,) if config else _files(environ, folder or Path.cwd())
    for path in files:
        for key, value in _read_file(path, is_wanted=path == config).items():
            given[key] = (value, str(path))
    for name in sorted(environ):
        if name.startswith(_PREFIX):
            key, value = name.removeprefix(_PREFIX).lower(), environ[name]
            if key == "store" and "/" in value:
                value = "on"  # runtime/records/store.py reads the address, for programs too
            given[key] = (value, name)
    for key, value in flags.items():
        if value is not None:
            given[key] = (value, f"--{key.replace('_', '-')}")
    return _apply(given)


def _apply(given: Mapping[str, tuple[Any, str]]) -> Settings:
    fields: dict[str, Any] = {}
    for key, (value, origin) in given.items():
        if key not in _KEYS:
            raise SettingsError(f"{origin}: there is no setting {key!r}{nearest(key, _KEYS)}")
        name, parse = _KEYS[key]
        try:
            fields[name] = parse(value)
        except ValueError as e:
            raise SettingsError(f"{origin}: {e}") from e
    return replace(
        Settings(),
        **fields,
        origins={key: origin for key, (_, origin) in given.items()},
        given={key: str(value) for key, (value, _) in given.items()},
    )


def _files(environ: Mapping[str, str], folder: Path) -> tuple[Path, ...]:
    """Returns the files that may contain settings, those with the lowest precedence first."""
    base = environ.get("XDG_CONFIG_HOME")
    home = Path(environ.get("HOME") or "~").expanduser()
    user = (Path(base) if base else home / ".config") / "kernelscape" / "config.toml"
    return tuple(
        path
        for path in (user, folder / "pyproject.toml", folder / "kernelscape.toml")
        if path.is_file()
    )


def _read_file(path: Path, *, is_wanted: bool) -> dict[str, Any]:
    try:
        table = tomllib.loads(read_regular(path, NOTE_BYTES, follow=True).decode())
    except (OSError, UnicodeDecodeError) as e:
        raise SettingsError(f"{path} cannot be read: {e}") from e
    except tomllib.TOMLDecodeError as e:
        if path.name == "pyproject.toml" and not is_wanted:
            return {}  # somebody else's file: its own tools will complain
        raise SettingsError(f"{path} is not valid TOML: {e}") from e
    if path.name == "pyproject.toml":
        tool = table.get("tool")
        table = tool.get("kernelscape", {}) if isinstance(tool, dict) else {}
        if not isinstance(table, dict):
            raise SettingsError(f"{path}: tool.kernelscape is not a table")
    return table


def nearest(name: Any, known: Sequence[str] | Mapping[str, Any]) -> str:
    """Returns "; did you mean ...?" with the known name most similar to `name`; "" if none is similar."""
    near = get_close_matches(str(name), list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""

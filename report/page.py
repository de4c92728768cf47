"""The page of a run: one HTML file that contains the run's data and needs no network."""

from __future__ import annotations

import base64
import html
import re
import zlib
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from ..runtime.files import write_atomically
from .contents import Contents, contents_of
from .rebuilt import RebuiltSpace, rebuilt
from .run_data import RunData, Source, load_run
from .still import still_svg, summary

_FRAME_HEIGHT = 900


def page_html(run: RunData, space: RebuiltSpace | str, refresh_s: float = 0.0) -> str:
    """Returns the page as text. Browsers reload it after `refresh_s` seconds; 0: never."""
    found = contents_of(run, space)
    found.values["refresh_s"] = refresh_s
    return fill(found, summary(run))


def fill(contents: Contents, title: str) -> str:
    """Returns the page template filled with contents.

    No text of a run is parsed as HTML: the script sets texts, and data are base64.
    """
    folder = files(__package__)
    values, arrays = _packed(contents)
    parts = {
        "TITLE": html.escape(title),
        "STYLE": page_style(),
        "VALUES": values,
        "ARRAYS": arrays,
        "SCRIPT": "".join(
            (folder / name).read_text() for name in ("draw.js", "tree.js", "page.js")
        ),
    }
    template = (folder / "page.html").read_text()
    return re.sub(r"@@([A-Z]+)@@", lambda found: parts[found[1]], template)


def page_style() -> str:
    """Returns the CSS text of pages."""
    folder = files(__package__)
    return (folder / "page.css").read_text()


def _packed(contents: Contents) -> tuple[str, str]:
    """Returns two texts, deflated and in base64: JSON with the positions of arrays, and the arrays' bytes."""
    places: dict[str, Any] = {}
    chunks, at = [], 0
    for name, array in contents.arrays.items():
        chunk = array.tobytes()
        places[name] = [str(array.dtype), at, len(array)]
        padding = -len(chunk) % 8
        chunks.append(chunk + bytes(padding))
        at += len(chunk) + padding
    values = msgspec.json.encode({**contents.values, "arrays": places})
    return _deflated(values), _deflated(b"".join(chunks))


def _deflated(content: bytes) -> str:
    level = 9 if len(content) < 1 << 20 else 3
    return base64.b64encode(zlib.compress(content, level)).decode()


class Report:
    """The page of a run, displayed by notebooks.

    A notebook that is not trusted displays a line of text and a still picture instead.
    """

    def __init__(self, run: RunData, page: str) -> None:
        self.run = run
        self.html = page

    def save(self, path: str | Path) -> Path:
        """Writes the page to a file in one step."""
        write_atomically(Path(path), self.html.encode())
        return Path(path)

    def __repr__(self) -> str:
        return summary(self.run)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        picture = base64.b64encode(still_svg(self.run).encode()).decode()
        text = html.escape(summary(self.run))
        # The frame lies over the picture: where a notebook takes the frame out, the picture is there.
        shown = (
            f'<div style="position:relative"><p>{text}</p>'
            f'<img alt="{text}" style="width:100%;max-width:60em" src="data:image/svg+xml;base64,{picture}">'
            '<iframe sandbox="allow-scripts" style="position:absolute;left:0;top:0;width:100%;'
            f'height:{_FRAME_HEIGHT}px;border:0;background:white" srcdoc="{html.escape(self.html)}"></iframe>'
            f'<div style="height:{_FRAME_HEIGHT // 2}px"></div></div>'
        )
        return {"text/plain": repr(self), "text/html": shown}


def report_of(run: Source) -> Report:
    """Returns the page of a run, given by its directory or by the result of `explore` or `load`.

    Raises RecordError.
    """
    found = load_run(run)
    return Report(found, page_html(found, rebuilt(found)))

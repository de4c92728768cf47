"""Pictures rendered on demand: a picture stores drawing steps, which cost nothing until its pixels are read.

Positions are (n, 2) in a window whose lower left corner is (0, 0) and whose upper right is (1, 1). Lengths are pixels, colours
(n, 3) or (3,) with values from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from ...kernels.fields.caller_location import fail

Floats = NDArray[np.float64]
_STAMPED: Final = 4.0  # pixels: discs up to this radius are stamped all at once


def pillow(module: str) -> Any:
    """Returns a module of Pillow, by name. LanguageError if Pillow is not installed."""
    try:
        return import_module(f"PIL.{module}")
    except ImportError:
        return fail("pictures need Pillow: pip install pillow")


@final
class Picture:
    """Drawing steps of one frame in a window of `width` x `height` pixels."""

    def __init__(self, width: int, height: int, background: Any = (0.0, 0.0, 0.0)) -> None:
        self.width, self.height = int(width), int(height)
        self._steps: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.clear(background)

    def clear(self, colour: Any) -> None:
        """Removes all drawing steps and sets the background colour."""
        self.background = tints(colour, 1)[0]
        self._steps.clear()

    def image(self, pixels: Any) -> None:
        """Adds an image over the whole window: (w, h), (w, h, 1), (w, h, 3) or (w, h, 4), x first and y upwards.

        Integers are from 0 to 255, floats from 0 to 1.
        """
        self._steps.append((self._image, (as_rgb(np.array(pixels)),)))

    def discs(self, positions: Any, radii: Any, colours: Any) -> None:
        """Adds filled circles: centres in the window, radii in pixels, colours."""
        centres = points(positions)
        self._steps.append(
            (self._discs, (centres, rows(radii, len(centres)), tints(colours, len(centres))))
        )

    def lines(self, begins: Any, ends: Any, widths: Any, colours: Any) -> None:
        """Adds lines from `begins` to `ends`, with widths in pixels."""
        b, e = points(begins), points(ends)
        if len(b) != len(e):
            fail(f"{len(b)} lines begin and {len(e)} end: give as many ends as begins")
        self._steps.append((self._lines, (b, e, rows(widths, len(b)), tints(colours, len(b)))))

    def triangles(self, corners: Any, colours: Any) -> None:
        """Adds filled triangles; `corners` has the shape (n, 3, 2)."""
        found = floats(corners).reshape(-1, 3, 2)
        self._steps.append((self._triangles, (found, tints(colours, len(found)))))

    def text(self, content: str, position: Any, size: float, colour: Any) -> None:
        """Adds a text whose upper left corner is at `position`; `size` in pixels."""
        place = points(position)
        self._steps.append((self._text, (content, place, size, tints(colour, 1))))

    # --- made --------------------------------------------------------------------------------

    def pixels(self) -> NDArray[np.uint8]:
        """Renders the picture to bytes (height, width, 3), the uppermost row first."""
        self._canvas = np.empty((self.height, self.width, 3), np.uint8)
        self._canvas[:] = levels(self.background)
        for step, args in self._steps:
            step(*args)
        return self._canvas

    def write(self, file: str | Path) -> None:
        """Writes the picture to a file, in the format of its suffix."""
        write_image(self.pixels(), file)

    def _to_pixels(self, positions: Floats) -> Floats:
        return np.stack(
            [positions[..., 0] * self.width, (1 - positions[..., 1]) * self.height], axis=-1
        )

    def _image(self, rgb: NDArray[np.uint8]) -> None:
        shown = np.flipud(rgb.transpose(1, 0, 2))
        if shown.shape[:2] != (self.height, self.width):
            module = pillow("Image")
            image = module.fromarray(np.ascontiguousarray(shown))
            shown = np.asarray(image.resize((self.width, self.height), module.Resampling.BILINEAR))
        self._canvas[:] = shown

    def _discs(self, centres: Floats, radii: Floats, colours: Floats) -> None:
        seen = np.isfinite(centres).all(axis=1)
        at, radii, rgb = self._to_pixels(centres[seen]), radii[seen], levels(colours[seen])
        if len(radii) and np.ptp(radii) == 0 and radii[0] <= _STAMPED:
            self._stamp(at, float(radii[0]), rgb)
            return
        with _Draw(self._canvas) as draw:
            for (x, y), r, c in zip(at.tolist(), radii.tolist(), rgb.tolist(), strict=True):
                draw.ellipse((x - r, y - r, x + r, y + r), fill=tuple(c))

    def _stamp(self, at: Floats, radius: float, rgb: NDArray[np.uint8]) -> None:
        """Colours each pixel whose centre lies in a disc; for a tiny disc the pixel that contains its centre."""
        reach = int(np.ceil(radius))
        corner = np.floor(np.clip(at, -reach - 1, max(self.width, self.height) + reach + 1))
        for dy in range(-reach, reach + 1):
            for dx in range(-reach, reach + 1):
                cell = corner + np.array([dx, dy])
                near = ((cell + 0.5 - at) ** 2).sum(axis=1) <= radius * radius
                hit = near | (dx == dy == 0)
                x, y = cell[:, 0].astype(np.int64), cell[:, 1].astype(np.int64)
                hit &= (x >= 0) & (x < self.width) & (y >= 0) & (y < self.height)
                self._canvas[y[hit], x[hit]] = rgb[hit]

    def _lines(self, begins: Floats, ends: Floats, widths: Floats, colours: Floats) -> None:
        seen = np.isfinite(begins).all(axis=1) & np.isfinite(ends).all(axis=1)
        both = np.concatenate([self._to_pixels(begins), self._to_pixels(ends)], axis=1)[seen]
        wide = np.maximum(1, np.rint(widths[seen])).astype(int)
        with _Draw(self._canvas) as draw:
            for xy, w, c in zip(
                both.tolist(), wide.tolist(), levels(colours[seen]).tolist(), strict=True
            ):
                draw.line(xy, fill=tuple(c), width=w)

    def _triangles(self, corners: Floats, colours: Floats) -> None:
        seen = np.isfinite(corners).all(axis=(1, 2))
        flat = self._to_pixels(corners[seen]).reshape(-1, 6)
        with _Draw(self._canvas) as draw:
            for xy, c in zip(flat.tolist(), levels(colours[seen]).tolist(), strict=True):
                draw.polygon(xy, fill=tuple(c))

    def _text(self, content: str, place: Floats, size: float, colour: Floats) -> None:
        font = pillow("ImageFont").load_default(size)
        x, y = self._to_pixels(place)[0].tolist()
        with _Draw(self._canvas) as draw:
            draw.text((x, y), content, font=font, fill=tuple(levels(colour)[0].tolist()))


@final
class _Draw:
    """Context with a drawing object of Pillow; at its end the drawing is copied to the array `canvas`."""

    def __init__(self, canvas: NDArray[np.uint8]) -> None:
        self._canvas = canvas

    def __enter__(self) -> Any:
        self._image = pillow("Image").fromarray(self._canvas)
        return pillow("ImageDraw").Draw(self._image)

    def __exit__(self, *error: object) -> None:
        self._canvas[:] = np.asarray(self._image)


def write_image(pixels: NDArray[np.uint8], file: str | Path) -> None:
    """Writes rows of pixels to an image file; missing folders are created."""
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        pillow("Image").fromarray(np.ascontiguousarray(pixels)).save(path)
    except ValueError as e:  # of its suffix
        fail(f"{path} cannot be written: {e}")


# --- what people give ------------------------------------------------------------------------


def as_array(x: Any) -> Any:
    """Returns a field or ndarray as a NumPy array; anything else unchanged."""
    return x.to_numpy() if hasattr(x, "to_numpy") else x


def floats(x: Any) -> Floats:
    """Returns a copy of numbers, a field or an array as float64."""
    return np.array(as_array(x), dtype=np.float64)


def points(x: Any) -> Floats:
    """Returns positions in the plane, (n, 2); of positions in three dimensions the third coordinate is dropped."""
    found = floats(x)
    if found.ndim == 0 or found.shape[-1] < 2:
        fail(f"positions have the shape {found.shape}, they need two numbers each: (n, 2)")
    return found.reshape(-1, found.shape[-1])[:, :2]


def rows(x: Any, n: int) -> Floats:
    """Returns n numbers from one number, or from n numbers at least. LanguageError for another count."""
    found = floats(x).reshape(-1)
    return np.broadcast_to(found, n) if len(found) == 1 else _enough(found, n, "numbers")


def tints(x: Any, n: int) -> Floats:
    """Returns n colours, (n, 3), from one colour, or from n at least.

    LanguageError for another count or shape.
    """
    found = floats(x)
    if found.ndim == 0 or found.shape[-1] < 3:
        fail(f"colours have the shape {found.shape}, they need three numbers each: (3,) or (n, 3)")
    found = found.reshape(-1, found.shape[-1])[:, :3]
    return np.broadcast_to(found, (n, 3)) if len(found) == 1 else _enough(found, n, "colours")


def _enough(found: Floats, n: int, what: str) -> Floats:
    if len(found) < n:
        fail(f"there are {len(found)} {what} for {n} shapes: give one, or one for each")
    return found[:n]


def within(numbers: Any, n: int, what: str) -> NDArray[np.int64]:
    """Returns indices as one row of integers. LanguageError if one is not from 0 to n - 1.

    `what`: name of the indexed things in the message.
    """
    found: NDArray[np.int64] = np.array(as_array(numbers)).reshape(-1).astype(np.int64)
    wrong = found[(found < 0) | (found >= n)]
    if len(wrong):
        fail(f"an index is {wrong[0]}, there are {n} {what}, from 0 on")
    return found


def levels(colours: Floats) -> NDArray[np.uint8]:
    """Returns colours from 0 to 1 as integers from 0 to 255."""
    return np.rint(np.clip(np.nan_to_num(colours), 0, 1) * 255).astype(np.uint8)


def as_rgb(img: NDArray[Any]) -> NDArray[np.uint8]:
    """Returns an image of any element type as bytes (w, h, 3)."""
    img = as_bytes(img)
    if img.shape[2] == 1:
        img = np.repeat(img, 3, axis=2)
    elif img.shape[2] == 2:
        img = np.concatenate([img, np.zeros_like(img[:, :, :1])], axis=2)
    return img[:, :, :3]


def as_bytes(img: NDArray[Any]) -> NDArray[np.uint8]:
    """Returns an image of any element type as bytes (w, h, channels): unsigned integers are scaled, others cut off."""
    if img.ndim == 2:
        img = img[:, :, None]
    if img.ndim != 3 or img.shape[2] not in (1, 2, 3, 4):
        fail(
            f"an image has the shape {img.shape}, it must be (w, h), (w, h, 1), (w, h, 3) or (w, h, 4)"
        )
    if img.dtype.kind == "f":
        img = levels(img)
    elif img.dtype.kind == "u" and img.dtype.itemsize > 1:
        img = np.minimum(img // (np.iinfo(img.dtype).max // 256), 255).astype(np.uint8)
    else:
        img = np.clip(img, 0, 255).astype(np.uint8)
    return img


def of_hex(colour: Any) -> Floats:
    """Returns one colour 0xRRGGBB, or an array of them, as values from 0 to 1: (n, 3)."""
    number = np.atleast_1d(np.asarray(as_array(colour))).astype(np.int64).reshape(-1, 1)
    parts: Floats = ((number >> np.array([16, 8, 0])) & 255) / 255.0
    return parts


def rgb_to_hex(c: Any) -> Any:
    """Returns colours with values from 0 to 1, (..., 3) or three arrays, as numbers 0xRRGGBB."""
    r, g, b = (np.clip(np.asarray(x, dtype=np.float64) * 255, 0, 255).astype(np.int64) for x in c)
    found = (r << 16) + (g << 8) + b
    return int(found) if found.ndim == 0 else found


def hex_to_rgb(c: int) -> tuple[float, float, float]:
    """Returns a colour 0xRRGGBB as red, green and blue, each from 0 to 1."""
    r, g, b = of_hex(c)[0].tolist()
    return r, g, b

"""`GUI`: the 2D window of Taichi's programs. No key is ever pressed and the mouse never moves."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, final

import numpy as np

from ...kernels.fields.caller_location import fail
from .frames import reel
from .picture import Picture, as_array, floats, of_hex, points, within, write_image


class EventType(Enum):
    """Kinds of input events."""

    MOTION = 0
    PRESS = 1
    RELEASE = 2


@final
class Widget:
    """Slider or label of a window: stores a value that the program sets and reads."""

    def __init__(self, text: str, value: float) -> None:
        self.text = text
        self.value = value


@final
class GUI:
    """Window of `res` pixels (one number: a square).

    Colours are 0xRRGGBB; radii and line widths are in pixels.
    """

    SHIFT, ALT, CTRL = "Shift", "Alt", "Control"
    ESCAPE, RETURN, TAB, BACKSPACE, SPACE = "Escape", "Return", "Tab", "BackSpace", " "
    UP, DOWN, LEFT, RIGHT = "Up", "Down", "Left", "Right"
    CAPSLOCK, LMB, MMB, RMB, EXIT = "Caps_Lock", "LMB", "MMB", "RMB", "WMClose"
    WHEEL, MOVE = "Wheel", "Motion"
    MOTION, PRESS, RELEASE = EventType.MOTION, EventType.PRESS, EventType.RELEASE

    def __init__(
        self,
        name: str = "Taichi",
        res: Any = 512,
        background_color: int = 0,
        *options: bool,  # show_gui, fullscreen, fast_gui: there is no screen
        **named_options: bool,
    ) -> None:
        wide, high = (res, res) if isinstance(res, (int, np.integer)) else res
        self.name = name
        self.res = (int(wide), int(high))
        self.background_color = background_color
        self.frame = 0
        self.running = True
        self.event: Any = None
        self.key_pressed: set[str] = set()
        self.fps_limit: int | None = 60
        self._picture = Picture(*self.res)
        self.clear()

    def __enter__(self) -> GUI:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.running = False

    # --- nobody is there ---------------------------------------------------------------------

    def get_event(self, *event_filter: Any) -> bool:
        return False

    def get_events(self, *event_filter: Any) -> Iterator[Any]:
        return iter(())

    def get_key_event(self) -> Any:
        return fail("there is nobody to press a key: ask gui.get_event() whether there is an event")

    def has_key_event(self) -> bool:
        return False

    def is_pressed(self, *keys: Any) -> bool:
        return False

    def get_cursor_pos(self) -> tuple[float, float]:
        """Returns the middle of the window, (0.5, 0.5), since there is no mouse."""
        return 0.5, 0.5

    def slider(self, text: str, minimum: float, maximum: float, step: float = 1) -> Widget:
        return Widget(text, minimum)

    def label(self, text: str) -> Widget:
        return Widget(text, 0)

    def button(self, text: str, event_name: str | None = None) -> str:
        return event_name or text

    # --- drawing -----------------------------------------------------------------------------

    def clear(self, color: int | None = None) -> None:
        self._picture.clear(of_hex(self.background_color if color is None else color)[0])

    def set_image(self, img: Any) -> None:
        """Draws a field or an array of the size of the window: (w, h) grey, (w, h, 3) or (w, h, 4)."""
        found = np.asarray(as_array(img))
        if found.ndim == 3 and found.shape[2] == 0:
            found = found[:, :, 0]
        if found.ndim not in (2, 3) or found.shape[:2] != self.res:
            wide, high = self.res
            fail(
                f"gui.set_image: the image has the shape {found.shape}, the window is {wide} x {high}"
            )
        self._picture.image(found)

    def get_image(self) -> Any:
        """Returns the current picture: (w, h, 4), values from 0 to 1, x first and y upwards."""
        return as_shown(self._picture)

    def contour(self, scalar_field: Any, normalize: bool = False) -> None:
        """Draws a scalar field as colours over the whole window; `normalize` scales its values to 0 to 1."""
        self._picture.image(heat(as_array(scalar_field), normalize))

    def circle(self, pos: Any, color: int = 0xFFFFFF, radius: float = 1) -> None:
        self._picture.discs(_point(pos), radius, of_hex(color))

    def circles(
        self,
        pos: Any,
        radius: Any = 1,
        color: Any = 0xFFFFFF,
        palette: Any = None,
        palette_indices: Any = None,
    ) -> None:
        """Draws filled circles of one or several radii, in pixels.

        `color`: one colour or one for each circle. With a `palette`, circle k has the colour `palette[palette_indices[k]]`.
        """
        if palette is not None:
            if palette_indices is None:
                fail(
                    "gui.circles: palette needs palette_indices, the number of a colour for each circle"
                )
            colours = np.asarray(palette)
            color = colours[within(palette_indices, len(colours), "colours in the palette")]
        self._picture.discs(pos, as_array(radius), of_hex(color))

    def line(self, begin: Any, end: Any, radius: float = 1, color: int = 0xFFFFFF) -> None:
        self.lines(_point(begin), _point(end), radius, color)

    def lines(self, begin: Any, end: Any, radius: Any = 1, color: Any = 0xFFFFFF) -> None:
        self._picture.lines(begin, end, as_array(radius), of_hex(color))

    def triangle(self, a: Any, b: Any, c: Any, color: int = 0xFFFFFF) -> None:
        self.triangles(_point(a), _point(b), _point(c), color)

    def triangles(self, a: Any, b: Any, c: Any, color: Any = 0xFFFFFF) -> None:
        corners = [points(x) for x in (a, b, c)]
        counts = [len(x) for x in corners]
        if len(set(counts)) > 1:
            fail(
                f"gui.triangles: a, b and c have {counts[0]}, {counts[1]} and {counts[2]} positions"
            )
        self._picture.triangles(np.stack(corners, axis=1), of_hex(color))

    def rect(
        self, topleft: Any, bottomright: Any, radius: float = 1, color: int = 0xFFFFFF
    ) -> None:
        """Draws the outline of a rectangle; `radius` is the line width in pixels."""
        (x0, y0), (x1, y1) = points(topleft)[0].tolist(), points(bottomright)[0].tolist()
        corners = np.array([(x0, y0), (x1, y0), (x1, y1), (x0, y1)])
        self.lines(corners, np.roll(corners, -1, axis=0), radius, color)

    def text(self, content: str, pos: Any, font_size: float = 15, color: int = 0xFFFFFF) -> None:
        self._picture.text(str(content), pos, font_size, of_hex(color))

    def arrow(
        self, orig: Any, direction: Any, radius: float = 1, color: int = 0xFFFFFF, **tip: Any
    ) -> None:
        self.arrows(orig, direction, radius, color, **tip)

    def arrows(
        self, orig: Any, direction: Any, radius: Any = 1, color: Any = 0xFFFFFF, **tip: Any
    ) -> None:
        """Draws arrows with tips.

        `tip`: options `tip_scale`, length of the tip over that of the arrow (0.2), and `angle` of the tip in degrees (45).
        """
        begin, along = points(orig), points(direction)
        end = begin + along
        self.lines(_point(begin), _point(end), radius, color)
        for sign in (1, -1):
            half = sign * np.radians(tip.get("angle", 45) / 2)
            turn = np.array([[np.cos(half), -np.sin(half)], [np.sin(half), np.cos(half)]])
            self.lines(end, end - tip.get("tip_scale", 0.2) * along @ turn.T, radius, color)

    def point_field(self, radius: Any, color: Any = 0xFFFFFF, bound: float = 0.5) -> None:
        """Draws a circle for each element of a scalar field, whose values are the radii in pixels."""
        radii = floats(radius)
        self.circles(lattice(radii.shape[0], radii.shape[1], bound), radii.reshape(-1), color)

    def arrow_field(
        self, direction: Any, radius: Any = 1, color: Any = 0xFFFFFF, bound: float = 0.5, **tip: Any
    ) -> None:
        """Draws an arrow for each element of a vector field."""
        along = floats(direction)
        at = lattice(along.shape[0], along.shape[1], bound)
        self.arrows(at, along.reshape(-1, along.shape[2]), radius, color, **tip)

    def vector_field(
        self, vector_field: Any, arrow_spacing: int = 5, color: int = 0xFFFFFF
    ) -> None:
        """Draws arrows of a vector field, `arrow_spacing` elements apart, the longest as long as that."""
        whole = floats(vector_field)
        begins, along = spaced_arrows(whole, arrow_spacing)
        self.arrows(begins, along, 1, color)

    def show(self, file: str | None = None) -> None:
        """Ends the frame and writes it to `file`, if given; later drawing begins an empty picture."""
        if file is not None:
            self._picture.write(file)
        self.frame += 1
        try:
            reel().show(self._picture)
        finally:
            self.clear()

    def save_image(self, file: str) -> None:
        write_image(self._picture.pixels(), file)


def _point(x: Any) -> Any:
    """Returns one position as an array of shape (1, 2); it may be given as a column of two numbers."""
    return points(np.ravel(floats(x)))


def lattice(wide: int, high: int, bound: float) -> Any:
    """Returns the positions of a field's elements over the window: (w * h, 2).

    `bound`: distance of the outermost elements from the border, in cells; 0.5 puts elements in the middle of cells.
    """
    x = (np.arange(wide) + bound) / (wide + 2 * bound - 1)
    y = (np.arange(high) + bound) / (high + 2 * bound - 1)
    return np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)


def spaced_arrows(whole: Any, spacing: int) -> tuple[Any, Any]:
    """Returns the starts and vectors of arrows for a vector field (w, h, 2), one for every `spacing` elements.

    Vectors are scaled so that the longest component is `spacing` elements long.
    """
    wide, high = whole.shape[:2]
    at = lattice(wide, high, 0.5).reshape(wide, high, 2)[::spacing, ::spacing].reshape(-1, 2)
    along = whole[::spacing, ::spacing, :2].reshape(-1, 2)
    most = np.abs(along).max(initial=0.0)
    return at, along * (spacing / max(wide, high) / most if most > 0 else 0.0)


def heat(values: Any, normalize: bool) -> Any:
    """Returns values from 0 to 1 as colours from blue over green and yellow to red: (..., 3).

    `normalize`: scales the values to 0 to 1 first.
    """
    found = np.array(values, dtype=np.float64)
    if normalize and found.size:
        found = (found - found.min()) / max(float(np.ptp(found)), 1e-30)
    stops = np.linspace(0, 1, 5)
    of_stops = np.array([(0, 0, 0.5), (0, 0.6, 1), (0.2, 0.9, 0.4), (1, 0.9, 0), (0.9, 0.1, 0)])
    return np.stack([np.interp(found, stops, of_stops[:, c]) for c in range(3)], axis=-1)


def as_shown(picture: Picture) -> Any:
    """Returns a picture as programs read it: (w, h, 4) floats from 0 to 1, x first and y upwards."""
    rgb = np.flipud(picture.pixels()).transpose(1, 0, 2) / np.float32(255)
    return np.concatenate([rgb, np.ones_like(rgb[:, :, :1])], axis=2)

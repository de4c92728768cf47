"""`ui`: windows of Taichi's programs with a canvas, in two or three dimensions, without a screen or a user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

from .frames import reel
from .gui import GUI, as_shown, heat, spaced_arrows
from .picture import Picture, as_array, floats, points, tints
from .scene import Camera, ProjectionMode, Scene, corners_of

__all__ = ["Camera", "Canvas", "Gui", "ProjectionMode", "Scene", "Window", "make_camera"]

SHIFT, ALT, CTRL = GUI.SHIFT, GUI.ALT, GUI.CTRL
ESCAPE, RETURN, TAB, BACKSPACE, SPACE = GUI.ESCAPE, GUI.RETURN, GUI.TAB, GUI.BACKSPACE, GUI.SPACE
UP, DOWN, LEFT, RIGHT = GUI.UP, GUI.DOWN, GUI.LEFT, GUI.RIGHT
CAPSLOCK, LMB, MMB, RMB = GUI.CAPSLOCK, GUI.LMB, GUI.MMB, GUI.RMB
PRESS, RELEASE = "press", "release"

_GREY = (0.5, 0.5, 0.5)


def make_camera() -> Camera:
    return Camera()


@final
class Canvas:
    """Canvas of a window. Lengths are fractions of the window's height, colours have values from 0 to 1."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture

    def set_background_color(self, color: Any) -> None:
        self._picture.background = tints(color, 1)[0]

    def set_image(self, img: Any) -> None:
        """Draws an image, stretched to the window."""
        self._picture.image(as_array(img))

    def contour(
        self, scalar_field: Any, cmap_name: str = "plasma", normalize: bool = False
    ) -> None:
        self._picture.image(heat(as_array(scalar_field), normalize))

    def circles(
        self,
        centers: Any,
        radius: float,
        color: Any = _GREY,
        per_vertex_color: Any = None,
        per_vertex_radius: Any = None,
    ) -> None:
        sizes = floats(radius if per_vertex_radius is None else per_vertex_radius)
        tint = color if per_vertex_color is None else per_vertex_color
        self._picture.discs(centers, sizes * self._picture.height, tint)

    def lines(
        self,
        vertices: Any,
        width: float,
        indices: Any = None,
        color: Any = _GREY,
        per_vertex_color: Any = None,
    ) -> None:
        """Draws lines between pairs of vertices: those that `indices` lists, or vertices 0 and 1, 2 and 3, ..."""
        at, tint = _corners(2, vertices, indices, color, per_vertex_color)
        self._picture.lines(at[:, 0], at[:, 1], width * self._picture.height, tint)

    def triangles(
        self,
        vertices: Any,
        color: Any = _GREY,
        indices: Any = None,
        per_vertex_color: Any = None,
    ) -> None:
        at, tint = _corners(3, vertices, indices, color, per_vertex_color)
        self._picture.triangles(at, tint)

    def vector_field(
        self,
        vector_field: Any,
        arrow_spacing: int = 5,
        scale: float = 0.1,
        width: float = 0.002,
        color: Any = (0, 0, 0),
    ) -> None:
        begins, along = spaced_arrows(floats(vector_field), arrow_spacing)
        self._picture.lines(begins, begins + along, width * self._picture.height, color)

    def scene(self, scene: Scene) -> None:
        scene.paint(self._picture)


def _corners(k: int, given: Any, indices: Any, color: Any, per_vertex: Any) -> tuple[Any, Any]:
    """Returns the corners (n, k, 2) and the colours of n shapes with k corners.

    `given`: positions of the vertices. `per_vertex`: colours of vertices, averaged over the corners; None: `color`.
    """
    at = points(given)
    order = corners_of(k, indices, len(at))
    if per_vertex is None:
        return at[order], color
    return at[order], tints(per_vertex, len(at))[order].mean(axis=1)


@final
class Gui:
    """Widgets of a window. Each returns the value that it is given, since no user changes it."""

    @contextmanager
    def sub_window(
        self, name: str, x: float, y: float, width: float, height: float
    ) -> Iterator[Gui]:
        yield self

    def begin(self, name: str, x: float, y: float, width: float, height: float) -> None:
        pass

    def end(self) -> None:
        pass

    def text(self, text: str, color: Any = None) -> None:
        pass

    def checkbox(self, text: str, old_value: bool) -> bool:
        return old_value

    def slider_int(self, text: str, old_value: int, minimum: int, maximum: int) -> int:
        return old_value

    def slider_float(self, text: str, old_value: float, minimum: float, maximum: float) -> float:
        return old_value

    def color_edit_3(self, text: str, old_value: Any) -> Any:
        return old_value

    def button(self, text: str) -> bool:
        return False


@final
class Window:
    """Window of `res` pixels without a screen."""

    def __init__(
        self, name: str = "Taichi", res: Any = (512, 512), *options: Any, **named: Any
    ) -> None:
        wide, high = res
        self.name = name
        self.res = (int(wide), int(high))
        self.fps_limit = named.get("fps_limit", 200)
        self.running = True
        self.event: Any = None
        self.GUI = Gui()
        self._picture = Picture(*self.res)
        self._canvas, self._scene = Canvas(self._picture), Scene()

    def get_canvas(self) -> Canvas:
        return self._canvas

    def get_scene(self) -> Scene:
        return self._scene

    def get_gui(self) -> Gui:
        return self.GUI

    def get_event(self, tag: Any = None) -> bool:
        return False

    def get_events(self, tag: Any = None) -> list[Any]:
        return []

    def is_pressed(self, *keys: Any) -> bool:
        return False

    def get_cursor_pos(self) -> tuple[float, float]:
        """Returns the middle of the window, (0.5, 0.5), since there is no mouse."""
        return 0.5, 0.5

    def get_window_shape(self) -> tuple[int, int]:
        return self.res

    def get_image_buffer_as_numpy(self) -> Any:
        """Returns the current picture: (w, h, 4), values from 0 to 1."""
        return as_shown(self._picture)

    def save_image(self, filename: str) -> None:
        self._picture.write(filename)

    def show(self) -> None:
        """Ends the frame; later drawing begins an empty picture with the same background."""
        try:
            reel().show(self._picture)
        finally:
            self._picture.clear(self._picture.background)

    def destroy(self) -> None:
        self.running = False

"""Three-dimensional scenes: a camera, lights, particles and meshes, projected and painted from far to near."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, final

import numpy as np

from .picture import Floats, Picture, as_array, floats, rows, tints, within

_WHOLE: Final[Mapping[str, Any]] = MappingProxyType({})


class ProjectionMode:
    """Projections of a camera: perspective or orthographic."""

    Perspective = 0
    Orthogonal = 1


@final
class Camera:
    """Camera at `position` that looks at `lookat`; `fov` is the vertical angle of view in degrees."""

    def __init__(self) -> None:
        self.curr_position = np.zeros(3)
        self.curr_lookat = np.array([0.0, 0.0, 1.0])
        self.curr_up = np.array([0.0, 1.0, 0.0])
        self._fov, self._near, self._far = 45.0, 0.1, 1000.0
        self._mode = ProjectionMode.Perspective
        self._box = [-1.0, 1.0, -1.0, 1.0]  # left, right, bottom, top: of an orthogonal one

    def position(self, x: float, y: float, z: float) -> None:
        self.curr_position = np.array([x, y, z], dtype=np.float64)

    def lookat(self, x: float, y: float, z: float) -> None:
        self.curr_lookat = np.array([x, y, z], dtype=np.float64)

    def up(self, x: float, y: float, z: float) -> None:
        self.curr_up = np.array([x, y, z], dtype=np.float64)

    def fov(self, fov: float) -> None:
        self._fov = float(fov)

    def z_near(self, z_near: float) -> None:
        self._near = float(z_near)

    def z_far(self, z_far: float) -> None:
        self._far = float(z_far)

    def left(self, left: float) -> None:
        self._box[0] = float(left)

    def right(self, right: float) -> None:
        self._box[1] = float(right)

    def bottom(self, bottom: float) -> None:
        self._box[2] = float(bottom)

    def top(self, top: float) -> None:
        self._box[3] = float(top)

    def projection_mode(self, mode: int) -> None:
        self._mode = mode

    def track_user_inputs(self, window: Any, *options: Any, **named_options: Any) -> None:
        """Does nothing, since no user moves the camera."""

    def get_view_matrix(self) -> Floats:
        """Returns the matrix (4, 4) from world to camera coordinates, for row vectors; the view is along -z."""
        forward = unit(self.curr_lookat - self.curr_position)
        side = unit(np.cross(forward, self.curr_up))
        axes = np.stack([side, np.cross(side, forward), -forward])
        view = np.eye(4)
        view[:3, :3] = axes.T
        view[3, :3] = -axes @ self.curr_position
        return view

    def get_projection_matrix(self, aspect: float) -> Floats:
        """Returns the matrix (4, 4) from camera to clip coordinates, for row vectors.

        Depths are approximate: painting needs only their order.
        """
        near, far = self._near, self._far
        if self._mode == ProjectionMode.Orthogonal:
            left, right, bottom, top = self._box
            found = np.diag([2 / (right - left), 2 / (top - bottom), -1 / (far - near), 1.0])
            found[3, :3] = (
                -(right + left) / (right - left),
                -(top + bottom) / (top - bottom),
                -near / (far - near),
            )
            return found
        scale = 1 / np.tan(np.radians(self._fov) / 2)
        found = np.diag([scale / aspect, scale, far / (near - far), 0.0])
        found[2, 3], found[3, 2] = -1.0, near * far / (near - far)
        return found

    def project(self, positions: Floats, aspect: float) -> tuple[Floats, Floats, Floats]:
        """Returns the positions of points in the window, and their distances from the camera.

        The results are positions (n, 2), distances along the view (n,), and the size of a unit length at each point, in window
        heights (n,). Points behind the camera have NaN.
        """
        ones = np.ones((len(positions), 1))
        seen = np.concatenate([positions, ones], axis=1) @ self.get_view_matrix()
        clip = seen @ self.get_projection_matrix(aspect)
        w = np.where(clip[:, 3] > 1e-9, clip[:, 3], np.nan)
        scale = abs(float(self.get_projection_matrix(aspect)[1, 1])) / 2
        depth = -seen[:, 2]
        depth = np.where(depth >= self._near, depth, np.nan)
        return (clip[:, :2] / w[:, None] + 1) / 2, depth, scale / w


@dataclass(frozen=True)
class _Shapes:
    """Particles (k = 1 corner), lines (2) or triangles (3).

    Corners have the shape (n, k, 3), colours (n, 3), `sizes` (n,): radii of particles, widths of lines.
    """

    corners: Floats
    colours: Floats
    sizes: Floats


@final
class Scene:
    """Camera, lights and shapes. Lights and shapes last until the scene is painted on a canvas, as in Taichi."""

    def __init__(self) -> None:
        self._camera = Camera()
        self.clear()

    def clear(self) -> None:
        self._ambient = np.zeros(3)
        self._lights: list[tuple[Floats, Floats]] = []
        self._shapes: list[_Shapes] = []

    def set_camera(self, camera: Camera) -> None:
        self._camera = camera

    def ambient_light(self, color: Any) -> None:
        self._ambient = tints(color, 1)[0]

    def point_light(self, pos: Any, color: Any) -> None:
        self._lights.append((in_space(pos)[0], tints(color, 1)[0]))

    def particles(
        self,
        centers: Any,
        radius: float,
        color: Any = (0.5, 0.5, 0.5),
        per_vertex_color: Any = None,
        per_vertex_radius: Any = None,
        **part: Any,  # index_offset, index_count
    ) -> None:
        at = chosen(in_space(centers), "index", part)
        colours = chosen(_colours(color, per_vertex_color, len(in_space(centers))), "index", part)
        sizes = rows(radius if per_vertex_radius is None else per_vertex_radius, len(at))
        self._shapes.append(_Shapes(at[:, None], colours, sizes))

    def lines(
        self,
        vertices: Any,
        width: float,
        indices: Any = None,
        color: Any = (0.5, 0.5, 0.5),
        per_vertex_color: Any = None,
        **part: Any,  # vertex_offset, vertex_count, index_offset, index_count
    ) -> None:
        self._add(2, vertices, indices, _colour(color, per_vertex_color), part, width)

    def mesh(
        self,
        vertices: Any,
        indices: Any = None,
        normals: Any = None,  # those of its faces are taken
        color: Any = (0.5, 0.5, 0.5),
        per_vertex_color: Any = None,
        two_sided: bool = False,
        **part: Any,  # as of lines; show_wireframe
    ) -> None:
        self._add(3, vertices, indices, _colour(color, per_vertex_color), part, 0.0)

    def mesh_instance(
        self, vertices: Any, indices: Any = None, transforms: Any = None, **rest: Any
    ) -> None:
        """Adds one copy of a mesh for each matrix of `transforms` (n, 4, 4), which apply to column vectors."""
        places = [np.eye(4)] if transforms is None else list(floats(transforms).reshape(-1, 4, 4))
        first = rest.pop("instance_offset", 0)
        count = rest.pop("instance_count", None)
        base = in_space(vertices)
        for matrix in places[first : None if count is None else first + count]:
            self.mesh(base @ matrix[:3, :3].T + matrix[:3, 3], indices, **rest)

    def _add(
        self, k: int, given: Any, indices: Any, colour: Any, part: Mapping[str, Any], size: float
    ) -> None:
        at = in_space(given)
        tint = tints(colour, len(at))
        at, tint = chosen(at, "vertex", part), chosen(tint, "vertex", part)
        order = corners_of(k, indices, len(at), part)
        self._shapes.append(_Shapes(at[order], tint[order].mean(axis=1), rows(size, len(order))))

    def paint(self, picture: Picture) -> None:
        """Paints all shapes, the farthest first; then removes lights and shapes from the scene."""
        aspect = picture.width / picture.height
        found = []
        for shapes in self._shapes:
            n, k = shapes.corners.shape[:2]
            at, depth, unit_size = self._camera.project(shapes.corners.reshape(-1, 3), aspect)
            lit = np.clip(shapes.colours * self._light(shapes.corners), 0, 1)
            per_shape = unit_size.reshape(n, k).mean(axis=1) * shapes.sizes * picture.height
            found.append((at.reshape(n, k, 2), depth.reshape(n, k).mean(axis=1), lit, per_shape))
        self._paint_sorted(picture, found)
        self.clear()

    def _paint_sorted(self, picture: Picture, found: list[tuple[Any, ...]]) -> None:
        if not found:
            return
        depth = np.concatenate([d for _, d, _, _ in found])
        owner = np.repeat(np.arange(len(found)), [len(d) for _, d, _, _ in found])
        row = np.concatenate([np.arange(len(d)) for _, d, _, _ in found])
        order = np.argsort(-depth, kind="stable")
        order = order[np.isfinite(depth[order])]
        # Runs of one kind in the order of depth, so that each is one step.
        cuts = np.flatnonzero(np.diff(owner[order])) + 1
        for run in np.split(order, cuts):
            if not len(run):
                continue
            at, _, lit, sizes = found[owner[run[0]]]
            at, lit, sizes = at[row[run]], lit[row[run]], sizes[row[run]]
            match at.shape[1]:
                case 1:
                    picture.discs(at[:, 0], sizes, lit)
                case 2:
                    picture.lines(at[:, 0], at[:, 1], sizes, lit)
                case _:
                    picture.triangles(at, lit)

    def _light(self, corners: Floats) -> Floats:
        """Returns the red, green and blue light on each shape: (n, 3).

        Triangles have their normal; other shapes are lit like a surface that faces the camera.
        """
        if not self._lights:
            return np.broadcast_to(self._ambient if self._ambient.any() else 1.0, (len(corners), 3))
        middle = corners.mean(axis=1)
        to_camera = unit(self._camera.curr_position - middle)
        if corners.shape[1] == 3:
            normal = unit(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]))
        else:
            normal = to_camera
        total = np.broadcast_to(self._ambient, (len(corners), 3)).copy()
        for place, colour in self._lights:
            falls = np.abs((normal * unit(place - middle)).sum(axis=1, keepdims=True))
            total += falls * colour
        return total


def in_space(x: Any) -> Floats:
    """Returns positions in space, (n, 3); positions in the plane have z = 0."""
    found = floats(x)
    found = found.reshape(-1, found.shape[-1])
    return np.pad(found, ((0, 0), (0, max(0, 3 - found.shape[1]))))[:, :3]


def corners_of(k: int, indices: Any, n: int, part: Mapping[str, Any] = _WHOLE) -> Any:
    """Returns vertex numbers at the corners of shapes with k corners: (shapes, k).

    `indices`: vertex numbers of all corners; None takes the `n` vertices in order.
    `part`: options index_offset and index_count, which select a range of `indices`.
    """
    order = np.arange(n) if indices is None else np.asarray(as_array(indices)).reshape(-1)
    order = chosen(order, "index", part)
    return within(order[: len(order) // k * k], n, "vertices").reshape(-1, k)


def chosen(x: Any, what: str, part: Mapping[str, Any]) -> Any:
    """Returns the rows of `x` from option `{what}_offset` (0) on, `{what}_count` of them (all)."""
    first, count = part.get(f"{what}_offset", 0), part.get(f"{what}_count")
    return x[first : None if count is None else first + count]


def unit(x: Floats) -> Floats:
    """Returns vectors divided by their length."""
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-30))


def _colour(color: Any, per_vertex: Any) -> Any:
    return color if per_vertex is None else per_vertex


def _colours(color: Any, per_vertex: Any, n: int) -> Floats:
    return tints(_colour(color, per_vertex), n)

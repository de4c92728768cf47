"""`tools.PLYWriter`: vertices with values, and faces, as PLY files (Turk, The PLY Polygon File Format, 1994)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ...kernels.fields.caller_location import fail
from .picture import as_array

_TYPES = {
    "char": "i1",
    "uchar": "u1",
    "short": "i2",
    "ushort": "u2",
    "int": "i4",
    "uint": "u4",
    "float": "f4",
    "double": "f8",
}


@dataclass(frozen=True)
class _Channel:
    name: str
    kind: str  # a type of PLY's
    values: NDArray[Any]


@final
class PLYWriter:
    """Writes values of `num_vertices` vertices and `num_faces` faces (triangles or quadrilaterals) as a PLY file."""

    def __init__(
        self,
        num_vertices: int,
        num_faces: int = 0,
        face_type: str = "tri",
        comment: str = "created by PLYWriter",
    ) -> None:
        if face_type not in ("tri", "quad"):
            fail(f"PLYWriter: face_type is {face_type!r}, it must be 'tri' or 'quad'")
        self.num_vertices, self.num_faces = int(num_vertices), int(num_faces)
        self.corners = 3 if face_type == "tri" else 4
        self.comment = comment
        self._vertices: list[_Channel] = []
        self._faces: list[_Channel] = []
        self._indices: NDArray[Any] | None = None

    def add_vertex_channel(self, key: str, data_type: str, data: Any) -> None:
        """Adds one value for each vertex, named `key` in the file.

        `data_type`: a type of PLY: float, double, int, uchar ...
        """
        if _is_known(data_type):
            self._vertices.append(_channel(key, data_type, data, self.num_vertices))

    def add_face_channel(self, key: str, data_type: str, data: Any) -> None:
        """Adds one value for each face, named `key` in the file; `data_type` is a type of PLY."""
        if _is_known(data_type):
            self._faces.append(_channel(key, data_type, data, self.num_faces))

    def add_vertex_pos(self, x: Any, y: Any, z: Any) -> None:
        self._add("float", x=x, y=y, z=z)

    def add_vertex_normal(self, nx: Any, ny: Any, nz: Any) -> None:
        self._add("float", nx=nx, ny=ny, nz=nz)

    def add_vertex_vel(self, vx: Any, vy: Any, vz: Any) -> None:
        self._add("float", vx=vx, vy=vy, vz=vz)

    def add_vertex_color(self, r: Any, g: Any, b: Any) -> None:
        self._add("float", red=r, green=g, blue=b)

    def add_vertex_alpha(self, alpha: Any) -> None:
        self._add("float", Alpha=alpha)

    def add_vertex_rgba(self, r: Any, g: Any, b: Any, a: Any) -> None:
        self._add("float", red=r, green=g, blue=b, Alpha=a)

    def add_vertex_id(self) -> None:
        self._add("int", id=np.arange(self.num_vertices))

    def add_vertex_piece(self, piece: Any) -> None:
        self._add("int", piece=piece)

    def add_faces(self, indices: Any) -> None:
        """Sets the vertex numbers at the corners of each face."""
        found = np.asarray(as_array(indices)).astype(np.int32).reshape(-1)
        if found.size != self.num_faces * self.corners:
            fail(
                f"PLYWriter: {found.size} indices are given, {self.num_faces} faces need {self.corners} each"
            )
        self._indices = found.reshape(self.num_faces, self.corners)

    def add_face_id(self) -> None:
        self.add_face_channel("id", "int", np.arange(self.num_faces))

    def add_face_piece(self, piece: Any) -> None:
        self.add_face_channel("piece", "int", piece)

    def export(self, path: str) -> None:
        """Writes the file `path` in binary form, with little-endian numbers."""
        self._write(path, "binary_little_endian", is_text=False)

    def export_ascii(self, path: str) -> None:
        """Writes the file `path` as text."""
        self._write(path, "ascii", is_text=True)

    def export_frame(self, series_num: int, path: str) -> None:
        """Writes the file like `export`, with the frame number `series_num` in its name."""
        self.export(_of_frame(path, series_num))

    def export_frame_ascii(self, series_num: int, path: str) -> None:
        self.export_ascii(_of_frame(path, series_num))

    def _add(self, kind: str, **channels: Any) -> None:
        for name, data in channels.items():
            self.add_vertex_channel(name, kind, data)

    def _write(self, path: str, form: str, is_text: bool) -> None:
        if not self._vertices:
            fail("PLYWriter: there is nothing to write: add_vertex_pos(x, y, z) first")
        vertices = _table(self._vertices, self.num_vertices)
        faces = self._face_table()
        header = [
            "ply",
            f"format {form} 1.0",
            f"comment {self.comment}",
            f"element vertex {self.num_vertices}",
            *(f"property {c.kind} {c.name}" for c in self._vertices),
        ]
        if faces is not None:
            header += [
                f"element face {self.num_faces}",
                "property list uchar int vertex_indices",
                *(f"property {c.kind} {c.name}" for c in self._faces),
            ]
        header.append("end_header")
        text = "\n".join(header) + "\n"
        with Path(path).open("wb") as file:
            file.write(text.encode("ascii"))
            for rows in (vertices, faces):
                if rows is None:
                    continue
                if is_text:
                    file.write("".join(_line(row) for row in rows.tolist()).encode("ascii"))
                else:
                    file.write(rows.tobytes())

    def _face_table(self) -> NDArray[Any] | None:
        if self._indices is None:
            return None
        count = np.full(self.num_faces, self.corners)
        corners = [_Channel(f"corner {c}", "int", self._indices[:, c]) for c in range(self.corners)]
        return _table([_Channel("corners", "uchar", count), *corners, *self._faces], self.num_faces)


def _is_known(kind: str) -> bool:
    """True if PLY has the type `kind`. Otherwise it warns: the channel is left out, as by Taichi."""
    if kind not in _TYPES:
        told = f"PLYWriter: {kind!r} is no type of PLY's, so the channel is left out; it has {', '.join(_TYPES)}"
        warnings.warn(told, RuntimeWarning, stacklevel=3)
    return kind in _TYPES


def _channel(key: str, kind: str, data: Any, n: int) -> _Channel:
    values = np.asarray(as_array(data)).reshape(-1)
    if len(values) != n:
        fail(f"PLYWriter: the values of {key} are {len(values)}, there must be {n}")
    return _Channel(key, kind, values)


def _table(channels: list[_Channel], n: int) -> NDArray[Any]:
    rows = np.empty(n, dtype=[(c.name, "<" + _TYPES[c.kind]) for c in channels])
    for c in channels:
        rows[c.name] = c.values
    return rows


def _line(row: tuple[Any, ...]) -> str:
    return " ".join(f"{x:g}" if isinstance(x, float) else str(x) for x in row) + "\n"


def _of_frame(path: str, number: int) -> str:
    stem = path[:-4] if path.endswith(".ply") else path
    return f"{stem}_{number:06d}.ply"

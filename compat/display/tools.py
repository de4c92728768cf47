"""`tools`: images, videos and point clouds as files.

Images have x first and y upwards: (w, h) or (w, h, channels).
"""

from __future__ import annotations

import shutil
from importlib import import_module
from pathlib import Path
from typing import Any, final

import numpy as np

from ...kernels.fields.caller_location import fail
from .frames import reel
from .picture import Picture, as_array, as_bytes, as_rgb, pillow, write_image
from .ply import PLYWriter

__all__ = ["PLYWriter", "VideoManager", "imread", "imresize", "imshow", "imwrite"]


def _upright(img: Any) -> Any:
    """Returns an image as rows of pixels, the uppermost row first."""
    return np.flipud(as_rgb(np.asarray(as_array(img))).transpose(1, 0, 2))


def imwrite(img: Any, filename: str) -> None:
    """Writes an image with its channels to a file, in the format of its suffix."""
    pixels = np.flipud(as_bytes(np.asarray(as_array(img))).transpose(1, 0, 2))
    write_image(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels, filename)


def imread(filename: str, channels: int = 0) -> Any:
    """Returns the image in a file, (w, h, channels), from 0 to 255; `channels` 0 keeps the file's number."""
    modes = {0: None, 1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
    if channels not in modes:
        fail(f"tools.imread: channels is {channels}, it must be from 0 to 4")
    image = pillow("Image").open(filename)
    mode = modes[channels]
    rows = np.asarray(image if mode is None else image.convert(mode))
    if rows.ndim == 2:
        rows = rows[:, :, None]
    return np.ascontiguousarray(np.flipud(rows).transpose(1, 0, 2))


def imresize(img: Any, w: int, h: int | None = None) -> Any:
    """Returns an image resized to (w, h), by default h = w; pixels are those at the same place in the old image."""
    found = np.asarray(as_array(img))
    x = np.arange(w) * found.shape[0] // w
    high = w if h is None else h
    y = np.arange(high) * found.shape[1] // high
    return found[np.ix_(x, y)]


def imshow(img: Any, title: str = "imshow") -> None:
    """Shows an image as one frame."""
    shown = as_rgb(np.asarray(as_array(img)))
    picture = Picture(shown.shape[0], shown.shape[1])
    picture.image(shown)
    reel().show(picture)


@final
class VideoManager:
    """Writes frames to `output_dir`/frames, and joins them to a GIF or MP4 at the end."""

    def __init__(
        self,
        output_dir: str,
        video_filename: str | None = None,
        width: int | None = None,
        height: int | None = None,
        framerate: int = 24,
        automatic_build: bool = True,
        post_processor: Any = None,
    ) -> None:
        self.output_dir = Path(output_dir)
        self.video_filename = video_filename or "video"
        self.size = (width, height)
        self.framerate = framerate
        self.automatic_build = automatic_build
        self.post_processor = post_processor
        self.frame_counter = 0
        self.frame_fns: list[str] = []

    def get_output_filename(self, suffix: str) -> str:
        return str(self.output_dir / (self.video_filename + suffix))

    def get_frame_directory(self) -> str:
        return str(self.output_dir / "frames")

    def write_frame(self, img: Any) -> None:
        """Writes an image as the next frame."""
        pixels = _upright(img)
        wide, high = self.size
        if wide is not None and high is not None and pixels.shape[:2] != (high, wide):
            fail(
                f"the frame has {pixels.shape[1]} x {pixels.shape[0]} pixels, the video {wide} x {high}"
            )
        if self.post_processor is not None:
            pixels = self.post_processor.process(pixels)
        name = f"{self.frame_counter:06d}.png"
        write_image(pixels, Path(self.get_frame_directory()) / name)
        self.frame_fns.append(name)
        self.frame_counter += 1

    def write_frames(self, images: Any) -> None:
        for img in images:
            self.write_frame(img)

    def clean_frames(self) -> None:
        """Deletes the image files of the frames."""
        shutil.rmtree(self.get_frame_directory(), ignore_errors=True)
        self.frame_fns.clear()
        self.frame_counter = 0

    def make_video(self, mp4: bool = True, gif: bool = True) -> None:
        """Joins the frames to an MP4 (by imageio) and a GIF (by Pillow).

        Without imageio the frames stay and no MP4 is made.
        """
        folder = Path(self.get_frame_directory())
        images = [pillow("Image").open(folder / name) for name in self.frame_fns]
        if gif and images:
            first, *others = images
            first.save(
                self.get_output_filename(".gif"),
                save_all=True,
                append_images=others,
                duration=round(1000 / self.framerate),
                loop=0,
            )
        if mp4:
            self._make_mp4([np.asarray(image) for image in images])

    def _make_mp4(self, images: list[Any]) -> None:
        name = self.get_output_filename(".mp4")
        try:
            writer = import_module("imageio").get_writer(name, fps=self.framerate)
        except (ImportError, ValueError):  # neither imageio, nor a back-end of its for MP4
            print(
                f"{name} is not written (it needs imageio[ffmpeg]): the frames are in {self.get_frame_directory()}"
            )
            return
        with writer:
            for image in images:
                writer.append_data(image)

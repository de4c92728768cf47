"""Windows without a screen: what is drawn, and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernelscape.compat.display import tools, window
from kernelscape.compat.display.frames import LastFrame, Reel, recorded
from kernelscape.compat.display.gui import GUI
from kernelscape.compat.display.picture import Picture, hex_to_rgb, rgb_to_hex
from kernelscape.compat.display.scene import Camera, Scene
from kernelscape.kernels.ir.errors import LanguageError

RED, GREEN = [255, 0, 0], [0, 255, 0]


def at(picture: Picture, x: float, y: float) -> list[int]:
    """The colour at a position of the window."""
    pixels = picture.pixels()
    return pixels[int((1 - y) * picture.height), int(x * picture.width)].tolist()


@pytest.mark.parametrize(("radius", "inside"), [(2.5, 1), (20.0, 0.93)])
def test_discs_lie_with_y_upwards(radius: float, inside: float) -> None:
    """`inside`: the share of the disc that lies in the window."""
    picture = Picture(100, 60)
    picture.discs([(0.25, 0.75), (np.nan, 0.5), (9.0, -9.0)], radius, [(1, 0, 0)])
    assert at(picture, 0.251, 0.751) == RED
    assert at(picture, 0.75, 0.25) == [0, 0, 0]
    area = (picture.pixels()[:, :, 0] > 0).sum()
    assert area == pytest.approx(inside * np.pi * radius**2, rel=0.2)


def test_images_have_x_first() -> None:
    picture = Picture(4, 2)
    img = np.zeros((4, 2, 3), np.float32)
    img[3, 0] = (0, 1, 0)
    picture.image(img)
    assert picture.pixels()[1, 3].tolist() == GREEN
    assert picture.pixels().sum() == 255


def test_a_gui_draws_all_its_shapes() -> None:
    gui = GUI("shapes", (60, 40), background_color=0x112233)
    gui.triangle((0, 0), (0.4, 0), (0, 0.6), color=0xFF0000)
    gui.line(np.array([[0.5], [0.5]]), (0.9, 0.5), radius=3, color=0x00FF00)
    gui.rect((0.1, 0.95), (0.3, 0.75), color=0x0000FF)
    gui.text("x", (0.5, 1.0), color=0xFFFFFF)
    gui.arrows(np.array([(0.6, 0.1)]), np.array([(0.2, 0.2)]), color=0xFFFF00)
    gui.circles(np.array([(0.9, 0.9)]), radius=2, palette=[0x00FFFF], palette_indices=[0])
    shown = gui._picture.pixels().reshape(-1, 3)
    colours = {tuple(c) for c in shown.tolist()}
    assert {
        (0x11, 0x22, 0x33),
        (255, 0, 0),
        (0, 255, 0),
        (0, 0, 255),
        (255, 255, 0),
        (0, 255, 255),
    } <= colours
    assert gui.get_image().shape == (60, 40, 4)


def test_an_image_of_another_size_is_refused_in_one_sentence() -> None:
    with pytest.raises(LanguageError, match=r"shape \(3, 3\), the window is 60 x 40") as found:
        GUI("shapes", (60, 40)).set_image(np.zeros((3, 3)))
    assert found.value.where is not None and found.value.where.file == __file__


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (lambda gui, _: gui.circles(np.zeros((3, 2)), radius=np.ones(2)), "2 numbers for 3 shapes"),
        (lambda gui, _: gui.circles(np.zeros((3, 2)), color=np.zeros(2)), "2 colours for 3 shapes"),
        (
            lambda gui, _: gui.circles(
                np.zeros((1, 2)), palette=[0, 1], palette_indices=np.array([2])
            ),
            "an index is 2, there are 2 colours in the palette",
        ),
        (lambda gui, _: gui.lines(np.zeros((3, 2)), np.zeros((2, 2))), "3 lines begin and 2 end"),
        (
            lambda gui, _: gui.triangles(np.zeros((3, 2)), np.zeros((3, 2)), np.zeros((1, 2))),
            "a, b and c have 3, 3 and 1 positions",
        ),
        (
            lambda _, w: w.get_canvas().set_background_color((1, 0)),
            r"colours have the shape \(2,\)",
        ),
        (
            lambda _, w: w.get_canvas().lines(np.zeros((3, 2)), 0.1, indices=np.array([0, 7])),
            "an index is 7, there are 3 vertices",
        ),
        (
            lambda _, w: w.get_scene().mesh(np.zeros((3, 3)), indices=np.array([0, 1, -1])),
            "an index is -1, there are 3 vertices",
        ),
        (
            lambda _, w: w.get_scene().lines(
                np.zeros((4, 3)), 0.1, per_vertex_color=np.zeros((3, 3))
            ),
            "3 colours for 4 shapes",
        ),
        (
            lambda _, w: w.get_scene().particles(
                np.zeros((4, 3)), 0.1, per_vertex_radius=np.ones(3)
            ),
            "3 numbers for 4 shapes",
        ),
    ],
)
def test_lengths_that_do_not_fit_are_refused_where_they_are_drawn(draw: Any, said: str) -> None:
    """Also where nobody looks at the picture."""
    with pytest.raises(LanguageError, match=said) as found:
        draw(GUI("lengths", 8), window.Window("lengths", (8, 8)))
    assert found.value.where is not None and found.value.where.file == __file__


def test_an_offset_and_a_count_name_a_part_of_the_indices() -> None:
    scene, points = Scene(), np.arange(12.0).reshape(4, 3)
    scene.lines(points, 0.1, indices=np.array([9, 9, 2, 3]), index_offset=2, index_count=2)
    assert (scene._shapes[0].corners == points[[[2, 3]]]).all()


def test_frames_are_written_and_the_last_ends_the_program(tmp_path: Path) -> None:
    gui = GUI("frames", 8)
    stood = []
    reel = Reel(2, tmp_path, at_end=lambda: stood.append(gui.frame))

    def program() -> None:
        while gui.running and not gui.get_event(gui.ESCAPE):
            gui.circle((0.5, 0.5), 0xFF0000, 3)
            gui.show()

    with recorded(reel), pytest.raises(LastFrame):
        program()
    assert [f.name for f in reel.files] == ["000001.png", "000002.png"] and stood == [2]
    assert tools.imread(str(reel.files[1]))[4, 4].tolist() == RED
    assert len(reel.shown_s) == 2


def test_a_canvas_stretches_images_and_joins_vertices_by_indices() -> None:
    shown = window.Window("canvas", (40, 20), vsync=True)
    canvas = shown.get_canvas()
    canvas.set_image(np.ones((4, 2), np.float32))
    corners = np.array([(0, 0), (1, 0), (0, 1), (1, 1)], np.float32)
    canvas.triangles(corners, color=(1, 0, 0), indices=np.array([0, 1, 2]))
    canvas.lines(corners, 0.1, indices=np.array([1, 3]), color=(0, 1, 0))
    picture = shown._picture
    assert at(picture, 0.1, 0.1) == RED
    assert at(picture, 0.9, 0.85) == [255, 255, 255]
    assert at(picture, 0.98, 0.5) == GREEN


def test_near_shapes_of_a_scene_hide_far_ones() -> None:
    camera, scene, picture = Camera(), Scene(), Picture(60, 60)
    camera.position(0, 0, 5)
    camera.lookat(0, 0, 0)
    scene.set_camera(camera)
    scene.ambient_light((1, 1, 1))
    scene.particles(np.array([(0, 0, 1.0)]), radius=0.2, color=(0, 1, 0))
    square = np.array([(-1, -1, 0), (1, -1, 0), (1, 1, 0), (-1, 1, 0)], np.float32)
    scene.mesh(square, indices=np.array([0, 1, 2, 0, 2, 3]), color=(1, 0, 0))
    scene.particles(np.array([(0, 0, 9.0)]), radius=1, color=(0, 0, 1))  # behind the camera
    scene.paint(picture)
    assert at(picture, 0.5, 0.5) == GREEN
    assert at(picture, 0.65, 0.65) == RED
    assert at(picture, 0.95, 0.95) == [0, 0, 0]


def test_a_camera_projects_as_the_formula_says() -> None:
    camera = Camera()
    camera.position(0, 0, 5)
    camera.lookat(0, 0, 0)
    camera.fov(90)
    at, depth, scale = camera.project(np.array([(0.0, 0.0, 0.0), (5.0, 0.0, 0.0)]), 1.0)
    assert at == pytest.approx(np.array([(0.5, 0.5), (1.0, 0.5)]))
    assert depth == pytest.approx([5, 5]) and scale == pytest.approx([0.1, 0.1])


def test_tools_keep_images_videos_and_points(tmp_path: Path) -> None:
    img = np.zeros((3, 2, 3), np.uint8)
    img[2, 1] = RED
    tools.imwrite(img, str(tmp_path / "a.png"))
    assert (tools.imread(str(tmp_path / "a.png")) == img).all()
    assert tools.imresize(img, 6, 4)[5, 3].tolist() == RED
    video = tools.VideoManager(str(tmp_path / "v"))
    video.write_frames([img, img])
    video.make_video(mp4=False, gif=True)
    assert Path(video.get_output_filename(".gif")).stat().st_size > 0
    ply = tools.PLYWriter(num_vertices=3, num_faces=1)
    ply.add_vertex_pos(np.arange(3.0), np.zeros(3), np.ones(3))
    ply.add_faces(np.arange(3))
    ply.export_frame_ascii(7, str(tmp_path / "p.ply"))
    lines = (tmp_path / "p_000007.ply").read_text().splitlines()
    assert lines[lines.index("end_header") + 1 :] == ["0 0 1", "1 0 1", "2 0 1", "3 0 1 2"]
    with pytest.raises(LanguageError, match="2, there must be 3"):
        ply.add_vertex_channel("a", "float", [1, 2])


def test_colours_are_numbers_and_back() -> None:
    assert rgb_to_hex(hex_to_rgb(0x123456)) == 0x123456

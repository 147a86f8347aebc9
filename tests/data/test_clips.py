"""Clips: which frames are taken, that they are the right ones, and what is said about broken files."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from real_data import DATA

from tellapart.data import open_data
from tellapart.data.pictures import (
    BytesClip,
    ClipFile,
    FilePicture,
    is_clip,
    picture_file,
    sample_frames,
)
from tellapart.data.video import uniform_frame_indices
from tellapart.errors import PictureError
from tellapart.evaluation.gallery import preview_image
from tellapart.scenes import Scenes

SIDE = 64


def grey(value: int) -> Image.Image:
    return Image.new("RGB", (SIDE, SIDE), (value, value, value))


def level(image: Image.Image) -> int:
    return round(float(np.asarray(image).mean()))


def write_video(path: Path, levels: list[int], codec: str = "mpeg4", gop: int = 4, rate: int = 10, bf: int = 0) -> Path:
    av = pytest.importorskip("av")
    with av.open(str(path), "w") as out:
        stream = out.add_stream(codec, rate=rate, options={"g": str(gop), "bf": str(bf)})
        stream.width, stream.height, stream.pix_fmt = SIDE, SIDE, "yuv420p"
        if not bf:  # with so many bits x264 does without B-frames
            stream.bit_rate = 2_000_000
        for value in levels:
            for packet in stream.encode(av.VideoFrame.from_image(grey(value))):
                out.mux(packet)
        for packet in stream.encode():
            out.mux(packet)
    return path


def write_gif(path: Path, levels: list[int], milliseconds: list[int]) -> Path:
    first, *others = [grey(value) for value in levels]
    first.save(path, save_all=True, append_images=others, duration=milliseconds, loop=0)
    return path


def test_places_are_the_middles_of_equal_parts_of_the_time() -> None:
    assert uniform_frame_indices([0, 1, 2, 3, 4, 5, 6, 7], 8, 4) == [1, 3, 5, 7]
    assert uniform_frame_indices([0, 1, 2], 3, 1) == [1]
    assert uniform_frame_indices([0, 1], 2, 4) == [0, 0, 1, 1]
    assert uniform_frame_indices([10, 11, 12], 110, 4) == [2, 2, 2, 2], (
        "the last frame stays for nearly all of the time"
    )
    assert uniform_frame_indices([0], 1, 3) == [0, 0, 0]


@pytest.mark.long
@pytest.mark.parametrize(("suffix", "codec"), [("mp4", "mpeg4"), ("avi", "mpeg4"), ("webm", "libvpx"), ("mkv", "h264")])
@pytest.mark.parametrize("gop", [1, 5, 100])
def test_frames_of_a_video_are_those_at_their_times(tmp_path: Path, suffix: str, codec: str, gop: int) -> None:
    levels = list(range(20, 240, 11))
    clip = ClipFile(write_video(tmp_path / f"grey.{suffix}", levels, codec, gop))
    for count in (1, 3, 4, 20):
        expected = [levels[int((part + 0.5) * len(levels) / count)] for part in range(count)]
        frames = clip.frames(count)
        assert [frame.mode for frame in frames] == ["RGB"] * count
        assert [level(frame) for frame in frames] == pytest.approx(expected, abs=4)
    assert level(clip.image()) == level(clip.frames(1)[0])


@pytest.mark.parametrize("suffix", ["avi", "mpg", "mp4"])
def test_frames_that_are_stored_out_of_order_are_shown_in_order(tmp_path: Path, suffix: str) -> None:
    """AVI and MPEG with B-frames of H.264 have no usable times: their packets name the wrong frames, or none."""
    levels = list(range(20, 240, 11))
    clip = ClipFile(write_video(tmp_path / f"b.{suffix}", levels, "h264", gop=10, bf=2, rate=25))
    assert [level(frame) for frame in clip.frames(4)] == pytest.approx([levels[i] for i in (2, 7, 12, 17)], abs=4)


def test_frames_of_a_gif_follow_its_durations(tmp_path: Path) -> None:
    clip = ClipFile(write_gif(tmp_path / "g.gif", [0, 60, 120, 180], [100, 100, 100, 1700]))
    assert [level(frame) for frame in clip.frames(4)] == [120, 180, 180, 180]
    assert [level(frame) for frame in clip.frames(20)] == [0, 60, 120, *[180] * 17]
    assert level(clip.image()) == 180


def test_a_still_gif_is_the_same_frame_over_and_over(tmp_path: Path) -> None:
    grey(90).save(tmp_path / "still.gif")
    assert [level(frame) for frame in ClipFile(tmp_path / "still.gif").frames(3)] == [90] * 3


def test_variable_frame_rates_are_sampled_by_time(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    path = tmp_path / "v.mkv"
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libvpx", rate=10)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = SIDE, SIDE, "yuv420p", 2_000_000
        stream.codec_context.time_base = Fraction(1, 10)
        for time, value in [(0, 30), (1, 60), (2, 90), (17, 150), (18, 200)]:
            frame = av.VideoFrame.from_image(grey(value))
            frame.pts = time
            for packet in stream.encode(frame):
                out.mux(packet)
        for packet in stream.encode():
            out.mux(packet)
    assert [level(frame) for frame in ClipFile(path).frames(3)] == pytest.approx([90, 90, 90], abs=4)


def test_the_key_is_the_content_and_not_the_name(tmp_path: Path) -> None:
    one, other = (write_gif(tmp_path / name, [0, 9], [100, 100]) for name in ("a.gif", "b.gif"))
    third = write_gif(tmp_path / "c.gif", [0, 99], [100, 100])
    assert ClipFile(one).key() == ClipFile(other).key() == FilePicture(one).key() != ClipFile(third).key()


def test_a_picture_stands_still_and_a_suffix_says_what_is_a_clip(tmp_path: Path) -> None:
    grey(7).save(tmp_path / "a.png")
    still = picture_file(tmp_path / "a.png")
    assert type(still) is FilePicture and [level(frame) for frame in sample_frames(still, 3)] == [7]
    clip = picture_file(write_gif(tmp_path / "a.GIF", [0, 200], [100, 100]))
    assert isinstance(clip, ClipFile) and [level(frame) for frame in sample_frames(clip, 2)] == [0, 200]
    with pytest.raises(ValueError, match="at least 1"):
        clip.frames(0)


def test_a_page_shows_four_frames_of_a_clip_in_reading_order(tmp_path: Path) -> None:
    sheet = preview_image(ClipFile(write_gif(tmp_path / "g.gif", [0, 60, 120, 180], [100] * 4)))
    assert sheet.size == (129, 129)
    assert [sheet.getpixel(at)[0] for at in ((5, 5), (120, 5), (5, 120), (120, 120), (64, 64))] == [
        0,
        60,
        120,
        180,
        255,
    ]
    grey(7).save(tmp_path / "a.png")
    assert preview_image(FilePicture(tmp_path / "a.png")).size == (SIDE, SIDE)


def test_frames_of_a_scene_are_evenly_over_its_time() -> None:
    clip, still = Scenes(1, frames=6)[0], Scenes(1)[0]
    every = [np.asarray(frame) for frame in clip.frames()]
    for count, places in ((1, [3]), (2, [1, 4]), (3, [1, 3, 5]), (6, [0, 1, 2, 3, 4, 5]), (4, [0, 2, 3, 5])):
        frames = sample_frames(clip, count)
        assert all(np.array_equal(frame, every[place]) for frame, place in zip(frames, places, strict=True))
    assert is_clip(clip) and not is_clip(still) and len(sample_frames(still, 3)) == 1


def sound_only(path: Path) -> Path:
    av = pytest.importorskip("av")
    with av.open(str(path), "w") as out:
        stream = out.add_stream("aac", rate=16000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.rate = 16000
        for packet in [*stream.encode(frame), *stream.encode()]:
            out.mux(packet)
    return path


def test_a_broken_clip_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = write_video(tmp_path / "whole.avi", list(range(10, 250, 4))).read_bytes()
    gif = write_gif(tmp_path / "whole.gif", [*range(0, 250, 10)], [100] * 25).read_bytes()
    monkeypatch.chdir(tmp_path)
    playlist = b"ffconcat version 1.0\nfile whole.avi\n"  # FFmpeg alone would follow it into the other file
    broken = {
        "": "empty file",
        "text.mp4": "damaged, or not a supported clip format",
        "list.mp4": "damaged, or not a supported clip format",
        "half.avi": "truncated",
        "half.gif": "truncated",
        "head.mp4": "damaged, or not a supported clip format",
    }
    contents = {
        "": b"", "text.mp4": b"no clip at all\n" * 20, "list.mp4": playlist, "half.avi": whole[: len(whole) // 2],
        "half.gif": gif[: len(gif) - 40], "head.mp4": b"\0\0\0\x18ftypmp42",
    }  # fmt: skip
    for name, said in broken.items():
        with pytest.raises(PictureError, match=said) as error:
            BytesClip(contents[name], name).frames(2)
        assert "\n" not in str(error.value) and str(error.value).startswith(f"{name}: ")
    with pytest.raises(PictureError, match="the clip has no frames"):
        ClipFile(sound_only(tmp_path / "sound.mp4")).image()
    with pytest.raises(PictureError, match="no such file"):
        ClipFile(tmp_path / "none.mp4").frames(2)


def test_without_the_extra_a_gif_is_read_and_a_video_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    assert len(ClipFile(write_gif(tmp_path / "g.gif", [0, 9], [100, 100])).frames(2)) == 2
    (tmp_path / "a.mp4").write_bytes(b"\0\0\0\x18ftypmp42")
    dataset = open_data(str(tmp_path))
    assert [dataset.load_image(item) is None for item in dataset] == [True, False]  # as of HEIC, the others are read
    assert dict(dataset.unreadable) == {
        str(tmp_path / "a.mp4"): "reading clips requires an extra; run: pip install 'tellapart[video]'"
    }


@pytest.mark.data
@pytest.mark.skipif(not (DATA / "clips").is_dir(), reason="no clips in ../shared/data")
def test_real_clips_give_the_frames_that_decoding_them_whole_gives() -> None:
    av = pytest.importorskip("av")
    for path in sorted((DATA / "clips").glob("*[0-9].avi"))[:2] + sorted((DATA / "clips").glob("*.mp4"))[:2]:
        with av.open(str(path)) as container:
            every = [frame.to_image() for frame in container.decode(video=0)]
        frames = ClipFile(path).frames(4)
        assert [frame.tobytes() for frame in frames] == [
            every[int((part + 0.5) * len(every) / 4)].tobytes() for part in range(4)
        ]

"""Clips: pictures over time, from a video file (PyAV, extra ``video``) or an animated GIF (Pillow).

    clip = ClipFile("dog.mp4")
    clip.frames(4)      # four RGB pictures: the middles of four equal parts of the time
    clip.image()        # the middle frame, where one picture is wanted

A clip is a `tellapart.types.Picture`: whatever reads pictures reads clips, and a broken one is a `PictureError` in one
line. Two rules decide which frames are taken: frame k of n is the one that is shown at (k + 1/2)/n of the duration,
however long each stays on the screen; a clip of fewer frames repeats them.
"""

from __future__ import annotations

import bisect
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tellapart.data.images.pictures import BytesPicture, FilePicture, check_size, open_image, to_rgb
from tellapart.errors import MissingExtra, PictureError
from tellapart.types import Picture

if TYPE_CHECKING:
    from PIL import Image

# What FFmpeg may open. A list, because it also knows formats that are lists of other files and addresses (HLS, concat).
CONTAINERS = "avi,mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,mpeg,mpegts,mpegvideo,flv,asf,ogg"
VIDEO_SUFFIXES = frozenset(
    f".{suffix}"
    for suffix in (*("mp4", "m4v", "mov", "avi", "webm", "mkv", "mpg", "mpeg", "wmv", "flv", "3gp", "ogv"),)
)
CLIP_SUFFIXES = VIDEO_SUFFIXES | {".gif"}
# A file with less than this share of the frames that its header counts ends before the clip does.
MIN_FRAME_SHARE = 0.9


class BytesClip(BytesPicture):
    """A clip whose encoded bytes are in memory. ``key`` is the hash of the bytes."""

    __slots__ = ()

    def frames(self, count: int) -> list[Image.Image]:
        """``count`` frames, RGB, evenly over the duration. Raises `PictureError`, and `MissingExtra` without PyAV."""
        if count < 1:
            raise ValueError(f"{count} frames; expected at least 1")
        if not self.data:
            raise PictureError(f"{self.name}: empty file")
        read = _gif_frames if self.data.startswith(b"GIF8") else _video_frames
        return read(self.data, self.name, count)

    def image(self) -> Image.Image:
        """The middle frame."""
        return self.frames(1)[0]


class ClipFile(FilePicture):
    """A clip in a file. As with a picture, it is read on access."""

    __slots__ = ()

    def read(self) -> BytesClip:
        """The file's bytes, read now. Raises `PictureError` for whatever cannot be read."""
        return BytesClip(super().read().data, self.name)

    def frames(self, count: int) -> list[Image.Image]:
        """See `BytesClip.frames`."""
        return self.read().frames(count)


def picture_file(path: str | os.PathLike[str]) -> FilePicture:
    """The file as a clip where its name ends like a clip's (a GIF is one), else as a picture."""
    return ClipFile(path) if Path(path).suffix.lower() in CLIP_SUFFIXES else FilePicture(path)


def is_clip(picture: Picture) -> bool:
    """Whether the picture has frames over time; a scene has only where it is longer than one."""
    return hasattr(picture, "frames") and getattr(picture, "length", 2) > 1


def sample_frames(picture: Any, count: int) -> list[Image.Image]:
    """``count`` frames of a clip, evenly over its time; of a picture that stands still the one."""
    return picture.frames(count) if is_clip(picture) else [picture.image()]


def preview_image(picture: Picture) -> Image.Image:
    """A still for display: the picture itself; for a clip, four frames on one sheet, in reading order."""
    if not is_clip(picture):
        return picture.image()
    from PIL import Image

    frames = sample_frames(picture, 4)
    width, height = frames[0].size
    gap = max(1, width // 40)
    sheet = Image.new("RGB", (2 * width + gap, 2 * height + gap), "white")
    for place, frame in enumerate(frames):
        sheet.paste(frame, (place % 2 * (width + gap), place // 2 * (height + gap)))
    return sheet


def uniform_frame_indices(starts: Sequence[float], end: float, count: int) -> list[int]:
    """Which frames are shown in the middles of ``count`` equal parts of the time from ``starts[0]`` to ``end``.

    ``starts``: when each frame appears, ascending.
    """
    step = (end - starts[0]) / count
    return [bisect.bisect_right(starts, starts[0] + (part + 0.5) * step) - 1 for part in range(count)]


def _gif_frames(data: bytes, name: str, count: int) -> list[Image.Image]:
    with open_image(data, name, ["GIF"]) as found:
        starts = [0.0]
        for place in range(getattr(found, "n_frames", 1)):
            found.seek(place)
            starts.append(starts[-1] + (found.info.get("duration") or 100))  # browsers show a frame of 0 ms for 100
        found.load()  # a file that is cut off ends in half a frame
        wanted = uniform_frame_indices(starts[:-1], starts[-1], count)
        frames = {}
        for place in sorted(set(wanted)):
            found.seek(place)
            frames[place] = to_rgb(found)
        return [frames[place] for place in wanted]


def _video_frames(data: bytes, name: str, count: int) -> list[Image.Image]:
    try:
        import av
    except ModuleNotFoundError:
        raise MissingExtra("video", f"{name}: a clip") from None
    try:
        with av.open(io.BytesIO(data), options={"format_whitelist": CONTAINERS}) as container:
            if not container.streams.video:
                raise PictureError(f"{name}: a clip without frames (it holds no video)")
            return _Video.read(container, name).frames(count)
    except (av.error.FFmpegError, ValueError) as error:
        text = getattr(error, "strerror", None) or str(error)
        raise PictureError(f"{name}: not a clip that can be read here, or damaged ({text})") from None


class _Video:
    """The packets of one video stream; frames are decoded from the key frame before them on, and no others."""

    @classmethod
    def read(cls, container: Any, name: str) -> _Video:
        """The packets of the first video stream. Raises `PictureError` where many are missing."""
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.size]
        if not packets:
            raise PictureError(f"{name}: a clip without frames")
        if len(packets) < MIN_FRAME_SHARE * stream.frames:
            raise PictureError(
                f"{name}: truncated ({len(packets):,} of the {stream.frames:,} frames that its header counts)"
            )
        check_size(stream.codec_context.width, stream.codec_context.height, name)
        return cls(packets, stream.codec_context, name, avi=container.format.name == "avi")

    def __init__(self, packets: list[Any], decoder: Any, name: str, *, avi: bool) -> None:
        self.name, self.decoder, self.packets = name, decoder, packets
        # AVI times the order of decoding, not of showing, and some streams time nothing: their frames are counted from
        # the start instead, and taken as equally long.
        self.timed = not avi and all(packet.pts is not None for packet in self.packets)
        self.times = [packet.pts if self.timed else place for place, packet in enumerate(self.packets)]

    def frames(self, count: int) -> list[Image.Image]:
        visible = sorted(
            (time, packet.duration or 0)
            for time, packet in zip(self.times, self.packets, strict=True)
            if not packet.is_discard
        )
        starts = [time for time, _ in visible]
        end = starts[-1] + ((visible[-1][1] if self.timed else 1) or 1)
        wanted = [starts[place] for place in uniform_frame_indices(starts, end, count)]
        found = self._decode(sorted(set(wanted)))
        return [found[time] for time in wanted]

    def _decode(self, wanted: list[int]) -> dict[int, Image.Image]:
        """Time to frame, for these times."""
        found: dict[int, Image.Image] = {}
        keys = [place for place, packet in enumerate(self.packets) if packet.is_keyframe] if self.timed else []
        place, seen = 0, 0
        while wanted:
            key = max((place for place in keys if self.times[place] <= wanted[0]), default=0)
            if key > place:  # the frames in between are not wanted
                self.decoder.flush_buffers()
                place = key
            if place > len(self.packets):
                raise PictureError(f"{self.name}: damaged (the frame at {wanted[0]} cannot be decoded)")
            for frame in self.decoder.decode(self.packets[place] if place < len(self.packets) else None):
                time = frame.pts if self.timed else seen
                seen += 1
                if time in wanted:
                    wanted.remove(time)
                    found[time] = _upright(frame)
            place += 1
        return found


def _upright(frame: Any) -> Image.Image:
    """The frame in RGB, turned as the file says that it is to be seen (clips of a telephone held upright)."""
    image: Image.Image = frame.to_image()
    return image.rotate(frame.rotation, expand=True) if frame.rotation % 360 else image

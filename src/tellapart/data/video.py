"""Decodes the frames of clips: video files (PyAV, extra ``video``) and animated GIFs (Pillow).

Frame k of n (counting from 0) is the one shown at (k + 1/2)/n of the duration, regardless of how long each frame is
shown. If a clip has fewer than n frames, some are repeated.
"""

from __future__ import annotations

import bisect
import io
from collections.abc import Iterator, Sequence
from typing import Any

from PIL import Image

from tellapart.data.decode import check_size, open_image, to_rgb
from tellapart.errors import PictureError

# Formats FFmpeg may open. A whitelist, because FFmpeg also knows formats that list other files and URLs (HLS, concat).
CONTAINERS = "avi,mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,mpeg,mpegts,mpegvideo,flv,asf,ogg"
# A file counts as truncated if it has less than this fraction of the frames that its header declares.
MIN_FRAME_SHARE = 0.9


def uniform_frame_indices(starts: Sequence[float], end: float, count: int) -> list[int]:
    """Divides ``starts[0]`` to ``end`` into ``count`` equal parts, and returns the frames shown at their midpoints.

    ``starts``: the time at which each frame appears, in ascending order. Returns indices into ``starts``.
    """
    step = (end - starts[0]) / count
    return [bisect.bisect_right(starts, starts[0] + (part + 0.5) * step) - 1 for part in range(count)]


def gif_frames(data: bytes, name: str, count: int) -> list[Image.Image]:
    """Returns ``count`` RGB frames of a GIF, evenly spaced over its duration. Raises `PictureError`."""
    with open_image(data, name, ["GIF"]) as found:
        starts = [0.0]
        for place in range(getattr(found, "n_frames", 1)):
            found.seek(place)
            starts.append(starts[-1] + (found.info.get("duration") or 100))  # browsers show frames of 0 ms for 100 ms
        found.load()  # a truncated file ends in half a frame
        wanted = uniform_frame_indices(starts[:-1], starts[-1], count)
        frames = {}
        for place in sorted(set(wanted)):
            found.seek(place)
            frames[place] = to_rgb(found)
        return [frames[place] for place in wanted]


def video_frames(data: bytes, name: str, count: int) -> list[Image.Image]:
    """Returns ``count`` RGB frames of a video, evenly spaced over its duration. Raises `PictureError`."""
    try:
        import av
    except ModuleNotFoundError:
        raise PictureError(f"{name}: reading clips requires an extra; run: pip install 'tellapart[video]'") from None
    try:
        with av.open(io.BytesIO(data), options={"format_whitelist": CONTAINERS}) as container:
            if not container.streams.video:
                raise PictureError(f"{name}: the clip has no frames (no video stream)")
            return _stream_frames(container, name, count)
    except (av.error.FFmpegError, ValueError) as error:
        text = getattr(error, "strerror", None) or str(error)
        raise PictureError(f"{name}: damaged, or not a supported clip format ({text})") from None


def _stream_frames(container: Any, name: str, count: int) -> list[Image.Image]:
    """Returns frames of the first video stream. Raises `PictureError` if many are missing."""
    stream = container.streams.video[0]
    packets = [packet for packet in container.demux(stream) if packet.size]
    if not packets:
        raise PictureError(f"{name}: the clip has no frames")
    if len(packets) < MIN_FRAME_SHARE * stream.frames:
        raise PictureError(
            f"{name}: truncated ({len(packets):,} of the {stream.frames:,} frames that its header declares)"
        )
    check_size(stream.codec_context.width, stream.codec_context.height, name)
    # AVI has decoding times instead of presentation times, and some streams have no times. Their frames are counted
    # from the start instead and assumed to be equally long.
    timed = container.format.name != "avi" and all(packet.pts is not None for packet in packets)
    times = [packet.pts if timed else place for place, packet in enumerate(packets)]
    visible = [(time, packet) for time, packet in zip(times, packets, strict=True) if not packet.is_discard]
    starts = sorted(time for time, _ in visible)
    last = max(packet.duration or 0 for time, packet in visible if time == starts[-1])
    end = starts[-1] + ((last if timed else 1) or 1)
    chosen = [starts[place] for place in uniform_frame_indices(starts, end, count)]
    frames = dict(_decoded(stream.codec_context, packets, times if timed else [], sorted(set(chosen)), name))
    return [frames[time] for time in chosen]


def _decoded(
    decoder: Any, packets: list[Any], times: list[int], chosen: list[int], name: str
) -> Iterator[tuple[int, Image.Image]]:
    """Yields the frames at the chosen times in ascending order. Decodes only from the key frame before each of them.

    times: the time of each packet; if empty, frames are counted instead.
    """
    keys = [place for place, packet in enumerate(packets) if packet.is_keyframe] if times else []
    place, seen = 0, 0
    while chosen:
        key = max((place for place in keys if times[place] <= chosen[0]), default=0)
        if key > place:  # skips the frames in between
            decoder.flush_buffers()
            place = key
        if place > len(packets):
            raise PictureError(f"{name}: damaged (cannot decode the frame at {chosen[0]})")
        for frame in decoder.decode(packets[place] if place < len(packets) else None):
            time = frame.pts if times else seen
            seen += 1
            if time in chosen:
                chosen.remove(time)
                yield time, _turned(frame)
        place += 1


def _turned(frame: Any) -> Image.Image:
    """Returns the frame in RGB, rotated according to the file's metadata (e.g. clips from a phone held upright)."""
    image: Image.Image = frame.to_image()
    return image.rotate(frame.rotation, expand=True) if frame.rotation % 360 else image

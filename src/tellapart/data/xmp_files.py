"""Reads and writes XMP packets in sidecar files, or inside a JPEG or PNG without changing its other bytes."""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path

from tellapart.data.text_files import UTF16_MARKS
from tellapart.errors import UsageError

_JPEG_MARK, _PNG_MARK = b"http://ns.adobe.com/xap/1.0/\0", b"XML:com.adobe.xmp\0"
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
MOST = 65_533 - len(_JPEG_MARK)  # maximum size of a packet in one JPEG segment, in bytes
MOST_READ = 1 << 24  # maximum size of a decompressed packet, in bytes
_MPF_MARK, _MP_ENTRIES = b"MPF\0", 0xB002


def read_sidecar(path: Path) -> str:
    """Returns the packet of a ``.xmp`` file in UTF-8 or, with a byte order mark, UTF-16, or "" without a file.

    Raises `UsageError` for other encodings.
    """
    try:
        data = path.read_bytes()
        return data.decode("utf-16" if data.startswith(UTF16_MARKS) else "utf-8-sig")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not valid XMP (not UTF-8); move it elsewhere") from None


def takes_packet(data: bytes) -> bool:
    """Returns whether a file that begins with these bytes is a JPEG or PNG, regardless of its name."""
    return data.startswith((_PNG_SIGNATURE, b"\xff\xd8\xff"))


def packet_in(data: bytes, where: str = "the picture") -> str:
    """Returns the packet inside a picture, or "" if there is none. Raises `UsageError` if it is damaged."""
    try:
        if not takes_packet(data):  # other formats store the packet as plain text
            plain = re.search(rb"<x:xmpmeta\b.*?</x:xmpmeta>", data, re.DOTALL)
            return plain[0].decode() if plain else ""
        if not data.startswith(_PNG_SIGNATURE):
            segment = next(filter(_is_jpeg_packet, _segments(data)), b"")
            return _content(segment)[len(_JPEG_MARK) :].decode()
        for chunk in filter(_is_png_packet, _chunks(data)):
            body = chunk[8 + len(_PNG_MARK) : -4]
            text = body[2:].split(b"\0", 2)[-1]  # the text comes after the language and the translated keyword
            return (zlib.decompressobj().decompress(text, MOST_READ) if any(body[:1]) else text).decode()
    except (zlib.error, UnicodeDecodeError) as error:
        raise UsageError(f"{where}: the embedded XMP is damaged ({error}); exclude this picture") from None
    return ""


def with_packet(data: bytes, packet: str, where: str) -> bytes:
    """Replaces the XMP packet in the bytes of a JPEG or PNG. Everything else is unchanged.

    Raises `UsageError` for other formats, and for a packet that exceeds a JPEG segment.
    """
    written = packet.encode()
    if data.startswith(_PNG_SIGNATURE):
        body = b"iTXt" + _PNG_MARK + b"\0\0\0\0" + written
        chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
        chunks = _chunks(data)
        kept = [part for part in chunks if not _is_png_packet(part)]
        rest = data[len(_PNG_SIGNATURE) + sum(map(len, chunks)) :]
        return b"".join([_PNG_SIGNATURE, *kept[:1], chunk, *kept[1:], rest])
    if not data.startswith(b"\xff\xd8"):
        raise UsageError(f"{where}: text can be embedded only in JPEG and PNG files")
    if len(written) > MOST:
        raise UsageError(f"{where}: the XMP has {len(written):,} bytes, but a JPEG holds at most {MOST:,}")
    own = b"\xff\xe1" + struct.pack(">H", len(_JPEG_MARK) + len(written) + 2) + _JPEG_MARK + written
    segments = _segments(data)
    growth = len(own) - sum(map(len, filter(_is_jpeg_packet, segments)))
    kept, removed = [], 0  # bytes of the packets after a segment
    for part in reversed(segments):
        if _is_jpeg_packet(part):
            removed += len(part)
        else:
            kept.insert(0, _moved_pictures(part, -removed, growth))
    # JFIF and EXIF come first. XMP precedes an MPO's index of pictures, whose offsets are relative to the index.
    first = next((n for n, part in enumerate(kept) if part.lstrip(b"\xff")[0] not in (0xE0, 0xE1)), len(kept))
    rest = data[2 + sum(map(len, segments)) :]
    return b"".join([data[:2], *kept[:first], own, *kept[first:], rest])


def _moved_pictures(segment: bytes, shift: int, growth: int) -> bytes:
    """Returns a JPEG segment, with updated sizes and offsets if it is an MPO's index of pictures (CIPA DC-007).

    Args:
        shift: number of bytes that the later pictures move away from this segment.
        growth: number of bytes that the first picture grows.
    """
    base = segment.find(_MPF_MARK) + len(_MPF_MARK)
    order = {b"II": "<", b"MM": ">"}.get(segment[base : base + 2])
    if not segment.lstrip(b"\xff").startswith(b"\xe2") or order is None:
        return segment
    changed = bytearray(segment)
    try:
        (at,) = struct.unpack_from(f"{order}I", segment, base + 4)
        (tags,) = struct.unpack_from(f"{order}H", segment, base + at)
        for tag in range(tags):
            kind, _, size, place = struct.unpack_from(f"{order}HHII", segment, base + at + 2 + 12 * tag)
            for entry in range(base + place, base + place + size, 16) if kind == _MP_ENTRIES else ():
                length, offset = struct.unpack_from(f"{order}II", segment, entry + 4)
                moved = (length, offset + shift) if offset else (length + growth, 0)
                struct.pack_into(f"{order}II", changed, entry + 4, *moved)
    except struct.error:  # leaves a damaged index unchanged
        return segment
    return bytes(changed)


def _segments(data: bytes) -> list[bytes]:
    """Returns the JPEG segments before the first scan, which follow one another, each with the fill bytes before it."""
    found: list[bytes] = []
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        mark = at + 1
        while mark < len(data) and data[mark] == 0xFF:
            mark += 1
        end = mark + 1 + int.from_bytes(data[mark + 1 : mark + 3], "big")
        if mark >= len(data) or data[mark] == 0xDA or not mark + 3 <= end <= len(data):
            break
        found.append(data[at:end])
        at = end
    return found


def _content(segment: bytes) -> bytes:
    """Returns a JPEG segment without fill bytes, marker and length."""
    return segment.lstrip(b"\xff")[3:]


def _is_jpeg_packet(segment: bytes) -> bool:
    return _content(segment).startswith(_JPEG_MARK)


def _chunks(data: bytes) -> list[bytes]:
    """Returns the PNG chunks up to IEND, which follow one another."""
    found: list[bytes] = []
    at = len(_PNG_SIGNATURE)
    while at + 12 <= len(data) and (not found or found[-1][4:8] != b"IEND"):
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        found.append(data[at:end])
        at = end
    return found


def _is_png_packet(chunk: bytes) -> bool:
    return chunk[4:8] == b"iTXt" and chunk[8:].startswith(_PNG_MARK)

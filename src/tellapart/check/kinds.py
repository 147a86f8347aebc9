"""The kinds of defects, and the share of captions or pictures with each that clean data may have."""

from __future__ import annotations

from dataclasses import dataclass

CAPTION, PICTURE = "caption", "picture"
RARE = 0.001  # level for kinds that clean data practically never has


@dataclass(frozen=True)
class Kind:
    """A kind of defect: what it concerns, its name in tables, and the share that clean data may have."""

    name: str
    help: str
    of: str = CAPTION
    level: float = RARE
    needs: str = ""  # required input: "references", "scorer", "captioner"


KINDS = {
    kind.name: kind
    for kind in (
        Kind("empty", "says nothing"),
        Kind("cut", "ends in the middle of a sentence", level=0.008),
        Kind("refusal", "refuses, or speaks of itself as a model"),
        Kind("loop", "says words again and again"),
        Kind(
            "template", "opens as captions of a model do (“The image shows”), or as every fifth one here", level=0.005
        ),
        Kind("language", "is of another language or script"),
        Kind("encoding", "has characters that a wrong encoding, HTML or an escape left"),
        Kind("repeated", "is written twice for one picture", level=0.005),
        Kind("shared", "is the caption of several pictures", level=0.015),
        Kind("near", "differs by one word from another picture's", level=0.015),
        Kind("neighbour", "is hardly other than the row before: a stale cache, or frames of one scene", level=0.004),
        Kind("leaked", "is one of its picture's references", level=0.005, needs="references"),
        Kind(
            "mispaired",
            "shares less with its picture's references than with most other pictures'",
            level=0.05,
            needs="references",
        ),
        Kind("no caption", "has no caption", of=PICTURE),
        Kind("no picture", "is of no picture"),
        Kind("unreadable", "cannot be read", of=PICTURE),
        Kind("same picture", "is there several times, byte for byte", of=PICTURE),
        Kind("blank", "is of one colour", of=PICTURE),
        Kind("rotated", "is turned by EXIF: some programs show it lying", of=PICTURE),
        Kind("cmyk", "has CMYK colours: some programs show it inverted", of=PICTURE),
        Kind("16-bit", "has more than 8 bits a channel: some programs show it white", of=PICTURE),
        Kind("transparent", "has transparency: white here, black in some programs", of=PICTURE),
        Kind("suffix", "is of another format than its name says", of=PICTURE),
        Kind("misfit", "fits more than half of the other pictures better than its own", level=0.01, needs="scorer"),
        Kind(
            "shifted",
            "fits its own picture badly, and that of the row before or after best of all",
            level=0.005,
            needs="scorer",
        ),
        Kind("doubtful", "has words that fit any picture as well as this one", level=0.1, needs="captioner"),
    )
}


@dataclass(frozen=True)
class Finding:
    """A caption or picture with one kind of defect. ``spans``: the characters of the caption that show it."""

    kind: str
    id: str
    text: str = ""
    detail: str = ""
    spans: tuple[tuple[int, int], ...] = ()

"""Defines the kinds of defects, the share of clean captions or pictures that have each, and what a finding is."""

from __future__ import annotations

from typing import NamedTuple

CAPTION, PICTURE = "caption", "picture"
RARE = 0.001  # level for kinds that practically never occur in clean data


class Kind(NamedTuple):
    """A kind of defect.

    of: whether captions or pictures have the defect.
    level: the share of captions or pictures that have it in clean data.
    """

    name: str
    help: str
    of: str = CAPTION
    level: float = RARE
    needs: str = ""  # required input: "references", "scorer", "captioner"


DEFECTS = {
    kind.name: kind
    for kind in (
        Kind("empty", "is empty"),
        Kind("cut", "ends in the middle of a sentence", level=0.008),
        Kind("refusal", "is a refusal, or refers to itself as a model"),
        Kind("loop", "repeats words over and over"),
        Kind(
            "template",
            "begins with a phrase typical of models (“The image shows”), or with the same words as at least 20% of all "
            "captions",
            level=0.005,
        ),
        Kind("language", "is in the wrong language or script"),
        Kind("encoding", "contains characters left over from a wrong encoding, HTML or an escape sequence"),
        Kind("repeated", "occurs twice for the same picture", level=0.005),
        Kind("shared", "is shared by several pictures", level=0.015),
        Kind("near", "differs from another picture's caption in one word", level=0.015),
        Kind("neighbour", "hardly differs from the previous row: a stale cache, or frames of one scene", level=0.004),
        Kind("leaked", "is identical to one of its picture's references", level=0.005, needs="references"),
        Kind(
            "mispaired",
            "is less similar to its picture's references than to those of most other pictures",
            level=0.05,
            needs="references",
        ),
        Kind("no caption", "has no caption", of=PICTURE),
        Kind("no picture", "does not belong to any picture"),
        Kind("unreadable", "cannot be read", of=PICTURE),
        Kind("same picture", "occurs several times (identical bytes)", of=PICTURE),
        Kind("blank", "is a single colour", of=PICTURE),
        Kind("rotated", "is rotated by EXIF: some programs show it sideways", of=PICTURE),
        Kind("cmyk", "has CMYK colours: some programs show it inverted", of=PICTURE),
        Kind("16-bit", "has more than 8 bits per channel: some programs show it as white", of=PICTURE),
        Kind("transparent", "has transparency: shown white here, but black in some programs", of=PICTURE),
        Kind("suffix", "is not in the format that its suffix indicates", of=PICTURE),
        Kind("misfit", "fits more than half of the other pictures better than its own", level=0.01, needs="scorer"),
        Kind(
            "shifted",
            "fits the picture of the previous or next row better than its own",
            level=0.005,
            needs="scorer",
        ),
        Kind(
            "doubtful",
            "contains words that are less likely for its picture than, on average, for other pictures",
            level=0.1,
            needs="captioner",
        ),
    )
}


class Finding(NamedTuple):
    """One defect in a caption or picture. ``spans``: (start, end) of the characters that show the defect."""

    kind: str
    id: str
    text: str = ""
    detail: str = ""
    spans: tuple[tuple[int, int], ...] = ()

    def example(self) -> str:
        """Returns the id and, if there is more to say, what shows the defect."""
        return ": ".join(filter(None, (self.id, self.detail or self.text)))

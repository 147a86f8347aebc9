"""Rows as TRL hands them to a reward: completions, columns, pictures; and what ranks exchange of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tellapart.errors import UsageError
from tellapart.models.protocols import ScorerLike

if TYPE_CHECKING:
    from PIL import Image

Completion = str | Sequence[Mapping[str, Any]]  # a text, or the messages of a conversation
ENCODED_AT_ONCE = 64


def text_of(completion: Completion) -> str:
    """The caption of a completion: the text itself, or the text of its last message.

    Raises `UsageError` where there is none: a message of tool calls alone has no content.
    """
    if isinstance(completion, str):
        return completion.strip()
    content = completion[-1].get("content") if completion else None
    if content is None:
        found = repr(completion)
        raise UsageError(
            f"a completion has no text ({found if len(found) < 80 else found[:79] + '…'}); expected a text, or "
            "messages, the last with content; leave tools out of the trainer"
        )
    if isinstance(content, str):
        return content.strip()
    return "".join(part.get("text") or "" for part in content).strip()


def column(columns: Mapping[str, Any], name: str, what: str) -> Sequence[Any]:
    """A column of the data set, as TRL hands it to a reward. Raises `UsageError` where it is not there."""
    if name not in columns:
        raise UsageError(f"the data set has no column '{name}'; expected {what}")
    found: Sequence[Any] = columns[name]
    return found


def one_picture(value: Any) -> Image.Image:
    """The picture of a row: a PIL image, or a list of one (TRL's column ``images``)."""
    if isinstance(value, (list, tuple)):
        if len(value) != 1:
            raise UsageError(f"a row has {len(value)} pictures; self-retrieval expects one picture in each row")
        value = value[0]
    picture: Image.Image = value.convert("RGB")
    return picture


def encode(scorer: ScorerLike, pictures: Sequence[Image.Image]) -> torch.Tensor:
    """float32 features N×D of pictures, in batches."""
    parts = [pictures[start : start + ENCODED_AT_ONCE] for start in range(0, len(pictures), ENCODED_AT_ONCE)]
    with torch.no_grad():
        return torch.cat([scorer.image_features(scorer.pixels(part).to(scorer.device)).float() for part in parts])


def digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def picture_key(picture: Image.Image) -> bytes:
    """A digest of the pixels, by which ranks know a picture again."""
    return digest(repr(picture.size).encode() + picture.tobytes())


def as_numbers(digests: Sequence[bytes]) -> torch.Tensor:
    """Digests as R×2 int64, which ranks can exchange."""
    return torch.frombuffer(bytearray(b"".join(digests)), dtype=torch.int64).view(-1, 2)


def gathered(rows: torch.Tensor) -> torch.Tensor:
    """The rows of all ranks, in the order of ranks; ranks may have different numbers of rows."""
    from accelerate import PartialState
    from accelerate.utils import gather, pad_across_processes

    if PartialState().num_processes == 1:
        return rows
    count = gather(torch.tensor([len(rows)], device=rows.device))
    padded = gather(pad_across_processes(rows, dim=0)).view(len(count), -1, *rows.shape[1:])
    return torch.cat([part[:number] for part, number in zip(padded, count.tolist(), strict=True)])

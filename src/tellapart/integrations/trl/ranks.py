"""Exchanges rows between ranks; pictures are identified by digests of their pixels."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import accelerate
import accelerate.utils
import torch
from PIL import Image


def digest(content: bytes) -> bytes:
    """Returns a 16-byte hash of the content."""
    return hashlib.blake2b(content, digest_size=16).digest()


def picture_key(picture: Image.Image) -> bytes:
    """Returns a digest of a picture's pixels, which identifies the picture across ranks."""
    return digest(repr(picture.size).encode() + picture.tobytes())


def as_numbers(digests: Sequence[bytes]) -> torch.Tensor:
    """Converts digests to an int64 tensor R×2, so that ranks can exchange them."""
    return torch.frombuffer(bytearray(b"".join(digests)), dtype=torch.int64).view(-1, 2)


def gathered(rows: torch.Tensor) -> torch.Tensor:
    """Gathers the rows of all ranks, in rank order. The number of rows may differ between ranks."""
    if accelerate.PartialState().num_processes == 1:
        return rows
    count = accelerate.utils.gather(torch.tensor([len(rows)], device=rows.device))
    padded = accelerate.utils.gather(accelerate.utils.pad_across_processes(rows, dim=0)).view(
        len(count), -1, *rows.shape[1:]
    )
    return torch.cat([part[:number] for part, number in zip(padded, count.tolist(), strict=True)])

"""Describers for `tellapart.boost`: chat models, captioners of every family, and files of captions.

openai:MODEL@URL, local:FOLDER, scripted   chat models (`tellapart.boost.backends`)
local:NAME                                 a captioner without a chat template: InstructBLIP, BLIP, …
file:CAPTIONS                              existing captions, e.g. from ``tellapart caption``
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from tellapart.boost.backends import open_backend
from tellapart.boost.batcher import Batcher
from tellapart.boost.local import has_chat_template
from tellapart.boost.types import Answer, Backend, BackendError, Request
from tellapart.captioners import load
from tellapart.captioners.captioner import Captioner
from tellapart.data import Dataset, Skipped
from tellapart.data.caption_files import read_caption_file
from tellapart.data.caption_matching import KnownIds, match_captions
from tellapart.data.pictures import FilePicture
from tellapart.errors import PictureError, UsageError
from tellapart.inference.engine import CaptionEngine
from tellapart.models.decoding import Decoding
from tellapart.models.digests import weights_fingerprint
from tellapart.types import Item
from tellapart.utils.messages import say


def open_backends(
    llm: str | None, mllm: str | None, dataset: Dataset | None, device: str = "auto", precision: str = "auto"
) -> tuple[Backend | None, Backend | None]:
    """Returns the model that blends descriptions, and the model that describes the pictures in ``dataset``. Each is
    None if it is not named.

    If both have the same name, they share one backend, so a local model is loaded only once, and a server's rate limit
    applies to both.
    """
    blends = open_backend(llm, device, precision) if llm else None
    if not mllm or mllm == llm:
        return blends, blends if mllm else None
    return blends, open_describer(mllm, dataset, device, precision)


def open_describer(spec: str, dataset: Dataset | None, device: str = "auto", precision: str = "auto") -> Backend:
    """Opens the describer that a specification (see the module docstring) names, for the pictures in ``dataset``.

    Raises `UsageError` if the specification is invalid, or if the file contains no captions for these pictures.
    """
    kind, _, rest = spec.partition(":")
    if kind == "file":
        return CaptionFileBackend.open(rest, dataset)
    if kind == "local" and rest and _is_captioner(rest):
        return CaptionerBackend(load.load_captioner(rest, device, precision))
    return open_backend(spec, device, precision)


def _is_captioner(name: str) -> bool:
    """Returns whether a name contains options for a captioner, is a published checkpoint, or is a model without a chat
    template.
    """
    return "?" in name or Path(name).suffix in (".pt", ".pth") or not has_chat_template(name)


class CaptionerBackend:
    """Uses a captioner as a describer. Captions the pictures of concurrent requests in one batch.

    A captioner that answers questions gets the request's last message as its prompt, unless its name contains
    ``?prompt=``. Other captioners ignore the request's text. Decodes greedily if the temperature is 0.
    """

    def __init__(self, captioner: Captioner) -> None:
        self._captioner, self._encoder = captioner, captioner.encoder
        layout = getattr(captioner, "layout", None)
        self._asked = bool(layout is not None and layout.answers and not captioner.chosen.get("prompt"))
        digest = weights_fingerprint(captioner.model, captioner.processor, captioner.view)[:12]
        bare, mark, options = captioner.name.partition("?")
        self.name = f"captioner:{Path(bare).name}{mark}{options}-{digest}"
        self._batcher = Batcher(self._write, self._like, "describing")

    def complete(self, request: Request) -> Answer:
        """Describes a picture. Raises `BackendError` if the request has no picture, and `PictureError` if the picture
        cannot be read.
        """
        if request.picture is None:
            raise BackendError(
                f"{self.name}: a captioner cannot answer text-only requests; pass it with --mllm", fatal=True
            )
        return self._batcher.answer(request)

    def _like(self, request: Request) -> object:
        question = request.messages[-1].text if self._asked else ""
        return question, request.max_tokens, request.temperature, request.seed

    def _write(self, requests: list[Request], _: list[None]) -> list[Answer | PictureError]:
        captioner, first = self._captioner, requests[0]
        if self._asked:
            captioner.set_prompt(first.messages[-1].text)
        most = min(first.max_tokens, captioner.max_caption_tokens or first.max_tokens)
        decoding = Decoding(kind="greedy", max_tokens=most)
        if first.temperature:
            decoding = Decoding(kind="sample", temperature=first.temperature, max_tokens=most)
        items = [Item(request.item, picture) for request in requests if (picture := request.picture) is not None]
        skipped = Skipped()
        engine = CaptionEngine(captioner, decoding, self._encoder, skipped, len(items))
        written = {id(one.item): one.caption for _, some in engine.captions(items) for one in some}
        reasons = dict(skipped)
        return [
            self._answer(written[id(item)], most)
            if id(item) in written
            else PictureError(f"{item.picture.name}: {reasons[item.picture.name]}")
            for item in items
        ]

    def _answer(self, text: str, most: int) -> Answer:
        """Returns an answer. The answer counts as truncated if it has more than ``most`` tokens, including the end
        token.
        """
        (row,) = self._captioner.tokenize([text], max_tokens=2 * most)
        return Answer(text, completion_tokens=min(len(row), most), finish="length" if len(row) > most else "stop")


class CaptionFileBackend:
    """Serves descriptions from a file, looked up by picture id."""

    def __init__(self, name: str, texts: dict[str, str]) -> None:
        self.name, self._texts = name, texts

    @classmethod
    def open(cls, path: str, dataset: Dataset | None) -> CaptionFileBackend:
        """Reads the file and matches its ids with those of the data set. Raises `UsageError` if no id matches, or if an
        id is ambiguous.
        """
        if not path:
            raise UsageError("file: missing path; use file:captions.jsonl")
        if dataset is None:
            raise UsageError(f"file:{path}: workers are not needed to read descriptions from a file; remove --workers")
        files = {item.id: str(item.picture.path) for item in dataset if isinstance(item.picture, FilePicture)}
        known = KnownIds(dataset.spec, [item.id for item in dataset], files)
        matched = match_captions(read_caption_file(path), known, path)
        if matched.how is not None:
            say(matched.how)
        texts = {id: texts[0] for id, texts in matched.texts.items()}
        if not any(id in texts for id in known.ids):
            raise UsageError(f"{path} contains no captions for the pictures in {dataset.spec}")
        digest = hashlib.blake2b(repr(sorted(texts.items())).encode("utf-8", "backslashreplace"), digest_size=6)
        return cls(f"file:{Path(path).name}-{digest.hexdigest()}", texts)

    def complete(self, request: Request) -> Answer:
        """Returns the picture's description. Raises `BackendError` if the file has none."""
        if (text := self._texts.get(request.item)) is None:
            raise BackendError(f"{self.name} has no caption for this picture")
        return Answer(text)

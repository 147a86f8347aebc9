"""Uses a captioner as a describer for `tellapart.boost`."""

from __future__ import annotations

from pathlib import Path

from tellapart.boost.batcher import Batcher
from tellapart.boost.types import Answer, BackendError, Request
from tellapart.captioners.captioner import Captioner
from tellapart.data import Skipped
from tellapart.errors import PictureError
from tellapart.inference.engine import CaptionEngine
from tellapart.models.decoding import Decoding
from tellapart.models.digests import weights_fingerprint
from tellapart.types import Item


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

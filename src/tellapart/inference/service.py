"""Answers the requests to the endpoint with a captioner, one at a time."""

from __future__ import annotations

import json
import threading
import time
import uuid
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from tellapart.captioners.captioner import Captioner
from tellapart.data import Skipped
from tellapart.data.pictures import BytesPicture, content_key
from tellapart.errors import UsageError, nearest
from tellapart.inference.best_of import BestOf
from tellapart.inference.chat_request import WITHOUT_EFFECT, ChatRequest, read_messages
from tellapart.inference.engine import CaptionEngine
from tellapart.language.token_spans import token_bytes
from tellapart.models.decoding import Decoding
from tellapart.scorers.base import Scorer
from tellapart.types import Item


@dataclass
class Service:
    """A captioner that answers requests.

    scorer: required for ``best_of``, and for ``consensus`` with ``scorer_weight``.
    decoding: the default decoding settings.
    key: the API key that every request must contain, or None to require no key.
    contrast: the pictures that ``drop_guesses`` uses for comparison.
    waiting: the number of requests that the endpoint has received and not yet answered.
    """

    captioner: Captioner
    decoding: Decoding
    scorer: Scorer | None = None
    key: str | None = None
    contrast: list[Item] = field(default_factory=list)
    waiting: int = 0
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, asked: ChatRequest) -> dict[str, Any]:
        """Returns the response body. Raises `UsageError` if the request cannot be fulfilled."""
        extra = asked.model_extra or {}
        for name, value in extra.items():
            if name not in WITHOUT_EFFECT:
                known = [*ChatRequest.model_fields, *WITHOUT_EFFECT]
                raise UsageError(f"unknown field '{name}'{nearest(name, known)}")
            if WITHOUT_EFFECT[name] and value not in WITHOUT_EFFECT[name]:
                raise UsageError(f"{name} = {json.dumps(value)[:60]} is not supported; remove it")
        if asked.model and asked.model not in (self.captioner.name, "default"):
            raise UsageError(f"unknown model '{asked.model}'; this server provides '{self.captioner.name}'")
        if asked.stream_options and not asked.stream:
            raise UsageError("stream_options requires stream = true; add stream = true, or remove stream_options")
        given = asked.given
        picture, question = read_messages(asked.messages if given is None else asked.messages[:-1])
        started, captions, more = time.monotonic(), [""], {}
        cut = [True]  # a request that scores a given text generates only one token
        tokens: list[list[dict[str, Any]]] | None = None
        if given is not None:
            ((_, scored, _),) = self.scored(picture, asked, given)
            by_id = [{str(token.pop("id")): token} for token in scored]
            more = {"prompt_logprobs": [None, *by_id]}  # a prompt's first token has no log-probability
        elif asked.logprobs:
            found = self.scored(picture, asked)
            captions, tokens = [text for text, _, _ in found], [content for _, content, _ in found]
            cut = [one for _, _, one in found]
        else:
            captions, cut = self.captions(picture, asked)
        words = sum(len(caption.split()) for caption in captions)
        choices: list[dict[str, Any]] = [
            {
                "index": n,
                "finish_reason": "length" if cut[n] else "stop",
                "message": {"role": "assistant", "content": caption},
                "logprobs": None if tokens is None else {"content": tokens[n], "refusal": None},
            }
            for n, caption in enumerate(captions)
        ]
        answer: dict[str, Any] = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self.captioner.name,
            "choices": choices,
            "usage": {"prompt_tokens": 0, "completion_tokens": words, "total_tokens": words},
            "seconds": round(time.monotonic() - started, 3),
            **more,
        }
        if question:
            answer["warnings"] = [
                (
                    "the text of the message was ignored, because this captioner's prompt is part of "
                    "its name (tellapart serve 'MODEL?prompt=…')"
                )
            ]
        return answer

    def fitted(self, decoding: Decoding) -> Decoding:
        """Limits max_tokens to the captioner's maximum, because clients ask for 256 or 4,096 by default."""
        most = self.most_tokens
        return decoding if most is None else decoding.model_copy(update={"max_tokens": min(decoding.max_tokens, most)})

    @cached_property
    def most_tokens(self) -> int | None:
        """Returns the captioner's maximum caption length in tokens. May run the encoder once."""
        return self.captioner.max_caption_tokens

    def captions(self, picture: BytesPicture, asked: ChatRequest) -> tuple[list[str], list[bool]]:
        """Returns the requested captions, and whether each caption was truncated at max_tokens.

        Only one caller at a time uses the model.
        """
        decoding = asked.decoding(self.decoding)
        guesses = asked.drop_guesses or asked.truthful
        if (asked.best_of or decoding.asks_scorer) and self.scorer is None:
            raise UsageError("best_of and scorer_weight require a scorer; start the server with --scorer MODEL")
        if guesses and (asked.n > 1 or asked.best_of):
            raise UsageError("drop_guesses returns a single edited caption; remove n and best_of")
        item, skipped = seeded(picture, asked.seed), Skipped()
        with self._turn:
            engine = CaptionEngine.open(self.captioner, self.fitted(decoding), None, skipped)
            if guesses:
                engine.doubt_words([item, *self.contrast], "the server's --contrast pictures")
            chooser = None
            if self.scorer is not None and (asked.best_of or decoding.asks_scorer):
                with torch.no_grad():
                    features_1D = self.scorer.image_features(self.scorer.pixels([picture.image()]))
                chooser = BestOf.of_features(self.scorer, [item.id], features_1D.cpu().float().numpy(), progress=False)
            found = [one for _, some in engine.captions([item], chooser) for one in some]
        if not found:
            raise _unreadable(skipped)
        texts = list(found[0].samples[: asked.n]) if asked.n > 1 else [found[0].caption]
        return texts, [text in engine.cut for text in texts]

    def scored(
        self, picture: BytesPicture, asked: ChatRequest, text: str | None = None
    ) -> list[tuple[str, list[dict[str, Any]], bool]]:
        """Returns captions, or only ``text`` if given. Each comes with its tokens in ``logprobs`` format and whether it
        was truncated.

        If ``text`` is given, each token also has its ``id`` and its text as ``decoded_token``, as in vLLM's
        ``prompt_logprobs``.
        """
        if asked.consensus or asked.best_of or asked.confidence or asked.drop_guesses or asked.truthful:
            raise UsageError(
                "log-probabilities are not available for edited or selected captions; remove "
                "consensus, best_of, confidence and drop_guesses"
            )
        skipped = Skipped()
        with self._turn:
            engine = CaptionEngine.open(self.captioner, self.fitted(asked.decoding(self.decoding)), None, skipped)
            result = engine.log_probs(seeded(picture, asked.seed), text)
        if result is None:
            raise _unreadable(skipped)
        rollout, log_p_RT = result
        found = []
        rows = rollout.texts, rollout.tokens_RT, rollout.valid_RT, log_p_RT, self.captioner.stopped(rollout).tolist()
        for written, tokens_T, valid_T, log_p_T, stopped in zip(*rows, strict=True):
            row = tokens_T[valid_T].tolist()
            pieces = token_bytes(row, written, self.captioner.tokenizer)
            tokens: list[dict[str, Any]] = []
            for id_, piece, log_p in zip(row, pieces, log_p_T[valid_T].tolist(), strict=True):
                shown = piece.decode("utf-8", "replace")
                token = {"token": shown, "logprob": log_p, "bytes": list(piece), "top_logprobs": []}
                tokens.append(token if text is None else token | {"id": id_, "decoded_token": shown})
            found.append((" ".join(written.split()), tokens, not stopped))
        return found


def seeded(picture: BytesPicture, seed: int | None) -> Item:
    """Returns the item for a request. Requests with the same content and seed get the same samples."""
    return Item(content_key(f"{picture.key()}|{seed}".encode()), picture)


def _unreadable(skipped: Skipped) -> UsageError:
    return UsageError(f"the picture cannot be read: {next(iter(skipped), ('', 'unknown'))[1]}")


def plain_pictures() -> list[Item]:
    """Returns the blank pictures that ``drop_guesses`` uses for comparison by default."""
    return [Item(colour, BytesPicture.plain(colour, 64)) for colour in ("grey", "white", "black")]

"""The body of a request to the endpoint: its fields, and the picture and text in its messages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tellapart.data.pictures import BytesPicture
from tellapart.errors import UsageError
from tellapart.models.decoding import Decoding

MOST_SAMPLES = 256

# Fields that clients send although they have no effect here, with their permitted values.
WITHOUT_EFFECT: Mapping[str, tuple[Any, ...]] = {
    "user": (), "metadata": (), "store": (), "safety_identifier": (), "prompt_cache_key": (),
    "top_p": (1, None), "presence_penalty": (0, None), "frequency_penalty": (0, None), "top_logprobs": (0, None),
    "stop": (None, []), "response_format": (None, {"type": "text"}), "tools": (None, []),
}  # fmt: skip


class StreamOptions(BaseModel):
    """Streaming options. ``include_usage``: whether to add the answer's ``usage`` to the last event."""

    model_config = ConfigDict(extra="forbid")

    include_usage: bool = False


class ChatRequest(BaseModel):
    """The body of a request: OpenAI's fields for chat completions, and our extensions."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    model: str = ""
    messages: list[dict[str, Any]] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0)
    n: int = Field(1, ge=1, le=MOST_SAMPLES)
    stream: bool = False
    stream_options: StreamOptions | None = None
    seed: int | None = None
    beams: int | None = Field(None, ge=1, le=64)
    consensus: int | None = Field(None, ge=3, le=MOST_SAMPLES)
    best_of: int | None = Field(None, ge=2, le=MOST_SAMPLES)
    scorer_weight: float | None = Field(None, gt=0)
    confidence: float | None = Field(None, ge=0.01, le=0.99)
    drop_guesses: bool = False
    truthful: bool = False
    logprobs: bool | None = None
    prompt_logprobs: int | None = Field(None, ge=0, le=0)
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None

    @property
    def given(self) -> str | None:
        """Returns the text to score for ``prompt_logprobs``, or None if the request does not ask for scoring. Raises
        `UsageError` if fields are inconsistent.
        """
        last = self.messages[-1]
        continues = bool(self.continue_final_message) and self.add_generation_prompt is False
        if self.prompt_logprobs is None:
            if self.continue_final_message is not None or self.add_generation_prompt is not None:
                raise UsageError(
                    "continue_final_message and add_generation_prompt require prompt_logprobs; add prompt_logprobs, or "
                    "remove these two fields"
                )
            return None
        if last.get("role") != "assistant" or not isinstance(last.get("content"), str) or not continues:
            raise UsageError(
                "prompt_logprobs scores the text of a final assistant message; send one, with "
                "continue_final_message = true and add_generation_prompt = false"
            )
        if self.logprobs or self.n > 1 or (self.max_completion_tokens or self.max_tokens) != 1:
            raise UsageError(
                "prompt_logprobs scores a given text instead of generating one; send max_tokens = 1, without logprobs "
                "or n"
            )
        if self.stream:
            raise UsageError("prompt_logprobs does not support streaming; remove stream")
        return str(last["content"])

    def decoding(self, default: Decoding) -> Decoding:
        """Returns the request's decoding settings. Raises `UsageError` if fields are inconsistent."""
        if self.consensus and self.best_of:
            raise UsageError("consensus and best_of cannot be combined; remove one of them")
        if self.n > 1 and (self.consensus or self.best_of):
            raise UsageError(
                "n cannot be combined with consensus or best_of, which return a single caption; remove one of them"
            )
        if self.scorer_weight and not self.consensus:
            raise UsageError("scorer_weight requires consensus; add, for example, consensus = 48")
        sampled = self.consensus or self.best_of or self.n > 1 or self.temperature
        if self.beams and sampled:
            raise UsageError(
                "beams cannot be combined with sampling; remove beams, or remove temperature, n, consensus and best_of"
            )
        found: dict[str, Any] = {"max_tokens": self.max_completion_tokens or self.max_tokens or default.max_tokens}
        if self.consensus:
            found |= {"kind": "consensus", "candidates": self.consensus, "temperature": self.temperature or 0.6}
            found |= {"scorer_weight": self.scorer_weight} if self.scorer_weight else {}
        elif sampled:
            samples = self.best_of or self.n
            found |= {"kind": "sample", "samples": samples, "temperature": self.temperature or 1.0}
        elif self.beams or self.temperature is None:
            beams = self.beams or (default.beams if default.kind == "beam" else 1)
            found |= {"kind": "beam", "beams": beams} if beams > 1 else {"kind": "greedy"}
        if self.confidence:
            found["confidence"] = self.confidence
        return Decoding(**found)


def read_messages(messages: list[dict[str, Any]]) -> tuple[BytesPicture, str]:
    """Returns the picture and the text in the messages. Raises `UsageError` unless they contain exactly one picture."""
    pictures: list[BytesPicture] = []
    texts: list[str] = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            texts.append(content)
            continue
        if not isinstance(content, list):
            raise UsageError("messages: expected content to be text or a list of parts")
        for part in content:
            kind = part.get("type") if isinstance(part, dict) else None
            if kind == "text":
                texts.append(str(part.get("text") or ""))
            elif kind == "image_url":
                address = part.get("image_url")
                address = address.get("url") if isinstance(address, dict) else address
                pictures.append(read_picture(address if isinstance(address, str) else ""))
            else:
                raise UsageError(f"messages: unsupported part of type '{kind}'; expected text or image_url")
    if len(pictures) != 1:
        raise UsageError(f"expected one picture, as an image_url with a data: URL; got {len(pictures)}")
    return pictures[0], " ".join(text.strip() for text in texts).strip()


def read_picture(address: str) -> BytesPicture:
    """Returns the picture in a ``data:…;base64,…`` URL. Raises `UsageError` for any other URL."""
    head, comma, data = address.partition(",")
    if not head.startswith("data:") or not head.endswith(";base64") or not comma:
        raise UsageError("image_url: expected data:image/…;base64,…; this server does not download pictures")
    try:
        return BytesPicture(base64.b64decode("".join(data.split()), validate=True), "the picture")
    except (binascii.Error, ValueError):
        raise UsageError("image_url: invalid base64 data") from None

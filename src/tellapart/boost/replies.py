"""Reads a server's reply, which is either an answer with its log-probabilities or an error.

An error's body shows whether it concerns this picture (`Reply.moderation`) or the key (``fatal``), or is temporary
(``retry``).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any

from tellapart.boost.redaction import readable, redact
from tellapart.boost.types import Answer, BackendError
from tellapart.language.token_spans import spelled_spans
from tellapart.utils.untrusted_text import clean_text

NOT_NOW = frozenset({429, 503})  # the rate limit is exceeded, or the server is starting or overloaded
LATER = frozenset({408, 409, 425, 500, 502, 504, 529})
_ACCOUNT = re.compile(
    r"insufficient[_ ](?:quota|credits?|balance|funds)|billing_(?:hard_limit|not_active)|credit balance is too low"
    r"|(?:account|key)_(?:deactivated|disabled)|invalid_api_key",
    re.IGNORECASE,
)
_MODERATED = re.compile(
    r"flagged|moderat(?:ion|ed)|content[_ ]?(?:filter|policy|management)|responsible_?ai|data_inspection_failed"
    r"|inappropriate content|safety system",
    re.IGNORECASE,
)
_NO_PICTURES = re.compile(  # llama.cpp (500); OpenRouter (404); LM Studio; vLLM; Ollama: a retry would not help
    r"image input is not supported|no endpoints found that support image|does not support images"
    r"|is not a multimodal model|missing data required for image input",
    re.IGNORECASE,
)
_SCHEMA = re.compile(  # vLLM with xgrammar; llama.cpp; SGLang: servers that cannot enforce a schema
    r"json[ _-]?schema|grammar|structured[ _]outputs?|guided[ _]", re.IGNORECASE
)
_OTHER_KEY = "the server expects a different API key: set OPENAI_API_KEY, or specify the variable with ?key=NAME"
_NO_CREDIT = "the account has no credit, or the API key lacks permission"
FOR_ALL = {  # statuses with which every other request would fail, too
    401: _OTHER_KEY,
    402: _NO_CREDIT,
    403: _OTHER_KEY,
    404: "the server does not know this model or path; its URL usually ends in /v1",
    405: "the server does not know this path; its URL usually ends in /v1",
}
MAX_MESSAGE_CHARACTERS, MAX_FINISH_CHARACTERS, MAX_QUOTED_CHARACTERS = 200, 40, 60
MAX_TOKENS = 1 << 53
_MALFORMED = (ValueError, KeyError, IndexError, TypeError, AttributeError, StopIteration)


@dataclass(frozen=True)
class Reply:
    """A server's reply. ``after``: its header Retry-After. ``key`` is redacted in answers and messages."""

    status: int
    content: bytes
    key: str = ""
    after: str | None = None

    def answer(self) -> Answer:
        """Returns the answer in the reply. Raises `BackendError` if it contains no answer.

        Does not change the answer, except for the key. `answer_checks.trouble` detects bad answers.
        """
        status = self._status
        if status == 200:
            return self._completion()
        words, after = self._message, seconds(self.after)
        detail = f"({status}: {words})" if words else f"({status})"
        if 400 <= status < 500 and _ACCOUNT.search(self._text):
            raise BackendError(f"{_NO_CREDIT} {detail}", fatal=True)
        if status in NOT_NOW:
            raise BackendError(f"temporarily unavailable {detail}", retry=True, after=after or 0.0)
        if _NO_PICTURES.search(words):
            raise BackendError(f"the server's model does not accept pictures {detail}", fatal=True)
        if status in LATER or status > 500:
            raise BackendError(f"server error {detail}", retry=True, after=after)
        if status in FOR_ALL:
            raise BackendError(f"{FOR_ALL[status]} {detail}", fatal=True)
        if 300 <= status < 400:
            raise BackendError(f"the server redirects to another URL ({status}); specify that URL", fatal=True)
        raise BackendError(f"the server rejected the request {detail}")

    @property
    def moderation(self) -> str:
        """The server's message if it rejects the content of this request, otherwise ""."""
        metadata = self._error.get("metadata")  # OpenRouter's format
        flagged = (isinstance(metadata, dict) and metadata.get("reasons")) or _MODERATED.search(json.dumps(self._error))
        return (self._message or "content_filter") if flagged and self._status in (400, 403, 422, 451) else ""

    def refused_field(self, sent: Sequence[str]) -> str | None:
        """Returns which of the ``sent`` fields the server rejected: the one in the error's ``param`` or, without
        ``param``, the first one that the error message mentions. Returns None if the error names no field.

        An error about the schema means that ``response_format`` was rejected, even if the error does not name this
        field.
        """
        if self.status not in (400, 422):
            return None
        param = self._error.get("param")
        words = param if isinstance(param, str) and param else self._error_text
        named = next((name for name in sent if re.search(rf"\b{re.escape(name)}\b", words)), None)
        return "response_format" if named is None and "response_format" in sent and _SCHEMA.search(words) else named

    def scores(self, text: str) -> tuple[tuple[str, float], ...]:
        """Returns the tokens of ``text`` and their log-probabilities from vLLM's ``prompt_logprobs``. The prompt must
        end with the text.

        Returns () if the reply contains no log-probabilities, or if its tokens do not spell the text.
        """
        try:
            entries = self._value.get("prompt_logprobs") or ()
            first = [next(iter(entry.values())) for entry in entries if entry]  # the prompt's own token comes first
            tokens = _log_probs([one for one in first if one["logprob"] is not None], "decoded_token")
        except _MALFORMED:
            return ()
        spans = spelled_spans(text, [piece.encode("utf-8", "surrogateescape") for piece, _ in tokens])
        own = [number for number, (start, end) in enumerate(spans or ()) if start < end]
        return tokens[own[0] : own[-1] + 1] if own else ()

    @property
    def _text(self) -> str:
        return self.content.decode("utf-8", "replace")

    @cached_property
    def _value(self) -> Any:
        """The reply as JSON, or None if it is not JSON."""
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            return None

    @property
    def _error(self) -> dict[str, Any]:
        """The ``error`` of a reply that has no choices. Empty if there is no error."""
        value = self._value
        error = value.get("error") if isinstance(value, dict) and not value.get("choices") else None
        return error if isinstance(error, dict) else {"message": error} if isinstance(error, str) else {}

    @property
    def _status(self) -> int:
        """The reply's status. If a reply with status 200 contains an error instead of choices, the error's ``code``."""
        if self.status != 200 or not (error := self._error):
            return self.status
        wrong_path = "unexpected endpoint" in str(error.get("message")).lower()  # LM Studio, asked without /v1
        code = error.get("code") or (404 if wrong_path else 500)
        return code if type(code) is int and 400 <= code < 600 else 500

    @property
    def _message(self) -> str:
        """The server's error message on one line. Redacts the key before shortening the message."""
        return readable(self._error_text, self.key)[:MAX_MESSAGE_CHARACTERS]

    @property
    def _error_text(self) -> str:
        """The error text from ``error.message`` (OpenAI), ``message`` (vLLM) or ``detail`` (FastAPI), or the whole
        reply if it has none of these keys.
        """
        value = self._value
        if value is None:
            return self._text
        for name in ("error", "message", "detail", "message"):
            value = value.get(name, value) if isinstance(value, dict) else value
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    def _completion(self) -> Answer:
        """Reads a completion. Raises a retryable error if the reply is malformed."""
        try:
            first, *others = [self._choice(choice) for choice in self._value["choices"]]
            usage = self._value.get("usage")
        except _MALFORMED:
            quoted = readable(self._text, self.key)[:MAX_QUOTED_CHARACTERS]
            raise BackendError(f"not a chat completion: {quoted!r}", retry=True) from None
        read, written = (_count(usage, name) for name in ("prompt_tokens", "completion_tokens"))
        return replace(first, prompt_tokens=read, completion_tokens=written, others=tuple(others))

    def _choice(self, choice: Any) -> Answer:
        """Reads one of the choices. Raises one of the errors in `_MALFORMED` if it is malformed."""
        content = choice["message"]["content"]
        finish = choice.get("finish_reason") or "stop"
        if not content and choice["message"].get("refusal"):  # OpenAI's refusal to fill in a schema
            finish = "refusal"
        if isinstance(content, list):  # some servers return the content in parts
            content = "".join(part.get("text") or "" for part in content)
        # None means an empty answer: the model spent its tokens on reasoning, or the server's filter rejected it.
        if not isinstance(content, str | None) or not isinstance(finish, str):
            raise ValueError("expected text or null")
        text = redact(content or "", self.key)
        tokens = _log_probs((choice.get("logprobs") or {}).get("content") or (), "token") if text == content else ()
        return Answer(text, finish=clean_text(redact(finish, self.key))[:MAX_FINISH_CHARACTERS], tokens=tokens)


def seconds(retry_after: str | None) -> float | None:
    """Converts ``Retry-After``, which is a number or a date (RFC 9110, 10.2.3), to seconds from now. Returns None if it
    is neither.
    """
    if retry_after is None:
        return None
    try:
        wait = float(retry_after)
    except ValueError:
        try:
            wait = parsedate_to_datetime(retry_after).timestamp() - time.time()
        except ValueError:
            return None
    return max(0.0, wait) if wait < float("inf") else None


def _log_probs(entries: Any, named: str) -> tuple[tuple[str, float], ...]:
    """Returns tokens and their log-probabilities in nats. A token's text comes from the key ``bytes`` or, if that is
    missing, from the key ``named``.

    Raises one of the errors in `_MALFORMED` if an entry is malformed.
    """
    tokens = []
    for entry in entries:
        data, log_p = entry.get("bytes"), float(entry["logprob"])
        text = bytes(data).decode("utf-8", "surrogateescape") if isinstance(data, list) else str(entry[named])
        if log_p != log_p:
            raise ValueError("NaN is not a log-probability")
        tokens.append((text, min(log_p, 0.0)))
    return tuple(tokens)


def _count(usage: Any, name: str) -> int:
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if type(count) is int and 0 <= count < MAX_TOKENS else 0

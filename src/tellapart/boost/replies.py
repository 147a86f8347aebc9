"""Parses a server's reply: an answer with its log-probabilities, or an error, which is classified by its body.

An error concerns this picture (`moderated`), concerns the key (``fatal``), or is temporary (``retry``).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any

from tellapart.boost.redaction import redact
from tellapart.boost.types import Answer, BackendError
from tellapart.language.token_spans import spelled_spans
from tellapart.utils.untrusted_text import clean_text

NOT_NOW = frozenset({429, 503})  # rate limits, and servers that are loading or full
LATER = frozenset({408, 409, 425, 500, 502, 504, 529})
FOR_ALL = frozenset({401, 402, 403, 404, 405})
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
ADVICE = {
    401: ("the server expects a different API key: set OPENAI_API_KEY, or specify the variable with ?key=NAME"),
    402: "the account has no credit, or the API key lacks permission",
    403: ("the server expects a different API key: set OPENAI_API_KEY, or specify the variable with ?key=NAME"),
    404: "the server does not know this model or path; its URL usually ends in /v1",
    405: "the server does not know this path; its URL usually ends in /v1",
}
MAX_MESSAGE_CHARACTERS, FINISH = 200, 40  # maximum length of a server's message and of its finish reason, in characters


def failure(message: str, like: BackendError, fatal: bool | None = None) -> BackendError:
    """Returns a copy of a failure with another message and, if given, another ``fatal``."""
    return BackendError(message, retry=like.retry, after=like.after, fatal=like.fatal if fatal is None else fatal)


def read_answer(status: int, retry_after: str | None, reply: bytes, key: str = "") -> Answer:
    """Returns the answer in a reply. Raises `BackendError` for any other reply.

    Redacts ``key`` in answers and errors. Otherwise leaves the answer unchanged; `answer_checks.trouble` detects bad
    ones.
    """
    status = _status(status, reply)
    if status == 200:
        return _completion(reply, key)
    detail = _words(reply, key)
    if 400 <= status < 500 and _ACCOUNT.search(reply.decode("utf-8", "replace")):
        raise BackendError(f"{ADVICE[402]} ({status}{detail})", fatal=True)
    if status in NOT_NOW:
        raise BackendError(f"temporarily unavailable ({status}{detail})", retry=True, after=seconds(retry_after) or 0.0)
    if _NO_PICTURES.search(detail):
        raise BackendError(f"the server's model does not accept pictures ({status}{detail})", fatal=True)
    if status in LATER or status > 500:
        raise BackendError(f"server error ({status}{detail})", retry=True, after=seconds(retry_after))
    if status in FOR_ALL:
        raise BackendError(f"{ADVICE[status]} ({status}{detail})", fatal=True)
    if 300 <= status < 400:
        raise BackendError(f"the server redirects to another URL ({status}); specify that URL", fatal=True)
    raise BackendError(f"the server rejected the request ({status}{detail})")


def _status(status: int, reply: bytes) -> int:
    """Returns the status of a reply, or the error's ``code`` if a reply with status 200 contains an error instead of
    choices.
    """
    error = _error(reply) if status == 200 else {}
    wrong_path = "unexpected endpoint" in str(error.get("message")).lower()  # LM Studio, asked without /v1
    code = error.get("code") or (404 if wrong_path else 500)
    return (code if type(code) is int and 400 <= code < 600 else 500) if error else status


def _error(reply: bytes) -> dict[str, Any]:
    """Returns the ``error`` of a reply that has no choices; empty if there is none."""
    try:
        value = json.loads(reply)
    except (ValueError, RecursionError):
        return {}
    error = value.get("error") if isinstance(value, dict) and not value.get("choices") else None
    return error if isinstance(error, dict) else {"message": error} if isinstance(error, str) else {}


def moderated(status: int, reply: bytes, key: str = "") -> str:
    """Returns the server's message if it rejects the content of this request; "" if it does not."""
    if _status(status, reply) not in (400, 403, 422, 451) or not (error := _error(reply)):
        return ""
    reasons = isinstance(error.get("metadata"), dict) and error["metadata"].get("reasons")  # OpenRouter's format
    if not reasons and not _MODERATED.search(json.dumps(error)):
        return ""
    return _readable(_error_text(reply), key)[:MAX_MESSAGE_CHARACTERS] or "content_filter"


def refused_field(status: int, reply: bytes, sent: Sequence[str]) -> str | None:
    """Returns the rejected field among ``sent``: the error's ``param``, otherwise the first one in the error message.

    An error about the schema rejects ``response_format`` without naming it.
    """
    if status not in (400, 422):
        return None
    try:
        param = json.loads(reply)["error"]["param"]
    except (ValueError, KeyError, TypeError, RecursionError):
        param = None
    words = param if isinstance(param, str) and param else _error_text(reply)
    named = next((name for name in sent if re.search(rf"\b{re.escape(name)}\b", words)), None)
    return "response_format" if named is None and "response_format" in sent and _SCHEMA.search(words) else named


def seconds(retry_after: str | None) -> float | None:
    """Parses ``Retry-After``, a number or a date (RFC 9110, 10.2.3), into seconds from now; None if it is neither."""
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


def _completion(reply: bytes, key: str) -> Answer:
    """Parses a completion. Raises a retryable error for a malformed reply."""
    try:
        value = json.loads(reply)
        usage = value.get("usage")
        counts = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
        first, *others = [_choice(choice, key) for choice in value["choices"]]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise BackendError(f"not a chat completion: {_quoted(reply, key)}", retry=True) from None
    prompt_tokens, completion_tokens = counts
    return replace(first, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens, others=tuple(others))


def _choice(choice: Any, key: str) -> Answer:
    """Parses one of a reply's choices. Raises ValueError or other errors for a malformed choice."""
    content = choice["message"]["content"]
    finish = choice.get("finish_reason") or "stop"
    if not content and choice["message"].get("refusal"):  # OpenAI's refusal to fill in a schema
        finish = "refusal"
    if isinstance(content, list):  # some servers return parts
        content = "".join(part.get("text") or "" for part in content)
    # None means an empty answer: the model spent its tokens on reasoning, or the server's filter rejected the answer.
    if not isinstance(content, str | None) or not isinstance(finish, str):
        raise ValueError("expected text or null")
    text = redact(content or "", key)
    tokens = _log_probs((choice.get("logprobs") or {}).get("content") or (), "token") if text == content else ()
    return Answer(text, finish=clean_text(redact(finish, key))[:FINISH], tokens=tokens)


def _log_probs(entries: Any, named: str) -> tuple[tuple[str, float], ...]:
    """Returns tokens and their log-probabilities in nats. A token's text comes from ``bytes`` or, if absent, from
    ``named``.

    Raises ValueError or other errors for malformed entries.
    """
    found = []
    for entry in entries:
        data, log_p = entry.get("bytes"), float(entry["logprob"])
        text = bytes(data).decode("utf-8", "surrogateescape") if isinstance(data, list) else str(entry[named])
        if log_p != log_p:
            raise ValueError("NaN is not a log-probability")
        found.append((text, min(log_p, 0.0)))
    return tuple(found)


def read_scores(reply: bytes, text: str) -> tuple[tuple[str, float], ...]:
    """Returns the tokens of ``text`` in vLLM's ``prompt_logprobs`` of a prompt that ends with the text.

    Returns () if the reply contains no log-probabilities, or if their tokens do not spell the text.
    """
    try:
        entries = json.loads(reply).get("prompt_logprobs") or ()
        first = [next(iter(entry.values())) for entry in entries if entry]  # the prompt's own token comes first
        tokens = _log_probs([one for one in first if one["logprob"] is not None], "decoded_token")
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration, RecursionError):
        return ()
    spans = spelled_spans(text, [piece.encode("utf-8", "surrogateescape") for piece, _ in tokens])
    own = [number for number, (start, end) in enumerate(spans or ()) if start < end]
    return tokens[own[0] : own[-1] + 1] if own else ()


def _count(usage: Any, key: str) -> int:
    count = usage.get(key) if isinstance(usage, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 1 << 53 else 0


def _words(reply: bytes, key: str) -> str:
    """Returns ``: MESSAGE`` with the server's error message; "" if there is none."""
    text = _readable(_error_text(reply), key)[:MAX_MESSAGE_CHARACTERS]
    return f": {text}" if text else ""


def _error_text(reply: bytes) -> str:
    """Returns the error text: ``error.message`` (OpenAI), ``message`` (vLLM), ``detail`` (FastAPI), else the reply."""
    try:
        value = json.loads(reply)
    except (ValueError, RecursionError):
        return reply.decode("utf-8", "replace")
    for key in ("error", "message", "detail", "message"):
        value = value.get(key, value) if isinstance(value, dict) else value
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _quoted(reply: bytes, key: str) -> str:
    return repr(_readable(reply.decode("utf-8", "replace"), key)[:60])


def _readable(text: str, key: str) -> str:
    """Returns a server's text on one line, cleaned and with the key redacted."""
    return " ".join(clean_text(redact(text, key)).split())

"""Parses a server's reply: an answer, or a failure that may or may not be retried."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from typing import Any

from tellapart.boost.redact import redact
from tellapart.boost.types import Answer, BackendError
from tellapart.utils.text import clean_text

NOT_NOW = frozenset({429, 503})  # rate limits, and servers that are loading or full
LATER = frozenset({408, 409, 425, 500, 502, 504, 529})
FOR_ALL = frozenset({401, 402, 403, 404, 405})
ADVICE = {
    401: "the server wants another key: set OPENAI_API_KEY, or name the variable with ?key=NAME",
    402: "the account has no credit",
    403: "the server wants another key: set OPENAI_API_KEY, or name the variable with ?key=NAME",
    404: "the server does not know this model or this path; its address usually ends in /v1",
    405: "the server does not know this path; its address usually ends in /v1",
}
SHOWN, FINISH = 200, 40  # characters of a server's own words, and of its word for why an answer ended


def failure(message: str, like: BackendError) -> BackendError:
    """The same failure with another message."""
    return BackendError(message, retry=like.retry, after=like.after, fatal=like.fatal)


def read_answer(status: int, retry_after: str | None, reply: bytes, key: str = "") -> Answer:
    """The answer in a reply. Raises `BackendError` for every other reply, whatever is in it.

    ``key`` is struck out of both. The answer's text is as the server wrote it: `check.trouble` says what is bad.
    """
    if status == 200:
        return _completion(reply, key)
    detail = _words(reply, key)
    if status in NOT_NOW:
        raise BackendError(f"not now ({status}{detail})", retry=True, after=seconds(retry_after) or 0.0)
    if status in LATER or status > 500:
        raise BackendError(f"the server failed ({status}{detail})", retry=True, after=seconds(retry_after))
    if status in FOR_ALL:
        raise BackendError(f"{ADVICE[status]} ({status}{detail})", fatal=True)
    if 300 <= status < 400:
        raise BackendError(f"the server sends us elsewhere ({status}); name the address that it means", fatal=True)
    raise BackendError(f"the server refuses this request ({status}{detail})")


def refused_field(status: int, reply: bytes, sent: Sequence[str]) -> str | None:
    """Which of the fields ``sent`` a server refuses: its error's ``param``, else the first that its words name."""
    if status not in (400, 422):
        return None
    try:
        param = json.loads(reply)["error"]["param"]
    except (ValueError, KeyError, TypeError, RecursionError):
        param = None
    words = param if isinstance(param, str) and param else _error_text(reply)
    return next((name for name in sent if re.search(rf"\b{re.escape(name)}\b", words)), None)


def seconds(retry_after: str | None) -> float | None:
    """``Retry-After`` in seconds from now: a number, or a date (RFC 9110, 10.2.3). None where it says neither."""
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
    """Of a reply of the right form; any other may be right the next time."""
    try:
        value = json.loads(reply)
        choice = value["choices"][0]
        content = choice["message"]["content"]
        finish = choice.get("finish_reason") or "stop"
        if isinstance(content, list):  # parts, as some servers write them
            content = "".join(part.get("text") or "" for part in content)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise BackendError(f"not a chat completion: {_quoted(reply, key)}", retry=True) from None
    # None is an empty answer: a model that spent its tokens on thinking, or a refusal by the server's own filter.
    if not isinstance(content, str | None) or not isinstance(finish, str):
        raise BackendError(f"not a chat completion: {_quoted(reply, key)}", retry=True)
    usage = value.get("usage")
    tokens = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    return Answer(redact(content or "", key), *tokens, clean_text(redact(finish, key))[:FINISH])


def _count(usage: Any, key: str) -> int:
    count = usage.get(key) if isinstance(usage, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 1 << 53 else 0


def _words(reply: bytes, key: str) -> str:
    """The server's error message, as ``: …``."""
    text = _readable(_error_text(reply), key)[:SHOWN]
    return f": {text}" if text else ""


def _error_text(reply: bytes) -> str:
    try:
        error = json.loads(reply)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError, RecursionError):
        return reply.decode("utf-8", "replace")


def _quoted(reply: bytes, key: str) -> str:
    return repr(_readable(reply.decode("utf-8", "replace"), key)[:60])


def _readable(text: str, key: str) -> str:
    """A server's own words, whole, without the key: on one line, clean."""
    return " ".join(clean_text(redact(text, key)).split())

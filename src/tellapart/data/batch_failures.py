"""Explains why a line of a batch result has no answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tellapart.utils.untrusted_text import clean_line

_FINISHED = ("stop", "eos", "end_turn", "stop_sequence")


def _unfinished(answer: Any) -> str:
    """Returns why a server's answer is incomplete, such as ``length``, or "" if it is complete."""
    if not isinstance(answer, Mapping):
        return ""
    choices = [answer.get(key) for key in ("choices", "candidates")]
    for part in (answer, *(choice[0] for choice in choices if choice and isinstance(choice, list))):
        for key in ("finish_reason", "stop_reason", "finishReason"):
            reason = part.get(key) if isinstance(part, Mapping) else None
            if isinstance(reason, str) and reason and reason.lower() not in _FINISHED:
                return reason
    return ""


def batch_failure(record: Mapping[str, Any]) -> str:
    """Returns why a line of batch results has no complete answer, or "" if it has one.

    For example ``status 400: too long``, ``expired`` or ``ended with 'length'``. Recognizes Anthropic's
    ``{"custom_id", "result": {"type": "errored", "error": …}}``, OpenAI's ``{"custom_id", "response": {"status_code":
    400, "body": {"error": …}}}`` and ``{"custom_id", "error": …}``, and Gemini's ``{"key", "error": …}``.
    """
    if not {"custom_id", "key"} & record.keys():
        return ""
    result, response = (value if isinstance(value := record.get(key), dict) else {} for key in ("result", "response"))
    status, error = response.get("status_code"), record.get("error")
    if (kind := result.get("type")) in ("errored", "expired", "canceled"):
        found, error = str(kind), result.get("error")
    elif isinstance(status, int) and status != 200:
        body = response.get("body")
        found, error = f"status {status}", body.get("error") if isinstance(body, dict) else None
    elif isinstance(error, dict) and not response:
        found = str(error.get("code") or error.get("status") or "error")
    else:
        answers = result.get("message"), response.get("body"), response
        reason = next(filter(None, map(_unfinished, answers)), "")
        return f"ended with {clean_line(reason)!r}" if reason else ""
    while isinstance(error, dict):  # Anthropic nests an error inside the error
        error = error.get("error") or error.get("message")
    return clean_line(f"{found}: {error}" if isinstance(error, str) else found)

"""Explains why a line of a batch result has no answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tellapart.utils.untrusted_text import clean_line

_FINISHED = ("stop", "eos", "end_turn", "stop_sequence")


def batch_failure(record: Mapping[str, Any]) -> str:
    """Returns why a line of batch results has no complete answer, or "" if it has one.

    For example ``status 400: too long``, ``expired`` or ``ended with 'length'``. Recognizes Anthropic's
    ``{"custom_id", "result": {"type": "errored", "error": …}}``, OpenAI's ``{"custom_id", "response": {"status_code":
    400, "body": {"error": …}}}`` and ``{"custom_id", "error": …}``, and Gemini's ``{"key", "error": …}``.
    """
    if not {"custom_id", "key"} & record.keys():
        return ""
    result, response = _object(record, "result"), _object(record, "response")
    body, error, status = _object(response, "body"), record.get("error"), response.get("status_code")
    if (kind := result.get("type")) in ("errored", "expired", "canceled"):
        found, error = str(kind), result.get("error")
    elif isinstance(status, int) and status != 200:
        found, error = f"status {status}", body.get("error")
    elif isinstance(error, dict) and not response:
        found = str(error.get("code") or error.get("status") or "error")
    else:
        reason = next(filter(None, map(_unfinished, (_object(result, "message"), body, response))), "")
        return f"ended with {clean_line(reason)!r}" if reason else ""
    while isinstance(error, dict):  # Anthropic nests an error inside the error
        error = error.get("error") or error.get("message")
    return clean_line(f"{found}: {error}" if isinstance(error, str) else found)


def _object(record: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Returns an object inside a record, or an empty one if the value is something else."""
    return value if isinstance(value := record.get(key), dict) else {}


def _unfinished(answer: Mapping[str, Any]) -> str:
    """Returns why a server's answer is incomplete, such as ``length``, or "" if it is complete."""
    choices = (choice[0] for key in ("choices", "candidates") if isinstance(choice := answer.get(key), list) and choice)
    for part in (answer, *choices):
        for key in ("finish_reason", "stop_reason", "finishReason"):
            reason = part.get(key) if isinstance(part, Mapping) else None
            if isinstance(reason, str) and reason and reason.lower() not in _FINISHED:
                return reason
    return ""

"""Formats a request as the body of a request to OpenAI's chat completions endpoint."""

from __future__ import annotations

import json
from typing import Any

from tellapart.boost.data_url import data_url
from tellapart.boost.server_model import ServerModel
from tellapart.boost.types import Request


def chat_body(model: ServerModel, request: Request) -> dict[str, Any]:
    """Returns the body, which contains only fields that the request or the model's specification sets.

    Raises `PictureError` if the picture cannot be read.
    """
    messages: list[dict[str, Any]] = [{"role": m.role, "content": m.text} for m in request.messages]
    if request.picture is not None:
        question = next(message for message in reversed(messages) if message["role"] == "user")
        shown = {"type": "image_url", "image_url": {"url": data_url(request.picture)}}
        question["content"] = [shown, {"type": "text", "text": question["content"]}]
    body = {"model": model.model, "messages": messages, model.limit: request.max_tokens, **sampling(model, request)}
    optional = {
        "seed": request.seed,
        "stop": list(request.stop) or None,
        "n": request.n if request.n > 1 else None,
        "logprobs": request.logprobs or None,
        "response_format": response_format(request.schema) if request.schema else None,
    }
    body |= {name: value for name, value in optional.items() if value is not None}
    if request.scored:
        body |= {"prompt_logprobs": 0, "add_generation_prompt": False, "continue_final_message": True}
    return body


def sampling(model: ServerModel, request: Request) -> dict[str, float]:
    """Returns the sampling settings. The request's settings override those in the model's specification."""
    settings = {"temperature": request.temperature, "top_p": request.top_p}
    return model.sampling | {name: value for name, value in settings.items() if value is not None}


def response_format(schema: str) -> dict[str, Any]:
    """Returns the request field that makes OpenAI and vLLM servers answer with JSON that matches the schema."""
    content = json.loads(schema)
    strict = {"strict": True} if is_strict(content) else {}
    return {"type": "json_schema", "json_schema": {"name": "caption", "schema": content, **strict}}


def is_strict(schema: Any) -> bool:
    """Returns whether OpenAI's strict mode accepts the schema. It does if every object requires all of its properties
    and allows no additional ones.
    """
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties")
    if schema.get("type") == "object" or isinstance(properties, dict):
        names = set(properties) if isinstance(properties, dict) else set()
        if schema.get("additionalProperties") is not False or set(schema.get("required", ())) != names:
            return False
    return all(map(is_strict, schema.values()))

"""Structured captions: a JSON schema that a server's answers must match."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tellapart.boost.answer_checks import unusable
from tellapart.errors import UsageError, need_extra
from tellapart.language.markdown import without_fence
from tellapart.language.stock_phrases import refusal
from tellapart.utils.strict_json import parse_json

with suppress(ImportError):  # if the extra boost is not installed, `AnswerSchema.read` reports it
    from jsonschema.exceptions import SchemaError, best_match
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

MAX_ERROR_CHARACTERS = 120  # maximum length of a validation error


@dataclass(frozen=True)
class AnswerSchema:
    """The schema passed with ``--schema``. ``text``: the schema as one line of JSON, which is sent to the server and is
    part of the key under which an answer is stored.
    """

    text: str
    validator: Validator = field(compare=False)

    @classmethod
    def read(cls, path: Path) -> AnswerSchema:
        """Reads a schema file. Raises `UsageError` if it is not a JSON schema for an object."""
        need_extra("boost", "--schema", "jsonschema")
        try:
            schema = parse_json(path.read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise UsageError(f"--schema {path}: cannot be read ({error.strerror}); expected a JSON schema") from None
        except ValueError as error:
            raise UsageError(f"--schema {path}: invalid JSON ({error}); expected a JSON schema") from None
        if not isinstance(schema, dict) or schema.get("type") != "object":
            raise UsageError(
                f'--schema {path}: expected a JSON schema for an object: {{"type": "object", "properties": …}}'
            )
        kind = validator_for(schema)
        try:
            kind.check_schema(schema)
        except SchemaError as error:
            raise UsageError(f"--schema {path}: not a valid JSON schema: {_described(error)}") from None
        # The registry contains only this schema, because otherwise jsonschema would fetch references from the network.
        registry = Registry().with_resource("", DRAFT202012.create_resource(schema))
        for reference in _references(schema):
            try:
                registry.resolver().lookup(reference)
            except Unresolvable:
                raise UsageError(f"--schema {path}: unresolved reference '{reference}'; add it to $defs") from None
        return cls(json.dumps(schema, ensure_ascii=False), kind(schema, registry=registry))

    def prompt(self, prompt: str) -> str:
        """Appends the schema to the prompt, because some servers do not show ``response_format`` to the model."""
        return f"{prompt}\n\nAnswer only with JSON that matches this schema:\n{self.text}"

    def trouble(self, answer: str) -> str | None:
        """Returns why an answer is invalid, or None if it is valid."""
        try:
            value = parse_json(without_fence(answer))
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except ValueError:
            return "a refusal" if refusal(answer) else "invalid JSON"
        if (error := best_match(self.validator.iter_errors(value))) is not None:
            return f"does not match the schema: {_described(error)}"
        return unusable(text) or unusable(caption_in(value))

    def value(self, answer: str) -> dict[str, Any]:
        """Returns the object in a valid answer."""
        value: dict[str, Any] = parse_json(without_fence(answer))
        return value


def caption_in(value: Mapping[str, Any]) -> str:
    """Returns an answer's ``caption`` if it is a string, otherwise the whole answer as JSON."""
    caption = value.get("caption")
    return " ".join(caption.split()) if isinstance(caption, str) else json.dumps(value, ensure_ascii=False)


def _references(schema: Any) -> Iterator[str]:
    """Yields every ``$ref`` in a schema."""
    if isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
        yield schema["$ref"]
    for value in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _references(value)


def _described(error: Any) -> str:
    place = "".join(f"/{part}" for part in error.absolute_path)
    words = " ".join(str(error.message).split())
    return f"{place}: {words[:MAX_ERROR_CHARACTERS]}" if place else words[:MAX_ERROR_CHARACTERS]

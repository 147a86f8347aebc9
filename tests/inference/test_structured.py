"""Structured captions behind a server: a schema that answers must match, and paragraphs that stay."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli
from fault_server import FaultServer
from PIL import Image

from tellapart.boost.chat_body import is_strict
from tellapart.captions.store import CaptionStore, Edit
from tellapart.data import open_data
from tellapart.errors import UsageError
from tellapart.inference.structured import AnswerSchema

COUNT = 6
SCHEMA = {
    "type": "object",
    "properties": {
        "caption": {"type": "string"},
        "objects": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "people": {"type": "integer", "minimum": 0},
    },
    "required": ["caption", "objects", "people"],
    "additionalProperties": False,
}
GOOD = {"caption": "A dog on a lawn.", "objects": ["dog", "lawn"], "people": 0}


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as running:
        running.keep_bodies, running.says = True, lambda body: json.dumps(GOOD)
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    for number in range(COUNT):
        Image.new("RGB", (32, 24), (40 * number, 90, 60)).save(tmp_path / "photos" / f"{number}.png")
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    return tmp_path


def caption(cli: Cli, server: FaultServer, folder: Path, *more: Any) -> Any:
    out = () if "-o" in more else ("-o", folder / "c.jsonl")
    return cli("caption", f"openai:org/vlm@{server.url}", folder / "photos", *out, *more)


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_answers_are_kept_as_json_with_a_plain_caption(cli: Cli, server: FaultServer, folder: Path) -> None:
    done = caption(cli, server, folder, "--schema", folder / "schema.json")
    assert done.status == 0, done.err
    assert records(folder / "c.jsonl") == [
        {"id": f"{n}.png", "caption": GOOD["caption"], "structured": GOOD} for n in range(COUNT)
    ]
    body = server.bodies[0]
    format = {"name": "caption", "schema": SCHEMA, "strict": True}
    assert body["response_format"] == {"type": "json_schema", "json_schema": format}
    assert body["max_tokens"] == 1024
    assert json.dumps(SCHEMA) in body["messages"][0]["content"][1]["text"], "not every server shows it to the model"
    asked = len(server.bodies)
    assert "0 captions written, 6 already done" in caption(cli, server, folder, "--schema", folder / "schema.json").err
    assert len(server.bodies) == asked
    assert "was started with a different decoding, schema" in caption(cli, server, folder).line


@pytest.mark.parametrize(
    "first, reason",
    [
        ("A dog on a lawn.", "invalid JSON"),
        ("I'm sorry, but I cannot describe this picture.", "a refusal"),
        (json.dumps({**GOOD, "people": "none"}), "does not match the schema: /people: 'none' is not of type 'integer'"),
        (json.dumps({"caption": "A dog."}), "does not match the schema: 'objects' is a required property"),
        (json.dumps({**GOOD, "caption": " "}), "empty"),
        ('{"caption": "A dog.", "caption": "A cat.", "objects": ["dog"], "people": 0}', "invalid JSON"),
    ],
)
def test_an_invalid_answer_is_requested_once_more_and_then_named(
    first: str, reason: str, cli: Cli, server: FaultServer, folder: Path
) -> None:
    server.says = lambda body: first if "temperature" not in json.loads(body) else f"```json\n{json.dumps(GOOD)}\n```"
    done = caption(cli, server, folder, "--schema", folder / "schema.json")
    assert done.status == 0, done.err
    assert [row["structured"] for row in records(folder / "c.jsonl")] == [GOOD] * COUNT
    assert len(server.bodies) == 2 * COUNT
    server.says = lambda body: first
    out = folder / "d.jsonl"
    done = caption(cli, server, folder, "-o", out, "--schema", folder / "schema.json", "--max-tokens", 900)
    assert done.status == 1 and not out.exists()
    assert f"no caption for {folder / 'photos' / '0.png'}: {reason}" in done.err


def test_a_server_without_response_format_gets_the_schema_in_the_prompt(
    cli: Cli, server: FaultServer, folder: Path
) -> None:
    server.unsupported = ("response_format",)
    done = caption(cli, server, folder, "--schema", folder / "schema.json")
    assert done.status == 0, done.err
    assert "'response_format' is omitted from now on" in done.err
    assert len(records(folder / "c.jsonl")) == COUNT
    assert "response_format" not in server.bodies[-1]


def test_a_schema_that_the_server_cannot_enforce_is_in_the_prompt_only(
    cli: Cli, server: FaultServer, folder: Path
) -> None:
    """The message of vLLM with xgrammar, which does not name the field."""
    message = "The provided JSON schema contains features not supported by xgrammar."
    error = {"message": message, "type": "BadRequestError", "param": None, "code": 400}
    server.errors = lambda body: (400, {"error": error}) if b'"response_format"' in body else None
    done = caption(cli, server, folder, "--schema", folder / "schema.json")
    assert done.status == 0, done.err
    assert "'response_format' is omitted from now on" in done.err and "xgrammar" in done.err
    assert [row["structured"] for row in records(folder / "c.jsonl")] == [GOOD] * COUNT


def test_a_run_behind_a_server_that_answers_as_vllm_does(cli: Cli, server: FaultServer, folder: Path) -> None:
    """One picture each: overloaded at first, cut at first, endless white space, refused, only reasoning, good.

    Whatever a picture's answer, the others are written, and the same command asks for none of them again.
    """
    good = json.dumps(GOOD)
    numbers = {base64.b64encode((folder / "photos" / f"{n}.png").read_bytes()): n for n in range(COUNT)}
    asked: Counter[int] = Counter()

    def completion(content: str | None, finish: str = "stop", **more: str) -> tuple[int, Any]:
        message = {"role": "assistant", "content": content, "tool_calls": [], **more}
        usage = {"prompt_tokens": 100, "completion_tokens": 9, "total_tokens": 109}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish, "stop_reason": None}
        return 200, {"object": "chat.completion", "model": "org/vlm", "choices": [choice], "usage": usage}

    def answer(body: bytes) -> tuple[int, Any]:
        number = next(number for data, number in numbers.items() if data in body)
        asked[number] += 1
        first = asked[number] == 1
        return {
            0: (503, {"message": "The engine is overloaded", "code": 503}) if first else completion(good),
            1: completion(good[:30], "length") if first else completion(good),
            2: completion('{"caption":' + "\n" * 900, "length"),
            3: completion(None, refusal="I'm sorry, I cannot assist with that."),
            4: completion(None, "length", reasoning_content="The picture shows"),
            5: completion(f"\n\n{good}"),
        }[number]

    server.errors = answer
    done = caption(cli, server, folder, "--schema", folder / "schema.json")
    assert done.status == 0 and "3 captions written, 0 already done, 3 failed" in done.err
    assert [(row["id"], row["structured"]) for row in records(folder / "c.jsonl")] == [
        (f"{number}.png", GOOD) for number in (0, 1, 5)
    ]
    photos = folder / "photos"
    for number, reason in {2: "truncated after 1024 tokens", 3: "a refusal", 4: "truncated after 1024"}.items():
        assert f"no caption for {photos / f'{number}.png'}: {reason}" in done.err
    assert asked == {0: 2, 1: 2, 2: 2, 3: 2, 4: 2, 5: 1}
    done = caption(cli, server, folder, "--schema", folder / "schema.json")
    assert "0 captions written, 3 already done, 3 failed" in done.err
    assert asked.total() == 11, "unusable answers are kept, too"


def test_a_schema_without_a_caption_is_kept_and_resumed(cli: Cli, server: FaultServer, folder: Path) -> None:
    tags = {"type": "object", "properties": {"tags": {"type": "array"}}, "required": ["tags"]}
    (folder / "tags.json").write_text(json.dumps(tags))
    server.says = lambda body: '{"tags": ["dog"]}'
    assert caption(cli, server, folder, "--schema", folder / "tags.json").status == 0
    assert records(folder / "c.jsonl")[0] == {"id": "0.png", "structured": {"tags": ["dog"]}}
    assert "strict" not in server.bodies[0]["response_format"]["json_schema"], "OpenAI's strict mode would refuse it"
    assert "6 already done" in caption(cli, server, folder, "--schema", folder / "tags.json").err


def test_what_a_person_changed_in_a_structured_caption_stays(cli: Cli, server: FaultServer, folder: Path) -> None:
    schema, path = ("--schema", folder / "schema.json"), folder / "c.jsonl"
    caption(cli, server, folder, *schema)
    rows = records(path)
    rows[0]["structured"]["objects"] = ["hound"]
    rows[1]["caption"] = "A hound."
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    store = CaptionStore.open(open_data(str(folder / "photos")), path)
    store.write({"2.png": Edit(text="A terrier.")}, "edit")
    assert store.caption("2.png").text == "A terrier."
    assert records(path)[2] == {
        "id": "2.png", "caption": "A terrier.", "structured": {**GOOD, "caption": "A terrier."}
    }  # fmt: skip
    server.says = lambda body: json.dumps({**GOOD, "people": 1})
    (folder / "c.ledger.jsonl").unlink()
    done = caption(cli, server, folder, *schema, "--overwrite")
    assert "3 captions were written, edited or accepted by hand and are kept" in done.err
    now = {row["id"]: row for row in records(path)}
    assert now["0.png"]["structured"]["objects"] == ["hound"]
    assert now["1.png"]["caption"] == "A hound."
    assert now["2.png"]["caption"] == "A terrier."
    assert now["3.png"]["structured"]["people"] == 1
    captions = CaptionStore.open(open_data(str(folder / "photos")), path).captions()
    authors = [captions[f"{n}.png"].author for n in range(4)]
    assert [author is not None and author.is_person for author in authors] == [True, True, True, False]
    undone = cli("captions", "undo", folder / "photos", "--captions", path)
    assert undone.status == 0, undone.err
    assert [row["structured"]["people"] for row in records(path)] == [0] * COUNT


@pytest.mark.parametrize(
    "text, message",
    [
        (None, "cannot be read (No such file or directory); expected a JSON schema"),
        ("{", "invalid JSON"),
        ("[]", "expected a JSON schema for an object"),
        ('{"type": "object", "properties": {"a": {"type": "text"}}}', "/properties/a/type: 'text' is not valid"),
        ('{"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}}', "unresolved reference '"),
        (
            '{"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/s"}}}',
            "unresolved reference 'http://127.0.0.1:9/s'; add it to",
        ),
    ],
)
def test_wrong_schemas_are_named(text: str | None, message: str, cli: Cli, server: FaultServer, folder: Path) -> None:
    path = folder / "wrong.json"
    if text is not None:
        path.write_text(text)
    server.says = lambda body: '{"a": 1}'
    done = caption(cli, server, folder, "--schema", path)
    assert done.status != 0 and message in done.line


def test_what_does_not_go_with_a_schema_is_named(cli: Cli, server: FaultServer, folder: Path) -> None:
    schema = ("--schema", folder / "schema.json")
    assert "remove --samples" in caption(cli, server, folder, *schema, "--samples", 3).line
    assert "use -o captions.jsonl" in caption(cli, server, folder, *schema, "-o", folder / "c.csv").line
    done = cli("caption", "scenes", folder / "photos", "-o", folder / "c.jsonl", *schema)
    assert "--schema requires a server model" in done.line
    assert not server.bodies


def test_strict_mode_is_asked_for_only_where_openai_takes_the_schema() -> None:
    assert is_strict(SCHEMA)
    assert not is_strict({**SCHEMA, "required": ["caption"]})
    nested = {"type": "object", "properties": {"a": {"type": "object", "properties": {}}}, "required": ["a"]}
    assert not is_strict({**nested, "additionalProperties": False})


def test_the_schema_is_part_of_an_answers_address(cli: Cli, server: FaultServer, folder: Path) -> None:
    caption(cli, server, folder, "--schema", folder / "schema.json")
    (folder / "schema.json").write_text(json.dumps({**SCHEMA, "title": "Other"}))
    caption(cli, server, folder, "--schema", folder / "schema.json", "--overwrite")
    assert len(server.bodies) == 2 * COUNT
    with pytest.raises(UsageError, match="expected a JSON schema"):
        AnswerSchema.read(folder / "photos")


TEXT = "A dog runs  on a lawn.\nIt is brown.\n\n\nBehind it, a fence."


def test_paragraphs_stay_where_they_are_asked_for(cli: Cli, server: FaultServer, folder: Path) -> None:
    server.says = lambda body: TEXT
    caption(cli, server, folder)
    assert records(folder / "c.jsonl")[0]["caption"] == "A dog runs on a lawn. It is brown. Behind it, a fence."
    done = caption(cli, server, folder, "-o", folder / "d.jsonl", "--decoding", "paragraphs=keep")
    kept = "A dog runs on a lawn. It is brown.\n\nBehind it, a fence."
    assert done.status == 0 and records(folder / "d.jsonl")[0]["caption"] == kept
    assert "6 already done" in caption(
        cli, server, folder, "-o", folder / "d.jsonl", "--decoding", "paragraphs=keep"
    ).err  # fmt: skip
    model = f"openai:org/vlm@{server.url}?ledger={folder / 'd.ledger.jsonl'}"
    cli("caption", model, folder / "photos", "--format", "txt", "--decoding", "paragraphs=keep")
    assert (folder / "photos" / "0.txt").read_text() == kept + "\n"
    done = cli("caption", model, folder / "photos", "--format", "txt", "--decoding", "paragraphs=keep", "--overwrite")
    assert "6 captions written" in done.err, "they are not taken for a person's"
    csv = caption(cli, server, folder, "-o", folder / "c.csv", "--decoding", "paragraphs=keep")
    assert "--decoding paragraphs=keep is not supported for this output" in csv.line
    assert "expected keep" in caption(cli, server, folder, "--decoding", "paragraphs=yes").line

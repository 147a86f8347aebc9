"""Models of transformers in this process, and the same ones behind `transformers serve`."""

from __future__ import annotations

import importlib.util
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from tiny_models import language_model, seeing_model

from tellapart.boost.backends import open_backend
from tellapart.boost.types import BackendError, Message, Request
from tellapart.captioners.load import load_captioner
from tellapart.data.pictures import FilePicture
from tellapart.errors import TellapartError, UsageError

ASKED = (Message("system", "You write captions."), Message("user", "Describe this picture."))


@pytest.fixture(scope="session")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return language_model(tmp_path_factory.mktemp("llm"))


@pytest.fixture(scope="session")
def mllm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return seeing_model(tmp_path_factory.mktemp("mllm"))


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[FilePicture]:
    folder = tmp_path_factory.mktemp("photos")
    for name, colour in (("red", (200, 30, 20)), ("blue", (10, 60, 220))):
        Image.new("RGB", (40, 32), colour).save(folder / f"{name}.png")
    return [FilePicture(folder / "red.png"), FilePicture(folder / "blue.png")]


def test_a_language_model_answers(llm: Path) -> None:
    model = open_backend(f"local:{llm}")
    first = model.complete(Request(ASKED, max_tokens=12))
    assert first.text and first.completion_tokens == 12 and first.finish == "length"
    assert first.prompt_tokens == len("You write captions.Describe this picture.") + 3  # bytes, and one mark a turn
    assert model.complete(Request(ASKED, max_tokens=12)) == first
    sampled = [model.complete(Request(ASKED, temperature=1.0, seed=seed, max_tokens=12)).text for seed in (1, 1, 2)]
    assert sampled[0] == sampled[1] != sampled[2]
    stopped = model.complete(Request(ASKED, max_tokens=12, stop=(first.text[3],)))
    assert stopped.text == first.text[: first.text.index(first.text[3])]


def test_a_model_that_sees_says_something_else_of_another_picture(mllm: Path, photos: list[FilePicture]) -> None:
    model = open_backend(f"local:{mllm}")
    red, blue = (model.complete(Request(ASKED, picture=photo, max_tokens=16)) for photo in photos)
    assert red.text != blue.text and red.prompt_tokens == blue.prompt_tokens
    assert model.complete(Request(ASKED, max_tokens=4)).prompt_tokens < red.prompt_tokens  # without a picture


def test_the_name_changes_with_the_weights(llm: Path, mllm: Path, tmp_path: Path) -> None:
    assert open_backend(f"local:{llm}").name == open_backend(f"local:{llm}").name != open_backend(f"local:{mllm}").name


def test_what_cannot_be_asked_says_so(llm: Path, tmp_path: Path, photos: list[FilePicture]) -> None:
    with pytest.raises(BackendError, match="does not accept pictures"):
        open_backend(f"local:{llm}").complete(Request(ASKED, picture=photos[0]))
    with pytest.raises(TellapartError, match=r"model folder .* does not exist.*expected a folder or a hub name"):
        open_backend(f"local:{tmp_path / 'nothing'}")
    from tiny_models import tokenizer

    for file in llm.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "chat_template.jinja").unlink()
    tokenizer("").save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="has no chat template"):
        open_backend(f"local:{tmp_path}").complete(Request(ASKED))


NESTED = "".join(f"{{% for {name} in range(100000) %}}" for name in "abc") + "{% endfor %}" * 3


@pytest.mark.long
@pytest.mark.parametrize(
    ("template", "said"),
    [
        (NESTED, "ran for 1,000,000 steps without finishing"),
        ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "its chat template failed .maximum recursion"),
        ("{{ range(1000000) }}", "its chat template failed .Range too big"),
        ("{{ messages[0] + 1 }}", "its chat template failed .unsupported operand"),
        ("{{ 10 ** 10 ** 10 }}", "its chat template contains powers"),
        ("{{ 'x' * 3000000000 }}", ": its chat template contains 3000000000;"),
        ("{% for a in range(9000) %}" + "word " * 50 + "{% endfor %}", "writes 2,250,000 characters"),
        ("{{ ''.__class__.__mro__ }}", ": its chat template rejects these messages"),
    ],
)
def test_a_chat_template_neither_runs_for_ever_nor_writes_without_end(
    llm: Path, mllm: Path, tmp_path: Path, template: str, said: str
) -> None:
    for source, folder in ((llm, tmp_path / "llm"), (mllm, tmp_path / "mllm")):
        shutil.copytree(source, folder)
        (folder / "chat_template.jinja").write_text(template)
        with pytest.raises(TellapartError, match=said):
            open_backend(f"local:{folder}").complete(Request(ASKED, max_tokens=2))
    with pytest.raises(TellapartError, match=said):
        load_captioner(str(tmp_path / "mllm"))


def test_a_chat_template_that_doubles_a_text_ends_before_the_memory_does(
    llm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tellapart.models.chat_templates.MOST_BYTES", 32 << 20)
    folder = shutil.copytree(llm, tmp_path / "llm")
    doubling = "{% for n in range(60) %}{% set own.text = own.text ~ own.text %}{% endfor %}"
    (folder / "chat_template.jinja").write_text("{% set own = namespace(text='x') %}" + doubling)
    with pytest.raises(TellapartError, match="its chat template used 32 MB of memory"):
        open_backend(f"local:{folder}").complete(Request(ASKED, max_tokens=2))


def test_a_long_chat_template_is_rendered(llm: Path, tmp_path: Path) -> None:
    """To compile it runs some millions of lines, which are not the template's own."""
    folder = shutil.copytree(llm, tmp_path / "llm")
    file = folder / "chat_template.jinja"
    branch = (
        "{% if messages[0]['role'] == 'tool' and messages | length > 3 %}{{ messages[1]['content'] | trim }}{% endif %}"
    )
    file.write_text(branch * 300 + file.read_text())
    asked = Request(ASKED, max_tokens=4)
    assert open_backend(f"local:{folder}").complete(asked) == open_backend(f"local:{llm}").complete(asked)


def test_a_folders_own_beams_are_not_asked_for(llm: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(llm, tmp_path / "llm")
    own = {"num_beams": 3, "num_return_sequences": 3}
    (folder / "generation_config.json").write_text(
        json.dumps(json.loads((llm / "generation_config.json").read_text()) | own)
    )
    asked = Request(ASKED, max_tokens=12)
    assert open_backend(f"local:{folder}").complete(asked) == open_backend(f"local:{llm}").complete(asked)


def test_a_configuration_without_an_end_is_one_line(llm: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(llm, tmp_path / "llm")
    (folder / "config.json").write_text('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(TellapartError, match=r"cannot load .*nested too deeply"):
        open_backend(f"local:{folder}")


@pytest.fixture(scope="module")
def served(llm: Path, mllm: Path) -> Iterator[str]:
    """`transformers serve` on this machine: it loads the model that a request names."""
    if importlib.util.find_spec("fastapi") is None or importlib.util.find_spec("openai") is None:
        pytest.skip("transformers serve needs fastapi and openai; type: pip install 'transformers[serving]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve = [str(Path(sys.executable).parent / "transformers"), "serve", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen([*serve, "--device", "cpu"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, "transformers serve ended"
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.long
def test_a_real_server_says_what_the_model_says_here(
    served: str, llm: Path, mllm: Path, photos: list[FilePicture]
) -> None:
    asked = Request(ASKED, max_tokens=16)
    there = open_backend(f"openai:{llm}@{served}").complete(asked)
    assert there == open_backend(f"local:{llm}").complete(asked)
    model = open_backend(f"openai:{mllm}@{served}")
    for photo in photos:
        asked = Request(ASKED, picture=photo, max_tokens=16)
        assert model.complete(asked) == open_backend(f"local:{mllm}").complete(asked)
    with pytest.raises(BackendError) as error:
        open_backend(f"openai:nothing/there@{served}").complete(asked)
    assert "nothing/there" in str(error.value)

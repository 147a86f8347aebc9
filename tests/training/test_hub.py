"""The model card, and its way to the hub and back: a stand-in server takes and gives what the hub would."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from child import run_commands
from command_line import Cli
from hub_server import TOKEN, Hub, hub
from huggingface_hub import ModelCard
from PIL import Image
from tiny_blip import save_blip

from tellapart.recipe.reading import check_recipe
from tellapart.training.model_card import figure, hub_base, hub_datasets

WORDS = ["a", "red", "dog", "on", "the", "green", "grass", "picture", "of"]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve pictures of 3:2, with captions."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(12):
        Image.new("RGB", (60, 40), (number * 20, 255 - number * 20, 60)).save(folder / f"{number}.jpg")
        (folder / f"{number}.txt").write_text("a red dog on the green grass\n")
    return folder


@pytest.fixture(scope="module")
def server() -> Any:
    with hub() as running:
        yield running


def environment(server: Hub, home: Path, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("HF_HUB_OFFLINE", "HF_TOKEN")}
    return {
        **kept, "HF_ENDPOINT": server.address, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1", **more,
    }  # fmt: skip


def finetune(model: object, photos: Path, scorer: Path, out: Path, *more: object) -> tuple[object, ...]:
    short = ("--steps", 1, "--batch-size", 4, "--max-tokens", 6, "--objective", "mle")
    return ("finetune", model, photos, "--scorer", scorer, "-o", out, *short, *more)


def code_of(card: str) -> str:
    found = re.search(r"```python\n(.*?)```", card, re.DOTALL)
    assert found is not None
    return found[1]


def run_snippet(code: str, photos: Path, folder: Path, **environ: str) -> str:
    Image.open(photos / "3.jpg").save(folder / "photo.jpg")
    env = {**os.environ, **environ}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, env=env, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.long
def test_to_the_hub_and_back(server: Hub, photos: Path, tiny_scorer: Path, tmp_path: Path, cli: Cli) -> None:
    """A BLIP with a prompt: pushed, downloaded by name, and its card's snippet captions a picture."""
    (tmp_path / "blip").mkdir()
    model = f"{save_blip(tmp_path / 'blip', WORDS)}?prompt=a picture of"
    short = ("-o", tmp_path / "c.jsonl", "--max-tokens", 6)
    done, written = run_commands(
        finetune(model, photos, tiny_scorer, tmp_path / "out", "--push-to-hub", "apart"),
        ("caption", "me/apart", photos, *short),
        environment=environment(server, tmp_path / "home"),
        each=[{"HF_TOKEN": TOKEN}, {}],
    )
    assert done.status == 0, done.err
    assert f"pushed to {server.address}/me/apart" in done.err
    files, folder = server.files["me/apart"], tmp_path / "out" / "model"
    assert files == {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert {"README.md", "model.safetensors", "tellapart.json"} <= set(files)
    assert server.cards and server.private["me/apart"] is None
    card = files["README.md"].decode()
    assert 'from_pretrained("me/apart")' in code_of(card) and 'text="a picture of"' in code_of(card)
    environ = environment(server, tmp_path / "other", HF_TOKEN=TOKEN)
    told = run_snippet(code_of(card), photos, tmp_path, **environ, HF_HUB_OFFLINE="0")
    assert "a picture of" in told
    assert written.status == 0, written.err
    local = cli("caption", folder, photos, "-o", tmp_path / "d.jsonl", "--max-tokens", 6)
    assert local.status == 0 and (tmp_path / "c.jsonl").read_text() == (tmp_path / "d.jsonl").read_text()


@pytest.mark.long
def test_what_cannot_be_pushed_is_one_line_before_training(
    server: Hub,
    photos: Path,
    tiny_scorer: Path,
    tiny_captioner: Path,
    tmp_path: Path,
    cli: Cli,
) -> None:
    command = finetune(tiny_captioner, photos, tiny_scorer, tmp_path / "out", "--push-to-hub")
    name = "--push-to-hub a b/c is not a repository name; expected USER/NAME"
    assert name in cli(*command, "a b/c").line
    none, wrong = run_commands(
        *[[*command, "me/apart"]] * 2,
        environment=environment(server, tmp_path / "home"),
        each=[{}, {"HF_TOKEN": "hf_wrong"}],
    )
    assert "requires a token with write access; run: hf auth login, or set HF_TOKEN" in none.line
    assert "cannot push to me/apart: " in wrong.line
    offline = environment(server, tmp_path / "home", HF_TOKEN=TOKEN, HF_HUB_OFFLINE="1")
    (done,) = run_commands([*command, "me/apart"], environment=offline)
    assert "HF_HUB_OFFLINE is set" in done.line
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def made(
    photos: Path, tiny_scorer: Path, tiny_captioner: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """The output folder of a fine-tuned ClipCap, whose own card names a model of the hub, and that ClipCap."""
    import shutil

    from tellapart.training.finetune import run_finetune
    from tellapart.training.finetune_recipe import plan

    folder = tmp_path_factory.mktemp("finetuned")
    shutil.copytree(tiny_captioner, folder / "base")
    (folder / "base" / "README.md").write_text("---\nbase_model: somebody/clipcap\n---\n# one\n")
    recipe = plan(
        str(folder / "base"),
        [str(photos)],
        scorer=str(tiny_scorer),
        objective="mle",
        steps=1,
        batch_size=4,
        max_tokens=6,
    )
    run_finetune(recipe, folder / "out")
    return folder / "out", folder / "base"


def test_the_card_says_what_the_hub_asks(made: tuple[Path, Path]) -> None:
    card = ModelCard.load(made[0] / "model" / "README.md")
    assert card.data.base_model == "somebody/clipcap" and card.data.library_name == "tellapart"
    assert card.data.pipeline_tag == "image-to-text" and set(card.data.tags or ()) >= {"image-captioning", "tellapart"}
    assert card.data.datasets is None  # a folder of one's own is no data set of the hub
    assert "| metric | before | after | n | candidates | chance |" in card.text and "95% intervals" in card.text
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in card.text.splitlines() if line.startswith("| ")
    ]
    assert all(len(row) == 6 for row in rows)
    recalls = [row for row in rows if row[0].startswith("recall@1.lookalike")]
    assert recalls and all(float(row[5]) == pytest.approx(100 / int(row[4]), abs=0.06) for row in recalls)


@pytest.mark.long
def test_the_snippet_of_the_card_runs(made: tuple[Path, Path], photos: Path, tmp_path: Path, cli: Cli) -> None:
    text = (made[0] / "model" / "README.md").read_text()
    told = run_snippet(code_of(text), photos, tmp_path)
    done = cli("caption", made[0], tmp_path / "photo.jpg", "-o", tmp_path / "c.jsonl", "--beams", 1, "--max-tokens", 6)
    assert done.status == 0 and f'"{told}"' in (tmp_path / "c.jsonl").read_text()
    assert f"tellapart caption {made[0].as_posix()}/model PICTURES" in text


def test_what_was_written_is_readable_by_others(made: tuple[Path, Path]) -> None:
    umask = os.umask(0)
    os.umask(umask)
    files = [file for file in made[0].rglob("*") if file.is_file()]
    assert any(file.suffix == ".safetensors" for file in files)
    assert not [file for file in files if stat.S_IMODE(file.stat().st_mode) != 0o666 & ~umask]


@pytest.mark.long
def test_the_card_of_a_captioner_of_ones_own_says_which_code_to_allow(
    photos: Path, tiny_scorer: Path, tiny_captioner: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that the card shows, typed, captions; without its option it is refused."""
    (tmp_path / "my_own.py").write_text(
        "from tellapart.captioners.clipcap import ClipCap, ClipCapModel\n"
        "from tellapart.captioners import load_captioner\n"
        "class Mine(ClipCap):\n    pass\n"
        "def make(folder=None, base=None):\n"
        "    made = load_captioner(base) if base else None\n"
        "    from transformers import AutoImageProcessor, AutoTokenizer\n"
        "    model = made.model if base else ClipCapModel.from_pretrained(folder)\n"
        "    words = made.tokenizer if base else AutoTokenizer.from_pretrained(folder)\n"
        "    pictures = made.processor if base else AutoImageProcessor.from_pretrained(folder, backend='pil')\n"
        "    return Mine(model, words, pictures, 'mine')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    out = tmp_path / "out"
    done = cli(*finetune(f"my_own:make?base={tiny_captioner}", photos, tiny_scorer, out))
    assert done.status == 0, done.err
    text = (out / "model" / "README.md").read_text()
    assert 'allow_code("my_own:make")' in code_of(text) and "library_name: tellapart" in text
    environ = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    assert run_snippet(code_of(text), photos, tmp_path, **environ)
    command = re.search(r"\ntellapart (caption .*)\n", text)
    assert command is not None and command[1].endswith(" --allow-code my_own:make")
    typed = command[1].replace("PICTURES", str(photos)).replace("captions.jsonl", str(tmp_path / "c.jsonl")).split()
    monkeypatch.setattr("tellapart.utils.allowed_code._allowed", set())
    assert "requests to run the code 'my_own:make'" in cli(*typed[:-2]).line
    assert cli(*typed, "--max-tokens", 6).status == 0


def test_what_is_on_the_hub_and_what_is_not(tiny_recipe: dict[str, Any], tiny_captioner: Path, tmp_path: Path) -> None:
    assert (
        hub_base("Salesforce/blip-image-captioning-base?prompt=a picture of") == "Salesforce/blip-image-captioning-base"
    )
    assert hub_base(str(tiny_captioner)) is None and hub_base("scenes") is None
    assert hub_base("./weights.pt?vision=x") is None and hub_base("model_base.pth") is None
    data = {
        **tiny_recipe["data"],
        "train": ["hf:nlphuji/flickr30k?split=train", f"coco:{tmp_path}", f"folder:{tmp_path}"],
    }
    assert set(hub_datasets(check_recipe({**tiny_recipe, "data": data}, "test"))) == {"nlphuji/flickr30k", "coco"}


def test_private_alone_is_refused(cli: Cli, photos: Path, tmp_path: Path) -> None:
    assert (
        "--private requires --push-to-hub USER/NAME; add it, or remove"
        in cli("finetune", "scenes", photos, "-o", tmp_path / "out", "--private").line
    )


def test_a_folder_for_an_image_generator_is_uploaded_as_documented(
    photos: Path, tiny_captioner: Path, server: Hub, tmp_path: Path, cli: Cli
) -> None:
    """By the command of the page: pictures, captions and ``metadata.jsonl``, which ``datasets`` then reads."""
    folder = tmp_path / "photos"
    shutil.copytree(photos, folder, ignore=shutil.ignore_patterns("*.txt"))
    written = cli("lora", folder, "--model", tiny_captioner, "--trigger", "ohwx")
    assert written.status == 0, written.err
    page = (Path(__file__).parents[2] / "docs" / "howto" / "image-generator-data.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^\$ (hf upload .*)$", page, re.MULTILINE)
    words = shlex.split(command.replace("USER/NAME", "me/ohwx"))
    words[0] = str(Path(sys.executable).with_name("hf"))
    given = environment(server, tmp_path / "home", HF_TOKEN=TOKEN)
    done = subprocess.run(words, capture_output=True, text=True, env=given, cwd=tmp_path, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    there = server.files["me/ohwx"]
    assert server.private["me/ohwx"] and there["0.jpg"] == (folder / "0.jpg").read_bytes()
    rows = list(map(json.loads, there["metadata.jsonl"].decode().splitlines()))
    assert len(rows) == 12 and all(row["text"].startswith("ohwx") and row["file_name"] in there for row in rows)


def test_a_value_without_an_interval_stands_alone_in_the_card() -> None:
    """Of two pictures, both hits, no interval is known."""
    assert figure({"value": 100.0, "low": None, "high": None}) == "100.00"
    assert figure({"value": 68.0, "low": 63.9, "high": 72.1}) == "68.00 (63.90 to 72.10)"
    assert figure({"value": None, "low": None, "high": None}) == ""

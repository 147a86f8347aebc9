"""Prompts with fields: sidecars, columns of the data, a table; a captioner of this machine and one behind a server."""

import json
from pathlib import Path

import pytest
from captioners import families
from command_line import Cli
from fault_server import FaultServer
from PIL import Image

from tellapart.captioners import load_captioner
from tellapart.data import open_data
from tellapart.errors import UsageError
from tellapart.inference.prompts import Prompts
from tellapart.models.decoding import Decoding

TEMPLATE = "Tags: {tags|none}. Folder: {folder}. {text}"
PROMPTS = {
    "beach/0.png": "Tags: sea, sand. Folder: beach. a boat",
    "beach/1.png": "Tags: 2019. Folder: beach. two red\nboats",
    "beach/2.png": "Tags: none. Folder: beach. a boat",
    "town/3.png": "Tags: none. Folder: town. a boat",
    "town/4.png": "Tags: none. Folder: town. a boat",
}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    for place, name in enumerate(PROMPTS):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((56 + 28 * (place % 2), 56), 40 * place).convert("RGB").save(file)
        file.with_suffix(".txt").write_text("two red\nboats\n" if place == 1 else "a boat\n")
    (folder / "beach" / "0.json").write_text(json.dumps({"tags": ["sea", "sand"], "nested": {"a": 1}, "rating": None}))
    (folder / "beach" / "1.png.json").write_text(json.dumps({"tags": 2019, "taken": "in May"}))  # gallery-dl's
    return folder


def captions(path: Path) -> dict[str, str]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row["id"]: row["caption"] for row in rows}


@pytest.mark.long
@pytest.mark.parametrize("family", ["qwen2_vl", "instructblip", "git"])
def test_each_picture_has_its_own_prompt(cli: Cli, photos: Path, tmp_path: Path, family: str) -> None:
    model = getattr(families, family)(tmp_path / family)
    out = tmp_path / "captions.jsonl"
    typed = ("caption", model, photos, "-o", out, "--prompt", TEMPLATE, "--beams", 1, "--max-tokens", 8)
    done = cli(*typed, "--batch-size", 2)
    assert done.status == 0, done.err
    captioner = load_captioner(str(model), "cpu")
    alone = {
        name: captioner.with_prompt(prompt).caption([photos / name], Decoding(max_tokens=8))[0]
        for name, prompt in PROMPTS.items()
    }
    assert captions(out) == alone and len(set(alone.values())) > 1
    assert "0 captions written, 5 already done" in cli(*typed).err
    done = cli(*typed[:-5], "{folder}", *typed[-4:])
    assert done.status == 2 and "was started with a different prompt" in done.err


@pytest.mark.long
def test_workers_ask_of_each_picture_what_one_process_asks(cli: Cli, photos: Path, tmp_path: Path) -> None:
    """Sidecars of one shard have fields that those of another lack, and a table has rows by file name."""
    model, table = families.git(tmp_path / "git"), tmp_path / "more.csv"
    table.write_text("image,place\n" + "".join(f"{Path(name).name},of {name[-5]}\n" for name in PROMPTS))
    template = "{tags|none} {place} {text}"
    typed = ("caption", model, photos, "--prompt", template, "--fields", table, "--beams", 1, "--max-tokens", 8)
    typed += ("--precision", "fp32")  # in bf16 a batch of two rounds otherwise than a batch of five on some CPUs
    plain, shared = tmp_path / "plain.jsonl", tmp_path / "shared.jsonl"
    assert cli(*typed, "-o", plain).status == 0
    done = cli(*typed, "-o", shared, "--workers", 2, "--shard-items", 2)
    assert done.status == 0, done.err
    assert shared.read_bytes() == plain.read_bytes() and len(set(captions(plain).values())) > 1
    told = [json.loads(line) for line in (tmp_path / "shared.jsonl.job" / "prompts.jsonl").read_text().splitlines()]
    assert dict(told)["beach/0.png"] == "sea, sand of 0 a boat"
    assert "0 captions written, 5 already done" in cli(*typed, "-o", shared).err

    (photos / "town" / "3.json").write_text(json.dumps({"tags": "night"}))
    other = cli(*typed, "-o", shared, "--workers", 1)
    assert other.status == 2 and "is a job with a different prompts; pass --overwrite" in other.err
    named = cli("caption", f"{model}?prompt={template}", photos, "-o", tmp_path / "named.jsonl", "--workers", 1)
    assert named.status != 0 and "the prompt contains fields, which are not supported with" in named.err
    far = cli("caption", model, "s3://shop/a.tar", "--prompt", "{text}", "-o", tmp_path / "far.jsonl", "--workers", 1)
    assert far.status == 2 and "read from local files" in far.err


def test_a_server_is_asked_of_each_picture_what_is_known_of_it(cli: Cli, photos: Path, tmp_path: Path) -> None:
    with FaultServer() as server:
        server.keep_bodies, server.refuses = True, 2**48  # a refusal is asked again
        name = f"openai:org/vlm@{server.url}"
        done = cli("caption", name, photos, "-o", tmp_path / "a.jsonl", "--prompt", TEMPLATE)
        assert done.status == 0, done.err
        asked = sorted(body["messages"][0]["content"][1]["text"] for body in server.bodies)
        assert asked == sorted(PROMPTS.values())
        done = cli("caption", f"{name}?prompt={{tagz}}", photos, "-o", tmp_path / "b.jsonl")
        assert done.status == 2 and "no picture has the field 'tagz'; did you mean 'tags'?" in done.err


def test_columns_of_the_data_and_of_a_table(photos: Path, tmp_path: Path) -> None:
    rows = [{"image": name, "captions": ["x"], "place": f"of {name[-5]}", "score": 0.5} for name in PROMPTS]
    data = photos / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = Prompts.read("{place}, {score}, {text}, {{place}}", open_data(str(data)))
    assert made is not None and made.by_id["town/3.png"] == "of 3, 0.5, x, {place}"
    (photos / "data.csv").write_text("image;caption;name\n" + "".join(f"{name};x;N{name[-5]}\n" for name in PROMPTS))
    made = Prompts.read("{name}", open_data(str(photos / "data.csv")))
    assert made is not None and list(made.by_id.values()) == ["N0", "N1", "N2", "N3", "N4"], "not the file's name"
    table = tmp_path / "more.json"  # as kohya's scripts write it
    table.write_text(json.dumps({name: {"tags": f"tag {name[-5]}"} for name in PROMPTS}))
    made = Prompts.read("{tags}/{text}", open_data(str(photos / "beach")), table)
    assert made is not None and list(made.by_id.values()) == ["tag 0/a boat", "tag 1/two red\nboats", "tag 2/a boat"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--prompt", "{tag}"),
            "no picture has the field 'tag'; did you mean 'tags'? Known fields: folder, id, name, tag",
        ),
        (("--prompt", "{zzz}"), "no picture has the field 'zzz'; known: folder, id, name, tags, taken, text"),
        (("--prompt", "a {tags}"), "3 of 5 pictures lack the field 'tags' ('beach/2.png', 'town/3.png', 'town/4.png')"),
        (("--prompt", "{tags|}"), "--prompt: the prompt is empty for 3 pictures"),
        (("--prompt", "plain", "--fields", "x.csv"), "--fields requires a --prompt with fields"),
        (("--prompt", "{a}", "--fields", "none.csv"), "none.csv: no such file"),
        (("--prompt", "{tags}", "--workers", "2"), "--prompt: 3 of 5 pictures lack the field 'tags'"),
        (
            ("--prompt", "{text}", "--drop-guesses"),
            "--drop-guesses requires a --prompt without fields",
        ),
    ],
)
def test_what_no_prompt_can_be_made_of_is_one_line(
    cli: Cli, photos: Path, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    model = families.git(tmp_path / "git") if "--drop-guesses" in options else "scenes"
    done = cli("caption", model, photos, "-o", tmp_path / "a.jsonl", *options)
    assert done.status == 2 and message in done.err and len(done.err.strip().splitlines()) == 1, done.err


def test_a_table_of_other_pictures_and_a_broken_sidecar_are_named(photos: Path, tmp_path: Path) -> None:
    table = tmp_path / "other.csv"
    table.write_text("id,tags\nq,w\nr,w\n")
    with pytest.raises(UsageError, match=r"other\.csv: no record matches a picture in"):
        Prompts.read("{tags}", open_data(str(photos)), table)
    (photos / "beach" / "0.json").write_text("[1]")
    with pytest.raises(UsageError, match=r"0\.json: expected an object of fields, got a list"):
        Prompts.read("{tags}", open_data(str(photos)))

"""What several captions of one picture agree on."""

import json
from pathlib import Path

from command_line import Cli

from tellapart.captions.store import CaptionStore
from tellapart.purposes.variation import variations
from tellapart.review.start import open_session
from tellapart.scenes import Scenes


def test_what_all_say_what_most_say_and_what_one_says() -> None:
    samples = [
        "A brown dog runs on the grass.",
        "a brown dog with a ball on the grass",
        "A brown dog runs on the grass with a ball.",
        "a brown dog chases a yellow frisbee",
    ]
    found = variations({"a": samples, "b": samples[:2]})
    assert found == {"a": {"samples": 4, "all": ["brown dog"], "most": ["grass"], "some": ["runs", "ball"],
                           "one": ["chases a yellow frisbee"]}}  # fmt: skip


def test_function_words_of_other_languages_are_those_that_most_pictures_have() -> None:
    captions = {
        str(n): [f"ein {what} auf der Wiese", f"der {what} auf einer Wiese", f"ein {what} und ein Baum"]
        for n, what in enumerate(("Hund", "Ball", "Zaun", "Stein", "Korb", "Tisch"))
    }
    found = variations(
        {**captions, "0": ["ein Hund auf der Bank", "der Hund auf einer Bank", "ein Hund, ein Baum"]}, "de"
    )
    assert found["0"]["all"] == ["Hund"] and found["0"]["most"] == ["Bank"]


def test_variation_is_in_the_list_and_on_the_page(cli: Cli, tmp_path: Path) -> None:
    folder, out = tmp_path / "photos", tmp_path / "alt.jsonl"
    folder.mkdir()
    for number, scene in enumerate(Scenes(3, split="test", seed=3)):
        scene.image().save(folder / f"{number}.jpg")
        (folder / f"{number}.json").write_text(json.dumps({"purpose": "a link to the shop"}))
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"id": f"{n}.jpg", "captions": ["a red dog", "a red cat", "a red dog"]}) + "\n"
                for n in range(3))
    )  # fmt: skip
    typed = ("alt-text", folder, "--captions", tmp_path / "a.jsonl", "-o", out)
    for _ in range(2):
        assert cli(*typed).status == 0
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        expected = {"samples": 3, "all": ["red"], "most": ["dog"], "one": ["cat"]}
        assert [row["variation"] for row in rows] == [expected] * 3
    assert len(CaptionStore.open(folder, out).changes()) == 1, "the second run changed nothing"
    session = open_session(str(folder), out)
    row = session.state()["rows"][1]
    assert row["variation"] == expected and row["candidates"] == ["a red cat"]
    session.write({1: {"text": "by hand", "version": row["version"]}}, "edit")
    assert cli(*typed).status == 0
    assert CaptionStore.open(folder, out).caption("1.jpg").text == "by hand"
    assert "--fields requires --model" in cli(*typed, "--fields", tmp_path / "a.jsonl").err

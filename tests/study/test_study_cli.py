"""The commands as a stranger types them; a rehearsal of each kind finds what was planted and excludes the random."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Cli
from PIL import Image
from sample_study import edit_settings, make_material, make_study, number_tokens

from tellapart.errors import UsageError
from tellapart.study.analysis import analyse
from tellapart.study.create import PRACTICE_ITEMS
from tellapart.study.design import CONTROL, ITEM, open_study
from tellapart.study.export import export
from tellapart.study.rehearsal import RANDOM, rehearse
from tellapart.study.report import headline, page, to_json
from tellapart.study.session import StudySession
from tellapart.study.store import AnswerStore


@pytest.mark.long
@pytest.mark.parametrize(("kind", "metric"), [("pick", "accuracy"), ("rate", "descriptiveness"), ("compare", "more")])
def test_a_rehearsal_finds_the_planted_difference_and_excludes_the_random(
    tmp_path: Path, kind: str, metric: str
) -> None:
    size = {"items": 16, "block": 16, "raters": 18} if kind == "compare" else {"items": 8, "block": 8, "raters": 8}
    study = make_study(tmp_path / "s", kind, make_material(90), controls=5, candidates=5, **size)
    done = rehearse(study, 24, 0.1, 0.15, effects={"human": 0.35, "mle_base": 0.2, "smile": 0.8}, at_once=6, seed=3)
    assert done.counts == {"careful": 18, "hasty": 2, "random": 4}
    with AnswerStore.open(study, done.store) as store:
        results = analyse(study, store)
        names = store.identities()
        random = {f"P{number}" for number, name in names.items() if done.characters[name] == RANDOM}
        excluded = {one.name for one in results.people if one.excluded}
        # Who answers what depends on who comes first, and someone who guesses may pass the control items by luck.
        assert random and len(random - excluded) <= 1, "whoever answers at random is excluded"
        careful = {f"P{number}" for number, name in names.items() if done.characters[name] == "careful"}
        assert len(excluded & careful) <= 1
        pair = next(p for p in results.pairs if p.metric == metric and (p.a, p.b) == ("mle_base", "smile"))
        assert pair.difference.low > 0 and pair.difference.p < 0.05
        planted = {"pick": (20, 80), "rate": (1.8, 4.2), "compare": (20, 80)}[kind]
        slack = 0.8 if kind == "rate" else 20
        for system, expected in zip(("mle_base", "smile"), planted, strict=True):
            assert results.systems[system][metric].value == pytest.approx(expected, abs=slack)

        value = to_json(results)
        assert set(value["systems"]["smile"][metric]) == {"value", "low", "high", "n"}
        assert json.loads(json.dumps(value, allow_nan=False))["study"]["excluded"].keys() == excluded
        assert study.stamp[:16] in value["signatures"][metric]
        html = page(results, "tellapart study report")
        assert all(f"excluded: {name}: " in html for name in excluded) and study.stamp in html
        assert "SIMULATED" not in html and "SIMULATED" not in json.dumps(value), "no identifier in a report"

        exported = export(study, store, tmp_path / "out")
        assert exported["answers"] == sum(one.items for one in results.people)
        assert {path.name for path in (tmp_path / "out").iterdir()} == {"answers.csv", "answers.json"}
        text = "".join(path.read_text() for path in (tmp_path / "out").iterdir())
        assert "SIMULATED" not in text and not any(code in text for code in codes(study)) and "20" in text
        rows = list(csv.DictReader((tmp_path / "out" / "answers.csv").open()))
        counted = [row for row in rows if row["role"] == "item" and row["counted"] == "1" and row["system"] == "smile"]
        if kind == "pick":
            assert 100 * sum(row["correct"] == "1" for row in counted) / len(counted) == pytest.approx(
                results.systems["smile"]["accuracy"].value
            )
        export(study, store, tmp_path / "paid", with_ids=True)
        people = list(csv.DictReader((tmp_path / "paid" / "identifiers.csv").open()))
        assert {row["participant"]: row["identifier"] for row in people} == {f"P{n}": name for n, name in names.items()}


def test_an_export_for_paying_knows_everybody_before_anybody_counts(tmp_path: Path) -> None:
    study = make_study(tmp_path / "s")
    with AnswerStore.open(study, tmp_path / "a.sqlite") as store:
        session = StudySession(study, store)
        session.begin("1" * 48, "one")
        session.begin("2" * 48, "two")
        session.withdraw("2" * 48)
        export(study, store, tmp_path / "paid", with_ids=True)
        people = list(csv.DictReader((tmp_path / "paid" / "identifiers.csv").open()))
        assert [(row["identifier"], row["status"]) for row in people] == [("one", "active"), ("two", "withdrawn")]
        assert [one["name"] for one in json.loads((tmp_path / "paid" / "answers.json").read_text())["participants"]]


def test_a_report_of_few_answers_has_neither_intervals_nor_bars_that_it_cannot_know(tmp_path: Path) -> None:
    """One participant of a comparison, and two best systems that have not met."""
    study = make_study(tmp_path / "s", "compare", raters=1, human="first")
    done = rehearse(study, 1, 0, 0)
    with AnswerStore.open(study, done.store) as store:
        results = analyse(study, store)
    assert all(math.isnan(own["more"].low) for own in results.systems.values())
    assert "[–, –]" in page(results, "") and "[0.0, 100.0]" not in page(results, "")
    assert "<circle" not in page(results, "")
    assert "may be chance" in headline(replace(results, pairs=[]))


def test_a_report_into_a_folder_or_without_the_extra_is_one_line(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = make_study(tmp_path / "s")
    done = rehearse(study, 2, 0, 0)
    monkeypatch.chdir(tmp_path)
    assert "is a folder" in cli("study", "report", study.folder, "--store", done.store, "-o", ".").line
    monkeypatch.setitem(sys.modules, "krippendorff", None)
    assert "run: pip install 'tellapart[study]'" in cli("study", "report", study.folder, "--store", done.store).line


@pytest.mark.parametrize("name", ["study.toml", "items.json"])
def test_a_report_takes_the_place_of_no_file_of_the_study(cli: Cli, tmp_path: Path, name: str) -> None:
    study = make_study(tmp_path / "s")
    done = rehearse(study, 2, 0, 0)
    before = (study.folder / name).read_bytes()
    told = cli("study", "report", study.folder, "--store", done.store, "-o", study.folder / name, "--overwrite")
    assert told.status == 2 and name in told.err and (study.folder / name).read_bytes() == before


def test_a_rehearsal_passes_the_platforms_pattern_and_says_what_a_rule_on_time_needs(tmp_path: Path) -> None:
    study = edit_settings(make_study(tmp_path / "s"), id_pattern="[0-9a-f]{24}", require_id=True)
    assert rehearse(study, 2, 0, 0).ends == {"complete": 2}
    slow = edit_settings(study, min_median_seconds=2.0)
    with pytest.raises(UsageError, match="add --think SECONDS"):
        rehearse(slow, 2, 0, 0)


def test_a_study_in_a_folder_whose_name_is_not_utf8(tmp_path: Path) -> None:
    """sys.argv has such a name with a surrogate, which no text file can hold."""
    photos, captions = tmp_path / "photos", tmp_path / "a.jsonl"
    photos.mkdir()
    for number in range(12):
        Image.effect_noise((90, 60), 20 + 15 * number).convert("RGB").save(photos / f"{number}.jpg")
    captions.write_text("".join(f'{{"id": "{number}", "caption": "a noise {number}"}}\n' for number in range(12)))
    done = subprocess.run(
        [sys.executable, "-m", "tellapart", "study", "create", "rate", photos, "--captions", captions,
         "--references", captions, "--block", "4", "--controls", "2", "-o", os.fsencode(tmp_path) + b"/st\xffudy"],
        capture_output=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (folder,) = (path for path in tmp_path.iterdir() if path.name.startswith("st"))
    assert "st\\udcffudy" in json.loads((folder / "items.json").read_text())["command"]


def codes(study: object) -> list[str]:
    own = study.settings.recruitment  # type: ignore[attr-defined]
    return [own.completed, own.screened_out, own.no_consent]


@pytest.mark.long
@pytest.mark.parametrize(("kind", "metric"), [("pick", "accuracy"), ("rate", "f1"), ("compare", "more")])
def test_one_command_rehearses_a_study_of_each_kind(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, metric: str
) -> None:
    monkeypatch.chdir(tmp_path)
    number_tokens(monkeypatch)
    done = cli("study", "simulate", kind, "--at-once", 1, "--json")
    assert done.status == 0, done.err
    value = json.loads(done.out)
    pair = next(p for p in value["pairs"] if p["metric"] == metric and (p["a"], p["b"]) == ("vague", "detailed"))
    assert pair["low"] > 0
    assert (tmp_path / f"rehearsal-{kind}" / "simulated" / "report.html").is_file()


@pytest.mark.long
def test_from_pictures_to_the_table(
    cli: Cli, tmp_path: Path, tiny_scorer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    photos = tmp_path / "photos"
    photos.mkdir()
    material = make_material(40)
    for number, item in enumerate(material.items):
        item.picture.image().save(photos / f"{number:02}.jpg")
        (photos / f"{number:02}.txt").write_text("\n".join(item.references))
    for name, own in material.captions.items():
        lines = [json.dumps({"image": f"{n:02}.jpg", "caption": own[i.id]}) for n, i in enumerate(material.items)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    captions = ["--captions", "mle_base.jsonl", "--captions", "smile.jsonl"]
    small = ["--candidates", 4, "--controls", 2, "--max-cosine", 1]
    create = ["study", "create", "pick", "photos", "--scorer", tiny_scorer, *captions, *small, "-o", "s"]
    done = cli(*create)
    assert done.status == 0 and "and fill in title, consent.researcher" in done.out, done.err
    assert "already contains a study" in cli(*create).line
    refused = cli("study", "serve", "s", "--port", "0").line
    assert "title, consent.researcher, consent.institution, consent.contact" in refused and "--preview" in refused
    assert "contains no answers yet; run: tellapart study serve, or" in cli("study", "report", "s").line
    done = cli("study", "simulate", "s", "--participants", "4", "--random", "0", "--hasty", "0", "--json")
    assert done.status == 0 and json.loads(done.out)["simulated"]["ends"] == {"complete": 3, "full": 1}
    done = cli("study", "report", "s", "--store", "s/simulated/answers.sqlite")
    assert done.status == 0 and re.search(r"human +\d+\.\d \[", done.out) and (tmp_path / "s" / "report.html").is_file()
    done = cli("study", "forget", "s", "--id", "SIMULATED0.0", "--store", "s/simulated/answers.sqlite")
    assert done.status == 0 or "no participant" in done.err
    assert "nothing to delete; pass --id IDENTIFIER, or --all-ids to" in cli("study", "forget", "s").line
    assert cli("study", "forget", "s", "--all-ids", "--store", "s/simulated/answers.sqlite").status == 0
    assert open_study(tmp_path / "s").quota == 3


@pytest.mark.parametrize("kind", ["compare", "rate", "pick"])
def test_a_small_study_says_that_pictures_are_reserved(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make_study(tmp_path / "s", kind=kind, material=make_material(30), items=40)
    units = {made.trials[number].unit for number in made.of_role[ITEM]}
    what = "sets" if kind == "pick" else "pictures"
    said = capsys.readouterr().err
    count = (len(made.of_role[CONTROL]) + PRACTICE_ITEMS + 1) * (made.candidates)
    assert f"the study has {len(units)} {what}, but 40 were planned: of 30 pictures, {count} are reserved" in said
    assert "are reserved for control items, practice and the example; add" in said


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("report", "nothing"), "see: tellapart study create --help"),
        (("simulate", "nothing"), "see: tellapart study create --help"),
        (("plan", "guess", "--difference", "0.1"), "unknown kind of study 'guess'; expected"),
        (("plan", "pick", "--difference", "0.7"), "expected both systems between 0 and 1"),
        (("plan", "pick", "--difference", "0.1", "--budget", "100"), "--budget requires"),
        (
            ("plan", "compare", "--difference", "0.1", "--base", "0.6"),
            "--base cannot be combined with compare, where equal systems",
        ),
        (("plan", "pick", "--difference", "0.1", "--seed", "-1"), "-1 is not in the range"),
        (("simulate", "s", "--think", "nan"), "--think nan: expected a finite number"),
        (
            ("plan", "pick", "--difference", "0.1", "--items", "ten"),
            "--items ten: expected integers separated by commas, such as",
        ),
        (("serve", "nothing", "--public-url", "https://x.org/path"), "expected a URL without a path, such as"),
        (("create", "rate", "nowhere"), "nowhere"),
        (("serve", "s", "--preview", "--store", "x"), "--preview saves nothing, so it cannot be combined with"),
        (
            ("simulate", "s", "--random", "0.9", "--hasty", "0.2"),
            "--hasty and --random must leave a fraction of careful",
        ),
        (("report", "s", "--store", "text"), "not a file of answers"),
    ],
)
def test_wrong_commands_are_one_line(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make_study(tmp_path / "s")
    (tmp_path / "text").write_text("no database" * 200)
    before = sorted(tmp_path.rglob("*"))
    assert told in cli("study", *words).line
    assert sorted(tmp_path.rglob("*")) == before

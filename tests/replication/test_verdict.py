"""Seeds that are kept, and the verdict that is given once, with its stamp and its history."""

from __future__ import annotations

import json
import math
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from replication import all_claims, stamp
from replication import verdict as module
from replication.claim import Arm, Claim, Control, Measurement, Part, about_equal, greater, outcome
from replication.lab import Lab
from replication.replay import replay
from replication.seeds import VERDICTS, parse_seeds
from replication.stamp import give_verdict, read_verdicts, stamp_line
from replication.verdict import (
    RECORDS,
    VERDICT_FILE,
    claims_verdict,
    history,
    keep_power,
    outcomes,
    power_of_claims,
    settings_digest,
    to_json,
)
from tellapart.errors import TellapartError, UsageError
from tellapart.models.decoding import Decoding


def test_seeds_have_names_or_are_typed() -> None:
    assert parse_seeds("dev", "claims").numbers == (0, 1, 2, 3, 4, 5)
    assert parse_seeds("verdict", "claims").numbers == (20, 21, 22, 23, 24)
    assert parse_seeds("verdict", "tradeoff").numbers == (30, 31, 32, 33, 34)
    assert parse_seeds("verdict", "front").numbers == (50, 51, 52, 53, 54)
    typed = parse_seeds("101,100,101", "claims")
    assert (typed.kind, typed.numbers, typed.option, typed.label) == ("seeds", (101, 100), "101,100", "seeds-101-100")
    assert parse_seeds(typed.option, "claims") == typed


@pytest.mark.parametrize(
    ("seeds", "command", "line"),
    [
        ("0,20", "claims", "seed 20 is reserved for the verdict of python -m replication claims"),
        ("24,1", "tradeoff", "seed 24 is reserved for the verdict of python -m replication claims"),
        ("31", "claims", "seed 31 is reserved for the verdict of python -m replication tradeoff"),
        ("verdict", "tables", "expected quick, dev, or numbers"),
        ("verdcit", "claims", "did you mean 'verdict'"),
        ("dew", "tradeoff", "did you mean 'dev'"),
        ("1,,2", "claims", "expected quick, dev, verdict, or numbers"),
        ("-1", "claims", "expected numbers from 0"),
    ],
)
def test_wrong_seeds_are_one_line(seeds: str, command: str, line: str) -> None:
    with pytest.raises(UsageError, match=line):
        parse_seeds(seeds, command)


def test_a_verdict_is_kept_and_not_given_again(tmp_path: Path) -> None:
    path, given = tmp_path / "records" / "verdicts.json", []

    def run() -> dict[str, Any]:
        given.append(1)
        return {"claims": [{"id": "a", "holds": True}, {"id": "b", "holds": False}], "held": 1}

    first = give_verdict(path, "aaaa", run)
    assert give_verdict(path, "aaaa", lambda: pytest.fail("given twice")) == first and len(given) == 1
    assert first["stamp"]["number"] == 1 and first["stamp"]["settings"] == "aaaa" and first["stamp"]["date"]
    second = give_verdict(path, "bbbb", run)
    assert second["stamp"]["number"] == 2 and read_verdicts(path) == [first, second]
    lines = history(read_verdicts(path))
    assert lines[0].startswith("verdict 1, ") and lines[0].endswith("settings aaaa: 1 of 2 held")
    assert lines[1].endswith("settings bbbb, after a change: 1 of 2 held")


def test_a_verdict_that_was_stopped_stays_on_record_and_is_finished_by_the_same_settings(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.json"

    def stop() -> dict[str, Any]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        give_verdict(path, "aaaa", stop)
    (begun,) = read_verdicts(path)
    assert begun["stamp"]["number"] == 1 and not begun["stamp"]["date"] and "not finished" in stamp_line(begun["stamp"])
    changed = give_verdict(path, "bbbb", lambda: {"held": 0, "claims": []})
    assert changed["stamp"]["number"] == 2, "the one that was only begun counts"
    finished = give_verdict(path, "aaaa", lambda: {"held": 0, "claims": []})
    assert finished["stamp"]["number"] == 1 and finished["stamp"]["begun"] == begun["stamp"]["begun"]
    path.write_text("[1]")
    with pytest.raises(TellapartError, match="not a list of verdicts"):
        read_verdicts(path)


def test_a_verdict_that_another_process_began_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.json"

    def run() -> dict[str, Any]:
        give_verdict(path, "bbbb", lambda: {"held": 2, "claims": []})
        return {"held": 1, "claims": []}

    give_verdict(path, "aaaa", run)
    found = read_verdicts(path)
    assert [(one["stamp"]["number"], one["held"]) for one in found] == [(1, 1), (2, 2)]
    assert all(one["stamp"]["date"] for one in found) and [file.name for file in tmp_path.iterdir()] == [path.name]


A, B = Measurement("a", "length"), Measurement("b", "length")


@pytest.mark.parametrize(
    ("part", "value", "expected"),
    [
        (greater("more", A, B, paper=(3.0, 1.0)), 0.5, "holds"),
        (greater("more", A, B, paper=(1.0, 3.0)), 0.5, "fails"),  # smile-mix: the paper has less
        (greater("more", A, B), 0.5, "holds"),  # the paper gives no figures
        (greater("no more than 1 below", A, B, tolerance=1.0, paper=(50.8, 45.9)), -0.03, "not worse"),  # sle-video
        (greater("no more than 1 below", A, B, tolerance=1.0, paper=(50.8, 45.9)), 0.03, "holds"),
        (Part("gained, below 2", (A, B), -math.inf, 2.0, paper=(-2.0, 0.8)), 0.01, "not worse"),
        (about_equal("within 1", A, B, 1.0, paper=(2.0, 2.1)), 0.3, "holds"),
    ],
)
def test_a_claim_holds_only_with_the_sign_of_the_papers_figures(part: Part, value: float, expected: str) -> None:
    claim = Claim("a", 1, "Table 1", "a", "", (part,), Control("more MLE", {"a": "b"}))
    assert outcome(claim, [(True, value)], [False]) == expected
    assert outcome(claim, [(False, value)], [False]) == outcome(claim, [(True, value)], [True]) == "fails"
    assert outcome(claim, [(True, value)], []) == "fails", "without a control nothing is shown"


def test_the_kept_verdict_is_counted_with_the_papers_signs() -> None:
    (given,) = read_verdicts(RECORDS / VERDICT_FILE)
    found = outcomes(given, all_claims())
    assert given["held"] == 20 and Counter(found.values()) == {"holds": 16, "fails": 9, "not worse": 3}
    assert found["smile-mix"] == "fails" and found["sle-video"] == found["sr-cider"] == "not worse"


def test_every_figure_of_a_paper_is_on_the_side_of_its_part() -> None:
    """A part that asks for another sign than the paper's could never count."""
    wrong = [
        (claim.id, part.statement)
        for claim in all_claims()
        for part in claim.parts
        if part.paper_value is not None and not part.lower < part.paper_value < part.upper
    ]
    assert wrong == [
        ("smile-mix", "R@1, λ 0.1 over 0"),
        ("sr-transfer", "R@1 among frames gained, plain start, 2 at least"),
        ("sr-transfer", "R@1 among frames gained, blended start, 2 at least"),
    ]


TEST_SETS = {"plain": "scenes:plain?n=30&split=test"}
DECODINGS = {"greedy": Decoding(kind="greedy", max_tokens=6)}


@pytest.fixture
def tiny_lab(tiny_recipe: dict[str, Any], tiny_scorer: Path, tmp_path: Path) -> Callable[..., Lab]:
    data = {key: spec for key, spec in tiny_recipe["data"].items() if key != "test"}

    def make(rate: float = 1e-2) -> Lab:
        training = {"steps": 2, "batch_size": 20, "learning_rate": rate}
        base = {"data": data, "scorer": tiny_recipe["scorer"], "training": training,
                "validation": {"every": 2, "decoding": {"max_tokens": 6}}}  # fmt: skip
        arms = (
            Arm("start", model=tiny_recipe["captioner"]["name"]),
            Arm("sr", {**base, "objective": tiny_recipe["objective"]}, "start"),
            Arm("mle_more", {**base, "objective": {"kind": "mle"}}, "start"),
        )
        return Lab(tmp_path / "runs", {arm.name: arm for arm in arms}, TEST_SETS, DECODINGS, str(tiny_scorer))

    return make


def claim(says: str = "longer", bound: float = 0.0) -> Claim:
    length = Measurement("sr", "length"), Measurement("start", "length")
    parts = greater(says, *length, margin=bound, effect=1.0), about_equal("as long", *length, 100.0)
    return Claim("tiny", 3, "nowhere", "says", "1 → 2", parts, Control("SR replaced", {"sr": "mle_more"}))


def test_the_fingerprint_is_of_what_decides_and_not_of_words(tiny_lab: Callable[..., Lab]) -> None:
    first = settings_digest([claim()], tiny_lab())
    assert settings_digest([claim("more words")], tiny_lab()) == first
    others = {settings_digest([claim(bound=0.5)], tiny_lab()), settings_digest([claim()], tiny_lab(rate=1e-3)),
              settings_digest([claim(), claim()], tiny_lab())}  # fmt: skip
    assert len(others) == 3 and first not in others


@pytest.mark.long
def test_the_claims_verdict_needs_the_power_and_a_commit_and_comes_once(
    tiny_lab: Callable[..., Lab], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real arms of two steps, on seeds that no verdict of the project has."""
    lab, records, claims = tiny_lab(), tmp_path / "records", [claim()]
    monkeypatch.setattr(module, "commit", lambda: "1a2b3c4")
    with pytest.raises(UsageError, match=r"does not contain the power of these settings .*replication claims --power"):
        claims_verdict(claims, lab, lambda: pytest.fail("without power"), records)
    keep_power({"settings": settings_digest(claims, lab), "power": []}, records)
    monkeypatch.setattr("replication.stamp.commit", lambda: "")
    with pytest.raises(UsageError, match=r"this is not a clone of it.*--seeds 100"):
        claims_verdict(claims, lab, lambda: pytest.fail("without commit"), records)
    monkeypatch.setattr("replication.stamp.commit", lambda: "1a2b3c4")
    found = claims_verdict(claims, lab, lambda: to_json(replay(claims, lab, (0, 1))), records)
    assert [one["id"] for one in found["claims"]] == ["tiny"] and found["stamp"]["number"] == 1
    assert {"p", "p_holm", "low_holm", "test"} <= set(found["claims"][0]["parts"][0])
    assert found["claims"][0]["parts"][1]["test"] == "tost"
    again = claims_verdict(claims, lab, lambda: pytest.fail("given twice"), records)
    assert again == json.loads(json.dumps(found))
    keep_power({"settings": settings_digest(claims, lab), "power": [{"id": "tiny", "power": 0.9}]}, records)
    changed = tiny_lab(rate=1e-3)
    assert power_of_claims(claims, lab, records) == {"tiny": 0.9} and not power_of_claims(claims, changed, records)
    with pytest.raises(UsageError, match="the power of these settings"):
        claims_verdict(claims, changed, lambda: pytest.fail("another power"), records)


def test_no_two_verdicts_share_a_seed_and_none_is_a_development_or_a_strangers_one() -> None:
    every = [seed for seeds in VERDICTS.values() for seed in seeds]
    assert len(set(every)) == len(every) and all(10 <= seed < 100 for seed in every)


def test_seeds_of_the_verdict_on_photos_are_not_typed_by_hand() -> None:
    with pytest.raises(UsageError, match="seed 41 is reserved for the verdict of python -m replication photos"):
        parse_seeds("0,41", "photos")


def test_a_stamp_is_dirty_where_code_was_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by the record that is written and its lock, nor by a page that is."""
    for name in ("src/a.py", "replication/b.py", "docs/page.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1\n")
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for typed in (("init", "-q"), ("add", "-A"), (*who, "commit", "-q", "-m", "first")):
        subprocess.run(["git", *typed], cwd=tmp_path, check=True)
    monkeypatch.setattr(stamp, "PACKAGE", tmp_path)
    clean = stamp.commit()
    (tmp_path / "docs" / "page.md").write_text("2\n")
    found = give_verdict(tmp_path / "replication" / "records" / "photos" / "verdicts.json", "aaaa", lambda: {"held": 1})
    assert len(clean) >= 7 and found["stamp"]["commit"] == clean
    (tmp_path / "replication" / "b.py").write_text("2\n")
    assert stamp.commit() == f"{clean}-dirty"

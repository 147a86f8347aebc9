"""``caption --claims``: confidence of each claim, here and behind a server, and what eval makes of it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli
from fault_server import FaultServer
from serving import served

from tellapart.captioners import load_captioner
from tellapart.inference.sampled_claims import Sample, claim_confidences
from tellapart.inference.service import Service
from tellapart.models.decoding import Decoding
from tellapart.scenes import Scenes

COUNT, SAMPLES = 4, 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("claims") / "scenes"
    folder.mkdir()
    for number, scene in enumerate(Scenes(COUNT)):
        scene.item().picture.image().save(folder / f"{number}.png")
    return folder


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_shares_and_log_probabilities_of_the_claims() -> None:
    red = Sample(
        "A red star on grass.", (("A", -0.1), (" red", -0.7), (" star", -0.2), (" on", -0.3), (" grass.", -0.4))
    )
    samples = [red, Sample("A star."), Sample("A blue star.", (("A", 0.0), (" star", 0.0)))]
    found = {tuple(one["claim"]): one for one in claim_confidences(samples, [sample.text for sample in samples])}
    assert found["star",] == {"kind": "object", "claim": ["star"], "share": 1.0, "log_prob": -0.2}
    assert found["star", "red"]["share"] == round(1 / 3, 6)
    assert found["star", "red"]["log_prob"] == -0.7
    assert found["star", "on", "grass"] == {
        "kind": "relation", "claim": ["star", "on", "grass"], "share": round(1 / 3, 6), "log_prob": -0.3
    }  # fmt: skip
    assert "log_prob" not in found["star", "blue"], "the tokens do not spell the text"
    assert {one["kind"] for one in claim_confidences(samples, ["A star."])} == {"object"}


@pytest.mark.long
def test_a_captioner_here_and_behind_a_server_agree_with_eval(cli: Cli, folder: Path, tmp_path: Path) -> None:
    """The shares are eval's confidences: its Brier score can be computed from the file alone."""
    options = ("--samples", SAMPLES, "--decoding", "temperature=1.3", "--claims")
    done = cli("caption", "scenes", folder, "-o", tmp_path / "here.jsonl", *options)
    assert done.status == 0, done.err
    with served(Service(load_captioner("scenes"), Decoding())) as address:
        done = cli("caption", f"openai:scenes@{address}/v1", folder, "-o", tmp_path / "there.jsonl", *options)
    assert done.status == 0, done.err
    for name in ("here.jsonl", "there.jsonl"):
        rows = records(tmp_path / name)
        for row in rows:
            assert len(row["captions"]) == SAMPLES
            assert all(one["log_prob"] <= 0 and 0 < one["share"] <= 1 for one in row["claims"])
        references = tmp_path / "references.jsonl"
        references.write_text("".join(json.dumps({"id": row["id"], "captions": ["a red star"]}) + "\n" for row in rows))
        done = cli(
            "eval",
            "--captions",
            tmp_path / name,
            "--references",
            references,
            "--metrics",
            "calibration_brier",
            "--json",
        )
        assert done.status == 0, done.err
        errors = [
            (one["share"] - (one["claim"] in (["star"], ["star", "red"]))) ** 2 for row in rows for one in row["claims"]
        ]
        assert f"{sum(errors) / len(errors):.4f}"[:5] in done.out, done.out


@pytest.mark.long
def test_log_probabilities_are_those_of_the_captioner(folder: Path, cli: Cli, tmp_path: Path) -> None:
    cli("caption", "scenes", folder, "-o", tmp_path / "a.jsonl", "--consensus", SAMPLES, "--claims")
    cli("caption", "scenes", folder, "-o", tmp_path / "b.jsonl", "--consensus", SAMPLES)
    rows, plain = records(tmp_path / "a.jsonl"), records(tmp_path / "b.jsonl")
    assert [row["caption"] for row in rows] == [row["caption"] for row in plain], "claims change no caption"
    for row in rows:
        assert row["claims"] and all(one["share"] >= 1 / SAMPLES for one in row["claims"])
        assert all(math.isfinite(one["log_prob"]) for one in row["claims"])
    assert "was started with a different claims" in cli(
        "caption", "scenes", folder, "-o", tmp_path / "a.jsonl", "--consensus", SAMPLES
    ).line  # fmt: skip


def test_a_server_without_log_probabilities_gives_shares_alone(cli: Cli, folder: Path, tmp_path: Path) -> None:
    texts = iter(["A red star.", "A star."] * 10 * COUNT)
    with FaultServer() as server:
        server.says, server.unsupported = lambda body: next(texts), ("logprobs",)
        done = cli(
            "caption", f"openai:m@{server.url}", folder, "-o", tmp_path / "a.jsonl", "--samples", 2, "--claims",
            "--batch-size", 1,
        )  # fmt: skip
    assert done.status == 0, done.err
    assert "'logprobs' is omitted from now on" in done.err
    claims = [one for row in records(tmp_path / "a.jsonl") for one in row["claims"]]
    assert claims and all(one.keys() == {"kind", "claim", "share"} for one in claims)
    assert {one["share"] for one in claims} <= {0.5, 1.0}


def test_what_claims_need_is_named(cli: Cli, folder: Path, tmp_path: Path) -> None:
    out = ("-o", tmp_path / "a.jsonl")
    for options in ((), ("--beams", 5, "--samples", 5), ("--beams", 1)):
        line = cli("caption", "scenes", folder, *out, "--claims", *options).line
        assert "add --samples 10, --consensus 48 or --best-of 10 --scorer MODEL" in line
    line = cli("caption", "scenes", folder, "-o", tmp_path / "a.csv", "--claims", "--consensus", 3).line
    assert "use -o captions.jsonl" in line
    line = cli("caption", "scenes", folder, *out, "--claims", "--samples", 3, "--workers", 2).line
    assert "--claims is not available with --workers" in line

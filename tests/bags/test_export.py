"""The curated benchmark and its provenance, from the command line as a stranger types it."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli
from sample_review import BAGS, make_bags

from tellapart.bags.file import read_bags
from tellapart.bags.review import DecisionStore, bag_key, export_review
from tellapart.bags.review.store import decisions_of
from tellapart.errors import UsageError
from tellapart.evaluation.file_sets import read_sets

# Of each bag (two, two, two and three pictures): what Ann and Ben say; the last is Ben's alone.
SAID = (("keep", "keep"), ("keep", "drop"), ("drop", "drop"), (None, "keep"))


@pytest.fixture
def bags(tmp_path: Path) -> Path:
    return make_bags(tmp_path / "made")


def review(bags: Path) -> None:
    with DecisionStore.open(decisions_of(bags)) as store:
        for ids, verdicts in zip(BAGS, SAID, strict=True):
            for reviewer, verdict in zip(("Ann", "Ben"), verdicts, strict=True):
                if verdict:
                    store.decide(reviewer, bag_key(ids), verdict, ["count"] if reviewer == "Ann" else ["text"], "é")
        slip = store.decide("Ben", bag_key(["x", "y"]), "keep")
        store.undo("Ben", slip.id)


def test_the_command_writes_a_benchmark_that_says_who_made_it(cli: Cli, bags: Path, tmp_path: Path) -> None:
    review(bags)
    out = tmp_path / "curated"
    done = cli("bags", "export", bags, "-o", out, "--json")
    assert done.status == 0
    told = json.loads(done.out)
    # Bags in common: keep-keep, keep-drop, drop-drop. p_o = 2/3; p_e = 2/3 · 1/3 + 1/3 · 2/3 = 4/9; κ = 2/5.
    assert told == {
        "folder": str(out), "kept": 2, "dropped": 2, "undecided": 0, "reviewers": ["Ann", "Ben"],
        "kappa": pytest.approx(0.4),
    }  # fmt: skip

    file = read_bags(out / "bags.jsonl")
    assert [bag.ids for bag in file.bags] == [BAGS[0], BAGS[3]] and file.bags[0].similarity == 0.9
    assert file.header.sizes == (2, 3) and file.header.scorer == "tiny", "where the bags came from is still there"
    rows = [json.loads(line) for line in (out / "bags.jsonl").read_text().splitlines()]
    assert rows[0]["review"]["source"]["sha256"] == hashlib.sha256(bags.read_bytes()).hexdigest()
    assert rows[1]["facets"] == ["count", "text"]
    assert [(d["reviewer"], d["verdict"], d["note"]) for d in rows[1]["decisions"]] == [
        ("Ann", "keep", "é"), ("Ben", "keep", "é"),
    ]  # fmt: skip
    assert all(d["at"].endswith("Z") and d["at"][:2] == "20" for row in rows[1:] for d in row["decisions"])

    assert json.loads((out / "2.json").read_text()) == [list(BAGS[0])]
    assert json.loads((out / "3.json").read_text()) == [list(BAGS[3])]
    assert [own.name for own in read_sets(out)] == ["bag2", "bag3"]
    whole: dict[str, Any] = json.loads((out / "review.json").read_text())
    assert len(whole["decisions"]) == 8 and whole["rule"] == "majority" and whole["files"] == ["2.json", "3.json"]
    assert whole["decisions"][-1]["undone"] and not whole["decisions"][-1]["in_file"], "what was undone is told, too"
    assert whole["agreement"][0]["kappa"] == pytest.approx(0.4)


@pytest.mark.parametrize(("rule", "kept"), [("majority", [0, 3]), ("all", [0, 3]), ("any", [0, 1, 3])])
def test_the_rules(bags: Path, tmp_path: Path, rule: str, kept: list[int]) -> None:
    review(bags)
    done = export_review(bags, decisions_of(bags), tmp_path / "out", rule)
    assert [bag.ids for bag in read_bags(tmp_path / "out" / "bags.jsonl").bags] == [BAGS[place] for place in kept]
    assert (done.kept, done.dropped, done.undecided) == (len(kept), 4 - len(kept), 0)


def test_a_third_voice_breaks_the_tie_but_is_not_all(bags: Path, tmp_path: Path) -> None:
    review(bags)
    with DecisionStore.open(decisions_of(bags)) as store:
        store.decide("Cleo", bag_key(BAGS[1]), "keep")
    assert export_review(bags, decisions_of(bags), tmp_path / "a", "majority").kept == 3
    assert export_review(bags, decisions_of(bags), tmp_path / "b", "all").kept == 2


def test_a_second_export_leaves_no_size_of_the_first(bags: Path, tmp_path: Path) -> None:
    review(bags)
    out = tmp_path / "out"
    export_review(bags, decisions_of(bags), out)
    (out / "7.json").write_text("[]")
    with DecisionStore.open(decisions_of(bags)) as store:
        last = store.standing("Ben")[-1]
        store.decide("Ben", last.bag, "drop", replaces=last.id)
    export_review(bags, decisions_of(bags), out)
    assert not (out / "3.json").exists() and (out / "2.json").exists()
    assert (out / "7.json").exists(), "a file that no export wrote is left alone"


def test_nothing_to_export_is_one_line_and_writes_nothing(bags: Path, tmp_path: Path) -> None:
    before = bags.read_bytes()
    with pytest.raises(UsageError, match=r"contains no decisions; run: tellapart bags review BAGS\.jsonl"):
        export_review(bags, decisions_of(bags), tmp_path / "out")
    with DecisionStore.open(decisions_of(bags)) as store:
        store.decide("Ann", bag_key(BAGS[0]), "drop")
    with pytest.raises(UsageError, match=r"none of the 1 reviewed bags of .* was kept"):
        export_review(bags, decisions_of(bags), tmp_path / "out")
    with pytest.raises(UsageError, match=r"this folder contains bags\.jsonl itself"):
        export_review(bags, decisions_of(bags), bags.parent)
    with pytest.raises(UsageError, match="--keep most: expected one of majority, all, any"):
        export_review(bags, decisions_of(bags), tmp_path / "out", "most")
    assert not (tmp_path / "out").exists() and bags.read_bytes() == before


def test_the_command_serves_until_interrupted_and_refuses_its_port_to_a_second(bags: Path) -> None:
    command = [sys.executable, "-m", "tellapart", "bags", "review", str(bags), "--reviewer", "Ann"]
    first = subprocess.Popen([*command, "--port", "0"], stderr=subprocess.PIPE, text=True)
    try:
        assert first.stderr is not None
        line = first.stderr.readline()
        assert "4 bags; review them at http://127.0.0.1:" in line and "bags.review.sqlite" in line
        port = line.split("127.0.0.1:")[1].split("/")[0]
        second = subprocess.run([*command, "--port", port], capture_output=True, text=True)
        assert second.returncode == 1 and second.stderr.count("\n") == 1
        assert "is already in use, perhaps by an open review or study: see" in second.stderr
    finally:
        first.send_signal(signal.SIGINT)
        assert first.wait(20) == 0 and first.stderr is not None and "Traceback" not in first.stderr.read()
    assert not decisions_of(bags).with_name("bags.review.sqlite-wal").exists(), "the log was folded in"


def test_without_the_extra_the_line_that_installs_it(bags: Path) -> None:
    script = (
        "import sys; sys.modules['starlette'] = None; from tellapart.cli import main; "
        f"sys.argv = ['tellapart', 'bags', 'review', {str(bags)!r}]; main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "run: pip install 'tellapart[review]'" in done.stderr and not decisions_of(bags).exists()

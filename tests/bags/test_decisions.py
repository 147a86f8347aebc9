"""Decisions are on disk before they are answered, and none is lost: not to a crash, nor to a second window."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tellapart.bags.review import Conflict, DecisionStore, agreements, bag_key, cohen_kappa
from tellapart.bags.review.store import FACETS, LONGEST_NOTE
from tellapart.errors import TellapartError, UsageError

WRITER = """
import sys
from pathlib import Path
from tellapart.bags.review.store import DecisionStore
store = DecisionStore.open(Path(sys.argv[1]))
for number in range(1_000_000):
    print(store.decide("Ann", f"bag {number}", "keep", ["count"], "n" * 500).id, flush=True)
"""


def test_a_kill_in_the_middle_takes_nothing_that_was_answered(tmp_path: Path) -> None:
    path = tmp_path / "decisions.sqlite"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    answered = [int(writer.stdout.readline()) for _ in range(25)]
    writer.send_signal(signal.SIGKILL)
    answered += [int(line) for line in writer.stdout.read().splitlines() if line]
    assert writer.wait() == -signal.SIGKILL
    with DecisionStore.open(path) as store:
        found = [decision.id for decision in store.standing()]
        assert found[: len(answered)] == answered and len(found) <= len(answered) + 1
        assert store.decide("Ann", "after", "drop").id == found[-1] + 1
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_later_decision_stands_and_undo_brings_the_earlier_one_back(tmp_path: Path) -> None:
    with DecisionStore.open(tmp_path / "d.sqlite") as store:
        first = store.decide("Ann", "x", "keep", ["text", "count"], " why ")
        assert (first.facets, first.note) == (("count", "text"), "why"), "facets in their own order"
        second = store.decide("Ann", "x", "drop", replaces=first.id)
        assert store.standing("Ann") == [second]
        assert store.undo("Ann", second.id) == second
        assert store.standing("Ann") == [first]
        assert [d.undone is None for d in store.log()] == [True, False], "undone decisions stay in the log"
        store.undo("Ann", first.id)
        with pytest.raises(Conflict):
            store.undo("Ann", first.id)
        assert store.standing() == []


def test_two_windows_of_one_reviewer_do_not_overwrite_each_other(tmp_path: Path) -> None:
    with DecisionStore.open(tmp_path / "d.sqlite") as one, DecisionStore.open(tmp_path / "d.sqlite") as two:
        kept = one.decide("Ann", "x", "keep")
        with pytest.raises(Conflict) as refused:
            two.decide("Ann", "x", "drop")
        assert refused.value.current == kept
        assert two.decide("Ann", "x", "keep") == kept, "the same once more is an answer that got lost"
        later = two.decide("Ann", "y", "drop")
        with pytest.raises(Conflict):
            one.undo("Ann", kept.id)
        assert two.decide("Ben", "x", "drop").reviewer == "Ben", "another reviewer has a say of his own"
        assert {d.id for d in one.standing("Ann")} == {kept.id, later.id} and len(one.standing()) == 3


def test_many_writers_at_once(tmp_path: Path) -> None:
    stores = [DecisionStore.open(tmp_path / "d.sqlite") for _ in range(3)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda n: stores[n % 3].decide(f"r{n % 6}", f"bag {n}", "keep"), range(48)))
    assert len(stores[0].standing()) == 48
    for store in stores:
        store.close()


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (("", "x", "keep"), "reviewer: expected 1 to"),
        (("A" * 61, "x", "keep"), "reviewer: expected 1 to"),
        (("A\x00b", "x", "keep"), "reviewer: expected 1 to"),
        (("Ann", "x", "perhaps"), "got 'perhaps'"),
        (("Ann", "x", "keep", ["colour"]), "got 'colour'"),
        (("Ann", "x", "keep", [], "n" * (LONGEST_NOTE + 1)), "got 2,001"),
    ],
)
def test_what_is_no_decision_is_refused(tmp_path: Path, values: tuple, told: str) -> None:
    with DecisionStore.open(tmp_path / "d.sqlite") as store:
        with pytest.raises(UsageError, match=told):
            store.decide(*values)
        assert store.log() == []
        assert store.decide("  Ann \n Lee", "x", "keep").reviewer == "Ann Lee"


def test_files_that_are_something_else(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database" * 200)
    with pytest.raises(UsageError, match="not a file of decisions"):
        DecisionStore.open(tmp_path / "text")
    other = sqlite3.connect(tmp_path / "other")
    other.execute("CREATE TABLE precious (x)")
    other.close()
    with pytest.raises(UsageError, match="is a database of another program; specify another file with"):
        DecisionStore.open(tmp_path / "other")
    with pytest.raises(UsageError, match=r"contains no decisions; run: tellapart bags review BAGS\.jsonl"):
        DecisionStore.open(tmp_path / "none", create=False)
    assert not (tmp_path / "none").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(TellapartError, match="cannot open"):
        DecisionStore.open(tmp_path / "file" / "d.sqlite")
    DecisionStore.open(tmp_path / "new").close()
    newer = sqlite3.connect(tmp_path / "new")
    newer.execute("PRAGMA user_version = 9")
    newer.close()
    with pytest.raises(UsageError, match="format 9"):
        DecisionStore.open(tmp_path / "new")


def test_a_disk_that_fails_is_told(tmp_path: Path) -> None:
    with DecisionStore.open(tmp_path / "d.sqlite") as store:
        store._db.execute("PRAGMA max_page_count = 8")  # SQLite's own full disk
        with pytest.raises(TellapartError, match="not saved"):
            for number in range(100):
                store.decide("Ann", f"bag {number}", "keep", [], "n" * LONGEST_NOTE)
        store._db.execute("PRAGMA max_page_count = 1000000")
        count = len(store.standing())
        assert store.decide("Ann", "after", "keep") and len(store.standing()) == count + 1


def test_a_bag_is_called_by_its_ids() -> None:
    assert bag_key(["é", 1]) == bag_key(("é", "1")) == '["é", "1"]'
    assert bag_key(["a", "b"]) != bag_key(["b", "a"]) and bag_key(['a", "b']) != bag_key(["a", "b"])


# Cohen's κ


def test_kappa_by_hand() -> None:
    """Fifty bags: both keep 20, both drop 15, the first alone keeps 5, the second alone 10.

    p_o = 35/50 = 0.7; the first keeps 25/50, the second 30/50: p_e = 0.5 · 0.6 + 0.5 · 0.4 = 0.5.
    """
    first = ["keep"] * 20 + ["drop"] * 15 + ["keep"] * 5 + ["drop"] * 10
    second = ["keep"] * 20 + ["drop"] * 15 + ["drop"] * 5 + ["keep"] * 10
    assert cohen_kappa(first, second) == pytest.approx((0.7 - 0.5) / (1 - 0.5)) == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("first", "second", "kappa"),
    [
        ("kkdd", "kkdd", 1),  # always of one mind
        ("kkdd", "ddkk", -1),  # never
        ("kkdd", "kdkd", 0),  # as by chance
        ("kkkk", "kkdd", 0),  # one keeps everything: p_o = p_e = 1/2
        ("kkkk", "kkkk", None),  # nothing else was ever said: p_e = 1
        ("", "", None),
        ("abc", "abd", 4 / 7),  # three labels: p_o = 2/3, p_e = 2/9
    ],
)
def test_kappa_at_the_corners(first: str, second: str, kappa: float | None) -> None:
    found = cohen_kappa(first, second)
    assert found is None if kappa is None else found == pytest.approx(kappa)


def test_kappa_of_unequal_lengths_is_no_number() -> None:
    with pytest.raises(ValueError, match="both raters must have rated the same items, got 2 and 3"):
        cohen_kappa("ab", "abc")


def test_agreement_counts_common_bags_and_facets_of_the_kept(tmp_path: Path) -> None:
    with DecisionStore.open(tmp_path / "d.sqlite") as store:
        for bag, (ann, ben) in enumerate(["kk", "kk", "kd", "dd"]):
            for reviewer, verdict in (("Ben", ben), ("Ann", ann)):
                facets = ["count"] if (reviewer, bag) in (("Ann", 0), ("Ben", 0), ("Ben", 2)) else ["text"]
                store.decide(reviewer, str(bag), {"k": "keep", "d": "drop"}[verdict], facets)
        store.decide("Ann", "only hers", "keep")
        store.decide("Cleo", "only hers", "keep")
        pairs = {pair.reviewers: pair for pair in agreements(store.standing())}
    both = pairs["Ann", "Ben"]
    assert (both.bags, both.agreed, both.kept) == (4, 0.75, 2)
    assert both.kappa == pytest.approx((3 / 4 - 1 / 2) / (1 - 1 / 2))  # keeps 3/4 and 2/4: p_e = 3/8 + 1/8
    assert both.facets["count"] == 1 and both.facets["position"] is None and set(both.facets) == set(FACETS)
    assert pairs["Ben", "Cleo"].bags == 0 and pairs["Ben", "Cleo"].kappa is None and pairs["Ben", "Cleo"].agreed is None
    assert pairs["Ann", "Cleo"].bags == 1

"""Agreement of raters: the examples of the papers."""

from __future__ import annotations

import pytest

from tellapart.study.rater_agreement import fleiss_kappa, krippendorff_alpha, option_counts_of


def test_fleiss_kappa_of_his_paper() -> None:
    """Ten subjects, fourteen raters, five categories; kappa 0.210 (the example of Fleiss 1971 as it is handed down)."""
    counts = [[0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
              [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7]]  # fmt: skip
    assert fleiss_kappa(counts) == pytest.approx(0.210, abs=5e-4)
    assert fleiss_kappa([*counts, [1, 0, 0, 0, 0]]) == fleiss_kappa(counts), "one rater agrees with nobody"
    assert fleiss_kappa([[3, 0], [0, 3]]) == pytest.approx(1) and fleiss_kappa([[3, 0], [3, 0]]) is None
    assert fleiss_kappa([[1, 0]]) is None


def test_krippendorffs_alpha_of_his_paper() -> None:
    """Krippendorff 2011, example C and E: four observers, twelve units, gaps; nominal 0.743, ordinal 0.815."""
    observers = [[1, 2, 3, 3, 2, 1, 4, 1, 2, 0, 0, 0], [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, 0, 3],
                 [0, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, 0], [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, 0]]  # fmt: skip
    rows = [(unit, value - 1) for own in observers for unit, value in enumerate(own) if value]
    counts = option_counts_of(*zip(*rows, strict=True), 5)
    assert krippendorff_alpha(counts) == pytest.approx(0.743, abs=5e-4)
    assert krippendorff_alpha(counts, "ordinal") == pytest.approx(0.815, abs=5e-4)
    assert krippendorff_alpha(counts, "interval") == pytest.approx(0.849, abs=5e-4)
    assert krippendorff_alpha([[2, 0], [2, 0]]) is None and krippendorff_alpha([[1, 0], [0, 1]]) is None

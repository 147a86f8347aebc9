"""The figures of a report against published numbers."""

from __future__ import annotations

import numpy as np

from tellapart.study.analysis import harmonic


def test_f1_is_that_of_paper_1_table_2() -> None:
    """The harmonic mean of the two printed means is the printed F1, for all four systems."""
    descriptiveness, accuracy = np.array([3.89, 3.41, 4.67, 3.53]), np.array([4.39, 4.57, 4.05, 4.53])
    assert harmonic(descriptiveness, accuracy).round(2).tolist() == [4.12, 3.91, 4.34, 3.97]

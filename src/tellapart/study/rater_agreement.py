"""Computes the agreement of any number of raters, as Krippendorff's alpha and Fleiss' kappa, from a units × options
table of counts.
"""

from __future__ import annotations

from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from tellapart.errors import MissingExtra

Level = Literal["nominal", "ordinal", "interval"]


def krippendorff_alpha(count_UV: npt.ArrayLike, level: Level = "nominal") -> float | None:
    """Computes Krippendorff's alpha (2011) with the krippendorff package, for U units and V ordered options.

    Ignores units that have only one rater. Returns None if no unit has two raters, or if all raters chose the same
    option. Raises `MissingExtra` if the package is not installed.
    """
    try:
        import krippendorff
    except ModuleNotFoundError:
        raise MissingExtra("study", "Krippendorff's alpha, in the report of a study,") from None

    counts = np.asarray(count_UV, int)
    counts = counts[counts.sum(1) >= 2]
    if not len(counts) or (counts.sum(0) > 0).sum() < 2:
        return None
    values = np.arange(counts.shape[1])
    return float(krippendorff.alpha(value_counts=counts, value_domain=values, level_of_measurement=level))


def fleiss_kappa(count_UV: npt.ArrayLike) -> float | None:
    """Computes Fleiss' kappa (1971), the agreement beyond chance on unordered options.

    If all units have the same number of raters, as Fleiss requires, this is Fleiss' formula. Otherwise, a unit's
    agreement is computed over its own pairs of raters, and each option's share over all ratings. Returns None if no
    unit has two raters, or if all raters chose the same option.
    """
    counts = np.asarray(count_UV, float)
    counts = counts[counts.sum(1) >= 2]
    if not len(counts):
        return None
    rater_U = counts.sum(1)
    agreed = float((((counts**2).sum(1) - rater_U) / (rater_U * (rater_U - 1))).mean())
    share_V = counts.sum(0) / counts.sum()
    chance = float((share_V**2).sum())
    return None if np.isclose(chance, 1) else (agreed - chance) / (1 - chance)


def option_counts_of(unit_M: npt.ArrayLike, option_M: npt.ArrayLike, options: int) -> npt.NDArray[np.int64]:
    """Returns a U×V array that counts, for each unit and option, how many of the M ratings chose it."""
    units, row_M = np.unique(np.asarray(unit_M), return_inverse=True)
    counts = np.zeros((len(units), options), np.int64)
    np.add.at(counts, (row_M, np.asarray(option_M)), 1)
    return cast("npt.NDArray[np.int64]", counts)

"""The number of clusters for a memory limit."""

import pytest

from tellapart.bags.cluster_sizes import sizes_for
from tellapart.errors import UsageError


def test_memory_says_how_many_clusters() -> None:
    assert sizes_for(10**6, 512, 6, 4.0).clusters == 1600, "8 clusters of each, 5,000 pictures in each"
    assert sizes_for(10**8, 512, 6, 4.0).clusters == 80_000, "10,000 in each: the root of all"
    assert sizes_for(10**8, 512, 6, 4.0, mean=50_000).clusters == 16_000
    assert sizes_for(10**8, 512, 6, 0.52).clusters > 80_000
    many = sizes_for(10**6, 512, 200, 4.0)
    assert (many.clusters, many.nearest, many.refined) == (40, 2, False), "long lists"
    assert sizes_for(10**8, 512, 6, 0.6).candidates < sizes_for(10**8, 512, 6, 4.0).candidates
    assert sizes_for(25_000, 512, 6, 4.0).clusters == 1, "all pairs"
    with pytest.raises(UsageError, match=r"--memory-gb 0.5: expected at least 0\.\d"):
        sizes_for(10**8, 512, 200, 0.5)

"""Published agreement between metrics and human judgements: Kendall's tau × 100, by layout and metric.

Sources: Flickr8k, Composite and Nebula: arXiv:2512.21582, table 1 (RefCLIPScore on Nebula: Matsuda et al. 2024, DENEB,
table 1). Polaris: Wada et al. 2024 (Polos), table 1, with BLEU-4, ROUGE-L, METEOR and CIDEr as printed in papers on
Polaris. LongCap-Arena: Matsuda et al. 2025 (VELA), table 1 and appendix D, means of five runs.
"""

from __future__ import annotations

Tau = dict[str, float]  # tau by variant, "b" and "c"


def _taus(text: str) -> dict[str, Tau]:
    """Parses lines of the form ``metric tau-b tau-c``, where "-" stands for an unpublished value."""
    rows = [line.split() for line in text.strip().splitlines()]
    return {name: {key: float(v) for key, v in (("b", b), ("c", c)) if v != "-"} for name, b, c in rows}


PUBLISHED: dict[str, dict[str, Tau]] = {
    "flickr8k-expert": _taus("""
        bleu4 30.6 30.8
        rouge_l 32.1 32.3
        meteor 41.5 41.8
        cider 43.6 43.9
        spice 51.7 44.9
        clipscore 51.1 51.2
        refclipscore 52.6 53.0
    """),
    "flickr8k-cf": _taus("""
        bleu4 16.9 8.7
        rouge_l 19.9 10.3
        meteor 22.3 11.5
        cider 24.6 12.7
        spice 24.4 12.0
        clipscore 34.4 17.7
        refclipscore 36.4 18.8
    """),
    "composite": _taus("""
        bleu4 28.3 30.6
        rouge_l 30.0 32.4
        meteor 36.0 38.9
        cider 34.9 37.7
        spice 38.8 40.3
        clipscore 49.8 53.8
        refclipscore 51.2 55.4
    """),
    "polaris": _taus("""
        bleu4 - 46.3
        rouge_l - 46.3
        meteor - 51.2
        cider - 52.1
        spice - 51.0
        clipscore - 52.3
        refclipscore - 52.3
        PAC-S - 52.5
        RefPAC-S - 56.0
        Polos - 57.8
        EXPERT - 61.1
    """),
    "nebula": _taus("""
        bleu4 46.5 44.1
        rouge_l 45.8 43.4
        meteor 50.2 47.6
        cider 51.5 48.8
        spice 51.5 47.4
        clipscore 50.5 47.9
        refclipscore - 46.9
        PAC-S 51.0 48.3
        RefPAC-S - 50.6
        Polos 58.0 55.0
        EXPERT - 54.9
    """),
    "longcap-arena:a-desc": _taus("VELA 56.8 56.4"),
    "longcap-arena:a-rel": _taus("VELA 41.0 40.0"),
    "longcap-arena:a-flu": _taus("VELA 55.2 57.4"),
    "longcap-arena:b-desc": _taus("VELA 52.2 54.0"),
    "longcap-arena:b-rel": _taus("VELA 51.9 52.3"),
    "longcap-arena:b-flu": _taus("VELA 38.7 39.0"),
}

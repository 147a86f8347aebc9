"""The rules of the PTB tokenizer of the COCO tools: which runs of characters are one token.

Rules are matched against a text's shape (`SHAPES`). At each place the rule with the longest match wins, the earlier
one where two are as long. What a rule matches beyond its first group decides the contest but stays in the text.
Written from the tokenizer's documented behaviour and from what it answered to probes; the tests hold it against
the tool itself.
"""

from __future__ import annotations

import re

from tellapart.metrics.ptb_characters import DIGIT, LETTER, MARK, SYMBOL, Shapes

KEEP = None  # the token is what was matched, in lower case
DROP = ""  # the COCO tools' punctuation list
STRAIGHT = "straight"  # kept, with a straight apostrophe
QUOTES = "quotes"  # typographic quotation marks in the Treebank's ASCII

# Abbreviations keep their full stop; these may also end a sentence …
_FINAL = """al co ct ga jr ky md mo rd rt sq sr va vt ala apr aug bhd cos dak dec esq est etc ext feb fla fri inc ind
jan jul jun kan ltd mar mon neb nev nov oct plc sep seq sys tel thu tue wed wis wyo ariz assn bldg blvd bros
colo conn corp ed.d intl kans mich minn mont okla penn ph.d sept tenn tues univ wisc calif thurs bancorp"""
# … these too, where written with a capital (else they are words) …
_FINAL_CAPITAL = "az la pa ark del ill ore tex mass miss wash"
# … these stand before a name …
_MIDDLE = """cf dr ft lt mr ms mt ph st vs wm adj adm adv ave cie col cpl det drs ens gen gov hon jos maj mme mrs
pfc pvt rep rev sen sfc sgt spc ste alex asst atty brig capt cmdr dept elec govs insp invt mlle msgr natl pres
prof reps sens supt assoc attys comdr lieut profs supts treas messrs"""
# … two groups of them not in capitals …
_FINAL_SMALL, _MIDDLE_SMALL = "[Pp]p?t[ey][sS]?", "[Mm][ft][gG]"
_SMALL_WORDS = "pte pty ptes ptys ppte ppty pptes pptys mfg mtg"
# … and these are abbreviations before a number only.
_NUMBERED = "ca no op pp art fig nos figs prop"
# After an initial, one of these with a capital says that the sentence ended there: "Plan B. The".
_STARTERS = """a in the that it there an this at while as their some one more he other they her about many if you yet
we she what but here when so after now these last since such then once our according however additionally earlier"""
_EXTENSIONS = """bat bmp class cgi cpp c dll docx doc exe gif gz html htm h java jar jpeg jpg mov mp3 pdf php png pl
ppt ps py sql tar txt wav xml x zip"""
_MERGED = ("can not", "gon na", "wan na", "got ta", "lem me", "gim me")
SPECIAL_WORDS = frozenset(
    [
        *" ".join((_FINAL, _FINAL_CAPITAL, _MIDDLE, _SMALL_WORDS, _NUMBERED)).split(),
        *(word.replace(" ", "") for word in _MERGED),
    ]
)


def _any_of(words: str) -> str:
    return "(?:" + "|".join(re.escape(word) for word in sorted(words.split(), key=len, reverse=True)) + ")"


_L, _D, _M = f"A-Za-z{LETTER}", f"0-9{DIGIT}", MARK
_PARTS = {
    "L": f"[{_L}]",
    "LM": f"[{_L}{_M}]",
    "D": f"[{_D}]",
    "A": f"[{_L}{_D}]",
    "WORD": f"[{_L}{_M}][{_L}{_M}{_D}]*",
    "NUM": f"(?:[{_D}]+(?:[.:,][{_D}]+)*|(?:[.:,][{_D}]+)+)",
    "AP": "(?:['\u2019\u0092]|&apos;)",
    "TICK": "(?:['`\u2019\u0092]|&apos;)",
    "CURLY": "(?:[\u2019\u0092]|&apos;)",
    "AND": "[A-Z]+(?:(?:[&+]|&amp;|&AMP;)[A-Z]+)+",
    "DOTTED": r"[A-Za-z0-9][A-Za-z0-9.,]*",
    "HY": "[-_\u058a\u2010\u2011]",
    "SP": "[ \t\u00a0]",
    "ENDING": "(?i:[msd]|re|ve|ll)",
    "PREFIXED": "(?:<A>+<HY>)*[dloDLO]<AP><A>{2,}(?:<HY>(?:[dloDLO]<AP>)?<A>+)*",
    "EYE": "[-'<=>^x~]",
    "NAME": "[A-Za-z][A-Za-z0-9_:.-]*",
    "TAG": "(?:</?<NAME>(?:<SP>+<NAME>(?:<SP>*=<SP>*(?:'[^'\n]*'|\"[^\"\n]*\"))?)*<SP>*/?>|<[!?][A-Za-z-][^>\n]*>)",
    "FINAL": f"(?:(?i:{_any_of(_FINAL)})|{_any_of(_FINAL_CAPITAL.title())}|{_any_of(_FINAL_CAPITAL.upper())}"
    f"|{_FINAL_SMALL})",
    "MIDDLE": f"(?:(?i:{_any_of(_MIDDLE)})|{_MIDDLE_SMALL})",
    "NUMBERED": f"(?i:{_any_of(_NUMBERED)})",
    "STARTERS": r"(?=[A-Z])(?i:M[rs]\.|" + _any_of(_STARTERS) + ")",
    "EXTENSIONS": f"(?i:{_any_of(_EXTENSIONS)})",
}

_WORDS: list[tuple[str, str | None]] = [
    (r"(<WORD>(?:[.!?]<WORD>)*)<AP><ENDING>", KEEP),
    (r"([A-Za-z]+)[nN]<TICK>[tT]", KEEP),
    *((rf"((?i:{word.split()[0]}))(?i:{word.split()[1]})(?!<A>)", KEEP) for word in _MERGED),
    (r"((?i:more))<AP>[nN](?=\s|$)", KEEP),
    (r"('[tT])(?i:is|was)", KEEP),
    (r"('<ENDING>(?![A-Za-z])|<CURLY><ENDING>)", STRAIGHT),
    (r"('[nN])(?=\s|$)", KEEP),
    (r"(<AP>[nN]<AP>)", KEEP),
    ("([\u2019\u0092][nN])", KEEP),
    (r"([nN]<AP><L>{2,}|[oO]<AP>[oO])", KEEP),
    (r"([nN]<TICK>[tT][A-Za-z]*)", STRAIGHT),
    (r"((?i:nat)<AP>[lL]|(?i:ol|somethin|dunkin)<AP>|[sS]<AP>(?i:mores)(?![A-Za-z])|[li]i<AP>l)", KEEP),
    (r"(<AP>(?i:em|til|cause))", KEEP),
    (r"(<AP>[2-9]0s|<AP>[0-9][0-9](?=\s|$))", KEEP),
    (r"([eE]<AP>(?i:er)|[cC]<AP>(?i:est|mon)|(?i:nor<AP>easter))", KEEP),
    (r"([A-CE-HJKMP-XZ]<TICK><L>{2,}|<PREFIXED>)", KEEP),
    (r"(<L>+[aeiouyAEIOUY]<TICK>[aeiouA-Z][A-Za-z]*)", KEEP),
    (r"([djlDJL]<AP>)", KEEP),
    (r"([yY]<AP>)(?=[A-Za-z])", KEEP),
    (r"(<WORD>(?:[.!?]<WORD>)*)", KEEP),
    (r"(<A>+(?:<HY><A>+)*)", KEEP),
    (r"([A-Za-z0-9]+(?:-[A-Za-z]+){0,2}(?:\\?/[A-Za-z0-9]+(?:-[A-Za-z]+){0,2}){1,2})", KEEP),
    (r"(<AND>)", KEEP),
    (r"([cC]\+\+|[cCfF]#)", KEEP),
]
_ABBREVIATIONS: list[tuple[str, str | None]] = [
    (r"([A-Za-z])\.(?:<SP>+\n?|\n)(?:<STARTERS>|<SP>*<TAG>)(?=\s|$)", KEEP),
    (r"([A-Za-z](?:\.[A-Za-z])*\.)", KEEP),
    (r"([A-Za-z](?:\.[A-Za-z])+)", KEEP),
    (r"(<MIDDLE>\.)", KEEP),
    (r"(<FINAL>\.)(?s:.{0,2})", KEEP),
    (r"(<NUMBERED>\.)(?:<SP>|\n)?<D>", KEEP),
    (r"(<DOTTED>(?:-(?:(?:[A-Za-z]\.){2,}|[A-Za-z0-9]+))+)", KEEP),
    (r"(<DOTTED>(?:-[A-Za-z0-9]+)+\.)[,;:\u3001]", KEEP),
    (r"((?:[A-CE-HJKMP-XZ]<TICK><L>{2,}|<PREFIXED>|<AND>)\.)[,;:\u3001]", KEEP),
    (r"(<A>+(?:<HY><A>+)*\.|<WORD>(?:[.!?]<WORD>)+\.)[,;:\u3001]", KEEP),
    (r"(<A>+(?:\.<A>+)*\.<EXTENSIONS>)(?=[\s.,;:!?\"]|$)", KEEP),
]
_NUMBERS: list[tuple[str, str | None]] = [
    (r"([-+]?<NUM>)", KEEP),
    (r"(<D>{1,2}[-/]<D>{1,2}[-/]<D>{2,4})", KEEP),
    (r"((?:<D>{1,4}[-\u00a0 ])?<D>{1,4}(?:\\?/|\u2044)<D>{1,4})", KEEP),
    (
        r"((?:\(<D>{2,3}\)[\u00a0 ]?|(?:\+\+?)?(?:<D>{2,4}[-\u00a0 ])?<D>{2,4}[-\u00a0 ])<D>{3,4}[-\u00a0 ]?<D>{3,5})",
        KEEP,
    ),
    (r"((?:(?:\+\+?)?<D>{2,4}\.)?<D>{2,4}\.<D>{3,4}\.<D>{3,5})", KEEP),
    (r"([A-Z]+\$)", KEEP),
    (r"([\u00b2\u00b3\u00b9\u2070\u2074-\u2079\u2080-\u2089]+)", KEEP),
    ("(\u00bc)", "1/4"),
    ("(\u00bd)", "1/2"),
    ("(\u00be)", "3/4"),
    ("(\u2153)", "1/3"),
    ("(\u2154)", "2/3"),
]
_ADDRESSES: list[tuple[str, str | None]] = [
    (r"(<TAG>)", KEEP),
    (r"(https?://[^\s\"<>|(){}]+[^\s\"<>|.!?(){},-])", KEEP),
    (
        r"((?:www\.(?:[^\s\"<>|.!?(){},]+\.)+[a-zA-Z]{2,4}|(?:(?!<D>)[^\s\"`'<>|.!?(){}\[\],\-_$/=:;]+\.)+(?:com|net|org|edu))"
        r"(?:/[^\s\"<>|()]+[^\s\"<>|.!?(){},-])?)",
        KEEP,
    ),
    (r"(<?[a-zA-Z0-9][^\s\"<>|()\u00a0{}]*@(?:[^\s\"<>|(){}.\u00a0]+\.)*[^\s\"<>|(){}.\u00a0]+>?)", KEEP),
    (r"(@[A-Za-z_][A-Za-z_0-9]*)", KEEP),
    (r"(#<LM>+)", KEEP),
]
_SIGNS: list[tuple[str, str | None]] = [
    (r"(-{5,})", KEEP),
    (r"(-{1,4})", DROP),
    ("([\u0096\u0097\u2013\u2014\u2015])", DROP),
    (r"([!?]{2,})", KEEP),
    (r"([!?])", DROP),
    (r"(\*+|(?:\\\*)+|_+|#+|@+|<<|>>)", KEEP),
    ("(\\.{3,5}|[.,;:\u2026\u0085])", DROP),
    (r"([<>]?[:;=]['o*\-]?[)(DPdpO\\{@|\[\]])(?![A-Za-z0-9])", KEEP),
    (r"(<EYE>_<EYE>|\(<EYE>[_.]?<EYE>\)|[oO]_[oO]|T_T|[oO]\.[oO])", KEEP),
    ("(''|``|['`\u2018\u2019\u0091\u0092\u201b\u2039\u203a]|\")", DROP),
    (
        "([`\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2039\u203a\u00ab\u00bb\u0091-\u0094]{1,2})",
        QUOTES,
    ),
    (r"((?i:-[LR][RSC]B-))", KEEP),
    (r"(&(?:[hH][tT]|tl|ur|lr|q[clr]|odq|cdq|[aeiouAEIOU](?:acute|grave|uml)|#\d+);)", KEEP),
    (r"(&amp;|&AMP;)", "&"),
    (r"(&lt;)", "<"),
    (r"(&gt;)", ">"),
    (r"(&md;|&mdash;|&ndash;|&quot;|&apos;|&nbsp;)", DROP),
    ("([\u0080\u00a4\u20a0\u20ac])", "$"),
    ("(\u00a3)", "#"),
    ("(\u00a2)", "cents"),
    (rf"([{SYMBOL}\u2044\u3001$%&~^|\\/+=<>])", KEEP),
    # The COCO tools' punctuation list has the brackets in capitals, so they stay.
    (r"(\()", "-lrb-"),
    (r"(\))", "-rrb-"),
    (r"(\[)", "-lsb-"),
    (r"(\])", "-rsb-"),
    (r"(\{)", "-lcb-"),
    (r"(\})", "-rcb-"),
]


def _compile(pattern: str) -> re.Pattern[str]:
    """``<NAME>`` in a pattern stands for one of `_PARTS`."""
    for _ in range(2):  # parts of parts
        pattern = re.sub(r"<([A-Z]+)>", lambda match: _PARTS[match[1]], pattern)
    return re.compile(pattern.replace("(?i:", "(?ai:"))  # a long s is no s


RULES = [(_compile(pattern), to) for pattern, to in _WORDS + _ABBREVIATIONS + _NUMBERS + _ADDRESSES + _SIGNS]
# Symbols that some rule means by name keep their own shape.
SHAPES = Shapes(kept="\u2044\u3001")

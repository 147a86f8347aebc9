"""The COCO tools' PTB tokenizer without Java: Stanford CoreNLP 3.4.1 with ``-lowerCase`` and the tools' punctuation
list.

The output is identical to the tool's output on every caption in COCO (Karpathy's test split), Flickr8k, Flickr30k,
ImageCoDe and the published systems (some 90,000 texts), as the ``oracle`` tests check. Brackets become ``-lrb-`` and
stay, because the COCO tools' punctuation list has them in upper case but is applied after lower-casing. As in the tool,
a fraction such as ``1 1/2`` or a telephone number is one token with no-break spaces inside, which ROUGE-L sees as one
word, and BLEU and CIDEr as two.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from tellapart.metrics.inputs import References, check
from tellapart.metrics.recent import recent

# Character classes of the COCO tools' PTB tokenizer: letters, marks, digits and symbols.
#
# The classes were determined by probing the tool: each of the 63,455 characters in the Basic Multilingual Plane was
# tested alone, between letters, doubled, and in numbers, names and addresses. Characters that the tool treats alike
# share a class. All other characters, including those outside this plane such as emoji, are dropped and separate the
# words around them.

# Letters, ideographs and syllables, which form words, names and hyphenated words.
LETTERS = """
41-5A 61-7A AA B5 BA C0-D6 D8-F6 F8-2C1 2C6-2D1 2E0-2E4 2EC 2EE 370-374 376-377 37A-37D 386 388-38A 38C 38E-3A1
3A3-3F5 3F7-481 48A-527 531-556 559 561-587 5D0-5EA 5F0-5F2 620-64A 66E-66F 671-6D3 6D5 6E5-6E6 6EE-6EF 6FA-6FC 6FF
710 712-72F 74D-7A5 7B1 7CA-7EA 7F4-7F5 7FA 800-815 81A 824 828 840-858 8A0 8A2-8AC 904-939 93D 950 958-961 971-977
979-97F 985-98C 98F-990 993-9A8 9AA-9B0 9B2 9B6-9B9 9BD 9CE 9DC-9DD 9DF-9E1 9F0-9F1 A05-A0A A0F-A10 A13-A28 A2A-A30
A32-A33 A35-A36 A38-A39 A59-A5C A5E A72-A74 A85-A8D A8F-A91 A93-AA8 AAA-AB0 AB2-AB3 AB5-AB9 ABD AD0 AE0-AE1 B05-B0C
B0F-B10 B13-B28 B2A-B30 B32-B33 B35-B39 B3D B5C-B5D B5F-B61 B71 B83 B85-B8A B8E-B90 B92-B95 B99-B9A B9C B9E-B9F
BA3-BA4 BA8-BAA BAE-BB9 BD0 C05-C0C C0E-C10 C12-C28 C2A-C33 C35-C39 C3D C58-C59 C60-C61 C85-C8C C8E-C90 C92-CA8
CAA-CB3 CB5-CB9 CBD CDE CE0-CE1 CF1-CF2 D05-D0C D0E-D10 D12-D3A D3D D4E D60-D61 D7A-D7F D85-D96 D9A-DB1 DB3-DBB DBD
DC0-DC6 E01-E30 E32-E33 E40-E46 E81-E82 E84 E87-E88 E8A E8D E94-E97 E99-E9F EA1-EA3 EA5 EA7 EAA-EAB EAD-EB0 EB2-EB3
EBD EC0-EC4 EC6 EDC-EDF F00 F40-F47 F49-F6C F88-F8C 1000-102A 103F 1050-1055 105A-105D 1061 1065-1066 106E-1070
1075-1081 108E 10A0-10C5 10C7 10CD 10D0-10FA 10FC-1248 124A-124D 1250-1256 1258 125A-125D 1260-1288 128A-128D
1290-12B0 12B2-12B5 12B8-12BE 12C0 12C2-12C5 12C8-12D6 12D8-1310 1312-1315 1318-135A 1380-138F 13A0-13F4 1401-166C
166F-167F 1681-169A 16A0-16EA 1700-170C 170E-1711 1720-1731 1740-1751 1760-176C 176E-1770 1780-17B3 17D7 17DC
1820-1877 1880-18A8 18AA 18B0-18F5 1900-191C 1950-196D 1970-1974 1980-19AB 19C1-19C7 1A00-1A16 1A20-1A54 1AA7
1B05-1B33 1B45-1B4B 1B83-1BA0 1BAE-1BAF 1BBA-1BE5 1C00-1C23 1C4D-1C4F 1C5A-1C7D 1CE9-1CEC 1CEE-1CF1 1CF5-1CF6
1D00-1DBF 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE
1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2071 207F 2090-209C 2102 2107 210A-2113 2115
2119-211D 2124 2126 2128 212A-212D 212F-2139 213C-213F 2145-2149 214E 2183-2184 2C00-2C2E 2C30-2C5E 2C60-2CE4
2CEB-2CEE 2CF2-2CF3 2D00-2D25 2D27 2D2D 2D30-2D67 2D6F 2D80-2D96 2DA0-2DA6 2DA8-2DAE 2DB0-2DB6 2DB8-2DBE 2DC0-2DC6
2DC8-2DCE 2DD0-2DD6 2DD8-2DDE 2E2F 3005-3006 3031-3035 303B-303C 3041-3096 309D-309F 30A1-30FA 30FC-30FF 3105-312D
3131-318E 31A0-31BA 31F0-31FF 3400-4DB5 4E00-9FCC A000-A48C A4D0-A4FD A500-A60C A610-A61F A62A-A62B A640-A66E
A67F-A697 A6A0-A6E5 A717-A71F A722-A788 A78B-A78E A790-A793 A7A0-A7AA A7F8-A801 A803-A805 A807-A80A A80C-A822
A840-A873 A882-A8B3 A8F2-A8F7 A8FB A90A-A925 A930-A946 A960-A97C A984-A9B2 A9CF AA00-AA28 AA40-AA42 AA44-AA4B
AA60-AA76 AA7A AA80-AAAF AAB1 AAB5-AAB6 AAB9-AABD AAC0 AAC2 AADB-AADD AAE0-AAEA AAF2-AAF4 AB01-AB06 AB09-AB0E
AB11-AB16 AB20-AB26 AB28-AB2E ABC0-ABE2 AC00-D7A3 D7B0-D7C6 D7CB-D7FB F900-FA6D FA70-FAD9 FB00-FB06 FB13-FB17 FB1D
FB1F-FB28 FB2A-FB36 FB38-FB3C FB3E FB40-FB41 FB43-FB44 FB46-FBB1 FBD3-FD3D FD50-FD8F FD92-FDC7 FDF0-FDFB FE70-FE74
FE76-FEFC FF21-FF3A FF41-FF5A FF66-FFBE FFC2-FFC7 FFCA-FFCF FFD2-FFD7 FFDA-FFDC
"""

# Standalone accents and similar marks, which are part of a word unless the word is hyphenated or next to a digit.
MARKS = """
AD 2C2-2C5 2D2-2DF 2E5-2EB 2ED 2EF-36F 375 378-379 384-385 3F6 483-487 55A-55F 591-5BD 5BF 5C1-5C2 5C4-5C5 5C7 615-61A
64B-65E 670 6D6-6E4 6E7-6ED 6FD-6FE 70F 711 730-74C 7A6-7B0 7EB-7F3 900-903 93C 93E-94E 951-955 962-963 981-983 9BC
9BE-9C4 9C7-9C8 9CB-9CD 9D7 9E2-9E3 A01-A03 A3C A3E-A4F A81-A83 ABC ABE-ACF B82 BBE-BC2 BC6-BC8 BCA-BCD C01-C03
C3E-C56 D3E-D44 D46-D48 E31 E34-E3A E47-E4E EB1 EB4-EBC EC8-ECD
"""

# Decimal digits in all scripts.
DIGITS = """
30-39 660-669 6F0-6F9 7C0-7C9 966-96F 9E6-9EF A66-A6F AE6-AEF B66-B6F BE6-BEF C66-C6F CE6-CEF D66-D6F E50-E59
ED0-ED9 F20-F29 1040-1049 1090-1099 17E0-17E9 1810-1819 1946-194F 19D0-19D9 1A80-1A89 1A90-1A99 1B50-1B59 1BB0-1BB9
1C40-1C49 1C50-1C59 A620-A629 A8D0-A8D9 A900-A909 A9D0-A9D9 AA50-AA59 ABF0-ABF9 FF10-FF19
"""

# Symbols, each of which is a token of its own.
SYMBOLS = """
A1 A5-A9 AC AE-B1 B4 B6-B8 BF D7 F7 37E 387 589 5BE 5C0 5C3 5C6 5F3-5F4 600-603 606-60C 614 61B 61E-61F 66A 66D 6D4
700-70D 7F6-7F8 964-965 E3F E4F 1FBD 2016-2017 2020-2023 2030-2038 203B 203E-2042 2044 207A-207E 208A-208E 20A4
2100-2101 2103-2106 2108-2109 2114 2116-2118 211E-2123 2125 2127 2129 212E 213A-213B 2140-2144 214A-214D 214F
2155-215E 2190-2BFF 3001-3002 3012 30FB FF01-FF0F FF1A-FF20 FF3B-FF40 FF5B-FF65 FFE0-FFE1 FFE5-FFE6
"""


# The rules match one representative character per class, because an expression with all ranges compiles slowly.
LETTER, MARK, DIGIT, SYMBOL = "\u00aa", "\u0300", "\u0660", "\u00a9"


class Shapes(dict[int, int]):
    """A table for ``str.translate`` that maps non-ASCII characters to their class. Characters without a class and
    characters in ``kept`` map to themselves.
    """

    def __init__(self, kept: str) -> None:
        super().__init__((ord(char), ord(char)) for char in kept)
        classes = ((LETTERS, LETTER), (MARKS, MARK), (DIGITS, DIGIT), (SYMBOLS, SYMBOL))
        spans = sorted((*_span(part), ord(to)) for ranges, to in classes for part in ranges.split())
        self.starts = [start for start, _, _ in spans]
        self.spans = spans

    def __missing__(self, code: int) -> int:
        place = bisect_right(self.starts, code) - 1
        inside = code > 127 and place >= 0 and code <= self.spans[place][1]
        self[code] = self.spans[place][2] if inside else code
        return self[code]


def _span(part: str) -> tuple[int, int]:
    """Returns the first and last code point in a hexadecimal range such as ``41-5A`` or ``B5``."""
    ends = [int(end, 16) for end in part.split("-")]
    return ends[0], ends[-1]


# The token rules of the COCO tools' PTB tokenizer.
#
# Rules are matched against a text's shape (`Shapes`). At each position, the rule with the longest match wins; on a tie,
# the earlier rule. Text that a rule matches beyond its first group counts towards the length but is not consumed. The
# rules were derived from the tokenizer's documented behaviour and by probing; the tests compare them with the tool
# itself.

KEEP = None  # the token is the match in lower case
DROP = ""  # the token is on the COCO tools' punctuation list
STRAIGHT = "straight"  # the token is kept, with a straight apostrophe
QUOTES = "quotes"  # typographic quotation marks become the Treebank's ASCII marks

# Abbreviations keep their full stop. The following may also end a sentence …
_FINAL = """al co ct ga jr ky md mo rd rt sq sr va vt ala apr aug bhd cos dak dec esq est etc ext feb fla fri inc ind
jan jul jun kan ltd mar mon neb nev nov oct plc sep seq sys tel thu tue wed wis wyo ariz assn bldg blvd bros
colo conn corp ed.d intl kans mich minn mont okla penn ph.d sept tenn tues univ wisc calif thurs bancorp"""
# … and so may these if capitalized (otherwise, they are ordinary words) …
_FINAL_CAPITAL = "az la pa ark del ill ore tex mass miss wash"
# … these are followed by a name …
_MIDDLE = """cf dr ft lt mr ms mt ph st vs wm adj adm adv ave cie col cpl det drs ens gen gov hon jos maj mme mrs
pfc pvt rep rev sen sfc sgt spc ste alex asst atty brig capt cmdr dept elec govs insp invt mlle msgr natl pres
prof reps sens supt assoc attys comdr lieut profs supts treas messrs"""
# … these are not abbreviations in upper case …
_FINAL_SMALL, _MIDDLE_SMALL = "[Pp]p?t[ey][sS]?", "[Mm][ft][gG]"
_SMALL_WORDS = "pte pty ptes ptys ppte ppty pptes pptys mfg mtg"
# … and these are abbreviations only before a number.
_NUMBERED = "ca no op pp art fig nos figs prop"
# If one of these words follows an initial and is capitalized, the initial ends a sentence: "Plan B. The".
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
    # Brackets are kept, because the COCO tools' punctuation list has them in upper case.
    (r"(\()", "-lrb-"),
    (r"(\))", "-rrb-"),
    (r"(\[)", "-lsb-"),
    (r"(\])", "-rsb-"),
    (r"(\{)", "-lcb-"),
    (r"(\})", "-rcb-"),
]


def _compile(pattern: str) -> re.Pattern[str]:
    """Compiles a pattern in which ``<NAME>`` stands for one of `_PARTS`."""
    for _ in range(2):  # parts may contain parts
        pattern = re.sub(r"<([A-Z]+)>", lambda match: _PARTS[match[1]], pattern)
    return re.compile(pattern.replace("(?i:", "(?ai:"))  # with (?a), a long s does not match an s


@cache
def _rules() -> tuple[list[tuple[re.Pattern[str], str | None]], Shapes]:
    """Compiles the rules and shapes on first use, because compiling is slow and most captions do not need them."""
    rules = [(_compile(pattern), to) for pattern, to in _WORDS + _ABBREVIATIONS + _NUMBERS + _ADDRESSES + _SIGNS]
    return rules, Shapes(kept="\u2044\u3001")  # symbols that occur in a rule keep their own shape


VERSION = "ptb:corenlp-3.4.1,lower,coco-punctuation"  # the name in signatures

_KEPT_CHUNKS = 500_000  # about 100 MB of distinct chunks; the captions of a task have tens of thousands
# Nearly every chunk between spaces is a word or a hyphenated word, optionally followed by a punctuation mark.
_PLAIN = re.compile(r"([A-Za-z]{2,}|[a-z]+(?:-[a-z]+)+)[.,!?;\"]?")
# Where a token may extend across a space: tags, entities, numbers, and an initial or "No." with lookahead.
_ACROSS = re.compile(
    r"<[/!?A-Za-z]|&|[\d)]\s+[\d(]|(?<![A-Za-z])(?:[A-Za-z]\.\s+[A-Z]|(?i:ca|no|op|pp|art|figs?|nos|prop)\.\s+\d)"
)
_OPEN_END = re.compile(r"(?<![A-Za-z])(?:[A-Za-z]|(?i:ca|no|op|pp|art|figs?|nos|prop))\.\s*$")
_SUSPECT = re.compile(rf"[\d<&]|{_OPEN_END.pattern}")  # a chunk that may be part of such a token
_LINE_ENDS = str.maketrans(dict.fromkeys("\n\r\x0b\x0c\u2028\u2029", " "))
_INSIDE = str.maketrans({"(": "-lrb-", ")": "-rrb-", " ": "\u00a0", "\t": "\u00a0"})
_STRAIGHT = str.maketrans({"\u2019": "'", "\u0092": "'"})
_TYPOGRAPHIC = str.maketrans(
    {
        **dict.fromkeys("\u2018\u201b\u0091\u2039", "`"),
        **dict.fromkeys("\u2019\u0092\u203a", "'"),
        **dict.fromkeys("\u201c\u0093\u00ab", "``"),
        **dict.fromkeys("\u201d\u0094\u00bb", "''"),
    }
)
_PUNCTUATION = frozenset(["''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";", ""])


def ptb_tokenize(texts: Sequence[str]) -> list[str]:
    """Tokenizes texts like the COCO tools. Returns lower-cased tokens without punctuation, joined by spaces.

    The tool reads all texts as one document with one text per line. In two rare cases, the end of a line depends on the
    next line: an initial before a word that starts a sentence ("Wii U." before "A man"), and "No." before a number.
    Therefore, the order of the texts matters. A line break inside a text counts as a space.
    """
    tokens_of = _PLAIN_CHUNKS.__getitem__
    found = []
    for number, text in enumerate(texts):
        try:
            found.append("".join(map(tokens_of, text.split()))[:-1])  # type: ignore[arg-type]
        except TypeError:  # a chunk is None, because it may form a token with its neighbours
            found.append(_looking_around(text, texts[number + 1] if number + 1 < len(texts) else ""))
    return found


class Tokenized(NamedTuple):
    """Captions and their references after `ptb_tokenize`."""

    captions: list[str]
    references: list[list[str]]


def tokenized(captions: Sequence[str], references: References) -> Tokenized:
    """Tokenizes captions and references like the COCO tools: all captions as one document, all references as
    another.
    """
    check(captions, references)
    return Tokenized(_tokenized_captions(captions), _tokenized_references(references))


@recent
def _tokenized_captions(captions: Sequence[str]) -> list[str]:
    return ptb_tokenize(captions)


@recent
def _tokenized_references(references: References) -> list[list[str]]:
    flat = iter(ptb_tokenize([text for reference_texts in references for text in reference_texts]))
    return [[next(flat) for _ in reference_texts] for reference_texts in references]


def _looking_around(text: str, following: str) -> str:
    if following and _OPEN_END.search(text):
        return _scan(text.translate(_LINE_ENDS), following.translate(_LINE_ENDS))
    if _ACROSS.search(text):
        return _scan(text.translate(_LINE_ENDS), " ")
    return "".join([_CHUNKS[chunk] or "" for chunk in text.split()])[:-1]


class _Chunks(dict[str, str | None]):
    """Maps a chunk of text without spaces to its tokens, each followed by a space. Tokens are computed on first access.

    If ``alone`` is true, a chunk that cannot be tokenized on its own maps to None.
    """

    def __init__(self, alone: bool) -> None:
        self.alone = alone

    def __missing__(self, chunk: str) -> str | None:
        if len(self) >= _KEPT_CHUNKS:
            self.clear()
        plain = _PLAIN.fullmatch(chunk)
        if plain is not None and (word := plain[1].lower()) not in SPECIAL_WORDS:
            self[chunk] = word + " "
        elif self.alone and _SUSPECT.search(chunk):
            self[chunk] = None
        else:
            self[chunk] = (tokens + " ") if (tokens := _scan(chunk, " ")) else ""
        return self[chunk]


_PLAIN_CHUNKS, _CHUNKS = _Chunks(alone=True), _Chunks(alone=False)


def _scan(text: str, following: str = "") -> str:
    """Tokenizes a text, taking the longest match at each position. ``following`` is used only for lookahead."""

    whole = f"{text}\n{following}" if following else text
    rules, shapes = _rules()
    shape = whole if whole.isascii() else whole.translate(shapes)
    at, tokens = 0, []
    while at < len(text):
        best, to, end = None, None, at
        if not text[at].isspace():
            for rule, result in rules:
                match = rule.match(shape, at)
                if match is not None and match.end() > end:
                    best, to, end = match, result, match.end()
        if best is None:  # a space, or a character that the tool drops
            at += 1
            continue
        token, at = _written(text[at : best.end(1)], to), best.end(1)
        if token not in _PUNCTUATION:
            tokens.append(token)
    return " ".join(tokens)


def _written(token: str, to: str | None) -> str:
    """Formats a matched token as the tool does."""
    if to is None:
        if token[0] != "#" and "://" not in token and "@" not in token:
            token = token.replace("\u00ad", "")
        if "/" not in token and "@" not in token:
            token = token.replace("&amp;", "&").replace("&AMP;", "&")
        return token.translate(_INSIDE).lower()
    if to == STRAIGHT:
        return token.replace("&apos;", "'").translate(_STRAIGHT).lower()
    if to == QUOTES:
        return token.translate(_TYPOGRAPHIC)
    return to

"""Text that hurts: what captions on the web have in them, put together at random."""

from __future__ import annotations

from hypothesis import strategies as st

_WORDS_TEXT = """a the dog Dogs MAN it's don't can't I'm they'd we'll cannot gonna Gimme o'clock O'Neil rock'n'roll 'em
'tis y'all c'mon ma'am x-ray t-shirt jack-o'-lantern mp3 4x4 1 12 5th 1990s 1,000 3.14 1/2 10:30 5-6 2001-02-03 $5
50% and/or (see [this {one} "quoted" 'single' “curly” ‘curly’ 日本語 привет naïve café é ﬁ ½ € £ ¢ ° ™ ·"""
# What runs into its neighbours where no blank parts them: there the tool's rules are beyond what a caption has.
_APART_TEXT = """Mr. Dr. etc. Inc. St. U.S. e.g. p.m. J. No. Fig. vs. Mass. AT&T R&B C++ C# #1 #tag @user a@b.co
www.a.com http://a.b/c?d=e a/b :) :-( ;D ``latex'' ... .... -- --- — – … !? !!! * ** _ __ ~ ^ = + | \\ 你好。 😀 👍🏽
&amp; &lt;
'90s 10a.m. end.Next a!b x.y.z foo.jpg Yahoo! "quoted." (see), 'n'"""
_WORDS, _APART = _WORDS_TEXT.split(), _APART_TEXT.split()
_glue = st.sampled_from([" ", " ", " ", "  ", ", ", ". ", "-", "/", "'s ", ".", "! "])
_part = st.tuples(st.sampled_from(_WORDS), _glue) | st.tuples(st.sampled_from(_APART), st.just(" "))
SENTENCE = st.lists(_part, max_size=12).map(lambda parts: " ".join("".join(a + b for a, b in parts).split("\n")))
FREE = st.text(st.characters(max_codepoint=0x2FFF, exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=12)

"""The facts that a caption states, and the words that state them."""

from sample_scene import scene

from tellapart.scenes import Scenes
from tellapart.scenes.claims import count_claims
from tellapart.scenes.stated_claims import stated_claims


def test_a_full_description_states_every_fact_once() -> None:
    for one in Scenes(30, split="test", full=True, references=3):
        for text in one.references:
            claims = stated_claims(text, one)
            assert len({claim.fact for claim in claims}) == len(claims) == count_claims(text, one).attributes
    text = "a blue star left of a ring on sand"
    stated = {" ".join(text.split()[word] for word in c.words): c.fact for c in stated_claims(text, scene())}
    assert stated["star"] == ("shape", ("star", "red", "small", "striped", ""))
    assert [word for word, fact in stated.items() if fact is None] == ["blue", "ring", "sand"]

"""Text analysis: words to terms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.semantics.stemmer import stem
from tidegate.semantics.words import STOP_WORDS, Analyser

# From the sample vocabulary of Snowball's English stemmer.
STEMS = """
consign consign; consigned consign; consigning consign; consignment consign; consist consist; consistency consist;
consistent consist; consistently consist; consisting consist; consolation consol; consolations consol;
consolatory consolatori; console consol; consoled consol; consoles consol; consolidate consolid;
consolidated consolid; consoling consol; consols consol; consonant conson; consort consort; conspicuous conspicu;
conspicuously conspicu; conspiracy conspiraci; conspirator conspir; conspirators conspir; conspire conspir;
constable constabl; constancy constanc; constant constant; knack knack; knackeries knackeri; knavish knavish;
kneaded knead; kneel kneel; knees knee; knell knell; knelt knelt; knew knew; knick knick; knif knif; knife knife;
knight knight; knightly knight; knights knight; knit knit; knitted knit; knitting knit; knives knive; knobs knob;
knock knock; knocked knock; knocker knocker; knopp knopp; knots knot;
generate generat; generates generat; general general; generous generous; communism communism; communities communiti;
hopping hop; hoping hope; hoped hope; luxuriated luxuri; tied tie; cries cri; ties tie; gas gas; this this; gaps gap;
kiwis kiwi; caresses caress; feed feed; agreed agre; troubled troubl; by by; say say; cry cri; happily happili;
sensational sensat; geology geolog; analogically analog; replacement replac; adoption adopt; adjustment adjust;
youth youth; boyish boyish; dying die; news news; succeeding succeed; exceed exceed; ate ate;
skies sky; herrings herring; rate rate;
controlling control
"""


@pytest.mark.parametrize(("word", "expected"), [pair.split() for pair in STEMS.replace("\n", " ").split(";")])
def test_stems_agree_with_snowball(word: str, expected: str) -> None:
    assert stem(word) == expected


@given(st.text(max_size=12) | st.text("aeiouybdfglmnprtslize", max_size=14))
def test_stem_is_not_empty_and_at_most_one_letter_longer(word: str) -> None:
    assert (len(stem(word)) > 0) == (len(word) > 0)
    assert len(stem(word)) <= len(word) + 1


def test_stop_words_single_characters_and_punctuation_are_no_terms() -> None:
    assert Analyser().terms("The use of a laptop's CPU, in room_112 -- 3.5 kWh!") == [
        "use",
        "laptop",
        "cpu",
        "room",
        "112",
        "kwh",
    ]
    assert Analyser().terms("it is what it is") == []
    assert all(word == word.lower() and word.isalpha() for word in STOP_WORDS)


def test_words_of_other_alphabets_are_terms() -> None:
    assert Analyser().terms("Zürich ΑΘΗΝΑ 東京") == ["zürich", "αθηνα", "東京"]


@given(st.lists(st.sampled_from(["energy", "Energies", "the", "x", "112", "room"])).map(" ".join))
def test_counts_agree_with_terms(text: str) -> None:
    analyser = Analyser()
    terms = analyser.terms(text)
    assert analyser.counts(text) == {term: terms.count(term) for term in terms}

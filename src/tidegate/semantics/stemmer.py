"""The stem of an English word: Porter's second algorithm, as published by Snowball.

Own code, because a space must stem its queries exactly as it stemmed its corpus, and the library's rules change between
releases (`docs/adr/0022-keep-our-own-stemmer.md`). Changing a result here needs a new `words.ANALYSIS`. Words have no
apostrophes, because `words.WORD` splits at them.
"""

from __future__ import annotations

_VOWELS = frozenset("aeiouy")
_DOUBLES = frozenset(("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt"))
_BEFORE_LI = frozenset("cdeghkmnrt")
_WHOLE_REGION = ("gener", "commun", "arsen")
"""Prefixes after which the first region begins, so that `general` and `generous` have different stems."""

_IRREGULAR = {
    **{"skis": "ski", "skies": "sky", "dying": "die", "lying": "lie", "tying": "tie", "idly": "idl"},
    **{"gently": "gentl", "ugly": "ugli", "early": "earli", "only": "onli", "singly": "singl"},
    **{word: word for word in ("sky", "news", "howe", "atlas", "cosmos", "bias", "andes")},
}
_LEFT_ALONE = frozenset(("inning", "outing", "canning", "herring", "earring", "proceed", "exceed", "succeed"))
"""Words that no step after the first changes."""

_SECOND = (
    *(("ization", "ize"), ("ational", "ate"), ("fulness", "ful"), ("ousness", "ous"), ("iveness", "ive")),
    *(("tional", "tion"), ("biliti", "ble"), ("lessli", "less")),
    *(("entli", "ent"), ("ation", "ate"), ("alism", "al"), ("aliti", "al"), ("ousli", "ous"), ("iviti", "ive")),
    *(("fulli", "ful"), ("enci", "ence"), ("anci", "ance"), ("abli", "able"), ("izer", "ize"), ("ator", "ate")),
    *(("alli", "al"), ("bli", "ble"), ("ogi", "og"), ("li", "")),
)
"""Suffixes and their replacements, the longest first."""
_THIRD = (
    *(("ational", "ate"), ("tional", "tion"), ("alize", "al"), ("icate", "ic"), ("iciti", "ic")),
    *(("ative", ""), ("ical", "ic"), ("ness", ""), ("ful", "")),
)
_FOURTH = (
    *("ement", "ance", "ence", "able", "ible", "ment"),
    *("ant", "ent", "ism", "ate", "iti", "ous", "ive", "ize", "ion", "al", "er", "ic"),
)


def stem(word: str) -> str:
    """Return the stem of a lower-case word; a word with other characters than letters is returned unchanged.

    >>> [stem(word) for word in ("consumption", "consuming", "sensors", "room", "112")]
    ['consumpt', 'consum', 'sensor', 'room', '112']
    """
    if len(word) <= 2 or not word.isalpha():
        return word
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    word = _mark_consonant_y(word)
    first = _first_region(word)
    second = _region(word, first)
    word = _plural(word)
    if word in _LEFT_ALONE:
        return word
    word = _past_and_progressive(word, first)
    if word[-1] in "yY" and len(word) > 2 and word[-2] not in _VOWELS:
        word = word[:-1] + "i"
    word = _derived(word, first)
    word = _derived_again(word, first, second)
    word = _residue(word, second)
    return _final_letter(word, first, second).replace("Y", "y")


def _mark_consonant_y(word: str) -> str:
    if "y" not in word:
        return word
    letters = list(word)
    for at, letter in enumerate(letters):
        if letter == "y" and (at == 0 or letters[at - 1] in _VOWELS):
            letters[at] = "Y"
    return "".join(letters)


def _first_region(word: str) -> int:
    for prefix in _WHOLE_REGION:
        if word.startswith(prefix):
            return len(prefix)
    return _region(word, 0)


def _region(word: str, begin: int) -> int:
    """Return the offset after the first consonant that follows a vowel."""
    for at in range(begin + 1, len(word)):
        if word[at] not in _VOWELS and word[at - 1] in _VOWELS:
            return at + 1
    return len(word)


def _has_vowel(text: str) -> bool:
    return not _VOWELS.isdisjoint(text)


def _ends_in_short_syllable(word: str) -> bool:
    if len(word) == 2:
        return word[0] in _VOWELS and word[1] not in _VOWELS
    return (
        len(word) > 2
        and word[-1] not in _VOWELS
        and word[-1] not in "wxY"
        and word[-2] in _VOWELS
        and word[-3] not in _VOWELS
    )


def _plural(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word.endswith(("us", "ss")) or not word.endswith("s"):
        return word
    return word[:-1] if _has_vowel(word[:-2]) else word


def _past_and_progressive(word: str, first: int) -> str:
    for suffix in ("eedly", "eed"):
        if word.endswith(suffix):
            begin = len(word) - len(suffix)
            return word[: begin + 2] if begin >= first else word
    for suffix in ("ingly", "edly", "ing", "ed"):
        if word.endswith(suffix):
            left = word[: -len(suffix)]
            return _mended(left, first) if _has_vowel(left) else word
    return word


def _mended(word: str, first: int) -> str:
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if word[-2:] in _DOUBLES:
        return word[:-1]
    return word + "e" if first >= len(word) and _ends_in_short_syllable(word) else word


def _derived(word: str, first: int) -> str:
    for suffix, becomes in _SECOND:
        if word.endswith(suffix):
            left = word[: -len(suffix)]
            if len(left) < first:
                return word
            if suffix == "li":
                return left if left[-1:] in _BEFORE_LI and left else word
            return word if suffix == "ogi" and not left.endswith("l") else left + becomes
    return word


def _derived_again(word: str, first: int, second: int) -> str:
    for suffix, becomes in _THIRD:
        if word.endswith(suffix):
            left = word[: -len(suffix)]
            return left + becomes if len(left) >= (second if suffix == "ative" else first) else word
    return word


def _residue(word: str, second: int) -> str:
    for suffix in _FOURTH:
        if word.endswith(suffix):
            left = word[: -len(suffix)]
            return left if len(left) >= second and (suffix != "ion" or left.endswith(("s", "t"))) else word
    return word


def _final_letter(word: str, first: int, second: int) -> str:
    left = word[:-1]
    if word.endswith("e"):
        drop = len(left) >= second or (len(left) >= first and not _ends_in_short_syllable(left))
        return left if drop else word
    return left if word.endswith("ll") and len(left) >= second else word

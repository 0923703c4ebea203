"""The grammar has one parse for each sentence, brackets are counted as they should be, and the recording is true."""

from __future__ import annotations

import json

import pytest

from annotated_transformer import recordings
from annotated_transformer.experiments import parsing
from annotated_transformer.experiments.parsing import (
    BANDS,
    CONFIG,
    INSTRUMENTS,
    LOG_EVERY,
    NOUNS,
    PARTS,
    PLACES,
    SEEDS,
    SEEING,
    SETTINGS,
    Grammar,
    linearised,
    nearest,
    scores,
    sentences,
    spans,
    words,
)

DOG = ("NP", ("DT", "the"), ("NN", "dog"))
SAW = ("S", ("NP", ("PRP", "I")), ("VP", ("VBD", "saw"), DOG))
NUMBER = {word: bool(plural) for forms in NOUNS for plural, word in enumerate(forms)}
VERBS = {
    form: ("VBZ", "VBP", "VBD")[place]
    for verbs in (SEEING, parsing.OTHER, parsing.ALONE)
    for forms in verbs
    for place, form in enumerate(forms)
}
LOOKING = {form for forms in SEEING for form in forms}


class Every:
    """Every parse of a sentence by the rules that the module's docstring states, found by trying all."""

    def __init__(self, text):
        self.words = text

    def parses(self):
        return [
            ("S", subject, verb)
            for subject, plural, end in self.noun_phrases(0, subject=True)
            for verb, end in self.verb_phrases(end, {"VBD", "VBP" if plural else "VBZ"})
            if end == len(self.words)
        ]

    def at(self, place, *wanted):
        return self.words[place : place + 1] and self.words[place] in wanted

    def noun(self, place, nouns):
        if self.at(place, "the") and self.at(place + 1, *nouns):
            plural = NUMBER.get(self.words[place + 1], False)
            yield ("NP", ("DT", "the"), (("NN", "NNS")[plural], self.words[place + 1])), plural, place + 2

    def with_(self, place, nouns):
        if self.at(place, "with"):
            for noun, _, end in self.noun(place + 1, nouns):
                yield ("PP", ("IN", "with"), noun), end

    def clause(self, place, plural):
        if self.at(place, "that"):
            for verb, end in self.verb_phrases(place + 1, {"VBP" if plural else "VBZ"}):
                yield ("SBAR", ("WDT", "that"), verb), end

    def noun_phrases(self, place, subject=False):
        for word, plural in parsing.PRONOUNS:
            if subject and self.at(place, word):
                yield ("NP", ("PRP", word)), plural, place + 1
        for noun, plural, end in self.noun(place, NUMBER):
            yield noun, plural, end
            for phrase, beyond in [*self.with_(end, PARTS), *self.clause(end, plural)]:
                yield ("NP", noun, phrase), plural, beyond
            if self.at(end, *PLACES):
                where = ("IN", self.words[end])
                for other, _, beyond in self.noun_phrases(end + 1):
                    yield ("NP", noun, ("PP", where, other)), plural, beyond
                for other, _, beyond in self.noun(end + 1, NUMBER):
                    for phrase, last in self.clause(beyond, plural):
                        yield ("NP", ("NP", noun, ("PP", where, other)), phrase), plural, last

    def verb_phrases(self, place, tags):
        if not self.at(place, *VERBS) or VERBS[self.words[place]] not in tags:
            return
        verb = (VERBS[self.words[place]], self.words[place])
        yield ("VP", verb), place + 1
        for object_, _, end in self.noun_phrases(place + 1):
            yield ("VP", verb, object_), end
            for phrase, beyond in self.with_(end, INSTRUMENTS):
                if self.words[place] in LOOKING and not LOOKING & set(self.words[place + 1 : end]):
                    yield ("VP", verb, object_, phrase), beyond


@pytest.mark.parametrize("band", BANDS)
def test_every_sentence_has_one_parse(band):
    for tree in sentences(150, 7, band):
        assert Every(words(tree)).parses() == [tree]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("the dog near the cats that sleeps runs", "(S (NP (NP {N} (PP IN {S} ) ) (SBAR WDT (VP VBZ ) ) ) (VP VBZ ) )"),
        ("the dog near the cats that sleep runs", "(S (NP {N} (PP IN (NP {S} (SBAR WDT (VP VBP ) ) ) ) ) (VP VBZ ) )"),
        ("she saw the dog with the lamp", "(S (NP PRP ) (VP VBD {N} (PP IN {N} ) ) )"),
        ("she saw the dog with the tail", "(S (NP PRP ) (VP VBD (NP {N} (PP IN {N} ) ) ) )"),
    ],
)
def test_a_late_word_decides(text, wanted):
    (tree,) = Every(text.split()).parses()
    assert " ".join(linearised(tree)) == wanted.format(N="(NP DT NN )", S="(NP DT NNS )")


def test_the_running_example():
    assert words(SAW) == ["I", "saw", "the", "dog"]
    assert " ".join(linearised(SAW)) == "(S (NP PRP ) (VP VBD (NP DT NN ) ) )"
    assert spans(linearised(SAW)) == [("NP", 0, 1), ("NP", 2, 4), ("VP", 1, 4), ("S", 0, 4)]


@pytest.mark.parametrize(
    ("text", "message"), [("(S DT ) )", "closed that was not"), ("(S (NP DT )", "1 brackets stay")]
)
def test_brackets_have_to_fit(text, message):
    with pytest.raises(ValueError, match=message):
        spans(text.split())


def test_scores():
    right = linearised(SAW)
    assert scores([right], [right]) == {"exact": 1, "f1": 1, "formed": 1}
    assert scores([right, right[:-1]], [right, right]) == {"exact": 0.5, "f1": 2 * 4 / 12, "formed": 0.5}
    flat = [
        "(S",
        "(NP",
        "PRP",
        ")",
        "VBD",
        "(NP",
        "DT",
        "NN",
        ")",
        ")",
    ]  # three of its brackets are right, and one is missing
    assert scores([flat], [right]) == {"exact": 0, "f1": 2 * 3 / 7, "formed": 1}
    renamed = [token.replace("(VP", "(PP") for token in right]
    assert scores([renamed], [right])["f1"] == 2 * 3 / 8
    assert scores([["(NP", "(NP", "PRP", ")", ")"]], [["(NP", "PRP", ")"]])["f1"] == 2 / 3  # one counts once


def test_the_nearest_is_the_word_before():
    trees = sentences(400, 3, BANDS[0])
    for tree in trees:
        found = nearest(tree)
        assert words(found) == words(tree)
        assert nearest(found) == found
    share = scores([linearised(nearest(tree)) for tree in trees], [linearised(tree) for tree in trees])
    assert 0.5 < share["exact"] < 0.8
    late = Every(["she", "saw", "the", "dog", "that", "sleeps", "with", "the", "lamp"]).parses()[0]
    assert nearest(late)[2][2][2][2] == ("VP", ("VBZ", "sleeps"), late[2][3])


def test_held_out_is_held_out():
    learned, held_out = parsing.split(0, train=3000)
    for band, trees in zip(BANDS, held_out, strict=True):
        assert len(set(trees)) == len(trees)
        assert not set(trees) & set(learned)
        assert all(band[0] <= len(words(tree)) <= band[1] for tree in trees)
    assert sentences(5, 1, BANDS[0]) == sentences(5, 1, BANDS[0]) != sentences(5, 2, BANDS[0])
    assert Grammar(0).sentence() == Grammar(0).sentence()


def test_the_first_steps_are_as_recorded():
    recording = recordings.read(parsing.NAME)
    assert recording["settings"]["bands"] == [list(band) for band in BANDS]
    assert recording["settings"]["config"] == json.loads(json.dumps(vars(CONFIG)))
    assert recording["settings"]["training"] == json.loads(json.dumps(vars(SETTINGS)))
    assert recording["settings"]["train"] == parsing.TRAIN
    _, losses = parsing.learn(SEEDS[0], steps=LOG_EVERY)
    assert losses == pytest.approx(recording["results"]["loss"][0][:1], rel=1e-3)


def test_the_recording_is_written(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(parsing, "TEST", 3)
    monkeypatch.setattr(parsing, "LONG", 2)
    tiny = SETTINGS.replace(steps=LOG_EVERY, warmup_steps=5, max_tokens=60)
    parsing.main([0, 1], CONFIG.replace(d_model=8, d_ff=9, h=2, N=1), tiny, 50, tmp_path)
    results = recordings.read(parsing.NAME, tmp_path)["results"]
    assert [len(curve) for curve in results["loss"]] == [1, 1]
    for who in ("model", "nearest"):
        assert [len(bands) for bands in results[who]] == [len(BANDS)] * 2
        assert set(results[who][0][0]) == {"exact", "f1", "formed"}
    assert "seed 1: " in capsys.readouterr().out

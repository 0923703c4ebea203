"""The tokenizer that models use: lossless, deterministic, safe from special tokens in a text, and clear when wrong."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import re
import subprocess
import sys
from collections import Counter

import pytest
import tokenizers
import torch
from hypothesis import given
from hypothesis import strategies as st
from shapes import quick
from tokenizers import models

from annotated_transformer.tokens import END, KINDS, PAD, START, UNKNOWN, Tokenizer

ENGLISH = ["I saw the dog.", "The dog saw me, too.", "It was on 5 March 1997.", "The dogs saw the dog"]
OTHERS = [
    "Ich habe den Hund gesehen.",
    "Der Hund sah mich auch.",
    "Es war am 5. März 1997.",
    "我看见了那只狗。",
    "狗也看见了我。",
]
TEXTS = [*ENGLISH, *OTHERS]
LANGUAGES = ("de", "zh")
FIRST = 6  # the first id that is text
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", "<de>", "<zh>"]

HARD = [
    "",
    " ",
    "   ",
    " leading",
    "trailing ",
    "two  blanks   three",
    "line\nbreak\r\n\r\n",
    "\ttab\t\t",
    "\n \n  x",
    "e\u0301 n\u0303 \u0301 a\u0308\u0323",
    "\u00e9 \u1ebf \u212b",
    "👍🏽 👩\u200d👩\u200d👧 🇩🇪",
    "我看见了那只狗也看见了我没有空格",
    "日本語のテキスト。한국어 텍스트",
    "\x00 \x01\x7f\x85\u2028\u2029\ufeff\u00a0\u202f\u3000",
    "▁ ▁x Ġ Ċ �",
    "</s> <s> <pad> <unk> <de> <zh>",
    "العربية नमस्ते ไทย",
    "a_b __ 3.14 1997 ½² x²",
    "\U0010ffff \ue000 ﷽",
    "it's 'tis don't",
]


def made(kind, texts=(*TEXTS, *HARD), vocab_size=499, languages=LANGUAGES):
    return Tokenizer.train(texts, kind, vocab_size, languages)


@pytest.fixture(scope="module")
def all_kinds():
    return {kind: made(kind) for kind in KINDS}


@pytest.fixture(params=KINDS)
def tokenizer(request, all_kinds):
    return all_kinds[request.param]


@pytest.fixture
def bpe(all_kinds):
    return all_kinds["bpe"]


# There and back


@pytest.mark.parametrize("text", HARD, ids=ascii)
def test_a_text_comes_back_as_it_was(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode_batch([text, "dog", text]) == [tokenizer.encode(x) for x in (text, "dog", text)]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@quick
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_subwords_know_every_text(all_kinds, kind, text):
    ids = all_kinds[kind].encode(text)
    assert all_kinds[kind].decode(ids) == text
    assert all(id >= FIRST for id in ids)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_every_byte_has_a_token(kind):
    tokenizer = made(kind, ["a"], vocab_size=256 + FIRST)
    assert tokenizer.vocab_size == 256 + FIRST
    assert sorted(tokenizer._bytes[FIRST:]) == [bytes([byte]) for byte in range(256)]
    assert tokenizer.encode("é") == [tokenizer._bytes.index(b"\xc3"), tokenizer._bytes.index(b"\xa9")]


@pytest.mark.parametrize("kind", ["word", "character"])
def test_what_was_not_in_the_texts_is_unknown(kind):
    tokenizer = made(kind, ["a dog"])
    ids = tokenizer.encode("a Ω dog")
    assert ids.count(UNKNOWN) == 1
    assert tokenizer.decode(ids) == "a � dog"


def test_special_tokens_are_no_text(tokenizer):
    ids = tokenizer.encode("the dog")
    assert tokenizer.decode([START, 4, *ids[:1], PAD, *ids[1:], END, 5, PAD, PAD]) == "the dog"
    assert tokenizer.decode([START, END]) == tokenizer.decode([]) == ""
    assert tokenizer.decode([UNKNOWN]) == "�"


def test_half_a_character_is_shown_as_such(bpe):
    half = bpe._bytes.index(b"\xc3")
    assert bpe.decode([half]) == "�"
    assert bpe.token(half) == "<0xC3>"


def test_ids_may_be_a_tensor(tokenizer):
    ids = tokenizer.encode("the dog")
    assert tokenizer.decode(torch.tensor(ids)) == "the dog"
    assert tokenizer.tokens(torch.tensor(ids)) == tokenizer.tokens(ids)


@pytest.mark.parametrize("text", HARD, ids=ascii)
@pytest.mark.parametrize("kind", KINDS)
def test_the_library_decodes_the_same(all_kinds, kind, text):
    tokenizer = all_kinds[kind]
    assert tokenizer._model.decode(tokenizer.encode(text)) == text


# Special tokens


def test_the_first_ids_are_the_same_for_all(tokenizer):
    assert (PAD, START, END, UNKNOWN) == (0, 1, 2, 3)
    assert tokenizer.tokens(range(FIRST)) == SPECIAL
    assert tokenizer.languages == LANGUAGES
    assert [tokenizer.language_id(language) for language in LANGUAGES] == [4, 5]


@pytest.mark.parametrize("how", ["made", "loaded", "pickled", "copied"])
@pytest.mark.parametrize("special", SPECIAL)
def test_no_text_holds_a_special_token(tokenizer, special, how, tmp_path):
    if how == "loaded":
        tokenizer.save(tmp_path / "tokenizer.json")
        tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    elif how != "made":
        tokenizer = pickle.loads(pickle.dumps(tokenizer)) if how == "pickled" else copy.deepcopy(tokenizer)
    for text in (special, f"a {special}{special} dog", f" {special} "):
        for ids in (tokenizer.encode(text), *tokenizer.encode_batch([text])):
            assert min(ids) >= FIRST
            assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("kind", KINDS)
def test_training_on_special_tokens_teaches_none(kind):
    tokenizer = made(kind, SPECIAL * 99 + ["<pad></s>" * 99])
    for special in SPECIAL:
        ids = tokenizer.encode(special)
        assert min(ids) >= FIRST
        assert len(ids) > 1


def test_without_languages_text_starts_at_4():
    tokenizer = Tokenizer.train(TEXTS, "word", 99)
    assert tokenizer.languages == ()
    assert min(id for text in TEXTS for id in tokenizer.encode(text)) == 4
    with pytest.raises(ValueError, match=r"^language must be one of the tokenizer's \(none\), got 'de'\.$"):
        tokenizer.language_id("de")


def test_a_language_is_one_of_those_known(tokenizer):
    with pytest.raises(ValueError, match=r"^language must be one of the tokenizer's \(de, zh\), got 'fr'\.$"):
        tokenizer.language_id("fr")


# What the kinds are


def test_words_are_letters_in_a_row_and_single_others():
    text = "Am 12. März_1997:  ja!\n我看见 e\u0301"
    tokenizer = Tokenizer.train([text], "word")
    expected = [
        "Am",
        "▁",
        "1",
        "2",
        ".",
        "▁",
        "März",
        "_",
        "1",
        "9",
        "9",
        "7",
        ":",
        "▁",
        "▁",
        "ja",
        "!",
        "\\n",
        "我看见",
    ]
    assert tokenizer.tokens(tokenizer.encode(text)) == [*expected, "▁", "e\u0301"]


def test_words_of_dates_are_those_of_the_regular_expression():
    texts = ["Monday, 5 March 1997", "1997年3月5日星期三", "5. März 1997"]
    tokenizer = Tokenizer.train(texts, "word")
    for text in texts:
        words = re.findall(r"[^\W\d_]+|\d|[^\w\s]|\s", text)
        assert tokenizer.tokens(tokenizer.encode(text)) == [word.replace(" ", "▁") for word in words]


def test_characters_are_code_points():
    tokenizer = Tokenizer.train(["e\u0301a\nb "], "character")
    assert tokenizer.tokens(tokenizer.encode("e\u0301a\nb ")) == ["e", "\u0301", "a", "\\n", "b", "▁"]


def test_the_most_frequent_words_stay():
    tokenizer = Tokenizer.train(["a a a b b c"], "word", 4 + 3)
    assert [tokenizer.token(i) for i in range(4, 7)] == ["▁", "a", "b"]
    assert tokenizer.encode("c") == [UNKNOWN]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_no_subword_reaches_beyond_a_word(kind):
    tokenizer = Tokenizer.train(["(the dog), 1997, the dog1 sees"] * 9 + ENGLISH, kind, 290)
    assert any(len(piece) > 1 for piece in tokenizer._bytes[4:])
    for token in tokenizer.tokens(range(4, tokenizer.vocab_size)):
        assert len(token) == 1 or re.fullmatch(r"▁?[A-Za-z]+|▁?\d|▁?[.,()]+|\\.+|<0x..>", token), token


def test_combining_characters_belong_to_their_letters():
    tokenizer = Tokenizer.train(["ge\u0301nial"] * 9)
    assert tokenizer.tokens(tokenizer.encode("ge\u0301nial")) == ["ge\u0301nial"]


@pytest.mark.parametrize("kind", KINDS)
def test_kind_is_what_was_asked_for(all_kinds, kind):
    assert all_kinds[kind].kind == kind
    assert pickle.loads(pickle.dumps(all_kinds[kind])).kind == kind


def test_one_vocabulary_serves_source_and_target():
    """5.1: a word that both languages have is one token, in either."""
    tokenizer = Tokenizer.train(["London is large"] * 9 + ["London ist groß"] * 9)
    assert tokenizer.encode("London is")[0] == tokenizer.encode("London ist")[0]


def test_vocab_size_is_a_limit():
    assert Tokenizer.train(TEXTS * 9, "bpe", 300).vocab_size == 300
    assert Tokenizer.train(["ab"], "bpe").vocab_size == 4 + 256 + 1
    assert Tokenizer.train(TEXTS, "character", 9).vocab_size == 9


def test_bpe_learns_from_the_texts():
    long, short = (len(Tokenizer.train(TEXTS, "bpe", size).encode(ENGLISH[0])) for size in (260, 500))
    assert long == len(ENGLISH[0])
    assert short < long / 2


# Chance


def test_dropout_cuts_a_text_in_several_ways(bpe):
    text = "I saw the dog."
    cuts = {tuple(bpe.encode(text, dropout=0.5)) for _ in range(99)}
    assert len(cuts) > 5
    assert {bpe.decode(cut) for cut in cuts} == {text}
    assert {tuple(bpe.encode(text)) for _ in range(99)} == {tuple(bpe.encode(text, dropout=0.0))}
    assert Counter(len(ids) for ids in bpe.encode_batch([text] * 99, dropout=0.9)).keys() != {len(bpe.encode(text))}


def test_more_dropout_leaves_more_pieces(bpe):
    few, some, all_but = (
        sum(map(len, bpe.encode_batch([ENGLISH[0]] * 199, dropout=dropout))) for dropout in (0.01, 0.5, 0.99)
    )
    assert len(bpe.encode(ENGLISH[0])) * 199 <= few < some < all_but


def test_the_default_is_bpe_of_the_papers_size():
    """Section 5.1: about 37000 tokens."""
    defaults = {name: one.default for name, one in inspect.signature(Tokenizer.train).parameters.items()}
    assert (defaults["kind"], defaults["vocab_size"], defaults["languages"]) == ("bpe", 37_000, ())


def test_a_saved_file_has_lines_that_end_the_same_everywhere(bpe, tmp_path):
    bpe.save(tmp_path / "tokenizer.json")
    data = (tmp_path / "tokenizer.json").read_bytes()
    assert data.endswith(b"}\n")
    assert data.count(b"\n") > 99
    assert b"\r" not in data


def test_dropout_ends_with_the_call(bpe):
    before = bpe.encode(ENGLISH[0])
    with pytest.raises(TypeError):
        bpe.encode_batch([ENGLISH[0], 5], dropout=0.9)
    bpe.encode(ENGLISH[0], dropout=0.9)
    assert bpe._model.model.dropout is None
    assert bpe.encode(ENGLISH[0]) == before


@pytest.mark.parametrize("kind", ["unigram", "word", "character"])
def test_dropout_is_bpes(all_kinds, kind):
    with pytest.raises(ValueError, match=f"^dropout is there for kind 'bpe' alone, and this tokenizer's is '{kind}'"):
        all_kinds[kind].encode("a", dropout=0.1)
    assert all_kinds[kind].encode("dog", dropout=0.0) == all_kinds[kind].encode("dog")


@pytest.mark.parametrize("dropout", [-0.1, 1.0])
def test_dropout_is_a_share(bpe, dropout):
    with pytest.raises(ValueError, match=r"^dropout is the share"):
        bpe.encode("a", dropout=dropout)


# Files

MAKE = """
import sys
from annotated_transformer.tokens import Tokenizer
for kind in ("bpe", "unigram", "word", "character"):
    Tokenizer.train(sys.argv[2:], kind, 499, ("de", "zh")).save(f"{sys.argv[1]}/{kind}.json")
"""


def test_the_same_texts_give_the_same_bytes(all_kinds, tmp_path):
    """In another process too, where Python and the library hash otherwise."""
    texts = [text for text in (*TEXTS, *HARD) if "\x00" not in text]
    command = [sys.executable, "-W", "error", "-c", MAKE, str(tmp_path), *texts]
    subprocess.run(command, check=True)
    for kind in KINDS:
        made(kind, texts).save(tmp_path / "again.json")
        assert (tmp_path / f"{kind}.json").read_bytes() == (tmp_path / "again.json").read_bytes()


def test_a_file_gives_the_tokenizer_back(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text("old", encoding="utf-8")
    tokenizer.save(str(path))
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]
    loaded = Tokenizer.load(path)
    assert (loaded.kind, loaded.languages, loaded.vocab_size) == (tokenizer.kind, LANGUAGES, tokenizer.vocab_size)
    assert loaded.encode_batch(HARD) == tokenizer.encode_batch(HARD)
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_the_library_reads_the_file(bpe, tmp_path):
    bpe.save(tmp_path / "tokenizer.json")
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert library.encode("我 saw the dog").ids == bpe.encode("我 saw the dog")
    assert library.encode("</s>").ids == [END]  # it keeps no note that this text is only text; we do


def test_the_old_file_stays_if_writing_fails(bpe, tmp_path):
    (tmp_path / "tokenizer.json").mkdir()
    with pytest.raises(OSError, match=r"tokenizer\.json"):
        bpe.save(tmp_path / "tokenizer.json")
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]
    with pytest.raises(FileNotFoundError):
        bpe.save(tmp_path / "none" / "tokenizer.json")


def test_there_is_a_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        Tokenizer.load(tmp_path / "none.json")


def changed(tokenizer, change):
    written = json.loads(tokenizer._model.to_str())
    change(written)
    return json.dumps(written)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Expecting value: line 1"),
        (b"not json", "Expecting value: line 1"),
        (b"\xff\xfe", "codec can't decode"),
        (b"{}", "Model missing"),
        (b'{"a": [1, 2]}', ""),
        (tokenizers.Tokenizer(models.BPE()).to_str().encode(), "first ids must be those of <pad>, <s>, </s>, <unk>"),
    ],
    ids=["empty", "text", "binary", "{}", "other", "foreign"],
)
def test_the_file_is_a_tokenizers(tmp_path, content, reason):
    (tmp_path / "wrong.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"wrong\.json is not a file that Tokenizer\.save wrote: ") as caught:
        Tokenizer.load(tmp_path / "wrong.json")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda written: written.update(pre_tokenizer=None), "it must be of one of the kinds bpe, unigram, word, char"),
        (lambda written: written.update(normalizer={"type": "NFC"}), "it must be of one of the kinds"),
        (lambda written: written["added_tokens"].pop(0), "its first ids must be those of"),
        (
            lambda written: written["added_tokens"].append({**written["added_tokens"][0], "id": 99, "content": "~"}),
            "its",
        ),
    ],
    ids=["cuts otherwise", "normalizes", "lacks <pad>", "has one more"],
)
def test_the_file_is_one_of_ours(bpe, tmp_path, change, reason):
    (tmp_path / "wrong.json").write_text(changed(bpe, change), encoding="utf-8")
    with pytest.raises(ValueError, match=r"wrong\.json is not a file that Tokenizer\.save wrote: ") as caught:
        Tokenizer.load(tmp_path / "wrong.json")
    assert reason in str(caught.value)


# For the eye


def test_tokens_are_written_for_a_figure(bpe):
    tokenizer = Tokenizer.train(["the dog\n"] * 9)
    assert tokenizer.tokens(tokenizer.encode("the dog\n")) == ["the", "▁dog", "\\n"]
    assert "".join(bpe.tokens(bpe.encode("I saw\tthe dog"))) == "I▁saw\\tthe▁dog"


@pytest.mark.parametrize("id", [-1, 499])
def test_an_id_is_in_the_vocabulary(bpe, id):
    assert bpe.vocab_size == 499
    for use in (bpe.token, lambda id: bpe.tokens([id]), lambda id: bpe.decode([5, id])):
        with pytest.raises(ValueError, match=rf"^ids must be from 0 to 498, got {id}\.$"):
            use(id)


# What is refused


@pytest.mark.parametrize("texts", [[], [""], ["", ""], iter(())], ids=["none", "empty", "two empty", "iterator"])
@pytest.mark.parametrize("kind", KINDS)
def test_texts_hold_some_text(texts, kind):
    with pytest.raises(ValueError, match=r"^texts must hold some text, got none\.$"):
        Tokenizer.train(texts, kind)


@pytest.mark.parametrize(
    "use", [Tokenizer.train, lambda texts: made("word").encode_batch(texts)], ids=["train", "batch"]
)
def test_texts_are_several_strings(use):
    with pytest.raises(TypeError, match=r"^texts must be several strings, got one; write \[text\]\.$"):
        use("a b")
    with pytest.raises(TypeError, match=r"^each text must be a string, got int\.$"):
        use(["a", 5])
    with pytest.raises(ValueError, match="surrogates not allowed"):
        use(["a", "b\ud800"])


@pytest.mark.parametrize("text", [None, 5, b"a", ["a"]], ids=repr)
def test_a_text_is_a_string(tokenizer, text):
    with pytest.raises(TypeError, match=r"^each text must be a string, got "):
        tokenizer.encode(text)


def test_a_batch_may_be_empty(tokenizer):
    assert tokenizer.encode_batch([]) == []
    assert tokenizer.encode_batch(iter(["", "dog"])) == [[], tokenizer.encode("dog")]


@pytest.mark.parametrize("kind", ["BPE", "wordpiece", None])
def test_kind_is_one_of_four(kind):
    with pytest.raises(ValueError, match=rf"^kind must be one of bpe, unigram, word, character, got {kind!r}\.$"):
        Tokenizer.train(["a"], kind)


@pytest.mark.parametrize(("kind", "least"), [("bpe", 262), ("unigram", 262), ("word", 7), ("character", 7)])
def test_vocab_size_has_room_for_what_must_be_there(kind, least):
    assert Tokenizer.train(["a"], kind, least, LANGUAGES).vocab_size == least
    with pytest.raises(
        ValueError, match=rf"^vocab_size must be at least {least} for kind '{kind}', got {least - 1}: 6 "
    ):
        Tokenizer.train(["a"], kind, least - 1, LANGUAGES)
    with pytest.raises(TypeError, match=r"^vocab_size must be an integer, got 500\.0\.$"):
        Tokenizer.train(["a"], kind, 500.0)


@pytest.mark.parametrize("name", ["", "d e", "de>", "<de>", "dé", 5, None], ids=repr)
def test_languages_have_plain_names(name):
    with pytest.raises(ValueError, match=r"^languages must be names of letters, digits, - and _") as caught:
        Tokenizer.train(["a"], languages=["zh", name])
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("names", [("de", "de"), ("s",), ("pad",), ("unk", "de")], ids=str)
def test_languages_differ(names):
    with pytest.raises(ValueError, match=r"^languages must differ from each other and from pad, s and unk, got "):
        Tokenizer.train(["a"], languages=names)


def test_languages_are_several():
    with pytest.raises(TypeError, match=r"^languages must be several names, got one; write \('de',\)\.$"):
        Tokenizer.train(["a"], languages="de")
    assert Tokenizer.train(["a"], languages=["zh_TW", "pt-BR"]).languages == ("zh_TW", "pt-BR")


def test_a_tokenizer_says_what_it_is():
    assert repr(Tokenizer.train(["a b"], kind="character")) == "<Tokenizer: character, 7 tokens>"
    found = repr(Tokenizer.train(["a"], kind="word", languages=("de", "zh")))
    assert found == "<Tokenizer: word, 7 tokens, languages de, zh>"

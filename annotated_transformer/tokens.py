"""From text to token ids and back (section 5.1), with the library ``tokenizers``; ``subwords`` has the algorithms.

Source and target share one vocabulary. Its first ids are the same for every kind: ``<pad>``, ``<s>``, ``</s>``,
``<unk>``, then one for each target language of a model that has several, such as ``<de>``. No text can hold one of
them: the letters ``</s>`` in a text are letters.

Decoding gives back the text as it was, blanks, line breaks and all. Subwords are cut from the bytes of UTF-8, so that
there is a token for everything.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from . import require

if TYPE_CHECKING:
    import tokenizers

__all__ = ["END", "KINDS", "PAD", "START", "UNKNOWN", "Tokenizer"]

PAD, START, END, UNKNOWN = 0, 1, 2, 3
"""The ids of ``<pad>``, which fills up, ``<s>``, which starts the target, ``</s>``, which ends both, ``<unk>``."""

SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")

KINDS = ("bpe", "unigram", "word", "character")
"""What tokens can be."""

_BYTES = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]  # those that are visible characters of Latin-1
_BYTES += sorted(set(range(256)) - set(_BYTES))
_BYTE = {chr(byte if place < 188 else 256 + place - 188): byte for place, byte in enumerate(_BYTES)}
# The character that stands for each byte in a tokenizer's file, as the library writes them: the visible ones for
# themselves, the other 68 as U+0100 and on. A blank is Ġ.

_WORDS = r" ?[\p{L}\p{M}]+| ?\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"
"""No subword reaches beyond one of these: letters, one digit, other marks, each with the blank before it; blanks."""

_LETTERS = r"[\p{L}\p{M}]+|[^\p{L}\p{M}]"
"""The kind "word": letters in a row, any other character alone."""


class Tokenizer:
    """Turns text into token ids and back; made by ``train`` or ``load``."""

    def __init__(self, model: tokenizers.Tokenizer) -> None:
        self._model = model
        self._model.encode_special_tokens = True  # or the letters "</s>" in a text would end the sentence
        self._tokens = [model.id_to_token(i) or "" for i in range(model.get_vocab_size())]
        added = model.get_added_tokens_decoder()
        self._first = sum(token.special for token in added.values())  # of the ids that are text
        if tuple(self._tokens[: len(SPECIAL)]) != SPECIAL or sorted(added) != list(range(self._first)):
            raise ValueError(f"its first ids must be those of {', '.join(SPECIAL)}, then languages, and are not.")
        self._kind = _kind_of(model)
        as_bytes: Callable[[str], bytes] = _from_byte_level if self._kind in ("bpe", "unigram") else str.encode
        self._bytes = [b""] * self._first + [as_bytes(token) for token in self._tokens[self._first :]]
        self._bytes[UNKNOWN] = "\N{REPLACEMENT CHARACTER}".encode()

    @classmethod
    def train(
        cls, texts: Iterable[str], kind: str = "bpe", vocab_size: int = 37_000, languages: Iterable[str] = ()
    ) -> Tokenizer:
        """Make a vocabulary from texts, those of source and target together (5.1: "a shared source-target vocabulary").

        The same texts give the same vocabulary.

        Args:
            texts: Sentences, in any order.
            kind: ``"bpe"``, byte-pair encoding, as in the paper; ``"unigram"``, the most likely pieces (Kudo 2018),
                which takes minutes where BPE takes seconds; ``"word"``, letters in a row and any other character alone;
                ``"character"``.
            vocab_size: The most tokens there may be, special ones included; fewer where the texts give no more. Of
                words and characters the most frequent stay, and the rest are unknown.
            languages: Names such as ``"de"``, in the order of their ids, if one model writes several.

        Raises:
            TypeError: If ``texts`` is one string, or holds something else than strings.
            ValueError: If ``texts`` are empty, ``kind`` is none of those above, ``vocab_size`` is too small, or a
                language's name is doubled or more than letters, digits, ``-`` and ``_``.
        """
        from tokenizers import pre_tokenizers, trainers

        special = _special_tokens(languages)
        model = _untrained(kind)
        _require_size(vocab_size, len(special), kind)
        trainer: trainers.Trainer
        all_bytes = sorted(pre_tokenizers.ByteLevel.alphabet())  # also those that no text has
        if kind == "bpe":
            trainer = trainers.BpeTrainer(
                vocab_size=vocab_size, special_tokens=special, initial_alphabet=all_bytes, show_progress=False
            )
        elif kind == "unigram":
            trainer = trainers.UnigramTrainer(
                vocab_size=vocab_size,
                special_tokens=special,
                initial_alphabet=all_bytes,
                unk_token=SPECIAL[UNKNOWN],
                show_progress=False,
            )
        else:
            trainer = trainers.WordLevelTrainer(vocab_size=vocab_size, special_tokens=special, show_progress=False)
        model.train_from_iterator(_checked(texts), trainer)
        return cls._from_text(_settled(model.to_str()))

    @property
    def vocab_size(self) -> int:
        """Number of tokens, special ones included."""
        return len(self._tokens)

    @property
    def kind(self) -> str:
        """What the tokens are: one of ``KINDS``."""
        return self._kind

    @property
    def languages(self) -> tuple[str, ...]:
        """The names of the languages that have a token, in the order of their ids."""
        return tuple(token[1:-1] for token in self._tokens[len(SPECIAL) : self._first])

    def language_id(self, language: str) -> int:
        """Return the id of a language's token, which comes first in a source to say what to translate into.

        Raises:
            ValueError: If the tokenizer has no such language.
        """
        if language not in self.languages:
            known = ", ".join(self.languages) or "none"
            raise ValueError(f"language must be one of the tokenizer's ({known}), got {language!r}.")
        return len(SPECIAL) + self.languages.index(language)

    def encode(self, text: str, *, dropout: float = 0.0) -> list[int]:
        """Return a text's ids, none of them special but ``<unk>``.

        Args:
            text: Any text.
            dropout: Share of BPE's merges that are passed over at random, so that the same text is cut in several ways
                (BPE-dropout, Provilkov et al. 2020). The library's chance takes no seed; that of
                ``subwords.encode_bpe`` does.

        Raises:
            TypeError: If ``text`` is not a string, or ``dropout`` not a number.
            ValueError: If ``dropout`` is outside [0, 1) or the tokens are not BPE's, or if ``text`` has half a
                surrogate pair.
        """
        return self.encode_batch([text], dropout=dropout)[0]

    def encode_batch(self, texts: Iterable[str], *, dropout: float = 0.0) -> list[list[int]]:
        """Return the ids of many texts, as ``encode`` would of each, in less time."""
        require.share("dropout", dropout)
        if dropout and self._kind != "bpe":
            raise ValueError(f"dropout is there for kind 'bpe' alone, and this tokenizer's is {self._kind!r}.")
        batch = list(_checked(texts, empty=True))
        try:
            if dropout:
                self._model.model.dropout = dropout
            return [encoding.ids for encoding in self._model.encode_batch(batch, add_special_tokens=False)]
        finally:
            if dropout:
                self._model.model.dropout = None

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of some ids, without the special ones.

        ``decode(encode(text))`` is ``text``, unless there are unknown tokens. These, and bytes that make no character,
        as a model may write them, become � (U+FFFD).

        Raises:
            ValueError: If an id is not in the vocabulary.
        """
        return b"".join(self._bytes[self._checked_id(i)] for i in ids).decode("utf-8", errors="replace")

    def token(self, id: int) -> str:
        """Return a token as a figure writes it: ``▁`` for a blank, escapes for what is not visible or half a character.

        Raises:
            ValueError: If the id is not in the vocabulary.
        """
        if self._checked_id(id) < self._first:
            return self._tokens[id]
        piece = self._bytes[id]
        try:
            text = piece.decode("utf-8")
        except UnicodeDecodeError:
            return "".join(f"<0x{byte:02X}>" for byte in piece)
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text.replace(" ", "▁"))

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the tokens of some ids, as ``token`` writes each."""
        return [self.token(i) for i in ids]

    def save(self, path: Path | str) -> None:
        """Write the tokenizer as the library's JSON; the file is complete or, if anything goes wrong, the old one.

        The same tokenizer writes the same bytes.

        Raises:
            OSError: If it cannot be written; if, say, the folder does not exist.
        """
        path = Path(path)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            beside.write_text(self._model.to_str(pretty=True) + "\n", encoding="utf-8", newline="\n")
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path | str) -> Tokenizer:
        """Read what ``save`` wrote.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If it is not a tokenizer's, or not one with the special tokens of this module.
        """
        try:
            return cls._from_text(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is not a file that Tokenizer.save wrote: {error}") from error

    @classmethod
    def _from_text(cls, text: str) -> Tokenizer:
        from tokenizers import Tokenizer as Library

        json.loads(text)  # says where a mistake is
        try:
            model = Library.from_str(text)
        except Exception as error:  # the library raises no narrower one
            raise ValueError(f"{error}.") from error
        return cls(model)

    def __repr__(self) -> str:
        languages = f", languages {', '.join(self.languages)}" if self.languages else ""
        return f"<Tokenizer: {self.kind}, {self.vocab_size} tokens{languages}>"

    def __reduce__(self) -> tuple[Callable[[str], Tokenizer], tuple[str]]:
        return self._from_text, (self._model.to_str(),)  # the library's own copy forgets encode_special_tokens

    def _checked_id(self, id: int) -> int:
        if not 0 <= id < len(self._tokens):
            raise ValueError(f"ids must be from 0 to {len(self._tokens) - 1}, got {id}.")
        return id


def _untrained(kind: str) -> tokenizers.Tokenizer:
    """The library's tokenizer of that kind, without a vocabulary."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    if kind in ("word", "character"):
        tokenizer = Tokenizer(models.WordLevel(unk_token=SPECIAL[UNKNOWN]))
        pattern = _LETTERS if kind == "word" else r"[\s\S]"
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
        tokenizer.decoder = decoders.Fuse()
        return tokenizer
    tokenizer = Tokenizer(models.BPE() if kind == "bpe" else models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _kind_of(model: tokenizers.Tokenizer) -> str:
    """Which of the kinds a tokenizer is: that with its model and its way to cut a text."""
    for kind in KINDS:
        fresh = _untrained(kind)
        if type(fresh.model) is type(model.model) and _part(fresh) == _part(model):
            return kind
    raise ValueError(f"it must be of one of the kinds {', '.join(KINDS)}, and cuts a text in another way.")


def _part(model: tokenizers.Tokenizer) -> object:
    written = json.loads(model.to_str())
    return [written["normalizer"], written["pre_tokenizer"]]


def _special_tokens(languages: Iterable[str]) -> list[str]:
    if isinstance(languages, str):
        raise TypeError(f"languages must be several names, got one; write ({languages!r},).")
    names = list(languages)
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise ValueError(f"languages must be names of letters, digits, - and _, such as 'de', got {name!r}.")
    tokens = [*SPECIAL, *(f"<{name}>" for name in names)]
    if len(set(tokens)) < len(tokens):
        raise ValueError(f"languages must differ from each other and from pad, s and unk, got {', '.join(names)}.")
    return tokens


def _require_size(vocab_size: int, special: int, kind: str) -> None:
    text = 256 if kind in ("bpe", "unigram") else 1
    require.integer("vocab_size", vocab_size)
    if vocab_size < special + text:
        raise ValueError(
            f"vocab_size must be at least {special + text} for kind {kind!r}, got {vocab_size}: {special} special "
            f"tokens and {'one for each byte' if text > 1 else 'at least one of text'}."
        )


def _checked(texts: Iterable[str], empty: bool = False) -> Iterator[str]:
    """Pass the texts on, if they are that, and if there are any."""
    if isinstance(texts, str):
        raise TypeError("texts must be several strings, got one; write [text].")
    some = empty
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"each text must be a string, got {require.kind(text)}.")
        if not text.isascii():
            text.encode()  # raises where half a surrogate pair is, which is no character
        some = some or bool(text)
        yield text
    if not some:
        raise ValueError("texts must hold some text, got none.")


def _settled(text: str) -> str:
    """Take chance out of unigram's scores: the last digits, and which of the bytes that no text has comes first.

    These bytes have scores 0.0001 apart, in an order that the library draws anew each time.
    """
    written = json.loads(text)
    if written["model"]["type"] == "Unigram":
        vocab, first = written["model"]["vocab"], len(written["added_tokens"])
        scores = {piece: round(score, 6) for piece, score in vocab[first:]}
        unseen = sorted((piece for piece in scores if len(piece) == 1), key=scores.__getitem__)
        gaps = (scores[higher] - scores[lower] for lower, higher in pairwise(unseen))
        end = next((place for place, gap in enumerate(gaps, start=1) if gap > 0.00011), len(unseen))
        scores |= zip(sorted(unseen[:end]), [scores[piece] for piece in unseen[:end]], strict=True)
        written["model"]["vocab"] = vocab[:first] + sorted(scores.items(), key=lambda entry: (-entry[1], entry[0]))
    return json.dumps(written, ensure_ascii=False)


def _from_byte_level(token: str) -> bytes:
    return bytes(_BYTE[character] for character in token)

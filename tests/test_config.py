"""The configuration: the paper's numbers, Table 3 row by row, and what is refused."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
import re

import pytest

from annotated_transformer.config import BASE, BIG, SMALL, TINY, TransformerConfig

PRESETS = {"TINY": TINY, "SMALL": SMALL, "BASE": BASE, "BIG": BIG}
SIZES = ("d_model", "d_ff", "h", "N", "d_k", "d_v", "vocab_size", "max_length")
SHARES = ("p_drop", "p_drop_attention", "p_drop_ff")
SWITCHES = ("attention_bias", "scale_embeddings")
CHOICES = {  # the paper's first
    "norm_order": ["post", "pre"],
    "activation": ["relu", "gelu"],
    "positions": ["sinusoidal", "learned"],
    "tied": ["all", "target", "none"],
}


def fields_of(config: TransformerConfig, *names: str) -> dict[str, object]:
    return {name: getattr(config, name) for name in names}


# The presets


def test_base_is_the_papers():
    """Table 3, row "base"; section 5.1 for the vocabulary of English-German."""
    assert dataclasses.asdict(BASE) == {
        "d_model": 512,
        "d_ff": 2048,
        "h": 8,
        "N": 6,
        "d_k": 64,
        "d_v": 64,
        "p_drop": 0.1,
        "vocab_size": 37_000,
        "pad_id": 0,
        "norm_order": "post",
        "norm_eps": 1e-5,
        "activation": "relu",
        "attention_bias": False,
        "positions": "sinusoidal",
        "max_length": 1024,
        "tied": "all",
        "scale_embeddings": True,
        "p_drop_attention": 0.0,
        "p_drop_ff": 0.0,
    }
    assert TransformerConfig() == BASE


def test_big_is_the_papers():
    """Table 3, row "big"; d_k and d_v are not printed there, 3.2.2 has d_model / h = 64."""
    expected = {"d_model": 1024, "d_ff": 4096, "h": 16, "N": 6, "d_k": 64, "d_v": 64, "p_drop": 0.3}
    assert fields_of(BIG, *expected) == expected


@pytest.mark.parametrize(
    ("config", "d_model", "N", "h", "d_ff"), [(TINY, 128, 2, 4, 512), (SMALL, 256, 3, 8, 1024)], ids=["TINY", "SMALL"]
)
def test_the_small_presets(config, d_model, N, h, d_ff):
    assert fields_of(config, "d_model", "N", "h", "d_ff") == {"d_model": d_model, "N": N, "h": h, "d_ff": d_ff}
    assert config.d_k == config.d_v == d_model // h
    assert config.p_drop == 0.1


@pytest.mark.parametrize("config", PRESETS.values(), ids=PRESETS)
def test_presets_keep_the_proportions_of_the_paper(config):
    """Section 3.2.2: h d_k = h d_v = d_model. Table 3: d_ff = 4 d_model in base and big."""
    assert config.h * config.d_k == config.h * config.d_v == config.d_model
    assert config.d_ff == 4 * config.d_model


# Changing a field: Table 3


# What each row changes, and the whole shape (N, d_model, d_ff, h, d_k, d_v, p_drop) that it then has.
TABLE_3 = {
    "A1": ({"h": 1}, (6, 512, 2048, 1, 512, 512, 0.1)),
    "A2": ({"h": 4}, (6, 512, 2048, 4, 128, 128, 0.1)),
    "A3": ({"h": 16}, (6, 512, 2048, 16, 32, 32, 0.1)),
    "A4": ({"h": 32}, (6, 512, 2048, 32, 16, 16, 0.1)),
    "B1": ({"d_k": 16}, (6, 512, 2048, 8, 16, 64, 0.1)),
    "B2": ({"d_k": 32}, (6, 512, 2048, 8, 32, 64, 0.1)),
    "C1": ({"N": 2}, (2, 512, 2048, 8, 64, 64, 0.1)),
    "C2": ({"N": 4}, (4, 512, 2048, 8, 64, 64, 0.1)),
    "C3": ({"N": 8}, (8, 512, 2048, 8, 64, 64, 0.1)),
    "C4": ({"d_model": 256}, (6, 256, 2048, 8, 32, 32, 0.1)),
    "C5": ({"d_model": 1024}, (6, 1024, 2048, 8, 128, 128, 0.1)),
    "C6": ({"d_ff": 1024}, (6, 512, 1024, 8, 64, 64, 0.1)),
    "C7": ({"d_ff": 4096}, (6, 512, 4096, 8, 64, 64, 0.1)),
    "D1": ({"p_drop": 0.0}, (6, 512, 2048, 8, 64, 64, 0.0)),
    "D2": ({"p_drop": 0.2}, (6, 512, 2048, 8, 64, 64, 0.2)),
    "big": ({"d_model": 1024, "d_ff": 4096, "h": 16, "p_drop": 0.3}, (6, 1024, 4096, 16, 64, 64, 0.3)),
}


@pytest.mark.parametrize(("changes", "shape"), TABLE_3.values(), ids=TABLE_3)
def test_replace_gives_the_rows_of_table_3(changes, shape):
    row = BASE.replace(**changes)
    assert (row.N, row.d_model, row.d_ff, row.h, row.d_k, row.d_v, row.p_drop) == shape
    assert (row.vocab_size, row.pad_id) == (BASE.vocab_size, BASE.pad_id)
    assert TransformerConfig() == BASE, "the original has changed"


def test_replacing_base_gives_big():
    assert BASE.replace(d_model=1024, d_ff=4096, h=16, p_drop=0.3) == BIG


@pytest.mark.parametrize("config", PRESETS.values(), ids=PRESETS)
def test_replacing_nothing_changes_nothing(config):
    assert config.replace() == config
    assert config.replace(h=2 * config.h).replace(h=config.h) == config


@pytest.mark.parametrize(
    ("start", "other", "heads"), [("d_k", "d_v", 16), ("d_v", "d_k", 16), ("d_k", "d_v", 4), ("d_v", "d_k", 4)]
)
def test_a_width_that_was_set_apart_stays_and_the_other_follows(start, other, heads):
    changed = BASE.replace(**{start: 24}).replace(h=heads)
    assert fields_of(changed, start, other) == {start: 24, other: 512 // heads}
    wider = BASE.replace(**{start: 24}).replace(d_model=1024)
    assert fields_of(wider, start, other) == {start: 24, other: 128}


def test_a_width_that_is_given_beside_h_is_taken():
    assert fields_of(BASE.replace(h=4, d_k=64), "d_k", "d_v") == {"d_k": 64, "d_v": 128}
    assert fields_of(BASE.replace(h=4, d_v=64), "d_k", "d_v") == {"d_k": 128, "d_v": 64}


def test_none_gives_the_width_back_to_h():
    assert BASE.replace(d_k=16, d_v=48).replace(d_k=None, d_v=None) == BASE


def test_heads_that_do_not_divide_are_fine_once_both_widths_are_given():
    assert fields_of(TransformerConfig(h=7, d_k=5, d_v=3), "h", "d_k", "d_v") == {"h": 7, "d_k": 5, "d_v": 3}


# A value like any other: equal, hashable, unchangeable


def test_equal_fields_make_equal_configs():
    assert TransformerConfig(h=16) == TransformerConfig(h=16, d_k=32, d_v=32)
    assert hash(TransformerConfig(h=16)) == hash(TransformerConfig(h=16, d_k=32, d_v=32))
    assert len({BASE, BIG, SMALL, TINY, TransformerConfig()}) == 4


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(TransformerConfig)])
def test_every_field_counts_in_a_comparison(name):
    value = getattr(BASE, name)
    if name in CHOICES:
        other: object = CHOICES[name][1]
    elif name in SWITCHES:
        other = not value
    else:
        other = {"pad_id": 1, "p_drop_attention": 0.1, "p_drop_ff": 0.1}.get(name, 2 * value)
    assert dataclasses.replace(BASE, **{name: other}) != BASE


def test_fields_cannot_be_set():
    with pytest.raises(dataclasses.FrozenInstanceError):
        BASE.h = 4
    assert BASE.h == 8


@pytest.mark.parametrize("config", [*PRESETS.values(), BASE.replace(d_k=16)], ids=[*PRESETS, "B1"])
def test_copies_are_equal(config):
    assert TransformerConfig(**dataclasses.asdict(config)) == config
    assert copy.deepcopy(config) == config
    assert pickle.loads(pickle.dumps(config)) == config


# What is refused


@pytest.mark.parametrize("value", [True, 8.0, "8", (8,)], ids=repr)
@pytest.mark.parametrize("name", SIZES)
def test_a_size_is_an_integer(name, value):
    with pytest.raises(TypeError, match=re.escape(f"{name} must be an integer, got {value!r}.")):
        TransformerConfig(**{name: value})


@pytest.mark.parametrize("name", [name for name in SIZES if name not in ("d_k", "d_v")])
def test_only_d_k_and_d_v_may_be_left_open(name):
    with pytest.raises(TypeError, match=f"^{name} must be an integer, got None"):
        TransformerConfig(**{name: None})


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize("name", SIZES)
def test_a_size_is_positive(name, value):
    with pytest.raises(ValueError, match=rf"^{name} must be at least 1, got {value}\.$"):
        TransformerConfig(**{name: value})


@pytest.mark.parametrize(
    ("given", "missing"), [({}, "d_k"), ({"d_v": 3}, "d_k"), ({"d_k": 3}, "d_v")], ids=["neither", "d_v", "d_k"]
)
def test_h_divides_d_model_where_it_has_to(given, missing):
    message = (
        rf"^h must divide d_model when {missing} is not given: 512 / 7 is not whole\. "
        rf"Choose another h, or give {missing}\.$"
    )
    with pytest.raises(ValueError, match=message):
        TransformerConfig(h=7, **given)
    with pytest.raises(ValueError, match=message):
        BASE.replace(h=7, **given)


@pytest.mark.parametrize("value", ["0.1", None, True, [0.1]], ids=repr)
@pytest.mark.parametrize("name", SHARES)
def test_a_rate_is_a_number(name, value):
    with pytest.raises(TypeError, match=rf"^{name} must be a number, got "):
        TransformerConfig(**{name: value})


@pytest.mark.parametrize("value", [-0.1, 1, 1.0, 10])
@pytest.mark.parametrize("name", SHARES)
def test_a_rate_is_a_share(name, value):
    with pytest.raises(ValueError, match=rf"^{name} is the share .* from 0 up to below 1, got {value}\.$"):
        TransformerConfig(**{name: value})


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("name", SHARES)
def test_a_rate_is_finite(name, value):
    with pytest.raises(ValueError, match=rf"^{name} must be finite, got {value}\.$"):
        TransformerConfig(**{name: value})


@pytest.mark.parametrize("value", [0, 0.0, 0.5, 0.999])
@pytest.mark.parametrize("name", SHARES)
def test_every_share_below_one_is_allowed(name, value):
    assert getattr(TransformerConfig(**{name: value}), name) == value


@pytest.mark.parametrize("value", [0, 0.0, -1e-5, math.nan, math.inf])
def test_norm_eps_is_positive(value):
    with pytest.raises(ValueError, match=rf"^norm_eps must be (above 0 and )?finite, got {value}\.$"):
        TransformerConfig(norm_eps=value)
    with pytest.raises(TypeError, match=r"^norm_eps must be a number, got '1e-5'\.$"):
        TransformerConfig(norm_eps="1e-5")


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_is_one_of_those_named(name):
    for choice in CHOICES[name]:
        assert getattr(TransformerConfig(**{name: choice}), name) == choice
    assert getattr(BASE, name) == CHOICES[name][0]
    for wrong in ("", "Post", None, True, 1, ["all"]):
        with pytest.raises(ValueError, match=rf"^{name} must be one of {', '.join(CHOICES[name])}, got ") as caught:
            TransformerConfig(**{name: wrong})
        assert str(caught.value).endswith(f"got {wrong!r}.")


@pytest.mark.parametrize("value", [0, 1, None, "no"], ids=repr)
@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_is_on_or_off(name, value):
    with pytest.raises(TypeError, match=rf"^{name} must be True or False, got {value!r}\.$"):
        TransformerConfig(**{name: value})


@pytest.mark.parametrize("value", [False, 1.0, None, "<pad>"], ids=repr)
def test_pad_id_is_an_integer(value):
    with pytest.raises(TypeError, match=f"^pad_id must be an integer, got {value!r}"):
        TransformerConfig(pad_id=value)


@pytest.mark.parametrize("value", [-1, 23, 24])
def test_pad_id_is_a_token(value):
    with pytest.raises(ValueError, match=rf"^pad_id must be a token id from 0 to 22, got {value}\.$"):
        TransformerConfig(vocab_size=23, pad_id=value)
    assert TransformerConfig(vocab_size=23, pad_id=22).pad_id == 22


def test_replace_knows_its_fields():
    with pytest.raises(TypeError, match=r"^TransformerConfig has no field 'n'; its fields are d_model, d_ff, h, N, "):
        BASE.replace(n=2)
    with pytest.raises(ValueError, match=r"^N must be at least 1, got 0"):
        BASE.replace(N=0)

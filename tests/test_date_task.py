"""The date task: three seeds reach every held-out day, and the shipped model still does."""

from __future__ import annotations

import dataclasses

import pytest

from annotated_transformer import checkpoints, recipes, recordings, tasks
from annotated_transformer.decoding import translate
from annotated_transformer.experiments import date_task


@pytest.mark.slow
@pytest.mark.parametrize("seed", date_task.SEEDS)
def test_every_held_out_date_is_right_to_the_last_digit(seed):
    model, tokenizer, _ = date_task.learn(seed)
    assert date_task.share_of_exact(model, tokenizer, seed)["exact"] == 1.0


def test_a_model_that_has_learned_nothing_is_told_so():
    untrained = recipes.RECIPES["dates"]
    untrained = recipes.Recipe(untrained.config, untrained.settings.replace(steps=101), untrained.tokens)
    model, tokenizer, _ = date_task.learn(0, untrained)
    assert date_task.share_of_exact(model, tokenizer, 0)["exact"] < 0.1


def test_held_out_days_are_not_in_the_training_data():
    train = {pair.source for pair in tasks.dates(seed=1).train}
    held_out = date_task.held_out_pairs(1)
    assert len(held_out) == 2000
    assert not train & {pair.source for pair in held_out}


def test_the_shipped_model_translates_every_day_it_never_saw():
    model, tokenizer = checkpoints.load_model(checkpoints.find("dates"))
    exact = date_task.share_of_exact(model, tokenizer, date_task.SEEDS[0])["exact"]
    assert exact > 0.998  # 1 where it was made; another processor rounds otherwise
    found = translate(model, tokenizer, ["Saturday, November 29, 2036"], language="de")
    assert found[0].text == "Samstag, 29. November 2036"


def test_the_recording_is_of_this_recipe_and_reached_every_day():
    recording = recordings.read(date_task.NAME)
    assert recording["settings"]["training"] == dataclasses.asdict(recipes.RECIPES["dates"].settings)
    assert recording["seeds"] == list(date_task.SEEDS)
    assert [exact["exact"] for exact in recording["results"]["exact"]] == [1.0] * 3


def test_text_of_ones_own_has_a_recipe_too():
    assert recipes.recipe("my-corpus").tokens == "bpe"
    assert recipes.recipe("dates") is recipes.RECIPES["dates"]
    assert set(recipes.RECIPES) == {*tasks.TASKS, "wmt14"}

"""What experiments measure with, and each long experiment's first steps against its recording."""

from __future__ import annotations

import sys
import time

import pytest
import torch

from annotated_transformer import recordings
from annotated_transformer.experiments import attention_cost
from annotated_transformer.experiments.measure import cpu_seconds, matmul_flops, peak_bytes


def test_a_matrix_product_is_two_operations_for_each_multiply_add():
    a, b = torch.randn(3, 5), torch.randn(5, 7)
    assert matmul_flops(lambda: a @ b) == 2 * 3 * 5 * 7
    assert matmul_flops(lambda: a + 1) == 0


def test_peak_bytes_counts_what_lives_at_one_time():
    x = torch.zeros(1000)  # there before, so not counted

    def two_then_one():
        y = x + 1  # 4000 bytes
        z = y + 1  # and 4000 more
        del y
        return z + 1  # one of them was freed: still 8000

    assert peak_bytes(two_then_one) == 8000
    assert peak_bytes(lambda: x.view(10, 100).t()) == 0  # the same memory seen otherwise
    assert peak_bytes(lambda: x.add_(1)) == 0  # in place


def test_cpu_seconds_takes_one_thread_and_gives_the_setting_back():
    before, seen = torch.get_num_threads(), []
    torch.set_num_threads(2)
    try:
        seconds = cpu_seconds(lambda: seen.append(torch.get_num_threads()) or sum(range(100_000)), repeats=3)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 1, 1, 1]  # one call to warm up
    assert seconds > 0


def test_cpu_seconds_leaves_waiting_out():
    assert cpu_seconds(lambda: time.sleep(0.05), repeats=1) < 0.04


def test_cpu_seconds_needs_a_call():
    with pytest.raises(ValueError, match=r"repeats must be at least 1, got 0"):
        cpu_seconds(lambda: None, repeats=0)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_attention_cost_is_as_recorded(index):
    recorded = recordings.read(attention_cost.NAME)
    settings, results = recorded["settings"], recorded["results"]
    assert settings == attention_cost.SETTINGS
    names = list(attention_cost.methods(1))
    costs = attention_cost.measure(settings["lengths"][index], settings["d"], names, repeats=0)
    for name in names:
        for quantity in ("flops", "bytes"):
            assert costs[name][quantity] == results[name][quantity][index], (name, quantity)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not say how much a process held at most")
def test_written_out_attention_makes_a_process_grow_and_fused_does_not():
    written, fused = (attention_cost.process_growth(name, 2048, 64) for name in ("written out", "fused"))
    assert written > 2048 * 2048 * 4  # the scores alone
    assert fused < written / 4


def test_attention_cost_writes_a_recording(tmp_path):
    settings = {"d": 3, "lengths": [5, 7], "additive_up_to": 5, "process_lengths": [11], "repeats": 1, "seed": 0}
    attention_cost.main(settings, tmp_path)
    results = recordings.read(attention_cost.NAME, tmp_path)["results"]
    assert results["additive"]["lengths"] == [5]
    assert results["written out"]["flops"] == [4 * n * n * 3 for n in (5, 7)]
    assert len(results["process memory"]["fused"]) == 1

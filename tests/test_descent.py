"""The loop and the curve that small trainings share."""

from __future__ import annotations

import torch

from annotated_transformer.experiments.descent import averages, descend


def test_each_step_has_its_own_rate_and_loss():
    steps, rates, seen = 5, [0.0, 0.3, 0.2, 0.1, 0.4], []
    models = [torch.nn.Linear(3, 2, bias=False) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    x = torch.randn(steps, 7, 3)

    def loss(model, step):
        seen.append(step)
        return model(x[step - 1]).square().mean()

    found = descend(models[0], lambda step: loss(models[0], step), lambda step: rates[step - 1], steps)
    assert seen == [1, 2, 3, 4, 5]
    wanted = []
    optimizer = torch.optim.Adam(models[1].parameters(), betas=(0.9, 0.98), eps=1e-9)
    for step, rate in enumerate(rates, start=1):
        optimizer.param_groups[0]["lr"] = rate
        value = loss(models[1], step)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        wanted.append(value.item())
    assert found == wanted
    assert torch.equal(models[0].weight, models[1].weight)


def test_averages_leave_out_what_is_left_over():
    assert averages([1.0, 3.0, 5.0, 9.0, 2.0], 2) == [2.0, 7.0]
    assert averages([1.0], 2) == []

"""A compiled block is found again by the next process: nothing in it keeps the compiler's cache of whole graphs off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch._functorch._aot_autograd.autograd_cache import check_cacheable

from muster.train.models import Decoder, shape


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # the compiler's own
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # the compiler looks
@pytest.mark.parametrize("name", ["tiny-llama", "tiny-gpt2"])
def test_the_graph_of_a_block_can_be_kept(name: str) -> None:
    graphs = []

    def keep(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    model = Decoder(replace(shape(name), layers=1))
    for module in (*model.blocks.values(), model.norm):
        module.forward = torch.compile(module.forward, fullgraph=True, backend=keep)
    with torch.autocast("cpu", torch.bfloat16):
        model(torch.zeros(2, 16, dtype=torch.int64)).float().sum().backward()
    assert len(graphs) == 2
    for graph in graphs:
        check_cacheable(graph)  # raises

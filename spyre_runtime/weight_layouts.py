"""Device layouts of weights: a matrix that only linear layers read has its sticks along the output features, all else the default.

`Module.to("spyre")` of the public compiler lays the [out, in] weight of a Linear with dim_order [1, 0] (torch-spyre model_utils.py), so that the
product finds N on the stick of its second operand. Load-time twins of such weights are moved the same way.
"""

from collections.abc import Mapping

import torch

from .ir import DeviceLayout
from .layouts import tiled
from .stages import StagedGraph

_LINEAR = torch.ops.aten.linear.default


def linear_layouts(staged: StagedGraph) -> Mapping[str, DeviceLayout]:
    """Layout by placeholder name of the device graph, for the weights and twins that are nothing but weights of linear layers."""
    early = staged.captured.parameters | staged.captured.buffers | set(staged.load.outputs)
    layouts = {}
    for name, node in zip(staged.device.inputs, staged.device.module.graph.find_nodes(op="placeholder"), strict=True):
        value = node.meta["val"]
        if (
            name in early
            and value.dim() == 2
            and node.users
            and all(user.target is _LINEAR and user.args[1] is node for user in node.users)
        ):
            layouts[node.name] = tiled(tuple(value.shape), tuple(value.stride()), value.dtype, (1, 0))
    return layouts

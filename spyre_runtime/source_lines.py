"""The line of the user's model that made a node, from the stack traces that Dynamo records."""

import functools

import torch.fx


def source_line(node: torch.fx.Node) -> str:
    """The innermost line of user code that made `node`, as "file:line", or "" when the trace is not recorded."""
    return innermost_line(node.meta.get("stack_trace") or "")


@functools.lru_cache(maxsize=4096)  # the nodes that come from one line share its trace
def innermost_line(trace: str) -> str:
    """The last frame of a stack trace as "file:line"."""
    lines = [line.strip() for line in trace.splitlines() if line.strip().startswith('File "')]
    if not lines:
        return ""
    file, _, rest = lines[-1].removeprefix('File "').partition('", line ')
    return f"{file}:{rest.split(',')[0]}"

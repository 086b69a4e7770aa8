"""`adapterc mcp` as a client of the protocol meets it: a process, its standard input and output, and nothing else."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from adapterc.mcp_server import TOOLS

RIGHT = """\
adapter: halves
summary: For the test.
lifetime: scaffold
rules:
  - rewrite: by_product
    match: x / 2
    where: {x: "float[...]"}
    substitute: x * 0.5
    reason: For the test.
"""


async def conversation(folder: Path) -> dict[str, Any]:
    """One session: what the server offers, and its answers to good and bad calls."""
    server = StdioServerParameters(command=sys.executable, args=["-m", "adapterc.cli", "mcp"])
    async with stdio_client(server) as (reading, writing), ClientSession(reading, writing) as session:
        await session.initialize()
        heard: dict[str, Any] = {"tools": (await session.list_tools()).tools}
        calls: dict[str, tuple[str, dict[str, Any]]] = {
            "code": ("explain", {"what": "ADC604"}),
            "no code": ("explain", {"what": "ADC999"}),
            "right": ("check", {"spec_files": [str(folder / "right.yaml")]}),
            "wrong": ("check", {"spec_files": [str(folder / "wrong.yaml")]}),
            "draft": ("draft", {"gap": "pow(x, 3)", "output": str(folder / "cube.yaml")}),
            "no model": ("gaps", {"model": "config:nosuchmodel"}),
        }
        for name, (tool, arguments) in calls.items():
            answer = await session.call_tool(tool, arguments)
            assert not answer.is_error, answer
            heard[name] = answer.structured_content
        return heard


@pytest.mark.slow
def test_a_client_gets_typed_answers_and_codes(tmp_path: Path) -> None:
    (tmp_path / "right.yaml").write_text(RIGHT)
    (tmp_path / "wrong.yaml").write_text(RIGHT.replace("x * 0.5", "x * 0.25"))
    heard = asyncio.run(asyncio.wait_for(conversation(tmp_path), 300))
    tools = {tool.name: tool for tool in heard["tools"]}
    assert tools.keys() == TOOLS.keys()
    assert all(tool.description and tool.input_schema["properties"] and tool.output_schema for tool in tools.values())
    assert heard["code"]["ok"] and "ADC604" in heard["code"]["text"]
    assert heard["right"]["ok"] and heard["right"]["rules"][0]["status"] == "PROVED"
    assert not heard["wrong"]["ok"] and heard["wrong"]["rules"][0]["status"] == "REFUTED"
    assert heard["wrong"]["errors"][0]["code"] == "ADC301" and heard["wrong"]["errors"][0]["line"] == 5
    assert heard["draft"]["ok"] and (tmp_path / "cube.yaml").read_text() == heard["draft"]["spec"]
    assert [heard[name]["errors"][0]["code"] for name in ("no code", "no model")] == ["ADC903", "ADC502"]
    assert all(heard[name]["errors"][0]["next_step"] for name in ("no code", "no model"))

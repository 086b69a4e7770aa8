"""The language server: what it says of a text, and the protocol over real pipes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import pytest

from adapterc.editing import completions, form, hover

GOOD = """adapter: cubes
summary: For the test.
lifetime: hardware
rules:
  - rewrite: cube
    match: pow(x, 3)
    where: {x: "float[...]"}
    substitute: x * x * x
    reason: For the test.
"""
BAD = GOOD.replace("x * x * x", "x * sofmax(x, -1)")


def at(text: str, marked: str) -> tuple[str, int, int]:
    """The text without `|`, and the place of it."""
    row = marked.replace("|", "")
    line = text.split("\n").index(row) + 1
    return text, line, marked.index("|") + 1


def labels(text: str, marked: str) -> list[str]:
    return [found.label for found in completions(*at(text, marked))]


def test_a_fault_covers_its_word() -> None:
    (fault,) = form(BAD, "cubes.yaml")
    row = BAD.split("\n")[fault.span.line - 1]
    assert fault.code == "ADC210" and row[fault.span.column - 1 : fault.span.end_column - 1] == "sofmax"


@pytest.mark.parametrize(
    ("marked", "part"),
    [
        ("    match: p|ow(x, 3)", "pow(a, b)"),
        ("    mat|ch: pow(x, 3)", "The pattern"),
        ("life|time: hardware", "scaffold: goes when"),
        ("  - rewrite: cu|be", "save the file"),
        ("    reason: For ADC|301.", "ADC301"),
    ],
)
def test_hover(marked: str, part: str) -> None:
    text = GOOD.replace("    reason: For the test.", "    reason: For ADC301.")
    found = hover(*at(text, marked), verdicts={})
    assert found is not None and part in found[0]


def test_hover_says_nothing_of_a_plain_word() -> None:
    assert hover(*at(GOOD, "summary: For the te|st."), verdicts={}) is None


def test_completion_of_keys_is_the_schema() -> None:
    text = GOOD + "    \n  - \n"
    assert {"when: ", "constants: ", "budget: "} <= set(labels(text, "    |")) and "dim: " not in labels(text, "    |")
    assert "pad: " in labels(text, "  - |")
    assert "lifetime: " in labels("adapter: a\n\n", "|")


def test_completion_of_values() -> None:
    assert labels("lifetime: \n", "lifetime: |") == ["scaffold", "hardware"]
    assert "pow-integer-exponent" in labels("gap: \n", "gap: |")
    inside = labels(GOOD, "    substitute: x * x| * x")
    assert inside[0] == "x" and {"softmax", "stick"} <= set(inside)
    assert labels(GOOD, "    reason: For| the test.") == []


def test_completion_in_a_mapping_of_names() -> None:
    text = GOOD.replace("    substitute:", "    let:\n      y: \n    substitute:")
    assert "softmax" in labels(text, "      y: |") and "y" in labels(text, "      y: |")


class Client:
    """Speaks the protocol with a server process."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "adapterc.cli", "lsp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.sent = 0

    def notify(self, method: str, **params: Any) -> None:
        self._send({"method": method, "params": params})

    def ask(self, method: str, **params: Any) -> Any:
        self.sent += 1
        self._send({"id": self.sent, "method": method, "params": params})
        return next(message for message in self.messages() if message.get("id") == self.sent)["result"]

    def diagnostics(self) -> list[dict[str, Any]]:
        told = next(message for message in self.messages() if message.get("method") == "textDocument/publishDiagnostics")
        return cast(list[dict[str, Any]], told["params"]["diagnostics"])

    def messages(self) -> Iterator[dict[str, Any]]:
        pipe = cast(IO[bytes], self.process.stdout)
        while line := pipe.readline():
            length = int(line.partition(b":")[2])
            while pipe.readline().strip():
                pass
            yield json.loads(pipe.read(length))

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        pipe = cast(IO[bytes], self.process.stdin)
        pipe.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        pipe.flush()


@pytest.mark.slow
def test_a_session_over_pipes(tmp_path: Path) -> None:
    path = tmp_path / "cubes.yaml"
    path.write_text(BAD)
    uri, document = path.as_uri(), {"uri": path.as_uri()}
    client = Client()
    try:
        offered = client.ask("initialize", processId=None, rootUri=None, capabilities={})["capabilities"]
        assert offered["hoverProvider"] and offered["completionProvider"] and offered["inlayHintProvider"]
        client.notify("initialized")

        client.notify("textDocument/didOpen", textDocument={"uri": uri, "languageId": "yaml", "version": 1, "text": BAD})
        (fault,) = client.diagnostics()
        assert fault["code"] == "ADC210" and fault["range"] == {"start": {"line": 7, "character": 20}, "end": {"line": 7, "character": 26}}

        client.notify("textDocument/didChange", textDocument={"uri": uri, "version": 2}, contentChanges=[{"text": GOOD}])
        assert client.diagnostics() == []

        path.write_text(GOOD)
        client.notify("textDocument/didSave", textDocument=document)
        assert client.diagnostics() == []
        whole = {"start": {"line": 0, "character": 0}, "end": {"line": 20, "character": 0}}
        (hint,) = client.ask("textDocument/inlayHint", textDocument=document, range=whole)
        assert hint["position"]["line"] == 4 and "PROVED" in hint["label"]

        told = client.ask("textDocument/hover", textDocument=document, position={"line": 4, "character": 14})
        assert hint["label"] in told["contents"]["value"]
        found = client.ask("textDocument/completion", textDocument=document, position={"line": 7, "character": 16})
        assert "softmax" in {item["label"] for item in found}

        wrong = GOOD.replace("x * x * x", "x * x")
        path.write_text(wrong)
        client.notify("textDocument/didChange", textDocument={"uri": uri, "version": 3}, contentChanges=[{"text": wrong}])
        client.diagnostics()
        client.notify("textDocument/didSave", textDocument=document)
        refuted = client.diagnostics()
        assert refuted and refuted[0]["severity"] == 1 and refuted[0]["code"].startswith("ADC3")

        assert client.ask("shutdown") is None
        client.notify("exit")
        assert client.process.wait(timeout=60) == 0
    finally:
        client.process.kill()

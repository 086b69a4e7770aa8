"""`adapterc lsp`: a language server for specs. It carries what adapterc.editing says over the protocol, and knows nothing of specs itself.

On each change the form, the grammar and the types are checked; verdicts, which can take seconds, when a file is opened or saved. Needs the extra `editor`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument
from pygls.workspace.position_codec import ServerTextPosition

from adapterc.dsl.ast import Span
from adapterc.dsl.diagnostics import Diagnostic
from adapterc.editing import Completion, Shown, completions, examine, form, hover

_SEVERITY = {"error": lsp.DiagnosticSeverity.Error, "warning": lsp.DiagnosticSeverity.Warning}
_KINDS = {
    "op": lsp.CompletionItemKind.Function,
    "name": lsp.CompletionItemKind.Constant,
    "key": lsp.CompletionItemKind.Property,
    "value": lsp.CompletionItemKind.EnumMember,
    "variable": lsp.CompletionItemKind.Variable,
}


class SpecServer(LanguageServer):
    """The server and the verdicts of the files that are open, by their address."""

    def __init__(self) -> None:
        super().__init__("adapterc", version("adapterc"), text_document_sync_kind=lsp.TextDocumentSyncKind.Full)
        self.verdicts: dict[str, dict[str, Shown]] = {}

    def publish(self, uri: str, found: Sequence[Diagnostic]) -> None:
        document = self.workspace.get_text_document(uri)
        shown = [
            lsp.Diagnostic(
                range=_range(document, problem.span),
                message=f"{problem.message} {problem.hint}".strip(),
                severity=_SEVERITY[problem.severity],
                code=problem.code,
                source="adapterc",
            )
            for problem in found
        ]
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri=uri, diagnostics=shown, version=document.version))


def _range(document: TextDocument, span: Span) -> lsp.Range:
    """The span in the units that the client counts in. A span of no width covers its character."""
    end = (span.end_line, max(span.end_column, span.column + 1) if span.end_line == span.line else span.end_column)
    return lsp.Range(
        start=document.position_to_client_units(ServerTextPosition(max(0, span.line - 1), max(0, span.column - 1))),
        end=document.position_to_client_units(ServerTextPosition(max(0, end[0] - 1), max(0, end[1] - 1))),
    )


def _place(document: TextDocument, position: lsp.Position) -> tuple[int, int]:
    """Line and column from 1."""
    found = document.position_from_client_units(position)
    return found.line + 1, found.character + 1


def _check(server: SpecServer, uri: str) -> None:
    document = server.workspace.get_text_document(uri)
    found = examine(Path(document.path))
    server.verdicts[uri] = dict(found.verdicts)
    server.publish(uri, found.problems)


def _item(found: Completion) -> lsp.CompletionItem:
    return lsp.CompletionItem(label=found.label.removesuffix(": "), kind=_KINDS[found.kind], detail=found.detail, insert_text=found.label)


def server() -> SpecServer:
    """A server with its handlers; `start_io` runs it on standard input and output."""
    made = SpecServer()

    @made.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    @made.thread()
    def opened(ls: SpecServer, params: lsp.DidOpenTextDocumentParams) -> None:
        _check(ls, params.text_document.uri)

    @made.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    @made.thread()
    def saved(ls: SpecServer, params: lsp.DidSaveTextDocumentParams) -> None:
        _check(ls, params.text_document.uri)

    @made.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def changed(ls: SpecServer, params: lsp.DidChangeTextDocumentParams) -> None:
        document = ls.workspace.get_text_document(params.text_document.uri)
        ls.publish(document.uri, form(document.source, document.path))

    @made.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(ls: SpecServer, params: lsp.DidCloseTextDocumentParams) -> None:
        ls.verdicts.pop(params.text_document.uri, None)
        ls.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri=params.text_document.uri, diagnostics=[]))

    @made.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hovered(ls: SpecServer, params: lsp.HoverParams) -> lsp.Hover | None:
        document = ls.workspace.get_text_document(params.text_document.uri)
        found = hover(document.source, *_place(document, params.position), ls.verdicts.get(document.uri, {}))
        if found is None:
            return None
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, found[0]), _range(document, found[1]))

    @made.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=["(", " "]))
    def completed(ls: SpecServer, params: lsp.CompletionParams) -> list[lsp.CompletionItem]:
        document = ls.workspace.get_text_document(params.text_document.uri)
        return [_item(found) for found in completions(document.source, *_place(document, params.position))]

    @made.feature(lsp.TEXT_DOCUMENT_INLAY_HINT)
    def hinted(ls: SpecServer, params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
        document = ls.workspace.get_text_document(params.text_document.uri)
        lines = document.source.split("\n")
        return [
            lsp.InlayHint(_range(document, _end(lines, shown.line)).start, shown.label, tooltip=shown.detail, padding_left=True)
            for shown in ls.verdicts.get(document.uri, {}).values()
            if params.range.start.line <= shown.line - 1 <= params.range.end.line and shown.line <= len(lines)
        ]

    return made


def _end(lines: Sequence[str], line: int) -> Span:
    column = len(lines[line - 1].rstrip("\r")) + 1
    return Span("", line, column, line, column)

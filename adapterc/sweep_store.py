"""The results of a sweep in one SQLite file: the population, its groups, and a row for each (group, width) that has run.

A row is written in a transaction of its own and has a primary key, so that a sweep which was killed goes on where it stood: no row is lost, and
none is there twice. A store belongs to one population, one build of the adapters and one profile; it says so and refuses others.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from adapterc.errors import UserError
from adapterc.sweep_groups import Population
from adapterc.sweep_row import Outcome

_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE groups (key TEXT PRIMARY KEY, model_type TEXT NOT NULL, architecture TEXT NOT NULL, dimensions TEXT NOT NULL,
                     models INTEGER NOT NULL, downloads INTEGER NOT NULL) STRICT;
CREATE TABLE models (model_id TEXT PRIMARY KEY, downloads INTEGER NOT NULL, group_key TEXT REFERENCES groups (key), unrunnable TEXT,
                     CHECK ((group_key IS NULL) <> (unrunnable IS NULL))) STRICT;
CREATE TABLE rows (group_key TEXT NOT NULL REFERENCES groups (key), width TEXT NOT NULL, stage TEXT NOT NULL, kind TEXT NOT NULL,
                   message TEXT NOT NULL, place TEXT NOT NULL, numbers TEXT NOT NULL, fired TEXT NOT NULL, seconds REAL NOT NULL,
                   PRIMARY KEY (group_key, width)) STRICT;
"""
POPULATION = "population"  # names in `meta`


@dataclass(frozen=True)
class StoredGroup:
    """A group with the outcomes that are there, by width."""

    key: str
    model_type: str
    architecture: str
    dimensions: str
    models: int
    downloads: int
    outcomes: Mapping[str, Outcome]


@dataclass(frozen=True)
class Unrunnable:
    """Models that are not run, by the class that says why."""

    why: str
    models: int
    downloads: int
    example: str


@contextmanager
def open_store(path: Path, *, must_exist: bool = False) -> Iterator[sqlite3.Connection]:
    """An open store; a new file gets its tables with `create`. Raises UserError ADC614 for a file that is no store, or that cannot be opened."""
    if must_exist and not path.is_file():
        raise UserError("ADC614", f"{path}: no such store", "run `adapterc sweep --population CSV --store FILE` first")
    try:
        connection = sqlite3.connect(path, timeout=60, isolation_level=None)
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA synchronous = FULL")
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if tables and not {"meta", "groups", "models", "rows"} <= tables:
                raise UserError("ADC614", f"{path}: the file is a database, but no store of a sweep", "name another file")
            if must_exist and not tables:
                raise UserError("ADC614", f"{path}: the store is empty", "run `adapterc sweep --population CSV --store FILE` first")
            yield connection
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        raise UserError("ADC614", f"{path}: not usable as a store: {error}", "name another file") from error


@contextmanager
def transaction(store: sqlite3.Connection) -> Iterator[None]:
    """All or nothing, also under a kill."""
    store.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        store.execute("ROLLBACK")
        raise
    store.execute("COMMIT")


def prepare(store: sqlite3.Connection, population: Population, identity: Mapping[str, str]) -> None:
    """Fill a new store, or make sure that an old one is of the same population and `identity`. Raises UserError ADC614 where it is not."""
    wanted = {POPULATION: population.digest, **identity}
    if store.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        have = meta(store)
        other = [name for name, value in wanted.items() if have.get(name) != value]
        if other:
            raise UserError(
                "ADC614",
                f"the store is of another sweep: its {' and '.join(other)} differ",
                "name another --store, or delete this one to start again",
            )
        return
    with transaction(store):
        for statement in _TABLES.strip().split(";\n"):
            store.execute(statement)
        store.executemany("INSERT INTO meta VALUES (?, ?)", [*wanted.items(), ("name", population.path.name)])
        store.executemany(
            "INSERT INTO groups VALUES (?, ?, ?, ?, ?, ?)",
            [(g.key, g.model_type, g.architecture, g.key.rpartition(" | ")[2], g.models, g.downloads) for g in population.groups],
        )
        store.executemany(
            "INSERT INTO models VALUES (?, ?, ?, ?)", [(m.model_id, m.downloads, m.group, m.unrunnable) for m in population.members]
        )


def meta(store: sqlite3.Connection) -> dict[str, str]:
    return dict(store.execute("SELECT name, value FROM meta").fetchall())


def done(store: sqlite3.Connection) -> frozenset[tuple[str, str]]:
    """The (group, width) pairs that have run."""
    return frozenset(store.execute("SELECT group_key, width FROM rows").fetchall())


def record(store: sqlite3.Connection, outcome: Outcome) -> None:
    """Write one row. Raises sqlite3.IntegrityError if it is there already."""
    with transaction(store):
        store.execute(
            "INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                outcome.key,
                outcome.width,
                outcome.stage,
                outcome.kind,
                outcome.message,
                outcome.place,
                json.dumps(dict(outcome.numbers)),
                json.dumps(dict(outcome.fired)),
                outcome.seconds,
            ),
        )


def forget_failures(store: sqlite3.Connection) -> int:
    """Remove the rows that did not pass, to run them again; how many there were."""
    with transaction(store):
        return store.execute("DELETE FROM rows WHERE stage <> 'passed'").rowcount


def groups(store: sqlite3.Connection) -> tuple[StoredGroup, ...]:
    """All groups with their outcomes, the one with most models first."""
    outcomes: dict[str, dict[str, Outcome]] = {}
    for key, width, stage, kind, message, place, numbers, fired, seconds in store.execute("SELECT * FROM rows"):
        outcomes.setdefault(key, {})[width] = Outcome(
            key, width, stage, kind, message, place, json.loads(numbers), json.loads(fired), seconds
        )
    found = store.execute("SELECT * FROM groups ORDER BY models DESC, downloads DESC, key").fetchall()
    return tuple(
        StoredGroup(key, model_type, architecture, dimensions, models, downloads, outcomes.get(key, {}))
        for key, model_type, architecture, dimensions, models, downloads in found
    )


def unrunnable(store: sqlite3.Connection) -> tuple[Unrunnable, ...]:
    """The classes of models that are not run, the largest first; the example is the most downloaded one."""
    rows = store.execute(
        "SELECT unrunnable, count(*), sum(downloads), (SELECT model_id FROM models AS m WHERE m.unrunnable = models.unrunnable"
        " ORDER BY downloads DESC LIMIT 1) FROM models WHERE unrunnable IS NOT NULL GROUP BY unrunnable ORDER BY 2 DESC, 1"
    ).fetchall()
    return tuple(Unrunnable(*row) for row in rows)

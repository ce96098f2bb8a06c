"""Rows of data files and of Hugging Face datasets, each with its place."""

import csv
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One record of a file or a dataset.

    Attributes:
        values: by field name.
        number: from 1; of a JSON-lines file, the line.
        where: names the source and the number, for messages.
    """

    values: Mapping[str, Any]
    number: int
    where: str


def read_rows(path: str | pathlib.Path) -> Iterator[Row]:
    r"""The rows of a .jsonl, .json, .csv or .parquet file, in its order.

    Lines of JSON end at "\n" only: U+2028 and its kind are text. Blank lines are
    skipped. A .json file holds one list of objects.

    Args:
        path: UTF-8, or Parquet.

    Raises:
        FileNotFoundError: no such file.
        ValueError: another suffix, or a row that is no UTF-8 or no object, named by
            file and number.
    """
    path = pathlib.Path(path)
    readers = {
        ".jsonl": _json_lines,
        ".json": _json_list,
        ".csv": _csv_rows,
        ".parquet": _parquet_rows,
    }
    if not path.is_file():
        raise FileNotFoundError(f"no problem file {path}")
    if path.suffix not in readers:
        raise ValueError(
            f"{path} is none of {', '.join(readers)}; rename or convert it"
        )
    return readers[path.suffix](path)


def write_rows(path: pathlib.Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes a JSON-lines file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
    os.replace(temporary, path)


def hub_rows(name: str, *, config: str | None, split: str) -> Iterator[Row]:
    """The rows of a Hugging Face dataset; needs the `datasets` library.

    Args:
        name: at the hub, or a local directory of data files.
        config: one of the dataset's configurations; None where there is but one.
        split: such as "train".

    Raises:
        ImportError: no `datasets`; the message says how to install it.
        FileNotFoundError, ConnectionError, ValueError: what the library raises for an
            unknown dataset, configuration or split, or without a network.
    """
    try:
        import datasets  # Slow, and only needed here.
    except ImportError as error:
        raise ImportError(
            f"reading {name!r} needs: pip install 'agentic_jax[data]'"
        ) from error
    for number, values in enumerate(
        datasets.load_dataset(name, config, split=split), start=1
    ):
        yield Row(values, number, f"{name} ({split}), row {number}")


def _json_lines(path: pathlib.Path) -> Iterator[Row]:
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if line.strip():
            where = f"{path}, line {number}"
            try:
                values = json.loads(line.decode("utf-8-sig"))
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{where}: {error}") from error
            yield Row(_object(values, where), number, where)


def _json_list(path: pathlib.Path) -> Iterator[Row]:
    values = json.loads(path.read_text("utf-8-sig"))
    if not isinstance(values, list):
        raise ValueError(f"{path} holds no list but {type(values).__name__}")
    for number, value in enumerate(values, start=1):
        where = f"{path}, item {number}"
        yield Row(_object(value, where), number, where)


def _csv_rows(path: pathlib.Path) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        for number, values in enumerate(csv.DictReader(file), start=1):
            yield Row(values, number, f"{path}, row {number}")


def _parquet_rows(path: pathlib.Path) -> Iterator[Row]:
    from pyarrow import parquet  # Slow, and only needed here.

    number = 0
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches():
            for values in batch.to_pylist():
                number += 1
                yield Row(values, number, f"{path}, row {number}")


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: not a JSON object but {type(value).__name__}")
    return value

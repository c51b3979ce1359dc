"""A file of encodings: who each is of, where that came from and what is to be predicted; parquet, csv or npz.

It is written row by row: encodings of a million samples are never in memory at once.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import csv
from torch import Tensor

from okapi.data.dataset import Dataset

SUFFIXES = (".parquet", ".csv", ".npz")
COLUMN = "encoding"
NO_DOMAIN = "(none)"  # of a sample whose set of domains is empty

_TOGETHER = 8192  # rows that are written together


@dataclass(frozen=True)
class EncodingsFile:
    """What is to be written, but for the encodings.

    Parameters
    ----------
    dataset : Dataset
    rows : tensor (n,), int64
        Which of its samples.
    width : int
        Of an encoding.
    origin : mapping
        What the encodings came from, for somebody who finds the file; parquet and npz keep it.
    """

    dataset: Dataset
    rows: Tensor
    width: int
    origin: Mapping[str, Any]

    def write(self, path: Path, encodings: NDArray[np.float32], suffix: str) -> None:
        """Write encodings (n, width), which may be mapped from a file, of the rows in their order."""
        {".parquet": self._parquet, ".csv": self._csv, ".npz": self._npz}[suffix](path, encodings)

    def columns(self) -> dict[str, Any]:
        """Return the columns beside the encodings, Arrow arrays (n,): id, domain, split and those of the target.

        Where samples have sets of domains, ``domain`` joins their names by ``|`` and each domain has a column of its
        own name, of true and false. What is unknown is null.
        """
        data, rows = self.dataset, self.rows.numpy()
        found = {"id": pa.array([data.ids[row] for row in rows], pa.string())}
        domain = data.domain[self.rows].numpy()
        names = np.array(data.domain_names, dtype=object)
        if domain.ndim == 1:
            found["domain"] = pa.array(names[domain], pa.string())
        else:
            found["domain"] = pa.array(["|".join(names[one]) or NO_DOMAIN for one in domain], pa.string())
        found["split"] = pa.array(np.asarray(data.split)[rows].tolist(), pa.string())
        found |= self._targets()
        if domain.ndim == 2:
            if clash := {*found, COLUMN} & set(data.domain_names):
                raise ValueError(f"domain {clash.pop()!r} is called like a column of the file")
            found |= {name: pa.array(domain[:, number]) for number, name in enumerate(data.domain_names)}
        return found

    def next_steps(self, path: Path) -> str:
        """Return how the file is matched and trained on."""
        data, suffix = self.dataset, path.suffix.lower()
        single, sets = data.target.ndim == 1, data.domain.ndim == 2
        inputs, domain, target, lines = COLUMN, "domain", "target", []
        if suffix == ".npz":
            inputs, domain, target = "x", "domains" if sets else "domain", "y"
            lines = [f"To train:  data: {{name: arrays, path: {path}, id: id, task: {data.task.kind}}}"]
        elif suffix == ".parquet":
            domains = f"[{', '.join(data.domain_names)}]" if sets else domain
            targets = target if single else f"[{', '.join(self._targets())}]"
            lines = [
                f"To train:  data: {{name: table, path: {path}, features: {COLUMN}, target: {targets}, "
                f"domain: {domains}, split: split, id: id, task: {data.task.kind}}}"
            ]
        else:
            inputs = f"{COLUMN}_{{0..{self.width - 1}}}"  # which a shell writes out
        outcome = f" --target {target}" if single else ""
        return "\n".join(
            [f"To match:  okapi match {path} --domain {domain} --id id{outcome} --columns {inputs}", *lines]
        )

    def _targets(self) -> dict[str, Any]:
        target, class_names = self.dataset.target[self.rows].numpy(), self.dataset.class_names
        if self.dataset.task.kind == "classification":
            unknown = target < 0
            if not class_names:
                return {"target": pa.array(target, pa.int64(), mask=unknown)}
            return {"target": pa.array(np.array(class_names, dtype=object)[target], pa.string(), mask=unknown)}
        if target.ndim == 1:
            return {"target": pa.array(target, pa.float32(), mask=np.isnan(target))}
        names = class_names or range(target.shape[1])
        return {
            f"target_{name}": pa.array(target[:, number], pa.float32(), mask=np.isnan(target[:, number]))
            for number, name in enumerate(names)
        }

    def _parquet(self, path: Path, encodings: NDArray[np.float32]) -> None:
        columns = self.columns()
        kind = pa.list_(pa.float32(), self.width)
        fields = [pa.field(name, column.type) for name, column in columns.items()]
        origin = {"okapi": json.dumps(self.origin, sort_keys=True)}
        schema = pa.schema([*fields, pa.field(COLUMN, kind)], metadata=origin)
        with pq.ParquetWriter(path, schema, use_dictionary=["domain", "split"]) as writer:
            for start, block in _blocks(encodings):
                labels = [column.slice(start, len(block)) for column in columns.values()]
                lists = pa.FixedSizeListArray.from_arrays(pa.array(block.ravel()), type=kind)
                writer.write_table(pa.table([*labels, lists], schema=schema), row_group_size=len(block))

    def _csv(self, path: Path, encodings: NDArray[np.float32]) -> None:
        columns = self.columns()
        numbers = [f"{COLUMN}_{number}" for number in range(self.width)]
        fields = [pa.field(name, column.type) for name, column in columns.items()]
        schema = pa.schema([*fields, *(pa.field(name, pa.float32()) for name in numbers)])
        with csv.CSVWriter(path, schema) as writer:
            for start, block in _blocks(encodings):
                labels = [column.slice(start, len(block)) for column in columns.values()]
                writer.write_table(pa.table([*labels, *(pa.array(column) for column in block.T)], schema=schema))

    def _npz(self, path: Path, encodings: NDArray[np.float32]) -> None:
        """Write arrays by the names that the data set ``arrays`` looks for, uncompressed, to be mapped."""
        with path.open("wb") as file:
            np.savez(file, **{"x": encodings, **self._arrays()})  # type: ignore[arg-type]

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays (n, ...) beside the encodings; an unknown class is -1 or an empty name."""
        data, columns = self.dataset, self.columns()
        texts = {name: columns[name].to_numpy(zero_copy_only=False).astype(np.str_) for name in ("id", "split")}
        target = data.target[self.rows].numpy()
        if data.task.kind == "classification" and data.class_names:
            target = np.where(target < 0, "", np.array(data.class_names, dtype=np.str_)[target])
        domain = columns["domain"].to_numpy(zero_copy_only=False).astype(np.str_)
        found = {**texts, "domain": domain, "y": target}
        if data.domain.ndim == 2:
            found |= {"domain": data.domain[self.rows].numpy(), "domains": domain}
        return found | {"origin": np.array(json.dumps(self.origin, sort_keys=True))}


def _blocks(encodings: NDArray[np.float32]) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield some rows at a time, and the number of the first."""
    for start in range(0, len(encodings), _TOGETHER):
        yield start, np.asarray(encodings[start : start + _TOGETHER])

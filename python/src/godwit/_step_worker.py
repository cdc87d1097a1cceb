"""Runs the function of a step on the tables of partitions, one after the other: the other end of ``godwit align --step``.

godwit has this file in its program and starts it as ``__main__``, so that nothing but pyarrow has to be installed; in the package it is there for
the type `Partition`. Requests come as lines of JSON on standard input, each is answered by one on what was standard output. A table lies in a
file that is mapped into memory, as an Arrow IPC stream; what comes of it is written to another file. What the function prints goes where its
errors go.
"""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import importlib
import inspect
import json
import mmap
import os
import platform
import signal
import sys
import traceback
import typing
from pathlib import Path
from types import ModuleType
from typing import Any

# Rows of a batch that is handed back: some megabytes.
BATCH_ROWS = 8192


@dataclasses.dataclass(frozen=True)
class Partition:
    """Which part of a run a table is.

    Attributes:
        sample: Name of the sample.
        index: Number of the partition, from 0, in the order of the genome.
        count: How many there are.
        region: The partition as people write it, positions 1-based.
        start: Contig and 0-based position where it begins; ``None`` for the records that have no contig.
        end: Contig and 0-based position of what comes behind it; ``None`` for the last.
        out: Directory that appears as ``OUT/SAMPLE.step`` when the run is whole. Use `path`.
    """

    sample: str
    index: int
    count: int
    region: str
    start: tuple[str, int] | None
    end: tuple[str, int] | None
    out: Path

    def path(self, name: str) -> Path:
        """Where to write a file of this partition: ``part-INDEX.NAME`` in `out`. No other files may be written there."""
        return self.out / f"part-{self.index:05}.{name}"


class Refused(Exception):
    """A step that cannot begin: ``kind`` is ``missing``, ``usage`` or ``failed``."""

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(problem)
        self.kind = kind


class Wrong(Exception):
    """What the function returned cannot be used."""


@dataclasses.dataclass(frozen=True)
class Step:
    """A function and how it is called."""

    function: Any
    # "pyarrow", "polars" or "pandas".
    frame: str
    # Columns it is given; all of them where there are none.
    columns: list[str] | None
    wants_partition: bool
    file: str | None


def last_line(error: BaseException, file: str | None = None) -> str:
    """What an exception says, and where it came from: the last line of ``file`` that it went through, if there is one."""
    said = "".join(traceback.format_exception_only(type(error), error)).strip().splitlines()
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == file]
    place = (own or frames)[-1:]
    return " ".join(said[-1:]) + "".join(f" ({frame.filename}, line {frame.lineno})" for frame in place)


def library(name: str) -> ModuleType:
    """A library that has to be installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Refused(
            "missing", f"{sys.executable} has no {name}: {last_line(error)}; install it there, or name another Python with --python"
        ) from None


def load(name: str) -> Step:
    """The step called ``MODULE:FUNCTION``."""
    arrow = library("pyarrow")
    importlib.import_module("pyarrow.ipc")
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except BaseException as error:
        parents = [module_name.rsplit(".", count)[0] for count in range(module_name.count(".") + 1)]
        if isinstance(error, ModuleNotFoundError) and error.name in parents:
            where = "; Python looks in the directory of the command, in PYTHONPATH and among installed packages"
            raise Refused("missing", f"there is no module {error.name}{where}") from None
        raise Refused("failed", f"the module {module_name} cannot be imported: {last_line(error)}") from None
    function: Any = module
    for part in function_name.split("."):
        function = getattr(function, part, None)
    file = getattr(module, "__file__", None)
    if function is None:
        raise Refused("usage", f"the module {module_name} ({file}) has no {function_name}")
    if not callable(function):
        raise Refused("usage", f"{function_name} of the module {module_name} ({file}) is no function")
    return described(function, arrow, file)


def described(function: Any, arrow: Any, file: str | None) -> Step:
    """How a function is called: by its annotations, and by what `godwit.pipeline.step` says of it."""
    said = getattr(function, "__godwit_step__", {})
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = list(inspect.signature(function).parameters.values())
    positional = [parameter for parameter in parameters if parameter.kind in kinds]
    any_number = any(parameter.kind == inspect.Parameter.VAR_POSITIONAL for parameter in parameters)
    needed = [parameter for parameter in positional if parameter.default is inspect.Parameter.empty]
    if (not positional and not any_number) or len(needed) > 2:
        raise Refused("usage", f"{function.__name__} has to take a table, or a table and a partition")
    frame = said.get("frame") or (annotated(function, positional[0]) if positional else "pyarrow")
    if frame not in ("pyarrow", "polars", "pandas"):
        raise Refused("usage", f"a step takes tables of pyarrow, polars or pandas, and not of {frame}")
    if frame != "pyarrow":
        library(frame)
    columns = said.get("columns")
    return Step(function, frame, None if columns is None else list(columns), len(positional) > 1 or any_number, file)


def annotated(function: Any, parameter: inspect.Parameter) -> str:
    """The library whose table a parameter is annotated with."""
    if parameter.annotation is inspect.Parameter.empty:
        return "pyarrow"
    try:
        kind = typing.get_type_hints(function).get(parameter.name)
    except Exception:
        kind = None
    root = (getattr(kind, "__module__", None) or str(parameter.annotation)).split(".")[0]
    return {"pl": "polars", "pd": "pandas", "pa": "pyarrow"}.get(root, root)


def given(step: Step, table: Any) -> Any:
    """A table as the function wants it; columns are shared wherever the library can."""
    if step.frame == "polars":
        return library("polars").from_arrow(table)
    if step.frame == "pandas":
        return table.to_pandas(types_mapper=library("pandas").ArrowDtype)
    return table


def mask_of(result: Any, arrow: Any) -> Any:
    """What was returned as Arrow's booleans, or nothing where it is no mask."""
    if isinstance(result, arrow.ChunkedArray):
        mask = result.combine_chunks()
    elif isinstance(result, arrow.Array):
        mask = result
    elif type(result).__module__.split(".")[0] == "polars" and hasattr(result, "to_frame") and hasattr(result, "to_arrow"):
        mask = result.to_arrow()
    elif type(result).__module__.split(".")[0] in ("pandas", "numpy") and getattr(result, "ndim", 0) == 1:
        mask = arrow.array(result)
    else:
        return None
    if isinstance(mask, arrow.ChunkedArray):
        mask = mask.combine_chunks()
    if not arrow.types.is_boolean(mask.type):
        raise Wrong(f"it returned one column of type {mask.type}; a mask of the rows to keep is of bool")
    return mask


def table_of(result: Any, arrow: Any) -> Any:
    """What was returned as a table of Arrow."""
    root = type(result).__module__.split(".")[0]
    if result is None:
        raise Wrong("it returned nothing; return the table, a table of the same columns, or a mask of the rows to keep")
    if isinstance(result, arrow.Table):
        return result
    if isinstance(result, arrow.RecordBatch):
        return arrow.Table.from_batches([result])
    if root == "polars" and type(result).__name__ == "DataFrame":
        return result.to_arrow()
    if root == "pandas" and type(result).__name__ == "DataFrame":
        return arrow.Table.from_pandas(result, preserve_index=False)
    what = f"{type(result).__module__}.{type(result).__qualname__}".removeprefix("builtins.")
    raise Wrong(f"it returned {what}; return the table, a table of the same columns, or a mask of the rows to keep")


def plain(kind: Any, arrow: Any) -> Any:
    """The type in which a column is handed back: names as text."""
    return arrow.string() if arrow.types.is_dictionary(kind) else kind


def recast(name: str, column: Any, wanted: Any, arrow: Any) -> Any:
    """A column in another form of the same type. Numbers may be of another width, where they fit."""
    found, kinds = column.type, arrow.types
    if kinds.is_dictionary(found):
        column = arrow.chunked_array([chunk.dictionary_decode() for chunk in column.chunks], type=found.value_type)
        found = column.type
    if found == wanted:
        return column
    text = (arrow.string(), arrow.large_string(), arrow.string_view())
    data = (arrow.binary(), arrow.large_binary(), arrow.binary_view())
    same = any(found in forms and wanted in forms for forms in (text, data))
    if same or kinds.is_null(found) or (kinds.is_integer(found) and kinds.is_integer(wanted)):
        try:
            return column.cast(wanted)
        except arrow.ArrowInvalid as error:
            raise Wrong(f"the column {name} is of type {found}, and not all of it is {wanted}: {last_line(error)}") from None
    raise Wrong(f"the column {name} is of type {found}, but has to be {wanted}")


def conforming(result: Any, table: Any, arrow: Any) -> Any:
    """A returned table with the columns of the one that was given, in their types; says what is wrong where it has others."""
    names = result.column_names
    for name in table.column_names:
        if names.count(name) != 1:
            raise Wrong(f"the table that it returned has the column {name} {'twice' if name in names else 'no more'}")
    for name in names:
        if name not in table.column_names:
            raise Wrong(f"the table that it returned has a column {name}, which the one that it was given has not")
    if result.num_rows > table.num_rows:
        raise Wrong(f"it returned {result.num_rows} rows for {table.num_rows}; rows can be left out and changed, but not added")
    fields = [arrow.field(field.name, plain(field.type, arrow), field.nullable) for field in table.schema]
    columns = []
    for field in fields:
        column = result.column(field.name)
        column = column if column.type == field.type else recast(field.name, column, field.type, arrow)
        if not field.nullable and column.null_count:
            raise Wrong(f"the column {field.name} has {column.null_count} nulls, which it must not have")
        columns.append(column)
    return arrow.Table.from_arrays(columns, schema=arrow.schema(fields))


def write(table: Any, path: str, arrow: Any) -> None:
    """Writes what is handed back."""
    options = arrow.ipc.IpcWriteOptions(compression=None)
    with arrow.OSFile(path, "wb") as sink, arrow.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=BATCH_ROWS)


def check_files(out: Path) -> None:
    """Refuses what would be lost or in the way later."""
    for entry in os.scandir(out):
        if not entry.name.startswith("part-") or entry.is_dir():
            raise Wrong(f"it made {entry.name} in {out}; partition.path(NAME) says where its files go")


def apply(step: Step, request: dict[str, Any], mapped: mmap.mmap) -> dict[str, Any]:
    """Has the function look at a table, and hands on what it says. Keeps nothing of the table."""
    arrow = library("pyarrow")
    table = arrow.ipc.open_stream(arrow.py_buffer(mapped)).read_all()
    about = dict(request["partition"])
    ends = {name: None if about[name] is None else tuple(about[name]) for name in ("start", "end")}
    partition = Partition(**{**about, **ends, "out": Path(about["out"])})
    words = [given(step, table), *([partition] if step.wants_partition else [])]
    try:
        result = step.function(*words)
    except BaseException as error:
        return {"failed": last_line(error, step.file)}
    check_files(partition.out)
    # Frames of polars and pandas can be changed in place.
    if result is table:
        return {"kept": "all", "rows": table.num_rows}
    mask = mask_of(result, arrow)
    if mask is not None:
        if len(mask) != table.num_rows:
            raise Wrong(f"it returned a mask of {len(mask)} rows for a table of {table.num_rows}")
        write(arrow.table({"keep": mask.fill_null(False)}), request["result"], arrow)
        return {"kept": "mask", "rows": mask.true_count}
    if step.columns is not None:
        raise Wrong("it is given some columns only, so it has to return the table itself or a mask of the rows to keep")
    changed = conforming(table_of(result, arrow), table, arrow)
    write(changed, request["result"], arrow)
    return {"kept": "table", "rows": changed.num_rows}


def answer(step: Step, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request. Says whether the function has kept something of the table, which must not be written over then."""
    file = os.open(request["table"], os.O_RDONLY)
    try:
        mapped = mmap.mmap(file, request["bytes"], prot=mmap.PROT_READ)
    finally:
        os.close(file)
    try:
        said = apply(step, request, mapped)
    except Wrong as error:
        said = {"wrong": str(error)}
    except Refused as error:
        said = {"failed": str(error)}
    except Exception as error:
        said = {"failed": last_line(error)}
    return {**said, "held": not released(mapped)}


def released(mapped: mmap.mmap) -> bool:
    """Unmaps a table, unless somebody has kept a part of it."""
    return unmapped(mapped) or (gc.collect() >= 0 and unmapped(mapped))


def unmapped(mapped: mmap.mmap) -> bool:
    """Unmaps a table unless there are still views of it."""
    try:
        mapped.close()
    except BufferError:
        return False
    return True


def hello(step: Step) -> dict[str, Any]:
    """What godwit has to know of a step."""
    arrow = library("pyarrow")
    file = step.file if step.file and Path(step.file).is_file() else None
    digest = hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""
    return {"python": platform.python_version(), "pyarrow": arrow.__version__, "digest": digest, "columns": step.columns}


def main(name: str, directory: str) -> None:
    """Says hello, and answers until there are no more requests."""
    # Who interrupts godwit interrupts what it started; godwit ends this.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w")
    requests = os.fdopen(os.dup(0), "rb")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.path.insert(0, directory)
    try:
        step = load(name)
        told = hello(step)
    except Refused as error:
        told = {"refused": error.kind, "problem": str(error)}
    print(json.dumps(told), file=answers, flush=True)
    if "refused" in told:
        return
    for line in requests:
        print(json.dumps(answer(step, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

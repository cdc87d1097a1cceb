"""Runs the function of a step on the tables of partitions, one after the other: the worker of ``godwit align --step``.

godwit contains this file and runs it as ``__main__``, so that only pyarrow must be installed; the package uses it for the type `Partition`. Each
request is a line of JSON on standard input, and each response a line of JSON on the original standard output. A table is an Arrow IPC stream in a
file that is mapped into memory; the result is written to another file. Output that the function prints is redirected to standard error.
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

# Rows of a batch of the result: some megabytes.
OUTPUT_BATCH_ROWS = 8192


@dataclasses.dataclass(frozen=True)
class Partition:
    """The partition of a run that a table belongs to.

    Attributes:
        sample: Name of the sample.
        index: Number of the partition, from 0, in the order of the genome.
        count: Number of partitions.
        region: The partition as a region, positions 1-based.
        start: Contig and 0-based position of its start; ``None`` for the records that have no contig.
        end: Contig and 0-based position behind its end; ``None`` for the last.
        out: Directory that becomes ``OUT/SAMPLE.step`` when the run is complete. Use `path`.
    """

    sample: str
    index: int
    count: int
    region: str
    start: tuple[str, int] | None
    end: tuple[str, int] | None
    out: Path

    def path(self, name: str) -> Path:
        """Returns the path of a file of this partition: ``part-INDEX.NAME`` in `out`. No other files may be written there."""
        return self.out / f"part-{self.index:05}.{name}"


class StepError(Exception):
    """A step that cannot be started: ``kind`` is ``missing``, ``usage`` or ``failed``."""

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(problem)
        self.kind = kind


class InvalidResult(Exception):
    """The function returned a value that cannot be used."""


@dataclasses.dataclass(frozen=True)
class Step:
    """The function of a step, and how it is called."""

    function: Any
    # "pyarrow", "polars" or "pandas".
    frame: str
    # Columns of the table that it receives; None means all columns.
    columns: list[str] | None
    wants_partition: bool
    file: str | None


def error_summary(error: BaseException, file: str | None = None) -> str:
    """Returns the message of an exception and its location: the last frame in ``file``, or else the last frame."""
    message = "".join(traceback.format_exception_only(type(error), error)).strip().splitlines()
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == file]
    place = (own or frames)[-1:]
    return " ".join(message[-1:]) + "".join(f" ({frame.filename}, line {frame.lineno})" for frame in place)


def import_library(name: str) -> ModuleType:
    """Imports a library. Raises `StepError` if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise StepError(
            "missing", f"{sys.executable} has no {name}: {error_summary(error)}; install it there, or name another Python with --python"
        ) from None


def load_step(name: str) -> Step:
    """Loads the step ``MODULE:FUNCTION``."""
    arrow = import_library("pyarrow")
    importlib.import_module("pyarrow.ipc")
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except BaseException as error:
        parents = [module_name.rsplit(".", count)[0] for count in range(module_name.count(".") + 1)]
        if isinstance(error, ModuleNotFoundError) and error.name in parents:
            where = "; Python looks in the directory of the command, in PYTHONPATH and among installed packages"
            raise StepError("missing", f"there is no module {error.name}{where}") from None
        raise StepError("failed", f"the module {module_name} cannot be imported: {error_summary(error)}") from None
    function: Any = module
    for part in function_name.split("."):
        function = getattr(function, part, None)
    file = getattr(module, "__file__", None)
    if function is None:
        raise StepError("usage", f"the module {module_name} ({file}) has no {function_name}")
    if not callable(function):
        raise StepError("usage", f"{function_name} of the module {module_name} ({file}) is no function")
    return step_of_function(function, arrow, file)


def step_of_function(function: Any, arrow: Any, file: str | None) -> Step:
    """Returns a function as a step, by its annotations and the options of `godwit.pipeline.step`."""
    options = getattr(function, "__godwit_step__", {})
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = list(inspect.signature(function).parameters.values())
    positional = [parameter for parameter in parameters if parameter.kind in kinds]
    any_number = any(parameter.kind == inspect.Parameter.VAR_POSITIONAL for parameter in parameters)
    needed = [parameter for parameter in positional if parameter.default is inspect.Parameter.empty]
    if (not positional and not any_number) or len(needed) > 2:
        raise StepError("usage", f"{function.__name__} must take a table, or a table and a partition")
    frame = options.get("frame") or (annotated_library(function, positional[0]) if positional else "pyarrow")
    if frame not in ("pyarrow", "polars", "pandas"):
        raise StepError("usage", f"a step takes tables of pyarrow, polars or pandas, not of {frame}")
    if frame != "pyarrow":
        import_library(frame)
    columns = options.get("columns")
    return Step(function, frame, None if columns is None else list(columns), len(positional) > 1 or any_number, file)


def annotated_library(function: Any, parameter: inspect.Parameter) -> str:
    """Returns the library of the table type in the annotation of a parameter."""
    if parameter.annotation is inspect.Parameter.empty:
        return "pyarrow"
    try:
        kind = typing.get_type_hints(function).get(parameter.name)
    except Exception:
        kind = None
    root = (getattr(kind, "__module__", None) or str(parameter.annotation)).split(".")[0]
    return {"pl": "polars", "pd": "pandas", "pa": "pyarrow"}.get(root, root)


def to_frame(step: Step, table: Any) -> Any:
    """Converts a table to the type that the function takes, without copies if the library allows it."""
    if step.frame == "polars":
        return import_library("polars").from_arrow(table)
    if step.frame == "pandas":
        return table.to_pandas(types_mapper=import_library("pandas").ArrowDtype)
    return table


def to_mask(result: Any, arrow: Any) -> Any:
    """Converts a result to a Boolean array of Arrow; returns None if it is not a mask."""
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
        raise InvalidResult(f"it returned one column of type {mask.type}; a mask of the rows to keep is of bool")
    return mask


def to_table(result: Any, arrow: Any) -> Any:
    """Converts a result to a table of Arrow."""
    root = type(result).__module__.split(".")[0]
    if result is None:
        raise InvalidResult("it returned nothing; return the table, a table of the same columns, or a mask of the rows to keep")
    if isinstance(result, arrow.Table):
        return result
    if isinstance(result, arrow.RecordBatch):
        return arrow.Table.from_batches([result])
    if root == "polars" and type(result).__name__ == "DataFrame":
        return result.to_arrow()
    if root == "pandas" and type(result).__name__ == "DataFrame":
        return arrow.Table.from_pandas(result, preserve_index=False)
    what = f"{type(result).__module__}.{type(result).__qualname__}".removeprefix("builtins.")
    raise InvalidResult(f"it returned {what}; return the table, a table of the same columns, or a mask of the rows to keep")


def plain_type(kind: Any, arrow: Any) -> Any:
    """Returns the type in which a column is written: dictionaries become strings."""
    return arrow.string() if arrow.types.is_dictionary(kind) else kind


def cast_column(name: str, column: Any, wanted: Any, arrow: Any) -> Any:
    """Casts a column to another representation of its type. Integers of another width are accepted if their values fit."""
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
            raise InvalidResult(f"the column {name} is of type {found}, and some values cannot be cast to {wanted}: {error_summary(error)}") from None
    raise InvalidResult(f"the column {name} is of type {found}, but must be {wanted}")


def conform_to_input(result: Any, table: Any, arrow: Any) -> Any:
    """Returns the result with the columns and types of the input table. Raises `InvalidResult` if its columns differ."""
    names = result.column_names
    for name in table.column_names:
        if names.count(name) != 1:
            raise InvalidResult(f"the table that it returned has {'two columns' if name in names else 'no column'} {name}")
    for name in names:
        if name not in table.column_names:
            raise InvalidResult(f"the table that it returned has a column {name}, which the input table does not have")
    if result.num_rows > table.num_rows:
        raise InvalidResult(f"it returned {result.num_rows} rows for {table.num_rows}; rows can be removed and changed, but not added")
    fields = [arrow.field(field.name, plain_type(field.type, arrow), field.nullable) for field in table.schema]
    columns = []
    for field in fields:
        column = result.column(field.name)
        column = column if column.type == field.type else cast_column(field.name, column, field.type, arrow)
        if not field.nullable and column.null_count:
            raise InvalidResult(f"the column {field.name} has {column.null_count} nulls, which it must not have")
        columns.append(column)
    return arrow.Table.from_arrays(columns, schema=arrow.schema(fields))


def write_table(table: Any, path: str, arrow: Any) -> None:
    """Writes the result as an Arrow IPC file."""
    options = arrow.ipc.IpcWriteOptions(compression=None)
    with arrow.OSFile(path, "wb") as sink, arrow.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=OUTPUT_BATCH_ROWS)


def check_output_files(out: Path) -> None:
    """Rejects files of the step that would be lost or overwritten later."""
    for entry in os.scandir(out):
        if not entry.name.startswith("part-") or entry.is_dir():
            raise InvalidResult(f"it created {entry.name} in {out}; partition.path(NAME) returns the path for a file")


def run_step(step: Step, request: dict[str, Any], mapped: mmap.mmap) -> dict[str, Any]:
    """Runs the function on a table and writes its result. Holds no reference to the table afterwards."""
    arrow = import_library("pyarrow")
    table = arrow.ipc.open_stream(arrow.py_buffer(mapped)).read_all()
    fields = dict(request["partition"])
    bounds = {name: None if fields[name] is None else tuple(fields[name]) for name in ("start", "end")}
    partition = Partition(**{**fields, **bounds, "out": Path(fields["out"])})
    args = [to_frame(step, table), *([partition] if step.wants_partition else [])]
    try:
        result = step.function(*args)
    except BaseException as error:
        return {"failed": error_summary(error, step.file)}
    check_output_files(partition.out)
    # Data frames of polars and pandas can be modified in place.
    if result is table:
        return {"kept": "all", "rows": table.num_rows}
    mask = to_mask(result, arrow)
    if mask is not None:
        if len(mask) != table.num_rows:
            raise InvalidResult(f"it returned a mask of {len(mask)} rows for a table of {table.num_rows}")
        write_table(arrow.table({"keep": mask.fill_null(False)}), request["result"], arrow)
        return {"kept": "mask", "rows": mask.true_count}
    if step.columns is not None:
        raise InvalidResult("it receives some columns only, so it must return the table itself or a mask of the rows to keep")
    changed = conform_to_input(to_table(result, arrow), table, arrow)
    write_table(changed, request["result"], arrow)
    return {"kept": "table", "rows": changed.num_rows}


def handle_request(step: Step, request: dict[str, Any]) -> dict[str, Any]:
    """Handles a request and returns its response. ``held`` is true if the function still references the table, which must not be overwritten then."""
    file = os.open(request["table"], os.O_RDONLY)
    try:
        mapped = mmap.mmap(file, request["bytes"], prot=mmap.PROT_READ)
    finally:
        os.close(file)
    try:
        response = run_step(step, request, mapped)
    except InvalidResult as error:
        response = {"wrong": str(error)}
    except StepError as error:
        response = {"failed": str(error)}
    except Exception as error:
        response = {"failed": error_summary(error)}
    return {**response, "held": not unmap_table(mapped)}


def unmap_table(mapped: mmap.mmap) -> bool:
    """Unmaps a table, after a garbage collection if necessary; returns false if it is still referenced."""
    return try_unmap(mapped) or (gc.collect() >= 0 and try_unmap(mapped))


def try_unmap(mapped: mmap.mmap) -> bool:
    """Unmaps a table; returns false if views of it exist."""
    try:
        mapped.close()
    except BufferError:
        return False
    return True


def describe_step(step: Step) -> dict[str, Any]:
    """Describes a step for godwit: versions, digest of the module, columns."""
    arrow = import_library("pyarrow")
    file = step.file if step.file and Path(step.file).is_file() else None
    digest = hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""
    return {"python": platform.python_version(), "pyarrow": arrow.__version__, "digest": digest, "columns": step.columns}


def main(name: str, directory: str) -> None:
    """Writes the description of the step, and handles requests until standard input is closed."""
    # Ctrl-C reaches the whole process group; godwit stops this process itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    responses = os.fdopen(os.dup(1), "w")
    requests = os.fdopen(os.dup(0), "rb")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.path.insert(0, directory)
    try:
        step = load_step(name)
        description = describe_step(step)
    except StepError as error:
        description = {"refused": error.kind, "problem": str(error)}
    print(json.dumps(description), file=responses, flush=True)
    if "refused" in description:
        return
    for line in requests:
        print(json.dumps(handle_request(step, json.loads(line))), file=responses, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

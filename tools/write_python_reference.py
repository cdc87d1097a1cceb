"""Writes the reference of the Python package, docs/reference/python*.md, from its sources.

    write_python_reference.py [--check]

Functions, classes and their public methods have the signature and the docstring of the source. With --check, nothing is written: the exit code
is 1 if a page is not current.
"""

import ast
import inspect
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python/src/godwit"
# The pages: heading, links, and the names of each public module in their order.
PAGES = {
    "docs/reference/python.md": (
        "Python package",
        "[The guide](../guide/python.md) has examples. Further modules: [frames and tensors](python-frames.md) · [models](python-models.md)",
        {
            "godwit": ["open", "connect", "Session", "Dataset", "Query", "align", "call", "run", "copy", "search", "GodwitError"],
            "godwit.pipeline": ["step", "Partition"],
        },
    ),
    "docs/reference/python-frames.md": (
        "Python package: frames and tensors",
        "[The guide](../guide/python.md) has examples",
        {
            "godwit.dask": ["frame"],
            "godwit.spark": ["register"],
            "godwit.torch": ["Dataset", "PileupDataset"],
            "godwit.tensorflow": ["dataset", "pileups"],
            "godwit.pileups": ["Pileups"],
        },
    ),
    "docs/reference/python-models.md": (
        "Python package: models",
        "[Scoring](../guide/scoring.md) and [federated training](../guide/federated.md) have examples",
        {
            "godwit.scoring": ["serve", "connect", "Service", "Scorer", "Stream", "Model", "Function"],
            "godwit.federated": ["serve", "average"],
        },
    ),
}
SECTIONS = ("Args:", "Attributes:", "Returns:", "Raises:")
Definition = ast.FunctionDef | ast.ClassDef


def module_tree(module):
    path = PACKAGE.joinpath(*module.split(".")[1:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return path, ast.parse(path.read_text())


def find_definition(path, tree, name):
    """Returns the definition of a name in a module, or in the module that it is imported from."""
    for node in tree.body:
        if isinstance(node, Definition) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    source = path.parent / f"{node.module}.py"
                    return find_definition(source, ast.parse(source.read_text()), alias.name)
    raise SystemExit(f"{path} has no {name}")


def has_decorator(function, name):
    return any(isinstance(node, ast.Name) and node.id == name for node in function.decorator_list)


def signature(function, name):
    """Returns the signature of a function without types: the docstring describes the values."""
    if has_decorator(function, "property"):
        return name
    arguments = function.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]:
        if argument is not None:
            argument.annotation = None
    if arguments.args and arguments.args[0].arg in ("self", "cls"):
        arguments.args.pop(0)
    return f"{name}({ast.unparse(arguments)})"


def paragraphs(node):
    """Returns the docstring of a definition as Markdown: sections of arguments and results are lists, indented examples are blocks of code."""
    lines, in_section, in_example = [], False, False
    for line in inspect.cleandoc(ast.get_docstring(node) or "").splitlines():
        text, indent = line.strip(), len(line) - len(line.lstrip())
        if in_example and text and indent < 4:
            lines += ["```", ""]
            in_example = False
        if in_example:
            lines.append(line[4:])
        elif text.endswith("::"):
            lines += [text[:-1] if text != "::" else "", "", "```python"]
            in_example = True
        elif text in SECTIONS:
            in_section = True
            lines += ["" if text == "Args:" else f"*{text[:-1]}*", ""]
        elif in_section and text:
            name, colon, rest = text.partition(": ")
            if indent > 4:
                lines[-1] += f" {text}"
            else:
                lines.append(f"- `{name}`: {rest}" if colon and " " not in name else f"- {text}")
        else:
            lines.append(text)
    text = "\n".join([*lines, "```"] if in_example else lines)
    text = re.sub(r"```python\n+", "```python\n", re.sub(r"\n+```(?=\n|$)", "\n```", text))
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"(?<!`)``(?!`)", "`", text)).strip()


def is_public_method(node):
    return isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and ast.get_docstring(node)


def describe(module, name, node):
    """Returns the section of a function or a class."""
    if isinstance(node, ast.FunctionDef):
        return f"### `{signature(node, f'{module}.{name}')}`\n\n{paragraphs(node)}\n"
    constructor = next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
    is_made_by_users = constructor is not None and (ast.get_docstring(constructor) or "").startswith("Args:")
    title = signature(constructor, f"{module}.{name}") if is_made_by_users else f"{module}.{name}"
    text = [f"### `{title}`", "", paragraphs(node), ""]
    if is_made_by_users:
        text += [paragraphs(constructor), ""]
    members = []
    for item, following in zip(node.body, [*node.body[1:], None], strict=True):
        if is_public_method(item):
            members.append(f"- `{signature(item, item.name)}`: " + " ".join(paragraphs(item).split("\n\n")[0].split()))
            members += ["  " + line for line in paragraphs(item).splitlines() if line.startswith("- ")]
        elif isinstance(item, ast.AnnAssign) and isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            members.append(f"- `{item.target.id}`: {following.value.value}".replace("``", "`"))
    return "\n".join([*text, *members, *([""] if members else [])])


def page_text(heading, links, modules):
    parts = [f"# {heading}\n\nGenerated by `tools/write_python_reference.py` from the sources of the package. {links}.\n"]
    for module, names in modules.items():
        path, tree = module_tree(module)
        parts.append(f"## {module}\n\n{paragraphs(tree)}\n")
        parts += [describe(module, name, find_definition(path, tree, name)) for name in names]
    return "\n".join(parts)


def main():
    texts = {ROOT / page: page_text(*contents) for page, contents in PAGES.items()}
    if sys.argv[1:] == ["--check"]:
        old = [page.relative_to(ROOT) for page, text in texts.items() if not page.exists() or page.read_text() != text]
        for page in old:
            print(f"{page} is not current; run tools/write_python_reference.py", file=sys.stderr)
        return 1 if old else 0
    for page, text in texts.items():
        page.write_text(text)
        print(f"wrote {page.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Parts that fit on a screen: the size of functions, classes and modules, with the exceptions of today."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "overweave"
FUNCTION_LINES, CLASS_METHODS, MODULE_LINES, KERNEL_LINES = 60, 25, 330, 450
#: What is too large today. An exception that is no longer needed fails the test, so that the list can only shrink.
EXCEPTIONS: set[str] = set()


def too_large(path):
    """The names of a module, its classes and its functions that are above their limit."""
    name, text = str(path.relative_to(SOURCE)), path.read_text()
    is_kernel = "kernels" in path.relative_to(SOURCE).parts or path.stem.endswith("kernels")
    if len(text.splitlines()) > (KERNEL_LINES if is_kernel else MODULE_LINES):
        yield name
    yield from parts_too_large(f"{name}:", ast.parse(text))


def parts_too_large(prefix, parent):
    for node in ast.iter_child_nodes(parent):
        named = prefix
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.end_lineno - node.lineno + 1 > FUNCTION_LINES:
                yield f"{prefix}{node.name}"
            named = f"{prefix}{node.name}."
        elif isinstance(node, ast.ClassDef):
            if sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body) > CLASS_METHODS:
                yield f"{prefix}{node.name}"
            named = f"{prefix}{node.name}."
        yield from parts_too_large(named, node)


def test_modules_classes_and_functions_fit_on_a_screen():
    found = {each for path in SOURCE.rglob("*.py") for each in too_large(path)}
    assert sorted(found - EXCEPTIONS) == [], "too large: split it"
    assert sorted(EXCEPTIONS - found) == [], "no longer too large: remove the exception"

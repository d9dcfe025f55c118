"""What the source of a class or function says: its code, its lines, its signature, and what making it runs."""

import ast
import inspect
import re
import textwrap

from torch import nn

REDUCES = re.compile(r"\b(all_?reduce|reduce|reduce_scatter)(_\w+)?$")
SEEDS = re.compile(r"\b(manual_seed|seed|RandomState|default_rng|Random)$")
SHUFFLES = re.compile(r"\b(randperm|permutation|shuffle|multinomial|sample)$")


def source_of(thing):
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):
        return ""


def code_of(source):
    """Without comments and docstrings: what it does, not what is said about it."""
    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError:
        return source
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body[0] = ast.Pass()
    return ast.unparse(tree)


def place_of(thing):
    try:
        return f"{inspect.getsourcefile(thing)}:{inspect.getsourcelines(thing)[1]}"
    except (OSError, TypeError):
        return ""


def whole_source(cls):
    """Of a class and of what it derives from, as far as it is no module of PyTorch's own that all derive from."""
    return "\n".join(source_of(base) for base in cls.__mro__ if base not in (object, nn.Module))


def whole_code(cls):
    return "\n".join(code_of(source_of(base)) for base in cls.__mro__ if base not in (object, nn.Module))


def signature_of(thing):
    """Parameters by name. What a constructor hands on, as *args and **kwargs, is what the next class has."""
    try:
        parameters = dict(inspect.signature(thing).parameters)
    except (TypeError, ValueError):
        return {}
    if not inspect.isclass(thing) or not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return parameters
    own = next((i for i, base in enumerate(thing.__mro__) if "__init__" in vars(base)), None)
    bases = [base for base in thing.__mro__[own + 1 :] if "__init__" in vars(base)] if own is not None else []
    if not bases or bases[0] in (object, nn.Module):
        return parameters
    first = {n: p for n, p in parameters.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)}
    others = {n: p for n, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    # What it needs itself before them stands for the first of the next class: for all where *args follow, else for one.
    needed = [p for p in first.values() if p.default is p.empty]
    taken = len(first) if any(p.kind is p.VAR_POSITIONAL for p in parameters.values()) else min(len(needed), 1)
    handed_on = dict(list(signature_of(bases[0]).items())[taken:])
    return {**first, **{n: p for n, p in handed_on.items() if n not in first and n not in others}, **others}


def required(parameters):
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p for p in parameters.values() if p.default is p.empty and p.kind in kinds]


def trees_of(thing):
    """Of a class and of what it derives from, or of a function: its file, the line before its first, and what it says; PyTorch's
    own left out."""
    for part in thing.__mro__ if inspect.isclass(thing) else [thing]:
        try:
            lines, first = inspect.getsourcelines(part)
            if not part.__module__.startswith("torch."):
                yield inspect.getsourcefile(part), first - 1, ast.parse(textwrap.dedent("".join(lines)))
        except (OSError, TypeError, SyntaxError):
            continue


def first_call(thing, *kinds):
    """The line where its source first calls one of these, of the first kind that there is, whether it ever comes there or not;
    empty if there is none."""
    for file, before, tree in trees_of(thing):
        calls = [(n.lineno, ast.unparse(n.func)) for n in ast.walk(tree) if isinstance(n, ast.Call)]
        for names in kinds:
            if lines := [line for line, called in calls if names.search(called)]:
                return f"{file}:{before + min(lines)}"
    return ""


def last_given(cls, method):
    """The line of the last value that a method returns or yields."""
    for file, before, tree in trees_of(cls):
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef) and function.name == method:
                given = [n.lineno for n in ast.walk(function) if isinstance(n, (ast.Return, ast.Yield, ast.YieldFrom)) and n.value]
                return f"{file}:{before + max(given)}" if given else ""
    return ""


def called_names(code):
    return set(re.findall(r"\b(?:self\.|cls\.|super\(\)\.)?(\w+)\(", code))


def constructors_of(cls):
    """Its own, and those of its bases for as long as each calls the next."""
    constructors = []
    for base in cls.__mro__:
        function = vars(base).get("__init__")
        if inspect.isfunction(function):
            constructors.append(function)
            if not re.search(r"super\([^)]*\)\.__init__\(", code_of(source_of(function))):
                break
    return constructors


def reached_from(thing):
    """The code of what making it runs, as far as names tell: constructors, their methods, functions beside them. A function's
    own, where it is one."""
    wanted, seen = constructors_of(thing) if inspect.isclass(thing) else [thing], []
    while wanted and len(seen) < 200:
        function = wanted.pop()
        if function in seen:
            continue
        seen.append(function)
        beside = getattr(inspect.unwrap(function), "__globals__", {})
        for name in called_names(code_of(source_of(function))):
            own = inspect.getattr_static(thing, name, None) if inspect.isclass(thing) else None
            other = getattr(own, "__func__", own) if own is not None else beside.get(name)
            if inspect.isfunction(other) and not other.__module__.startswith("torch."):
                wanted.append(other)
            elif inspect.isclass(other) and inspect.isfunction(vars(other).get("__init__")) and not other.__module__.startswith("torch."):
                wanted.append(vars(other)["__init__"])
    return [code_of(source_of(function)) for function in seen]

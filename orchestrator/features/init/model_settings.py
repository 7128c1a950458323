"""How to build a model whose class takes an object: by a settings class, by a factory method, or from a default.

Each way is a `Settings`: its body is the statements of a function that returns the model, in which GIVEN stands for the
arguments.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from lmsweep.orchestrator.features.init.definitions import (
    Class,
    Parameter,
    Settings,
    last_name,
    parameter_of,
    parameters_of,
)
from lmsweep.trials.code.project import text_of
from lmsweep.trials.code.source import parse

GIVEN = "{given}"
"""Where a body has the arguments; `first_model` formats it."""
_SETTINGS = ("config", "cfg", "args", "params", "hparams", "model_args", "model_config", "opt")
"""Names of a parameter that takes an object with settings."""
_TYPING = ("Any", "Dict", "List", "Literal", "None", "Optional", "Sequence", "Tuple", "Union")
"""Types of parameters that are not classes of the user."""
_FROM_FILES = ("from_pretrained", "from_file", "from_folder", "from_checkpoint", "from_json", "from_yaml", "load")
"""Prefixes of the names of functions that read a file."""


def ways_to_build(model: Class, classes: list[Class]) -> tuple[Settings, ...]:
    """Return ways to build a model that takes more than plain values; none if its files show none."""
    # What must be given; if nothing must, a single optional parameter may still be the settings.
    needed = [one for one in model.parameters if one.required] or list(model.parameters)
    takes_settings = len(needed) == 1 and needed[0].name in _SETTINGS
    if not takes_settings and not any(map(_is_object, model.parameters)):
        return ()
    settings_class = _class_of_settings(needed[0], model, classes) if takes_settings else None
    fields = _fields(settings_class) if settings_class else None
    ways: list[Settings] = []
    if settings_class and fields is not None and not any(map(_is_object, fields)):
        ways.append(_settings(fields, f"return {model.name}({settings_class.name}({GIVEN}))", model, settings_class))
    builders = [one for one in classes if "build" in one.methods and _returned(one.methods["build"]) == model.name]
    ways += _of_functions(model, settings_class, builders)
    if takes_settings and not ways:  # nothing states the settings: a default may, or what the model reads of them
        ways += filter(None, (_of_default(model), _of_what_is_read(needed[0], model, classes)))
    return tuple(ways)


def _is_object(parameter: Parameter) -> bool:
    """Whether it requires an instance of a class, whose name begins with a capital letter."""
    # Module of `nn.Module | None`, list of `list[Config]`, Optional of `Optional[Config]`.
    kind = re.split(r"[\[|, ]", parameter.annotation.strip("'\""))[0].rpartition(".")[2]
    return parameter.required and kind[:1].isupper() and kind not in _TYPING


def _settings(parameters: tuple[Parameter, ...], body: str, *named: Class) -> Settings:
    """Return a way with its imports. named: the classes that the body names. If one of them cannot be imported by a
    dotted name (`./...`), all lie in one folder."""
    references = [one.reference for one in named]
    if not any(one.startswith("./") for one in references):
        return Settings(parameters=parameters, body=body, imports=tuple(references))
    first = named[0]
    folder = first.file.parent.relative_to(first.code.folder).as_posix()  # its files import each other by their names
    inside = tuple(f"{one.file.stem}:{one.name}" for one in named)
    return Settings(parameters=parameters, body=body, imports=inside, beside=folder)


def _class_of_settings(parameter: Parameter, model: Class, classes: list[Class]) -> Class | None:
    """Return the class of the settings: without an annotation, one of the model's file that is named as settings are;
    else the class of that name in the model's file, the one that this file imports, or any."""
    wanted = parameter.annotation.rpartition(".")[2].strip("'\"")
    in_file = [one for one in classes if one.file == model.file]
    if not wanted:
        candidates = [one for one in in_file if one.name.endswith(("Config", "Args"))]
    else:
        named = [one for one in classes if one.name == wanted]
        module = _imported_from(model).get(wanted)
        imported = [one for one in named if one.reference.partition(":")[0] == module]
        candidates = [one for one in in_file if one.name == wanted] or imported or named
    if not candidates:
        return None
    nearest = candidates[0]
    # A file that no import can name is loaded from its folder, so both must lie in it.
    by_path = any(one.reference.startswith("./") for one in (model, nearest))
    return None if by_path and model.file.parent != nearest.file.parent else nearest


def _fields(settings_class: Class) -> tuple[Parameter, ...] | None:
    """Return what its constructor takes; None if that cannot be seen."""
    decorators = {last_name(one) for one in settings_class.node.decorator_list}
    if "BaseModel" in settings_class.bases or "dataclass" in decorators:
        return tuple(
            parameter_of(one.target.id, one.annotation, one.value)
            for one in settings_class.node.body
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        )
    if "__init__" in settings_class.methods:
        return (*settings_class.parameters, *_taken_from_kwargs(settings_class.methods["__init__"]))
    return None


def _of_functions(model: Class, settings_class: Class | None, builders: list[Class]) -> Iterator[Settings]:
    """Yield the ways by classmethods and staticmethods whose required parameters are plain values. Their bodies:
    `return Net.small({given})`, `return Net(Config.small({given}))` and `return Builder.small({given}).build()`.
    """
    # Whose methods may make a part of the model or all; how the result becomes the model; the classes that this names.
    owners: list[tuple[Class, str, tuple[Class, ...]]] = [(model, "{}", (model,))]
    if settings_class:
        owners.append((settings_class, f"{model.name}({{}})", (model, settings_class)))
    owners += [(one, "{}.build()", (one,)) for one in builders]
    for owner, expression, named in owners:
        for name, function in owner.methods.items():
            kinds = {last_name(one) for one in function.decorator_list}
            if not kinds & {"classmethod", "staticmethod"} or name.startswith(("_", *_FROM_FILES)):
                continue
            makes_owner = _returned(function) in (owner.name, "Self") or _calls(function) & {"cls", owner.name}
            taken = tuple(parameters_of(function, skip="classmethod" in kinds))
            # The `name` of a preset is plain, but cannot be guessed.
            is_unknown = any(_is_object(one) or one.name == "name" for one in taken if one.required)
            if makes_owner and taken and not is_unknown:
                made = expression.format(f"{owner.name}.{name}({GIVEN})")
                yield _settings(taken, f"return {made}", *named)


def _of_default(model: Class) -> Settings | None:
    """Return settings for the attributes of the model's default configuration; those that are None are required. For
    minGPT: config = GPT.get_default_config(); vars(config).update(model_type=None, {given}); return GPT(config)."""
    name = next((one for one in model.methods if one in ("get_default_config", "default_config")), None)
    if name is None:
        return None
    nodes = [one for one in ast.walk(model.methods[name]) if isinstance(one, ast.Assign)]
    given = [(last_name(one.targets[0]), one.value) for one in nodes if isinstance(one.targets[0], ast.Attribute)]
    fields = tuple(
        parameter_of(field, None, None if isinstance(value, ast.Constant) and value.value is None else value)
        for field, value in given
        if field != "model_type"
    )
    # model_type names a preset, as in minGPT. A preset and sizes exclude each other, and sizes are given.
    preset = "model_type=None, " if any(field == "model_type" for field, _ in given) else ""
    body = f"config = {model.name}.{name}()\n    vars(config).update({preset}{GIVEN})\n    return {model.name}(config)"
    return _settings(fields, body, model)


def _of_what_is_read(parameter: Parameter, model: Class, classes: list[Class]) -> Settings | None:
    """Return settings for the attributes or keys that the model and its parts read of an object of unknown class."""
    attributes: list[str] = []
    keys: list[ast.expr] = []
    for node in (node for part in _with_parts(model, classes) for node in ast.walk(part.node)):
        if isinstance(node, ast.Attribute) and last_name(node.value) == parameter.name:
            attributes.append(node.attr)
        elif isinstance(node, ast.Subscript) and last_name(node.value) == parameter.name:
            keys.append(node.slice)
    written = [str(key.value) for key in keys if isinstance(key, ast.Constant)]
    if not attributes and len(written) < len(keys):  # what the other keys are, only running it could tell
        return None
    kind, read = ("SimpleNamespace", attributes) if attributes else ("dict", written)
    if not read or not all(map(str.isidentifier, read)):
        return None
    fields = tuple(Parameter(name=name, required=True) for name in dict.fromkeys(read))
    settings = _settings(fields, f"return {model.name}({kind}({GIVEN}))", model)
    return settings if kind == "dict" else replace(settings, imports=("types:SimpleNamespace", *settings.imports))


def _with_parts(model: Class, classes: list[Class]) -> list[Class]:
    """Return the model, the classes of its file that it calls, those that they call, and so on."""
    parts, waiting = {model.name: model}, [model]
    while waiting:
        called = waiting.pop().calls
        more = [one for one in classes if one.file == model.file and one.name in called and one.name not in parts]
        parts |= {one.name: one for one in more}
        waiting += more
    return [*parts.values()]


def _returned(function: ast.FunctionDef) -> str:
    return text_of(function.returns).strip("'\"") if function.returns else ""


def _calls(function: ast.FunctionDef) -> set[str]:
    """Names that a function calls; "" for a call of an attribute."""
    called = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return {node.id if isinstance(node, ast.Name) else "" for node in called}


def _taken_from_kwargs(function: ast.FunctionDef) -> Iterator[Parameter]:
    """Names that a function looks up in its **kwargs, as configurations for transformers do."""
    kwargs = function.args.kwarg
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Attribute):
            key, place = node.args[0], node.func.value
            is_lookup = kwargs and isinstance(place, ast.Name) and place.id == kwargs.arg
            if is_lookup and node.func.attr in ("get", "pop") and isinstance(key, ast.Constant):
                default = text_of(node.args[1]) if len(node.args) > 1 else ""
                yield Parameter(name=str(key.value), required=False, default=default)


def _imported_from(model: Class) -> dict[str, str]:
    """Name -> the module that it is imported from, without relative imports."""
    tree = parse(model.file)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)] if tree else []
    return {one.name: node.module for node in nodes if node.module and not node.level for one in node.names}

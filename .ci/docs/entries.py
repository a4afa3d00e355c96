"""What the reference has: the public names, each with one entry. griffe reads the sources."""

import inspect
import re
from collections.abc import Iterator

import griffe

import icl_krr

NAMES = re.compile(r"(?<=^    )(?:\S+, )+\S+:(?= )", re.M)
ROOMS = [icl_krr, *(m for n in icl_krr.__all__ if inspect.ismodule(m := getattr(icl_krr, n)))]
PLACES = {room: room.__all__ for room in ROOMS[1:]} | {icl_krr: icl_krr.__all__}


def homes() -> dict[str, str]:
    """The entry of each public name and method: that in a room comes before that of the package."""
    paths, first = {}, {}
    for place, names in PLACES.items():
        paths[place.__name__] = place.__name__
        things = {name: getattr(place, name) for name in names}
        for name in sorted(names, key=lambda name: getattr(things[name], "__name__", name) != name):
            public, path = things[name], f"{place.__name__}.{name}"
            if inspect.ismodule(public):
                continue
            paths[path] = path if is_constant(public) else first.setdefault(public, path)
            for method in listed(public) if inspect.isclass(public) else ():
                paths[f"{path}.{method}"] = f"{paths[path]}.{method}"
    return paths


def is_constant(public: object) -> bool:
    return not (inspect.isclass(public) or inspect.isroutine(inspect.unwrap(public)))


def listed(public: type) -> list[str]:
    """The methods of a class in the reference: those that its docstring lists, or else all."""
    bases = [base for base in public.__mro__ if base.__module__.startswith("icl_krr")]
    names = dict.fromkeys(name for base in bases[::-1] for name in vars(base) if name[0] != "_")
    callables = (property, classmethod, staticmethod)
    methods = [
        name
        for name in names
        if inspect.isroutine(thing := inspect.getattr_static(public, name))
        or isinstance(thing, callables)
    ]
    _, section, text = (public.__doc__ or "").partition("Methods:\n")
    words = [line.partition(":")[0].strip() for line in text.split("\n\n")[0].split("\n")]
    return [name for name in words if name in methods] if section else methods


class Entries(griffe.Extension):
    """Makes public names members of their rooms: a function may have the name of its file."""

    def on_object(self, *, obj: griffe.Object, **_) -> None:
        if obj.docstring:  # griffe takes the second of two names as a type, unless it sees one name
            text = obj.docstring.value
            obj.docstring.value = NAMES.sub(lambda names: names[0].replace(" ", "\u00a0"), text)

    def on_package(self, *, pkg: griffe.Module, **_) -> None:
        entries = []
        for place, names in PLACES.items():
            module = pkg.modules_collection[place.__name__]
            for name in names:
                public = getattr(place, name)
                if inspect.ismodule(public):
                    continue
                if is_constant(public):
                    docstring = griffe.Docstring(
                        "A constant: the top of this page says what it is."
                    )
                    entries.append(griffe.Attribute(name, docstring=docstring, parent=module))
                    continue
                entry = pkg.modules_collection[f"{public.__module__}.{public.__qualname__}"]
                if inspect.isclass(public):
                    complete(entry, public)
                elif not entry.is_function or hasattr(public, "__signature__"):  # made by a call
                    docstring = griffe.Docstring(inspect.getdoc(public), parent=entry.parent)
                    signature = griffe.Parameters(*parameters_of(public))
                    entry = griffe.Function(
                        name, parameters=signature, docstring=docstring, parent=module
                    )
                    entries.append(entry)
                    continue
                if entry.parent is not module:
                    entries.append(griffe.Alias(name, entry, parent=module))
        for entry in entries:  # now, because it may replace the file of the same name
            entry.parent.set_member(entry.name, entry)


def complete(entry: griffe.Class, public: type) -> None:
    """Add what a class has when it runs: its signature, and docstrings that it inherits."""
    for name, method in entry.members.items():
        if not name.startswith("_") and method.is_function and method.docstring is None:
            text = inspect.getdoc(getattr(public, name))
            method.docstring = text and griffe.Docstring(text, parent=method)
    if "__dataclass_fields__" not in vars(public) or "__init__" in entry.members:
        return
    parameters = [griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)]
    for parameter in parameters_of(public):
        parameter.annotation = entry.all_members[parameter.name].annotation
        parameters.append(parameter)
    entry.set_member(
        "__init__", griffe.Function("__init__", parameters=griffe.Parameters(*parameters))
    )


def parameters_of(public: object) -> Iterator[griffe.Parameter]:
    for name, parameter in inspect.signature(public).parameters.items():
        default = None if parameter.default is parameter.empty else repr(parameter.default)
        kind = griffe.ParameterKind[parameter.kind.name.lower()]
        yield griffe.Parameter(name, kind=kind, default=default)

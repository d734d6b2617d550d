"""Every text with a form, in every model: what is refused says in words and with an example what to write, and the example is taken."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from ruamel.yaml import YAML

from trainium_cdk.client.jobs.kinds import kinds
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.catalog.eks import EksFacts
from trainium_cdk.description.catalog.models import CollectivePoint, PcsFacts
from trainium_cdk.description.outputs import EksCluster, SlurmCluster
from trainium_cdk.description.settings import Environment
from trainium_cdk.description.settings.shape import problems_of
from trainium_cdk.text import Text

MODELS: list[type[BaseModel]] = [
    Environment,
    Catalog,
    EksFacts,
    PcsFacts,
    CollectivePoint,
    SlurmCluster,
    EksCluster,
    *kinds().values(),
]


def leaves(kind: Any, path: str, metadata: tuple[Any, ...] = ()) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """(path, type, metadata) of each single value below a type."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            yield from leaves(field.annotation, f"{kind.__name__}.{name}", tuple(field.metadata))
    elif get_origin(kind) is Annotated:
        inner, *more = get_args(kind)
        yield from leaves(inner, path, (*more, *metadata))
    elif get_origin(kind) in (Union, types.UnionType, tuple, dict, Mapping):
        for one in get_args(kind):
            yield from leaves(one, path, metadata if one is str else ())
    elif get_origin(kind) is None or kind is str:
        yield path, kind, metadata


@cache
def texts() -> dict[str, list[tuple[Text, Any]]]:
    """By field: its forms, each with the type that it belongs to."""
    found: dict[str, list[tuple[Text, Any]]] = {}
    for model in everything():
        for path, kind, metadata in leaves(model, model.__name__):
            for one in metadata:
                if isinstance(one, Text):
                    found.setdefault(path, []).append((one, Annotated[(kind, *metadata)]))
    return found


@cache
def everything() -> tuple[type[BaseModel], ...]:
    """The models, and all that are in them."""
    found: dict[type[BaseModel], None] = {}

    def add(kind: Any) -> None:
        if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in found:
            found[kind] = None
            for field in kind.model_fields.values():
                add(field.annotation)
        for one in get_args(kind):
            add(one)

    for model in MODELS:
        add(model)
    return tuple(found)


def regular_expressions(model: type[BaseModel]) -> Iterator[str]:
    """The fields of a model that have a regular expression without words."""

    def has(one: Any) -> bool:
        if isinstance(one, FieldInfo):
            return any(map(has, one.metadata)) or has(one.annotation)
        if not isinstance(one, Text) and getattr(one, "pattern", None):
            return True
        return any(map(has, (*getattr(one, "__metadata__", ()), *get_args(one), *getattr(one, "metadata", ()))))

    return (f"{model.__name__}.{name}" for name, field in model.model_fields.items() if has(field))


def test_no_field_has_a_regular_expression_without_words() -> None:
    assert len(everything()) > 60
    assert {name for model in everything() for name in regular_expressions(model)} == set()
    assert len(texts()) > 90


@pytest.mark.parametrize("field", texts())
def test_what_is_refused_says_what_to_write(field: str) -> None:
    for text, kind in texts()[field]:
        adapter = TypeAdapter(kind)
        with pytest.raises(ValidationError) as caught:
            adapter.validate_python(" \n ")
        [problem] = problems_of(caught.value, Environment)
        assert problem.fix == f"write {text.fix}"
        assert text.regex not in str(caught.value)
        assert not any(mark in text.words for mark in ("^", "[", "\\", "$", "|"))
        assert adapter.validate_python(text.example) == text.example
        written = text.fix.rpartition(", for example ")[2]
        assert YAML(typ="safe").load(written) == text.example or written.startswith("#!")


def test_its_pattern_is_in_the_schema_for_editors() -> None:
    schema = Environment.model_json_schema(by_alias=True)
    assert schema["properties"]["name"]["pattern"] == "^[a-z][a-z0-9-]*[a-z0-9]$"
    assert schema["properties"]["name"]["maxLength"] == 30


def test_another_mistake_keeps_its_own_message() -> None:
    adapter = TypeAdapter(Annotated[str, Text("^[a-z]+$", "small letters", "abc", max_length=5)])
    for value, kind in ((3, "string_type"), ("abcdef", "string_too_long"), ("A", "pattern")):
        with pytest.raises(ValidationError) as caught:
            adapter.validate_python(value)
        assert [one["type"] for one in caught.value.errors()] == [kind]

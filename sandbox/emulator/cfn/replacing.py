"""Replacements: ministack decides by its own lists of top-level properties, and lacks most types. CloudFormation's schemas decide here."""

from __future__ import annotations

from ministack.services.cloudformation import provisioners, stacks

from sandbox import replacing
from sandbox.emulator.cfn.registry import Properties

_always = provisioners._REPLACING_PROPERTIES
_sometimes = provisioners._CONDITIONALLY_REPLACING_PROPERTIES
_of_ministack = provisioners._replacing_change


def _replacing_change(type_name: str, old: Properties, new: Properties) -> bool:
    return bool(replacing.changed(type_name, old, new)) or _of_ministack(type_name, old, new)


for _name, _paths in replacing.data().items():
    _top, _deep = ({p.partition(".")[0] for p in _paths if ("." in p) is deep} for deep in (False, True))
    _always[_name] = tuple(_top.union(_always.get(_name, ())))
    _sometimes[_name] = tuple(_deep.union(_sometimes.get(_name, ())))  # for change sets
provisioners._replacing_change = stacks._replacing_change = _replacing_change

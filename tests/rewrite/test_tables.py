"""The tables that rules and their tests go by have no gaps: operators of one operand, and every rule there is."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from gpucomp import ops, rewrite
from gpucomp.ops.registry import OPS
from gpucomp.rewrite import match
from gpucomp.rewrite.rule import Rule
from tests.rewrite.examples import RULES

OTHERS = {ops.Cast}  # not made by ``elementwise``: its result has another type
AFTERWARDS = {ops.Copy}  # made when a loop becomes kernels, after all rules


def of_one_operand():
    """The operators that ``elementwise(..., operands=1)`` made."""
    found = {one: inspect.getclosurevars(one.type_rule).nonlocals for one in OPS.values()}
    return {one for one, given in found.items() if given.get("operands") == 1 and "kinds" in given}


def test_every_elementwise_operator_of_one_operand_is_unary():
    assert len(of_one_operand()) > 30
    assert of_one_operand() - AFTERWARDS == set(match.UNARY) - OTHERS, "UNARY in gpucomp/rewrite/match.py lists these"


def test_every_rule_has_its_example():
    modules = [importlib.import_module(f"gpucomp.rewrite.{one.name}") for one in pkgutil.iter_modules(rewrite.__path__)]
    rules = {value.name for module in modules for value in vars(module).values() if isinstance(value, Rule)}

    assert len(rules) > 50
    missing = rules - {rule.name for rule in RULES}
    assert not missing, f"THEMES in tests/rewrite/examples.py needs the themes of these rules: {missing}"

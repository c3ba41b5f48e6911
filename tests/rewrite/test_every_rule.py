"""Every rule fires on its example and keeps what the graph computes."""

import pytest
from rewrite.examples import EXAMPLES, RULES, UNKNOWN, draw
from tolerance import assert_matches

from gpucomp.interpreter import interpret
from gpucomp.ir import verify
from gpucomp.passes import PIPELINE, run_pipeline
from gpucomp.rewrite.rule import apply_rules


def test_every_rule_has_an_example():
    assert set(EXAMPLES) == set(RULES)
    assert not UNKNOWN


def test_names_of_rules_differ():
    assert len({r.name for r in RULES}) == len(RULES)


def test_every_rule_states_its_equation():
    for rule in RULES:
        assert "->" in (rule.function.__doc__ or ""), rule.name


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_rule_fires_and_keeps_the_meaning(rule):
    example = EXAMPLES[rule]
    inputs = draw(example.graph)

    after = apply_rules(example.graph, [rule])

    assert after is not example.graph, f"{rule.name} did not fire on its example"
    verify(after)
    for found, expected in zip(interpret(after, inputs), interpret(example.graph, inputs), strict=True):
        assert_matches(found, expected, terms=example.terms)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_the_whole_pipeline_keeps_the_meaning(rule):
    example = EXAMPLES[rule]
    inputs = draw(example.graph, seed=1)

    after = run_pipeline(example.graph, PIPELINE)

    verify(after)
    for found, expected in zip(interpret(after, inputs), interpret(example.graph, inputs), strict=True):
        assert_matches(found, expected, terms=2 * example.terms)

"""Every rule fires on its example and keeps what the graph computes."""

import pytest

from gpucomp.ir import Namer, format_graph, verify
from gpucomp.ops.interpreter import interpret
from gpucomp.rewrite.pipeline import PIPELINE, run_pipeline
from gpucomp.rewrite.rule import apply_rules
from testing.tolerance import assert_matches
from tests.rewrite.examples import EXAMPLES, RULES, UNKNOWN, draw
from tests.rewrite.refusals import REFUSALS


def test_every_rule_has_an_example():
    missing = [rule.name for rule in RULES if rule not in EXAMPLES]
    assert not missing, f"tests/rewrite/examples.py needs a graph that each of these rules changes: {missing}"
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


def test_every_rule_has_a_graph_that_it_leaves_alone():
    missing = [rule.name for rule in RULES if rule.name not in REFUSALS]
    assert not missing, f"tests/rewrite/refusals.py needs a graph that each of these rules leaves alone: {missing}"
    assert set(REFUSALS) == {r.name for r in RULES}


@pytest.mark.parametrize(
    ("rule", "reason"),
    [(rule, reason) for rule in RULES for reason in REFUSALS.get(rule.name, ())],
    ids=lambda x: x if isinstance(x, str) else x.name,
)
def test_rule_leaves_alone(rule, reason):
    graph = REFUSALS[rule.name][reason]

    assert apply_rules(graph, [rule]) is graph


def test_every_rule_writes_what_is_printed_here(golden):
    sections = []
    for rule in RULES:
        namer = Namer()
        before = EXAMPLES[rule].graph
        after = apply_rules(before, [rule])
        sections.append(f"{rule.name}\n\n{format_graph(before, namer)}->\n{format_graph(after, namer)}")

    golden("\n".join(sections), "rewrite/rules.txt")

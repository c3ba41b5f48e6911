from gpucomp.refusal import Refusal


def test_a_refusal_is_false_and_prints_as_its_reason():
    found = Refusal("rows of a overlap")

    assert not found
    assert f"engine: {found}" == "engine: rows of a overlap"
    assert found == Refusal("rows of a overlap")
    assert found != Refusal("rows of b overlap")
    assert found != "rows of a overlap"

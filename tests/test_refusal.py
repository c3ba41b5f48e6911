import pytest

from gpucomp.refusal import Refusal, required


def test_a_refusal_is_false_and_prints_as_its_reason():
    found = Refusal("rows of a overlap")

    assert not found
    assert f"engine: {found}" == "engine: rows of a overlap"
    assert found == Refusal("rows of a overlap")
    assert found != Refusal("rows of b overlap")
    assert found != "rows of a overlap"


def test_what_is_required_is_given_or_its_refusal_is_raised():
    assert required(found := (1, 2)) is found
    with pytest.raises(TypeError, match=r"^rows of a overlap$"):
        required(Refusal("rows of a overlap"))
    assert required(()) == (), "an empty result is none that was refused"

"""What tests were skipped for want of is told once, with the command that installs it."""

from pathlib import Path

import pytest

from tests import wanting

pytest_plugins = "pytester"


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        ([], ""),
        (["Skipped: this is such a processor"], ""),
        (
            ["Skipped: clang is not installed", "Skipped: oclgrind is not installed", "clang is not installed"],
            "3 tests want packages that are not here: apt-get install clang oclgrind",
        ),
        (
            [
                "Skipped: clang or ld.lld is not installed",
                "Skipped: clang 18 or lld is not installed",
                "Skipped: could not import 'torch': No module named 'torch'",
                "Skipped: GPC5002 no installed clang knows gfx1100: install a newer one, for example apt-get install clang-22",
            ],
            "4 tests want packages that are not here: apt-get install clang clang-19 lld lld-19; python -m pip install torch",
        ),
        (
            ["GPC5002 no installed clang knows gfx950: install a newer one"],
            "1 tests want packages that are not here: apt-get install clang-22 lld-22",
        ),
        (
            ["Skipped: apt-get install mesa-opencl-icd"],
            "1 tests want packages that are not here: apt-get install mesa-opencl-icd",
        ),
        (
            ["Skipped: /x/bin/python -m pip install --no-deps --target f cuda-bindings==13.0.0"],
            "1 tests want packages that are not here: python -m pip install --no-deps --target f cuda-bindings==13.0.0",
        ),
    ],
)
def test_the_command_installs_what_is_wanting(reasons, expected):
    assert wanting.line(reasons) == expected


def test_a_run_ends_with_the_line(pytester):
    pytester.makeconftest(Path(wanting.__file__).with_name("conftest.py").read_text(encoding="utf-8"))
    pytester.makepyfile(
        "import pytest\n"
        "@pytest.mark.parametrize('k', range(3))\n"
        "def test_it(k):\n    pytest.skip('oclgrind is not installed' if k else 'the sky is grey')\n"
    )

    ran = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-ra")

    assert ran.outlines[-2:-1] == ["2 tests want packages that are not here: apt-get install oclgrind"]

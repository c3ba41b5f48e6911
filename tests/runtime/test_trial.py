"""What programs on the processor learn from their first runs, and when they doubt it."""

from gpucomp.runtime.trial import FIRST_REST, TRIALS, Trial


def test_what_a_program_learns_stays_small():
    trial = Trial(2)
    while not trial.over:
        trial.note(1, 1e-5)

    assert trial.runs < 1000
    assert trial.wanted == 2
    assert max(len(found) for _, found in trial.turns) <= TRIALS + 1
    assert trial.least(1) == 1e-5
    assert trial.least(2) == float("inf")


def test_what_disturbs_one_turn_does_not_decide():
    trial, turns = Trial(2), []
    while not trial.over:
        count = trial.wanted
        if not turns or turns[-1] != count:
            turns.append(count)
        seconds = 9e-4 if turns == [2] else {1: 2e-4, 2: 1e-4}[count]
        trial.note(count, seconds)

    assert turns == [2, 1, 2, 1]
    assert trial.threads == trial.wanted == 2


def decided(trial, seconds):
    while not trial.over:
        trial.note(trial.wanted, seconds[trial.wanted])
    return trial.threads


def test_one_thread_is_doubted_after_a_while_and_then_less_often():
    """Another program had the second processor in the first trial, and has it no more in the third."""
    trial, rests = Trial(2), []
    for busy in (True, True, False):
        assert decided(trial, {1: 2e-4, 2: 3e-4 if busy else 1e-4}) == (1 if busy else 2)
        rests.append(trial.left)
        while trial.left:
            assert trial.wanted == 1
            trial.doubt()
        assert trial.over is not busy

    assert rests == [FIRST_REST, 2 * FIRST_REST, 0]


def test_a_doubt_that_finds_nothing_changes_nothing():
    """All other threads are busy with other runs, so that each run of the second trial is by one thread."""
    trial = Trial(2)
    decided(trial, {1: 1e-4, 2: 2e-4})
    while trial.left:
        trial.doubt()
    while not trial.over:
        trial.note(1, 1e-4)

    assert trial.wanted == 1
    assert trial.left == 2 * FIRST_REST

"""Searches schedules by measuring them. Start at ``tuner``, the search of a model; ``study`` is the search of one kernel."""

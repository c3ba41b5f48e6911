"""Chooses the schedule of a kernel. Start reading at ``choose``.

``space.Family`` is what an engine declares, ``model`` predicts times, ``records`` reads tuning results, and
``standing`` checks that a record is still valid.
"""

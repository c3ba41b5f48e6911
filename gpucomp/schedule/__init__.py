"""Which schedule a kernel gets. Start at ``choose``; ``space.Family`` is what an engine declares, ``model`` predicts, ``records``
remembers, ``standing`` says which record is still good.
"""

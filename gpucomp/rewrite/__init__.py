"""Graph to graph. Start at ``pipeline.PIPELINE``; a new rule is a function in a theme's module, listed in its ``RULES``, with an
example in ``tests/rewrite/examples.py``.
"""

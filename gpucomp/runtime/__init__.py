"""Runs compiled models. Start at ``executable.Executable``; ``executable.PROGRAMS`` has the runtime of each kind of device."""

"""Whole models in C beside Python: the same bits at every level of a processor, and the time of a run."""

"""What targets and devices are, as plain data that every room reads."""

"""Tests of the pages: README, CONTRIBUTING and docs/."""

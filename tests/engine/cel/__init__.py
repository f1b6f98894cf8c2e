"""Tests of the language in which selectors of devices are written."""

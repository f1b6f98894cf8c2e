"""Tests of the room `overview`."""

"""Experiments that take too long for a chapter: run from the command line, they write the book's recordings."""

"""Requests and responses as field tables, in a module for each theme.

Each API stands as its response, then its request, each after the rows that it is made of. ``since`` and ``until`` are
written only where one of the request's ``versions`` lacks the field.
"""

"""Edits carried out twice: in the live process (`override`) and in the source text (`patch`).

Both ask `sites` which call an edit means, so they change the same one or refuse alike.
"""

"""Finds services: by what they offer, how well they fit, and how good they are.

Knows attributes, properties and figures of quality; no registry, log or network, and
no clock: whoever feeds it says what there is and what time it is.
"""

"""Implementations that can be checked: the protocol, the built-in ones, and anyone's."""

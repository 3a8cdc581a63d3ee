"""A module that lies beside a topology and is installed nowhere."""


def square(number: int) -> int:
    return number * number
